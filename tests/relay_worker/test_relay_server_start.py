"""The relay's store at its start, in a backup, and before it says that something is stored."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import threading
from concurrent.futures import ThreadPoolExecutor

import apsw
import httpx
import pytest
from prometheus_client import generate_latest

from relay_worker import services
from relay_worker.app import RelayApp
from relay_worker.errors import CannotServeError, RequestRefusedError
from relay_worker.metrics import Metrics
from relay_worker.services import Services
from relay_worker.settings import Settings
from relay_worker.store import blobs, database, files, operator
from tests.support.relay_server import DAY, NOW, STREAM, OpenStore, sealed
from tests.support.served_app import ServedApp

LARGE = 200_000


@pytest.fixture
def opened(tmp_path):
    with OpenStore(tmp_path / "relay") as found:
        yield found


# -- starting


@pytest.mark.slow
def test_files_without_a_row_are_swept_and_the_others_stay(opened):
    body = sealed(1, LARGE)
    opened.put(body)
    opened.store.close()
    name = "ab" + "0" * 30
    (opened.folder / "bodies" / "ab" / name).write_bytes(b"its row was never committed")
    with OpenStore(opened.folder) as again:
        assert len(again.files()) == 1
        assert again.get() == body


def test_a_second_server_on_the_same_data_is_refused(opened):
    with pytest.raises(CannotServeError, match="another crystal-relay"):
        OpenStore(opened.folder)
    opened.put(sealed(1))


def test_after_a_restart_everybody_is_told_everything_once(opened):
    opened.put(sealed(1))
    change, _ = opened.streams()
    assert opened.streams(change)[1] == []
    opened.store.close()
    with OpenStore(opened.folder, now=NOW - DAY) as again:  # its clock went back, too
        later, streams = again.streams(change)
        assert later > change
        assert len(streams) == 1
        assert again.streams(later)[1] == []
        assert len(again.streams(later + 10**9)[1]) == 1


def test_what_is_not_a_relays_database_is_refused_untouched(tmp_path):
    other = tmp_path / "relay.db"
    for content in (b"hello", b"SQLite format 3\x00" + bytes(200)):
        other.write_bytes(content)
        with pytest.raises(CannotServeError, match="not a relay's"):
            database.prepare(other)
        assert other.read_bytes() == content


def test_a_newer_schema_is_refused_untouched(opened):
    path = opened.folder / "relay.db"
    opened.store.close()
    db = apsw.Connection(str(path))
    db.execute("PRAGMA user_version = 99")
    db.close()
    before = path.read_bytes()
    with pytest.raises(CannotServeError, match="schema 99"):
        OpenStore(opened.folder)
    assert path.read_bytes() == before


def test_migrations_are_numbered_without_gaps():
    assert [number for number, _ in database.migrations()] == list(range(1, len(database.migrations()) + 1))


@pytest.mark.skipif(os.name == "nt", reason="modes are POSIX")
def test_files_are_the_owners_alone(opened):
    opened.put(sealed(1, LARGE))
    for path in [opened.folder / "relay.db", opened.folder / "serve.lock", *opened.files()]:
        assert path.stat().st_mode & 0o077 == 0, path
    assert (opened.folder / "bodies").stat().st_mode & 0o077 == 0


# -- backup


def test_a_backup_of_a_serving_relay_serves_the_same(opened, tmp_path):
    bodies = {1: sealed(1), 2: sealed(2, LARGE)}
    for seq, body in bodies.items():
        opened.put(body, seq)
    target = tmp_path / "backup"
    assert operator.back_up(opened.folder, target) == (1, 0)
    opened.put(sealed(3), 3)
    with OpenStore(target) as copy:
        assert copy.seqs() == [1, 2]
        assert all(copy.get(seq) == body for seq, body in bodies.items())
        assert copy.run(copy.store.token(opened.text[4:20])) is not None
    with pytest.raises(CannotServeError, match="exists already"):
        operator.back_up(opened.folder, target)


@pytest.mark.slow
def test_a_relay_without_its_disk_begins_anew(opened):
    opened.put(sealed(1))
    opened.store.close()
    shutil.rmtree(opened.folder)
    with OpenStore(opened.folder, now=NOW + 1) as again:
        assert again.seqs() == []
        assert again.put(sealed(1)) == "created"


# -- durable before it is said to be stored


def test_every_commit_waits_for_the_disk(opened):
    async def asked() -> tuple[int, str]:
        return await opened.store._writer.run(
            lambda batch: (batch.db.execute("PRAGMA synchronous").get, batch.db.execute("PRAGMA journal_mode").get)
        )

    assert opened.run(asked()) == (2, "wal")


def test_a_large_body_is_on_the_disk_under_its_name_before_its_row(opened, monkeypatch):
    steps: list[str] = []
    fsync, put = os.fsync, blobs.put

    def syncing(number: int) -> None:
        steps.append("folder" if stat.S_ISDIR(os.fstat(number).st_mode) else "file")
        fsync(number)

    def putting(batch, new, *place):
        assert batch.files.path(new.file).stat().st_size == LARGE
        steps.append("row")
        return put(batch, new, *place)

    monkeypatch.setattr(files.os, "fsync", syncing)
    monkeypatch.setattr(blobs, "put", putting)
    opened.put(sealed(1, LARGE))
    assert steps == ["file", "folder", "row"]


def test_a_store_that_cannot_be_written_is_not_ready_and_is_still_read(tmp_path):
    with OpenStore(tmp_path / "r") as opened:
        body = sealed(1)
        opened.put(body)

        async def full(*_: object) -> None:
            raise RequestRefusedError("disk-full", "the relay's disk is full", retry_after=300)

        clock = [NOW]
        app = RelayApp(Services(Settings(), opened.store, now=lambda: clock[0]))
        with ServedApp(app, lifespan=False) as served:
            http = httpx.Client(transport=served.transport, base_url=served.url)
            http.headers["Authorization"] = f"Bearer {opened.text}"
            assert http.get("/readyz").status_code == 200
            app.relay._probe = None
            opened.store.probe = opened.store.sweep = full
            clock[0] += DAY
            ready = http.get("/readyz")
            assert (ready.status_code, ready.json()["code"], ready.headers["Retry-After"]) == (503, "unavailable", "5")
            assert http.get("/healthz").status_code == 200
            assert http.get(f"/v1/streams/{STREAM.hex()}/blobs/1").content == body


def test_a_store_that_hangs_is_not_ready_and_is_asked_once(opened, monkeypatch):
    monkeypatch.setattr(services, "PROBE_SECONDS", 0.05)
    asked = []

    async def hang(now):
        asked.append(now)
        await asyncio.sleep(60)

    monkeypatch.setattr(opened.store, "probe", hang)
    with ServedApp(RelayApp(Services(Settings(), opened.store))) as served:
        http = httpx.Client(transport=served.transport, base_url=served.url)
        with ThreadPoolExecutor(4) as monitors:
            found = list(monitors.map(lambda _: http.get("/readyz").status_code, range(8)))
        assert found == [503] * 8
        assert len(asked) == 1, "what hangs is not asked again for every monitor"


def test_a_message_reaches_no_mailbox_that_was_opened_while_it_arrived(opened):
    relay = Services(Settings(), opened.store, random=bytes)  # every nameplate is 10
    home, claim = {"Authorization": f"Bearer {opened.text}"}, {"Authorization": f"Claim {'c' * 43}"}
    with ServedApp(RelayApp(relay)) as served:
        http = httpx.Client(transport=served.transport, base_url=served.url)
        assert http.post("/v1/pair", headers=home).json()["nameplate"] == 10
        assert http.put("/v1/pair/10/claim", headers=claim).status_code == 201

        def slowly():
            yield b"a "
            assert http.delete("/v1/pair/10", headers=home).status_code == 204
            assert http.post("/v1/pair", headers=home).json()["nameplate"] == 10
            yield b"message"

        sent = http.put("/v1/pair/10/b/hello", headers=claim, content=slowly())
        assert sent.status_code in (401, 404)  # 404: its head was read only after the mailbox was opened anew
        assert http.get("/v1/pair/10/b/hello", headers=home).status_code == 204


def test_metrics_are_those_of_the_process_alone_while_the_database_cannot_be_read(tmp_path):
    metrics = Metrics()
    with OpenStore(tmp_path / "r") as opened:
        metrics.watch(opened.store.usage, lambda: NOW)
        assert b"crystal_relay_tokens 1.0" in generate_latest(metrics.registry)
        opened.store._local = threading.local()  # connect again
        (tmp_path / "r" / "relay.db").write_bytes(b"no database" * 1000)
        with pytest.raises(RequestRefusedError, match="unavailable"):
            opened.store.usage()
        told = generate_latest(metrics.registry)
    assert b"crystal_relay_requests" in told
    assert b"crystal_relay_tokens" not in told
    with pytest.raises(RequestRefusedError, match="stopping"):
        opened.store.usage()


def test_a_database_says_whose_it_is_before_its_log_is_written_back(tmp_path):
    from relay_worker.store import database

    path = tmp_path / "relay.db"
    db = database.connect(path)  # as of a server that makes it just now, or was killed after that
    try:
        database._upgrade(db)
        assert path.read_bytes()[68:72] == database.APPLICATION_ID.to_bytes(4, "big")
        database.prepare(path)
    finally:
        db.close()
