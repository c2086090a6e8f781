"""Two servers, four writers and a reader, while a server, the database or the bucket's server is killed again and again."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import psycopg
import pytest

from relay_worker.settings import Settings
from tests.relay_conformance.targets import add_account, make_blob
from tests.relay_worker.test_relay_bucket import Place
from tests.support.postgres import running
from tests.support.s3 import serving_s3
from tests.support.whole_memory import wait_until

pytestmark = pytest.mark.slow

KILLS, SECONDS = 50, float(os.environ.get("CRYSTAL_KILL_SECONDS", "15"))
ROOT = Path(__file__).resolve().parents[2]
Stored: TypeAlias = "dict[bytes, dict[int, bytes]]"


class Node:
    """A server as a process of its own."""

    def __init__(self, url: str, log: Path, environ: Mapping[str, str]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url, self._log, self._environ = url, log, environ
        self.start()

    def start(self) -> None:
        env = {"CRYSTAL_RELAY_STORE": self.url, "CRYSTAL_RELAY_METRICS_LISTEN": "off", "CRYSTAL_RELAY_RATE": "0"}
        env |= self._environ
        command = [sys.executable, "-m", "relay_worker", "serve", "--listen", f"127.0.0.1:{self.port}"]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(command, env=env, cwd=ROOT, stdout=log, stderr=log)

    def wait(self) -> None:
        for _ in range(600):
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            time.sleep(0.05)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)


class Client:
    """Asks one server after the other until one answers, as long as the test goes on."""

    def __init__(self, nodes: list[Node], token: str, ends: threading.Event) -> None:
        self._nodes, self._ends = nodes, ends
        self.http = httpx.Client(trust_env=False, timeout=30, headers={"Authorization": f"Bearer {token}"})

    def ask(self, method: str, path: str, **more) -> httpx.Response | None:
        gives_up_at = time.monotonic() + 300
        while not self._ends.is_set():
            assert time.monotonic() < gives_up_at, "no server answers any more"
            for node in self._nodes:
                with contextlib.suppress(httpx.TransportError):
                    answer = self.http.request(method, f"http://127.0.0.1:{node.port}{path}", **more)
                    if answer.status_code != 503:
                        return answer
            time.sleep(0.02)
        return None


def write(client: Client, stream: bytes, stored: dict[int, bytes], faults: list[str], every: int) -> None:
    """Store blob after blob, each so many-th a large one; ``stored`` has those that were acknowledged."""
    seq = 1
    while True:
        blob = make_blob(stream, seq, 400 if seq % every else 300_000)
        answer = client.ask("PUT", f"/v1/streams/{stream.hex()}/blobs/{seq}", content=blob)
        if answer is None:
            return
        if answer.status_code not in (200, 201):
            faults.append(answer.text)
            return
        stored[seq] = blob
        seq += 1


def read(client: Client, streams: list[bytes], taken: dict[bytes, list[tuple[int, bytes]]]) -> None:
    """Fetch and acknowledge what is there, in order, as home does."""
    while True:
        for stream in streams:
            path = f"/v1/streams/{stream.hex()}"
            after = taken[stream][-1][0] if taken[stream] else 0
            listed = client.ask("GET", f"{path}/blobs?after={after}")
            if listed is None:
                return
            for one in listed.json()["blobs"]:
                body = client.ask("GET", f"{path}/blobs/{one['seq']}")
                if body is None:
                    return
                taken[stream].append((one["seq"], body.content))
            if taken[stream] and client.ask("POST", f"{path}/ack", json={"upto": taken[stream][-1][0]}) is None:
                return


def held_of(client: Client, stream: bytes) -> dict[int, bytes]:
    """What a stream still holds."""
    path, held, after = f"/v1/streams/{stream.hex()}", {}, 0
    while blobs := client.ask("GET", f"{path}/blobs?limit=1000&after={after}").json()["blobs"]:
        for one in blobs:
            held[one["seq"]] = client.ask("GET", f"{path}/blobs/{one['seq']}").content
        after = blobs[-1]["seq"]
    state = client.ask("GET", path).json()
    assert (state["count"], state["bytes"]) == (len(held), sum(map(len, held.values())))
    return held


def acknowledged_through(
    url: str, folder: Path, harm: Callable[[list[Node], Stored], None], environ: Mapping[str, str] | None = None
) -> int:
    """Let two servers work during the harm; nothing is lost of so many blobs. With a bucket, each third is large."""
    token = add_account(Settings(store=url), "one")
    nodes = [Node(url, folder / f"{name}.log", environ or {}) for name in "ab"]
    try:
        return nothing_lost(nodes, token, lambda stored: harm(nodes, stored), every=3 if environ else 50)
    finally:
        for node in nodes:
            node.kill()


def nothing_lost(nodes: Sequence[Any], token: str, harm: Callable[[Stored], None], every: int = 50) -> int:
    """Let four writers and a reader work at servers during the harm; nothing is lost of so many blobs.

    The harm is told what is stored by now: by stream and seq.
    """
    ends, faults = threading.Event(), []
    streams = [secrets.token_bytes(16) for _ in range(4)]
    stored, taken = {stream: {} for stream in streams}, {stream: [] for stream in streams}
    clients = [Client(nodes[:: -1 if n % 2 else 1], token, ends) for n in range(5)]
    threads = [threading.Thread(target=read, args=(clients[4], streams, taken))]
    for client, one in zip(clients, streams, strict=False):
        threads.append(threading.Thread(target=write, args=(client, one, stored[one], faults, every)))
    try:
        for thread in threads:
            thread.start()
        harm(stored)
        ends.set()
        for thread in threads:
            thread.join(60)
        clients.append(Client(nodes, token, threading.Event()))
        held = {stream: held_of(clients[-1], stream) for stream in streams}
    finally:
        ends.set()
        for client in clients:
            client.http.close()
    assert not faults, faults
    for stream in streams:
        seqs = [seq for seq, _ in taken[stream]]
        assert seqs == sorted(set(seqs)), "read twice, or out of order"
        found = {**held[stream], **dict(taken[stream])}
        assert {seq: found.get(seq) for seq in stored[stream]} == stored[stream], "lost"
        assert set(found) <= {*stored[stream], max(stored[stream], default=0) + 1}, "more than was written"
    return sum(map(len, stored.values()))


def killing(
    kinds: Sequence[Callable[[list[Node], int], None]], kills: list[int], least: int
) -> Callable[[list[Node], Stored], None]:
    """Kill one of each kind in turn, at least so often: until it was often enough or the time is over.

    Before each kill something was stored since the last one, however slow the machine is.
    """

    def harm(nodes: list[Node], stored: Stored) -> None:
        ends_at = time.monotonic() + SECONDS
        while kills[0] < KILLS and (kills[0] < least or time.monotonic() < ends_at):
            time.sleep(0.15 + secrets.randbelow(300) / 1000)
            wait_until(lambda: sum(map(len, stored.values())) > kills[0], "a blob since the last kill")
            kinds[kills[0] % len(kinds)](nodes, kills[0] // len(kinds))
            kills[0] += 1

    return harm


def restart_node(nodes: list[Node], turn: int) -> None:
    """Restart one of two while the other one serves, however long that takes to start."""
    node, other = nodes[turn % 2], nodes[(turn + 1) % 2]
    other.wait()
    node.kill()
    node.start()


def restart(server: Any) -> Callable[[list[Node], int], None]:
    def again(*_: Any) -> None:
        server.kill()
        time.sleep(0.05)
        server.start()

    return again


def test_nothing_is_lost_or_doubled_while_servers_and_the_database_are_killed(tmp_path):
    kills = [0]
    with running() as database:
        harm = killing([restart_node, restart(database)], kills, least=12)
        acknowledged = acknowledged_through(database.database("relay"), tmp_path, harm)
    assert acknowledged >= kills[0]
    print(f"{kills[0]} kills, {acknowledged} blobs acknowledged, 0 lost, 0 doubled")


def test_nothing_is_lost_or_doubled_while_the_server_of_the_bucket_is_killed_too(tmp_path, monkeypatch):
    kills = [0]
    with running() as database, serving_s3() as s3:
        place = Place(tmp_path / "unused", database.database("relay"), s3.address())
        for name, value in s3.environ.items():
            monkeypatch.setenv(name, value)
        harm = killing([restart_node, restart(database), restart_node, restart(s3)], kills, least=8)
        environ = {**s3.environ, "CRYSTAL_RELAY_BODIES": place.bodies}
        acknowledged = acknowledged_through(place.url, tmp_path, harm, environ)
        named, stored = place.named(), place.stored()
        assert named <= stored, "a row without its body"
        with place.open() as opened:
            place.sweep_now(opened)
        assert place.named() == place.stored(), "a body without a row"
    assert acknowledged >= kills[0]
    swept = len(stored - named)
    print(f"{kills[0]} kills, {acknowledged} blobs acknowledged, 0 lost, 0 doubled, {len(named)} bodies, {swept} swept")


def test_a_fail_over_to_a_synchronous_standby_loses_nothing_acknowledged(tmp_path):
    with running() as primary:
        url = primary.database("relay")
        with running(of=primary) as standby:
            with psycopg.connect(url, autocommit=True) as db:
                db.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
                db.execute("SELECT pg_reload_conf()")
                standing_by = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
                while db.execute(standing_by).fetchone() != (1,):
                    time.sleep(0.05)

            stored_blobs = "SELECT coalesce(sum(head), 0) FROM crystal_relay.streams"

            def harm(_: list[Node], __: Stored) -> None:
                with psycopg.connect(url, autocommit=True) as db:  # a busy machine takes longer
                    while db.execute(stored_blobs).fetchone()[0] <= 40:
                        time.sleep(0.1)
                primary.kill()
                time.sleep(0.3)
                standby.promote()
                with psycopg.connect(standby.url("relay"), autocommit=True) as db:
                    promoted_with = db.execute(stored_blobs).fetchone()[0]
                    wait_until(lambda: db.execute(stored_blobs).fetchone()[0] > promoted_with + 20, "more blobs")

            before = acknowledged_through(f"{url},{standby.folder}", tmp_path, harm)
            with psycopg.connect(standby.url("relay")) as promoted:
                stored = promoted.execute(stored_blobs).fetchone()
    assert before > 20
    assert stored[0] >= before
