"""What the conformance suite does not ask of the relay on Cloudflare Workers: crashes, age, its operator, its types.

``CRYSTAL_RELAY_PUTS=10000`` goes on killing until so many blobs are acknowledged.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest

from tests.e2e.programs import ENVIRON, run_to_end
from tests.relay_conformance.targets import make_blob, new_stream
from tests.relay_worker.test_relay_postgres_killed import nothing_lost
from tests.support.whole_memory import wait_until
from tests.support.workerd import SECRET, WORKER, Workerd, packages
from tests.sync.test_relay_processes import CRYSTAL, Computer

pytestmark = pytest.mark.slow

KILLS = 5
PUTS = int(ENVIRON.get("CRYSTAL_RELAY_PUTS", "50"))
LARGE = 200_000


@contextmanager
def serving(folder: Path, **variables: float) -> Iterator[Workerd]:
    """A relay with variables of the Worker."""
    relay = Workerd(folder, **variables)
    try:
        yield relay
    finally:
        relay.kill()


def rows(folder: Path, table: str, sql: str) -> list[tuple]:
    """What all databases below a folder answer that have a table."""
    found: list[tuple] = []
    for file in folder.rglob("*.sqlite"):
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as db:
            if has_table(db, table):
                found += db.execute(sql).fetchall()
    return found


def has_table(db: sqlite3.Connection, table: str) -> bool:
    return bool(db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone())


def files(relay: Workerd) -> dict[str, set[str]]:
    """The files of the bucket; those that rows name; those that wait for their deletion."""
    named = "SELECT file FROM blobs WHERE file IS NOT NULL UNION ALL SELECT file FROM objects WHERE file IS NOT NULL"
    asked = {
        "bucket": ("_mf_objects", "SELECT key FROM _mf_objects"),
        "named": ("blobs", named),
        "unnamed": ("unnamed", "SELECT file FROM unnamed"),
    }
    return {name: {str(one) for (one,) in rows(relay.folder, *sql)} for name, sql in asked.items()}


def ask(relay: Workerd, method: str, path: str, token: str, **more) -> httpx.Response:
    return httpx.request(
        method, relay.url + path, headers={"Authorization": f"Bearer {token}"}, trust_env=False, timeout=30, **more
    )


def put(relay: Workerd, token: str, stream: bytes, seq: int, size: int) -> None:
    blob = make_blob(stream, seq, size)
    assert ask(relay, "PUT", f"/v1/streams/{stream.hex()}/blobs/{seq}", token, content=blob).status_code == 201


def kill_often(relay: Workerd, kills: int, puts: int) -> Callable[[dict[bytes, dict[int, bytes]]], None]:
    """Return the harm: so many kills, and on until so many blobs are stored."""

    def harm(stored: dict[bytes, dict[int, bytes]]) -> None:
        killed = 0
        while killed < kills or sum(map(len, stored.values())) < puts:
            time.sleep(0.5 + secrets.randbelow(1000) / 1000)
            relay.kill()
            relay.start()
            killed += 1

    return harm


def test_nothing_is_lost_or_doubled_while_workerd_is_killed_and_the_bucket_fails(tmp_path):
    with serving(tmp_path, FAULTS=0.1, CRYSTAL_RELAY_RATE=0) as relay:
        acknowledged = nothing_lost([relay], relay.token("home", "home"), kill_often(relay, KILLS, PUTS), every=5)
        relay.kill()
        found = files(relay)
    assert found["unnamed"], "no upload has failed"
    assert found["named"] <= found["bucket"], "a row names a body that is not there"
    assert found["bucket"] <= found["named"] | found["unnamed"], "nobody knows of a file"
    assert not found["named"] & found["unnamed"], "what is named would be deleted"
    print(f"{acknowledged} blobs acknowledged, 0 lost, 0 doubled")


def test_what_nobody_names_is_deleted_without_being_asked(tmp_path):
    with serving(tmp_path) as relay:
        token, stream = relay.token("home", "home"), new_stream()
        for seq in (1, 2):
            put(relay, token, stream, seq, LARGE)
        assert len(files(relay)["bucket"]) == 2
        assert ask(relay, "POST", f"/v1/streams/{stream.hex()}/ack", token, json={"upto": 1}).status_code == 204
        wait_until(lambda: len(files(relay)["bucket"]) == 1, "one file to go", 20)
        wait_until(lambda: not files(relay)["unnamed"], "its row to go", 20)


def test_what_nobody_reads_expires_without_being_asked(tmp_path):
    with serving(tmp_path, CRYSTAL_RELAY_TTL_DAYS=1 / 86_400) as relay:
        token, stream = relay.token("home", "home"), new_stream()
        for seq, size in ((1, LARGE), (2, 200)):
            put(relay, token, stream, seq, size)
        expired = "SELECT 1 FROM streams WHERE expired_upto = 2 AND bytes = 0"
        wait_until(lambda: rows(relay.folder, "streams", expired), "both to expire", 20)
        wait_until(lambda: not files(relay)["bucket"], "the file to go", 20)
        wait_until(lambda: not rows(relay.folder, "blobs", "SELECT 1 FROM blobs"), "the tombstones to go", 20)
        assert ask(relay, "GET", f"/v1/streams/{stream.hex()}", token).json()["expired_upto"] == 2


def test_a_body_that_the_bucket_lost_is_told_and_can_be_sent_again(tmp_path):
    with serving(tmp_path) as relay:
        token, stream = relay.token("home", "home"), new_stream()
        blob = make_blob(stream, 1, LARGE)
        path = f"/v1/streams/{stream.hex()}/blobs/1"
        ask(relay, "PUT", path, token, content=blob)
        relay.kill()
        for file in (relay.folder / "bucket").rglob("*.sqlite"):
            with closing(sqlite3.connect(file)) as db, db:
                db.executescript("DELETE FROM _mf_objects" if has_table(db, "_mf_objects") else "")
        relay.start()
        lost = ask(relay, "GET", path, token)
        assert (lost.status_code, lost.json()["code"]) == (404, "body-lost")
        assert ask(relay, "PUT", path, token, content=blob, params={"resend": 1}).status_code == 201
        assert ask(relay, "GET", path, token).content == blob


def test_the_operator_makes_accounts_and_revokes_tokens(tmp_path):
    with serving(tmp_path, CRYSTAL_RELAY_REFUSED_RATE=0) as relay:
        for secret in ("x", "constructor", "__proto__", SECRET[:-1], SECRET.upper(), SECRET * 2):
            answer = ask(relay, "POST", "/admin/tokens", secret, json={})
            assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
        made = ask(relay, "POST", "/admin/tokens", SECRET, json={"label": "desk"}).json()
        assert ask(relay, "GET", "/v1/tokens", made["token"]).json()["tokens"][0]["label"] == "desk"
        again = ask(relay, "POST", "/admin/tokens", SECRET, json={"account": made["account"]}).json()
        assert len(ask(relay, "GET", "/v1/tokens", again["token"]).json()["tokens"]) == 2
        assert ask(relay, "DELETE", f"/admin/tokens/{made['id']}", SECRET).status_code == 204
        assert ask(relay, "GET", "/v1/tokens", made["token"]).status_code == 401
        assert ask(relay, "GET", "/v1/tokens", again["token"]).status_code == 200
        assert ask(relay, "DELETE", "/admin/tokens/0000000000000000", SECRET).status_code == 404
        for wrong in ({"account": "00000000"}, {"account": "../x"}, {"account": 7}, {"label": ""}, {"more": 1}):
            assert ask(relay, "POST", "/admin/tokens", SECRET, json=wrong).status_code == 400
        # Nothing is stored for those who guess accounts.
        assert len(rows(relay.folder, "account", "SELECT name FROM account")) == 1


def test_two_machines_pair_through_it_and_a_turn_travels(tmp_path):
    with serving(tmp_path / "relay") as relay:
        desk, lap = Computer(tmp_path / "desk", "desk"), Computer(tmp_path / "lap", "lap")
        token = relay.token("home", "home")
        desk.crystal("init", "--yes", "--role", "home", "--relay", relay.url, "--token-stdin", stdin=token)
        lap.crystal("init", "--yes")
        pairing = subprocess.Popen(
            (*CRYSTAL, "relay", "pair", "--name", "lap"), env=desk.env, stdout=subprocess.PIPE, text=True
        )
        code = pairing.stdout.readline().removeprefix("code: ")
        joined = lap.crystal("relay", "join", "--relay", relay.url, stdin=code)
        paired, _ = pairing.communicate(timeout=60)
        assert pairing.returncode == 0
        assert {line for line in joined.splitlines() if line.startswith("words:")} <= set(paired.splitlines())
        lap.session().say(words="the swallows cross the Sahara")
        lap.crystal("sync")
        lap.crystal("relay", "sync")
        desk.crystal("relay", "poll")
        assert desk.finds("swallows cross the Sahara") == ["lap"]


def test_its_types_are_strict_and_its_lock_names_no_index():
    types = packages() / "node_modules"
    tsc = (
        types / ".bin/tsc",
        "--noEmit",
        "-p",
        WORKER,
        "--typeRoots",
        types / "@cloudflare",
        "--types",
        "workers-types",
    )
    done = run_to_end(tsc, 120, WORKER, ENVIRON)
    assert done.returncode == 0, done.stdout
    lock = json.loads((WORKER / "package-lock.json").read_text())["packages"]
    assert len(lock) > 20
    assert not [name for name, one in lock.items() if "resolved" in one]
