"""Large bodies of the relay on PostgreSQL in a bucket: no row without its body, no body for ever without its row."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
from uvicorn import Config

from relay_worker.__main__ import main
from relay_worker.errors import CannotServeError, RequestRefusedError
from relay_worker.model import NewBody
from relay_worker.serving import RelayServer
from relay_worker.settings import Settings
from relay_worker.store import choice, objects
from relay_worker.store.bucket import DOWN_SECONDS, Bucket
from relay_worker.store.interface import DAY_MS
from relay_worker.store.postgres import store as postgres_store
from relay_worker.store.postgres import unnamed
from tests.relay_conformance.targets import OPEN, in_process, make_blob, new_stream, refused
from tests.support.relay_server import DAY, NOW, OpenStore, sealed
from tests.support.s3 import SECRET, S3Server, serving_s3

pytestmark = pytest.mark.slow

LARGE = 200_000


@dataclass
class Place:
    """A database and a prefix of the bucket."""

    folder: Path
    url: str
    bodies: str
    limits: dict[str, Any] = field(default_factory=dict)

    def open(self, **limits: Any) -> OpenStore:
        return OpenStore(self.folder, Settings(store=self.url, bodies=self.bodies, **limits))

    def execute(self, sql: str) -> list[Any]:
        with psycopg.connect(self.url, options="-c search_path=crystal_relay", autocommit=True) as db:
            found = db.execute(sql)
            return found.fetchall() if found.description else []

    @property
    def bucket(self) -> Bucket:
        return Bucket(self.bodies, self.execute("SELECT folder FROM bucket")[0][0])

    def named(self) -> set[str]:
        tables = ("blobs", "objects")
        return {file for table in tables for (file,) in self.execute(f"SELECT file FROM {table}") if file}

    def stored(self) -> set[str]:
        return set(self.bucket.names())

    def sweep_now(self, opened: OpenStore, now: int = NOW) -> None:
        """Sweep as if an hour had passed for the bodies that no row names."""
        opened.run(opened.store.sweep(now))
        for _ in range(2):
            self.execute("UPDATE unnamed SET due = 1")
            opened.run(opened.store.sweep_bodies(now))


@pytest.fixture
def place(tmp_path: Path, postgres: Any, s3: S3Server) -> Place:
    return Place(tmp_path / "unused", postgres.database(secrets.token_hex(8)), s3.address())


def put_object(opened: OpenStore, name: bytes, body: bytes, *, resend: bool = False) -> bool:
    new = NewBody("default", body, hashlib.sha256(body).digest(), resend, NOW)
    return bool(opened.run(opened.store.put(objects.put, new, name)))


def code_of(call: Callable[[], Any]) -> str:
    with pytest.raises(RequestRefusedError) as caught:
        call()
    return caught.value.code


# -- what lies where


def test_large_bodies_are_in_the_bucket_as_long_as_a_row_names_them(place):
    with place.open(quota_bytes=5 * LARGE) as opened:
        bodies = {seq: sealed(seq, LARGE if seq != 2 else 300) for seq in (1, 2, 3)}
        for seq, body in bodies.items():
            assert opened.put(body, seq) == "created"
        assert put_object(opened, b"o" * 16, secrets.token_bytes(LARGE))
        assert len(place.named()) == 3
        assert place.named() == place.stored()
        assert place.execute("SELECT seq FROM blobs WHERE body IS NOT NULL") == [(2,)]
        assert {seq: opened.get(seq) for seq in bodies} == bodies
        assert opened.put(bodies[1], 1) == "duplicate"
        assert opened.put(bodies[1], 1, resend=True) == "created"
        assert code_of(lambda: opened.put(sealed(4, 3 * LARGE), 4)) == "account-full"
        assert code_of(lambda: opened.put(sealed(1, LARGE), 1)) == "blob-conflict"
        assert len(place.stored()) == 7, "each of the last four uploads, too"
        place.sweep_now(opened)
        assert place.named() == place.stored()
        assert opened.get(1) == bodies[1]
        opened.ack(1)
        opened.run(opened.store.write("default", objects.delete, "default", b"o" * 16))
        place.sweep_now(opened, NOW + 31 * DAY)
        assert (place.named(), place.stored(), opened.seqs()) == (set(), set(), [])
        assert place.execute("SELECT * FROM unnamed") == []


def test_a_body_stays_for_some_seconds_after_its_row_for_who_has_just_read_it(place):
    with place.open() as opened:
        opened.put(sealed(1, LARGE))
        opened.run(opened.store.sweep_bodies(NOW))
        opened.ack(1)
        opened.run(opened.store.sweep_bodies(NOW))
        assert len(place.stored()) == 1


def test_a_missing_or_changed_body_is_said_and_may_be_sent_again(place):
    with place.open() as opened:
        bodies = {seq: sealed(seq, LARGE) for seq in (1, 2, 3)}
        for seq, body in bodies.items():
            opened.put(body, seq)
        files = dict(place.execute("SELECT seq, file FROM blobs"))
        place.bucket.remove([files[1]])
        place.bucket.save(files[2], bodies[2][:-1] + b"x")
        for seq in (1, 2):
            assert code_of(lambda seq=seq: opened.get(seq)) == "body-lost"
            assert opened.put(bodies[seq], seq, resend=True) == "created"
        assert {seq: opened.get(seq) for seq in bodies} == bodies
        place.sweep_now(opened)
        assert place.named() == place.stored()


def test_a_relay_that_was_started_without_the_bucket_says_503_and_its_acknowledgements_count(place):
    with OpenStore(place.folder, Settings(store=place.url)) as without, place.open() as opened:
        assert opened.put(sealed(1, LARGE)) == "created"
        assert code_of(without.get) == "unavailable"
        without.ack(1)
        place.sweep_now(opened)
        assert place.stored() == set()


def test_a_server_with_another_bucket_than_the_others_is_refused_also_without_bodies(place, monkeypatch):
    monkeypatch.setattr(unnamed, "MARK_SECONDS", 0.3)
    elsewhere = Place(place.folder, place.url, f"{place.bodies}-elsewhere")
    for one, other in ((place, elsewhere), (elsewhere, place)):  # between the two, all were stopped
        with one.open(), one.open(), pytest.raises(CannotServeError, match="is not the bucket of the servers that run"):
            other.open()


def test_many_servers_that_start_at_once_agree_on_the_bucket(place):
    with ThreadPoolExecutor(6) as pool:
        opened = list(pool.map(lambda _: place.open(), range(6)))
    for one in opened:
        one.store.close()


# -- crashes


class Crash(Exception):
    """The process ends at this step."""


def crashing(store: Any, at: int, *, is_done: bool) -> None:
    """End the process at its n-th step at the bucket or the database: before it, or after it was done."""
    steps = itertools.count()

    def step(call: Callable[..., Any]) -> Callable[..., Any]:
        async def stepping(*values: Any) -> Any:
            number = next(steps)
            if number == at and not is_done:
                raise Crash
            result = await call(*values)
            if number == at:
                raise Crash
            assert number < at, "nothing follows the end"
            return result

        return stepping

    store._with_bucket = step(store._with_bucket)
    for writer in store._writers:
        writer.run = step(writer.run)


@pytest.mark.parametrize("is_done", [False, True])
def test_a_crash_at_any_step_leaves_no_row_without_its_body_and_bodies_that_the_next_sweep_deletes(place, is_done):
    first, second = sealed(1, LARGE), sealed(1, LARGE)
    second = second[:-32] + first[-32:]  # another body of the same tag: only a resend replaces it

    def work(opened: OpenStore) -> None:
        opened.put(first)
        opened.put(second, resend=True)
        put_object(opened, b"o" * 16, second)
        opened.run(opened.store.write("default", objects.delete, "default", b"o" * 16))
        place.execute("UPDATE unnamed SET due = 1")
        opened.run(opened.store.sweep_bodies(NOW))

    crashes = 0
    for at in itertools.count():
        with place.open() as opened:
            crashing(opened.store, at, is_done=is_done)
            try:
                work(opened)
            except Crash:
                crashes += 1
            else:
                break
        assert place.named() <= place.stored(), "a row without its body"
        with place.open() as opened:
            opened.put(first, resend=True)
            assert opened.get() == first
            opened.ack(0)
            place.sweep_now(opened)
            assert place.named() == place.stored(), "a body without a row"
    assert crashes > 15


def test_a_server_that_stood_still_during_an_upload_cannot_name_what_another_one_has_given_up(place, monkeypatch):
    body = sealed(1, LARGE)
    with place.open() as opened, place.open() as other:
        save = Bucket.save

        def stands_still(self: Bucket, name: str, given: bytes) -> None:
            save(self, name, given)
            if given == body:
                place.sweep_now(other)
                assert place.stored() == set()

        monkeypatch.setattr(Bucket, "save", stands_still)
        assert code_of(lambda: opened.put(body)) == "unavailable"
        monkeypatch.setattr(Bucket, "save", save)
        assert opened.put(body) == "created"
        assert opened.get() == body
        place.sweep_now(opened)
        assert place.named() == place.stored()


def test_at_the_start_and_daily_a_sweep_deletes_what_the_database_does_not_know(place):
    with place.open() as opened:
        opened.put(sealed(1, LARGE))
        for now in (NOW, NOW + DAY_MS):
            place.bucket.save("0" * 32, b"of a row that is younger than a restored backup")
            place.sweep_now(opened, now)
            assert place.stored() == place.named()
            assert len(place.named()) == 1


def test_no_request_waits_for_a_slow_bucket_but_the_servers_own_sweep_does(place, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(Bucket, "names", lambda *_: asked.append("names") or ["0" * 32])
    monkeypatch.setattr(Bucket, "remove", lambda *_: asked.append("remove"))
    with in_process(tmp_path, ticking=False, **OPEN, store=place.url, bodies=place.bodies) as relay:
        asked.clear()  # what it asked at its start
        stream = new_stream()
        for seq in (1, 2):
            place.execute("INSERT INTO unnamed (file, due) VALUES ('x', 1) ON CONFLICT DO NOTHING")
            relay.clock[0] += DAY_MS
            assert relay.put(stream, seq).status_code == 201
        assert asked == []

        async def serving() -> None:
            server = RelayServer(Config(lambda: None), relay.served.app.relay, None)
            with suppress(TimeoutError, asyncio.TimeoutError):
                await asyncio.wait_for(server._sweep(), 1)

        asyncio.run(serving())
        assert asked == ["names", "remove"]


# -- what cannot be reached, or refuses


def test_clients_hear_503_for_large_bodies_while_the_bucket_is_down_and_nothing_is_lost(
    tmp_path, postgres, monkeypatch
):
    with serving_s3() as server:
        for name, value in server.environ.items():
            monkeypatch.setenv(name, value)
        url = postgres.database(secrets.token_hex(8))
        with in_process(tmp_path, **OPEN, store=url, bodies=server.address()) as relay:
            stream = new_stream()
            large = make_blob(stream, 1, LARGE)
            assert relay.put(stream, 1, large).status_code == 201
            server.kill()
            refused(relay.put(stream, 2, make_blob(stream, 2, LARGE)), 503, "unavailable")
            refused(relay.get(stream, 1), 503, "unavailable")
            assert relay.ask("GET", "/readyz", token=None).status_code == 503
            assert relay.put(stream, 3).status_code == 201, "a small one does not need it"
            server.start()
            time.sleep(DOWN_SECONDS)  # so long the server asks no bucket that did not answer
            assert relay.put(stream, 2, make_blob(stream, 2, LARGE)).status_code == 201
            assert relay.get(stream, 1).content == large
            assert relay.ask("GET", "/readyz", token=None).status_code == 200


@pytest.mark.parametrize(
    ("changed", "code", "words"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "swordfish"}, 5, "refuses the relay: SignatureDoesNotMatch"),
        ({"AWS_ACCESS_KEY_ID": "nobody"}, 5, "refuses the relay: InvalidAccessKeyId"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, 4, "cannot be reached"),
        ({"AWS_ENDPOINT_URL": "nonsense"}, 2, "AWS_ENDPOINT_URL is 'nonsense'"),
        ({"CRYSTAL_RELAY_BODIES": "s3://x"}, 2, "write s3://bucket/prefix"),
        ({"CRYSTAL_RELAY_BODIES": "/folder"}, 2, "CRYSTAL_RELAY_BODIES is '/folder'"),
        ({"CRYSTAL_RELAY_BODIES": ""}, 2, "has bodies in a bucket"),
        ({"CRYSTAL_RELAY_BODIES": "s3://relay/elsewhere"}, 1, "has none of the bodies"),
        ({"CRYSTAL_RELAY_STORE": ""}, 2, "is for a relay with PostgreSQL"),
    ],
)
def test_a_bucket_that_cannot_be_used_is_refused_at_the_start(place, changed, code, words, capsys, monkeypatch):
    with place.open() as opened:
        opened.put(sealed(1, LARGE))
    monkeypatch.setattr("relay_worker.log.configure", lambda _: None)  # it would outlive this test
    monkeypatch.setattr(postgres_store, "START_SECONDS", 0)
    given = {"CRYSTAL_RELAY_STORE": place.url, "CRYSTAL_RELAY_BODIES": place.bodies, **changed}
    for name, value in {**given, "CRYSTAL_RELAY_METRICS_LISTEN": "off"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as caught:
        main(["serve", "--listen", "127.0.0.1:0"])
    said = "".join(capsys.readouterr())
    assert (caught.value.code, words in said, "hint: " in said) == (code, True, True), said
    assert not {"swordfish", SECRET} & set(said.replace(":", " ").split())


def test_a_bucket_without_the_library_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "relay_worker.store.bucket", None)
    with pytest.raises(CannotServeError, match="needs") as caught:
        choice.check(Settings(store="postgresql://x/y", bodies="s3://relay"))
    assert (caught.value.exit_code, "pip install 'obstore'" in caught.value.hint) == (3, True)
