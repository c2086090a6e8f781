"""Several servers on one PostgreSQL: each knows at once what the others were told."""

from __future__ import annotations

import contextlib
import json
import secrets
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from unittest.mock import patch

import psycopg
import pytest
from prometheus_client import generate_latest

from relay_worker.__main__ import main
from relay_worker.errors import CannotServeError
from relay_worker.settings import Settings, without_password
from relay_worker.store import accounts, choice, database
from relay_worker.store.postgres import connecting, store
from tests.relay_conformance.targets import OPEN, Target, as_process, in_process, make_blob, new_stream, refused
from tests.support.postgres import Postgres
from tests.support.table import each_row

pytestmark = pytest.mark.slow


@pytest.fixture
def url(postgres: Postgres) -> str:
    return postgres.database(secrets.token_hex(8))


@contextlib.contextmanager
def nodes(folder, url: str, **limits) -> Iterator[tuple[Target, Target]]:
    chosen = {**OPEN, "store": url, **limits}
    with in_process(folder, **chosen) as one, in_process(folder, **chosen) as other:
        yield one, other


@pytest.fixture
def pair(tmp_path, url):
    with nodes(tmp_path, url) as both:
        yield both


def soon(claim, seconds: float = 30) -> float:
    """Wait until a claim holds; the seconds that it took."""
    began = time.monotonic()
    while not claim():
        assert time.monotonic() - began < seconds, "it never held"
        time.sleep(0.002)
    return time.monotonic() - began


# -- what servers tell each other


def test_a_long_poll_at_one_server_ends_with_a_blob_at_the_other(pair):
    one, other = pair
    stream = new_stream()
    change = other.ask("GET", "/v1/streams").json()["change"]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(other.ask, "GET", "/v1/streams", changed_after=change, wait=20)
        soon(lambda: other.served.app.relay.signals.count == 1)
        assert one.put(stream, 1).status_code == 201
        assert [found["stream"] for found in waiting.result(15).json()["streams"]] == [stream.hex()]
    assert other.get(stream, 1).status_code == 200


def test_the_first_message_after_its_connection_was_cut_is_heard(pair, url):
    """As after a restart of the database: nobody waits two minutes because of it."""
    one, other = pair
    heard: list[str] = []
    other.served.app.relay.signals.notify = heard.append
    said = "FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'SELECT pg_notify%'"
    assert one.put(new_stream(), 1).status_code == 201
    soon(lambda: heard)
    with psycopg.connect(url, autocommit=True) as db:
        soon(lambda: db.execute(f"SELECT count(pg_terminate_backend(pid)) {said}").fetchone() == (1,))
        soon(lambda: db.execute(f"SELECT count(*) {said}").fetchone() == (0,))
    heard.clear()
    assert one.put(new_stream(), 1).status_code == 201
    soon(lambda: heard)


def test_odd_messages_do_not_stop_a_server_from_hearing(pair, url):
    odd = [
        "", "x", "1", "{}", "[]", "[1]", '["x"]', '["x", []]', '["x", {}]', "[[], []]", '["x", null]', '[1, "all"]',
        '["x", "odd"]', '["x", "wake"]', '["x", "wake", []]', '["x", "wake", 1, 2]', '["x", "rate"]',
        '["x", "rate", []]', '["x", "rate", "token"]', '["x", "rate", "token", 1]', '["x", "rate", "token", [1]]',
        '["x", "rate", "token", [["a"]]]', '["x", "rate", "token", [["a", "b"]]]', '["x", "rate", "token", [[[], 1]]]',
        f'["x", "rate", "token", [["a", 1{"0" * 400}]]]', "[" * 7_000 + "]" * 900,
    ]  # fmt: skip
    heard: tuple[list[str], list[str]] = ([], [])
    for asked, found in zip(pair, heard, strict=True):
        asked.served.app.relay.signals.notify = found.append
    with psycopg.connect(url, autocommit=True) as db:
        for key in ("before anything was asked", "after that"):  # acted on by the listening thread, then by the loop
            for payload in (*odd, json.dumps(["x", "wake", key])):
                db.execute("SELECT pg_notify('crystal_relay', %s)", [payload])
            soon(lambda key=key: key in heard[0] and key in heard[1])
            assert [asked.ask("GET", "/v1/streams").status_code for asked in pair] == [200, 200]
    assert heard[0] == heard[1] == ["before anything was asked", "after that"]


def test_a_token_made_at_one_server_holds_at_the_other_and_is_revoked_at_both(pair):
    one, other = pair
    stream = new_stream()
    token = one.make_token(f"read:{stream[:8].hex()}")
    path = f"/v1/streams/{stream.hex()}"
    assert other.ask("GET", path, token=token).status_code == 200
    assert one.ask("DELETE", f"/v1/tokens/{token[4:20]}").status_code == 204
    refused(one.ask("GET", path, token=token), 401, "unauthenticated")
    assert soon(lambda: other.ask("GET", path, token=token).status_code == 401, 2) < 2


def test_the_operators_revocation_reaches_a_server_that_knows_the_token(pair, url, capsys):
    one, _ = pair
    token = one.make_token("objects:read")
    assert one.ask("GET", "/v1/objects", token=token).status_code == 200
    main(["token", "revoke", "--store", url, token[4:20]])
    soon(lambda: one.ask("GET", "/v1/objects", token=token).status_code == 401, 2)
    assert "revoked" in capsys.readouterr().err


def test_a_token_is_read_again_if_one_was_revoked_at_any_moment_of_its_reading(pair, monkeypatch):
    one, _ = pair
    relay, asked = one.served.app.relay.store, []
    read = relay.read

    def noted(question, *values):
        asked.append(question)
        return read(question, *values)

    def at_once() -> float:  # messages come in another thread
        relay._hear(["", "token"])
        return time.monotonic()

    monkeypatch.setattr(relay, "read", noted)
    monkeypatch.setattr(store, "time", SimpleNamespace(**{**vars(time), "monotonic": at_once}))
    for _ in range(2):
        assert one.ask("GET", "/v1/objects").status_code == 200
    assert asked.count(accounts.find) == 2


def test_machines_that_wait_cost_the_database_one_question_a_minute_for_all(pair, monkeypatch):
    one, _ = pair
    relay, asked, now = one.served.app.relay, [], time.monotonic()
    tokens = [one.make_token("home") for _ in range(3)]
    read = relay.store.read

    def noted(question, *values):
        asked.append(question)
        return read(question, *values)

    def use_all() -> set[int]:
        return {one.ask("GET", "/v1/objects", token=token).status_code for token in tokens}

    monkeypatch.setattr(relay.store, "read", noted)
    monkeypatch.setattr(store, "time", SimpleNamespace(**{**vars(time), "monotonic": lambda: now}))
    for _ in range(3):
        assert use_all() == {200}
        now += store.TOKEN_SECONDS - 20
        one.served.call(relay.sweep())
    assert asked.count(accounts.find) == len(tokens)
    now += store.TOKEN_SECONDS
    assert use_all() == {200}
    assert asked.count(accounts.find) == 2 * len(tokens), "what no sweep renewed is asked for again"


def test_two_machines_pair_through_different_servers(pair):
    one, other = pair
    nameplate = one.ask("POST", "/v1/pair", body={}).json()["nameplate"]
    claim = {"Authorization": "Claim " + "c" * 43}
    assert other.ask("PUT", f"/v1/pair/{nameplate}/claim", token=None, headers=claim).status_code == 201
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(other.ask, "GET", f"/v1/pair/{nameplate}/a/first", token=None, headers=claim, wait=20)
        soon(lambda: other.served.app.relay.signals.count == 1)
        assert one.ask("PUT", f"/v1/pair/{nameplate}/a/first", content=b"hello").status_code == 201
        assert waiting.result().content == b"hello"


def test_a_client_that_asks_all_servers_keeps_to_one_rate(tmp_path, url):
    """Bursts add up for some tenths of a second; what was taken anywhere counts everywhere after that."""
    with nodes(tmp_path, url, rate=10.0) as (one, other):
        token = one.make_token("objects:read")
        while one.ask("GET", "/v1/objects", token=token).status_code == 200:
            pass

        def is_known() -> bool:
            one.ask("GET", "/v1/objects")  # requests carry the news
            return other.served.app.relay.by_token._filled.get(token[4:20], (50,))[0] < 5

        soon(is_known)
        answers = [other.ask("GET", "/v1/objects", token=token).status_code for _ in range(20)]
        assert 429 in answers


# -- starting, and what cannot be used


WRONG = "import time; right = time.time_ns; time.time_ns = lambda: right() + {} * 86_400 * 10**9; "
SERVE = "from relay_worker.__main__ import main; main(['serve'])"


@pytest.mark.parametrize("days", [-40, 40])
def test_a_server_with_a_wrong_clock_expires_nothing_and_lets_nothing_expire(tmp_path, url, days):
    stream, claim = new_stream(), {"Authorization": f"Claim {secrets.token_urlsafe(32)}"}
    with contextlib.ExitStack() as running:
        for seq, name in enumerate(("one", "wrong", "two"), 1):
            (folder := tmp_path / name).mkdir()
            code = WRONG.format(days) + SERVE if name == "wrong" else ""
            node = running.enter_context(as_process(folder, store=url, code=code))
            soon(lambda node=node: node.ask("GET", "/readyz", token=None).status_code == 200)
            assert node.put(stream, seq).status_code == 201
            assert node.seqs(stream) == [*range(1, seq + 1)]
            if seq == 2:
                nameplate = node.ask("POST", "/v1/pair").json()["nameplate"]
        assert node.ask("PUT", f"/v1/pair/{nameplate}/claim", token=None, headers=claim).status_code == 201
    assert '"event":"the clock is wrong"' in (tmp_path / "wrong/server.log").read_text()


def test_ten_servers_start_at_once_on_an_empty_database(url):
    ready = threading.Barrier(10)

    def start(_):
        ready.wait()
        with contextlib.closing(choice.open_store(Settings(store=url), now=1)) as store:
            return store.usage().blobs

    with ThreadPoolExecutor(10) as pool:
        assert list(pool.map(start, range(10))) == [0] * 10
    with psycopg.connect(url) as db:
        versions = [number for (number,) in db.execute("SELECT version FROM crystal_relay.schema_version ORDER BY 1")]
    assert versions == [number for number, _ in database.migrations()]


def test_a_newer_schema_and_a_database_without_a_relay_are_refused(url):
    with pytest.raises(CannotServeError, match="no relay") as caught, choice.transaction(Settings(store=url)):
        pass
    assert caught.value.exit_code == 3
    choice.open_store(Settings(store=url), now=1).close()
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("INSERT INTO crystal_relay.schema_version VALUES (99)")
        with pytest.raises(CannotServeError, match="schema 99"):
            choice.open_store(Settings(store=url), now=1)
        known = db.execute("SELECT count(*) FROM crystal_relay.schema_version WHERE version < 99").fetchone()
        assert known == (len(database.migrations()),)


def test_a_wrong_password_is_said_once_and_nowhere_shown(postgres, url, capsys, monkeypatch):
    with psycopg.connect(url, autocommit=True) as db, contextlib.suppress(psycopg.errors.DuplicateObject):
        db.execute("CREATE ROLE secret LOGIN PASSWORD 'right'")
    monkeypatch.setenv("CRYSTAL_RELAY_STORE", url.replace("crystal@", "secret:swordfish@"))
    monkeypatch.setattr("relay_worker.log.configure", lambda _: None)  # it would outlive this test
    monkeypatch.setattr(choice, "COMMAND_SECONDS", 60)
    for command in (["serve", "--metrics-listen", "off"], ["token", "list"], ["check"]):
        began = time.monotonic()
        with pytest.raises(SystemExit) as caught:
            main(command)
        said = "".join(capsys.readouterr())
        assert (caught.value.code, "refuses the relay" in said) == (5, True), said
        assert "swordfish" not in said
        assert time.monotonic() - began < 30


@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        ("postgresql://me:swordfish@/x", 2, "holds a password"),
        ("postgresql://me@/x?password=swordfish", 2, "holds a password"),
        ("mysql://me@/x", 2, "not an address of PostgreSQL"),
        ("postgresql://me@/x?nonsense=1", 2, "not an address of PostgreSQL"),
        ("postgresql://me@host:port/x", 2, "not an address of PostgreSQL"),
        ("postgresql://me@/x?host=/nowhere", 4, "cannot be reached"),
    ],
)
def test_an_address_that_cannot_be_used_names_the_next_step(given, code, words, capsys, monkeypatch):
    monkeypatch.setattr(choice, "COMMAND_SECONDS", 0)
    with pytest.raises(SystemExit) as caught:
        main(["token", "list", "--store", given])
    said = capsys.readouterr().err
    assert (caught.value.code, words in said, "hint:" in said) == (code, True, True), said
    assert "swordfish" not in said


def test_an_address_is_shown_without_its_password():
    for url, shown in (
        ("postgresql://me:a%40b@host:5432/x?password=c", "postgresql://me@host:5432/x"),
        ("postgresql:///x", "postgresql:///x"),
        ("", ""),
    ):
        assert without_password(url) == shown


def test_clients_hear_503_while_the_database_is_down_and_nothing_is_lost(tmp_path):
    from tests.support.postgres import running

    with running() as server, nodes(tmp_path, server.database("relay")) as (one, other):
        stream = new_stream()
        assert one.put(stream, 1).status_code == 201
        server.kill()
        for target, request in ((one, lambda t: t.put(stream, 2)), (other, lambda t: t.ask("GET", "/v1/streams"))):
            refused(request(target), 503, "unavailable")
            assert target.ask("GET", "/healthz", token=None).status_code == 200
            assert target.ask("GET", "/readyz", token=None).status_code == 503
        metrics = one.served.app.relay.metrics
        metrics.watch(one.served.app.relay.store.usage, lambda: 1)
        assert b"crystal_relay_requests_total" in generate_latest(metrics.registry)
        assert b"crystal_relay_blobs " not in generate_latest(metrics.registry)
        server.start()
        soon(lambda: one.put(stream, 2).status_code in (200, 201))
        soon(lambda: other.ask("GET", "/v1/streams").status_code == 200)
        assert other.seqs(stream) == [1, 2]
        assert b"crystal_relay_blobs 2.0" in generate_latest(metrics.registry)
        test_a_long_poll_at_one_server_ends_with_a_blob_at_the_other((one, other))


def test_a_server_with_fewer_connections_than_it_wants_answers_everybody(tmp_path, url, postgres, monkeypatch):
    warned = []
    monkeypatch.setattr(connecting.LOG, "warning", lambda told, **_: warned.append(told))
    name = url.partition("@/")[2].partition("?")[0]
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(f'CREATE ROLE "{name}" LOGIN CONNECTION LIMIT 3; GRANT CREATE ON DATABASE "{name}" TO "{name}"')
    with in_process(tmp_path, **OPEN, store=postgres.url(name, name)) as relay, ThreadPoolExecutor(24) as clients:
        stream = new_stream()
        asked = [
            clients.submit(ask, seq) for seq in range(1, 25) for ask in (
                lambda seq: relay.put(stream, seq), lambda _: relay.state(stream) and relay.ask("GET", "/v1/objects"),
                lambda seq: relay.put(stream, 100 + seq, make_blob(stream, 100 + seq, 200_000)),
            )
        ]  # fmt: skip
        assert {one.result().status_code for one in asked} == {200, 201}
    assert warned[0] == "the database gives no more connections"


@each_row(
    ("kind", "values"),
    [
        ("BIGINT", [0, -1, 2**63 - 1, -(2**63)]),
        ("BIGINT", [None, 7, None]),
        ("BYTEA", [b"", b"\0x", None, bytes(range(256)) * 20]),
        ("TEXT", ["", "a'\\{}", "é\U0001f41f", None]),
        ("TEXT", [None, None]),
        ("TEXT", []),
    ],
)
def test_lists_reach_the_database_as_they_are(url, kind, values):
    with contextlib.closing(connecting.connect(url, "public")) as db:
        rows = connecting.PostgresRows(db)
        assert rows.one(f"SELECT CAST(? AS {kind}[])", values) == (values,)
        assert rows.all(f"SELECT * FROM unnest(CAST(? AS {kind}[]))", values) == [(one,) for one in values]


def test_migrations_have_the_types_of_postgresql():
    sql = connecting.in_postgres("CREATE TABLE a (id INTEGER PRIMARY KEY, b BLOB, c TEXT, d INTEGER) WITHOUT ROWID")
    assert sql == (
        'CREATE TABLE a (id BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, b BYTEA, c TEXT COLLATE "C", d BIGINT) '
    )


@each_row(
    ("reason", "code"),
    [
        ("FATAL:  the database system is not yet accepting connections", 4),
        ("FATAL:  the database system is not accepting connections", 4),
        ("FATAL:  the database system is starting up", 4),
        ('FATAL:  database "relay" is not currently accepting connections', 5),
        ('FATAL:  password authentication failed for user "crystal"', 5),
    ],
)
def test_a_database_that_is_not_ready_is_waited_for_and_one_that_refuses_is_not(reason: str, code: int) -> None:
    failed = psycopg.OperationalError(f"connection to server failed: {reason}")
    with (
        patch.object(connecting.psycopg, "connect", side_effect=failed),
        pytest.raises(CannotServeError) as stopped,
    ):
        connecting.connect("postgresql://crystal@/relay")
    assert stopped.value.exit_code == code, reason
