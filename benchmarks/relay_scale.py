"""How many blobs a second a relay makes durable on SQLite and on PostgreSQL with 1, 2 and 4 servers, in one run.

Beside them stands a bare ``INSERT ... ON CONFLICT DO NOTHING`` of the same bytes through psycopg into the same
PostgreSQL, each with its own commit: by itself, at the number of connections at which it is fastest, and as the store
of one server behind the same routes, which is what HTTP leaves of it. Rounds alternate; ratios are the medians of those
within a round. Everything shares one machine: database, servers and clients. So does other work, if there is any: then
compare the processor time of a put, of its server and of the database, rather than the pace.

A *put* is one request. A *round trip* is put, get and acknowledgement of a blob, one after the other.

Run: python benchmarks/relay_scale.py [--seconds 3] [--rounds 3] [--nodes 1 2 4] [--connections 64] [--accounts 8]
It starts a PostgreSQL of its own in /tmp; without one installed it measures SQLite alone. Exits 1 when
the best of PostgreSQL's servers is below 60 % of the bare insert behind the same routes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import psycopg

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.relay_put import FILLING, Connection, blob
from relay_worker import serving
from relay_worker.app import RelayApp
from relay_worker.services import Services
from relay_worker.settings import Settings
from relay_worker.store import accounts, choice
from relay_worker.store.postgres.store import PostgresStore
from relay_worker.tokens import new_token
from tests.support.postgres import programs, running

SHARE, SIZE = 0.60, 4096
BARE_CONNECTIONS = (4, 16, 48)
BARE = "INSERT INTO public.bare VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"
ROOT = Path(__file__).resolve().parents[1]


# -- servers


def tokens_for(settings, count):
    """A home token for each of so many accounts."""
    texts = []
    with choice.transaction(settings, create=True) as rows:
        for number in range(count):
            made, text = new_token(f"bench-{number}", "bench", ["home"], 1, os.urandom)
            accounts.add(rows, made)
            texts.append(text)
    return texts


def serve_bare(url, port):
    """Serve blobs into the bare table, behind the same routes."""
    settings = Settings(listen=f"127.0.0.1:{port}", store=url, rate=0, max_connections_per_address=0, access_log="none")
    pool = ThreadPoolExecutor(BARE_CONNECTIONS[1])

    class BareStore(PostgresStore):
        async def put(self, _, new, stream, seq, _tag):
            def insert():
                with self._connections.one() as db:
                    db.execute(BARE, (stream, seq, new.body), prepare=True)

            await asyncio.get_running_loop().run_in_executor(pool, insert)
            return True

    store = BareStore(settings, now=time.time_ns() // 1_000_000)
    app = RelayApp(Services(settings, store))
    limits = serving._connection_limits(settings, app.relay.metrics)
    serving.RelayServer(serving._config(settings, app), app.relay, limits).run([serving._bind(settings)])
    pool.shutdown()
    store.close()


@contextlib.contextmanager
def servers(settings, count, *, is_bare=False):
    """So many servers of one store, as processes of their own: their ports and process ids."""
    env = {
        **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
        **{f"CRYSTAL_RELAY_{name}": "0" for name in ("RATE", "MAX_CONNECTIONS_PER_ADDRESS")},
        **{f"CRYSTAL_RELAY_{name}": str(1 << 60) for name in ("QUOTA_BYTES", "MAX_BLOBS", "MAX_STREAMS")},
        "CRYSTAL_RELAY_METRICS_LISTEN": "off",
        "CRYSTAL_RELAY_ACCESS_LOG": "none",
        "CRYSTAL_RELAY_DATA_DIR": str(settings.data_dir),
        "CRYSTAL_RELAY_STORE": settings.store,
    }
    ports, processes = [], []
    for _ in range(count):
        with socket.create_server(("127.0.0.1", 0)) as free:
            ports.append(free.getsockname()[1])
        command = [sys.executable, "-m", "relay_worker", "serve", "--listen", f"127.0.0.1:{ports[-1]}"]
        if is_bare:
            command = [sys.executable, __file__, "--serve-bare", settings.store, str(ports[-1])]
        processes.append(subprocess.Popen(command, env=env, cwd=ROOT, stderr=subprocess.DEVNULL))
    try:
        for port in ports:
            wait_for(port)
        yield ports, [one.pid for one in processes]
    finally:
        for one in processes:
            one.terminate()
        for one in processes:
            one.wait(30)


def wait_for(port):
    for _ in range(300):
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port)).close()
            return
        time.sleep(0.05)
    raise RuntimeError("a server does not answer")


def memory_of(pids):
    """The largest resident memory so far of each process, in MB."""
    found = []
    for pid in pids:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
        found.append(next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1000)
    return found


def processes_of(folder):
    """The processes of the PostgreSQL whose data is in a folder."""
    found = []
    for status in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            if status.readlink() == folder:
                found.append(int(status.parent.name))
    return found


def processor_seconds(pids):
    """User and system time of processes so far, and of their children that ended."""
    ticks = 0
    for pid in pids:
        with contextlib.suppress(OSError):  # it ended: its parent has its time
            fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(") ")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def costed(work, pids, data):
    """Do some work; return its result with the processor time for each time, of these processes and of PostgreSQL, and
    how it is split among these processes, PostgreSQL and this process.
    """

    def spent():
        groups = (pids, processes_of(data) if data else [], [os.getpid()])
        return [1e6 * processor_seconds(one) for one in groups]

    before = spent()
    rate, times = work()
    time.sleep(0.2)  # connections end
    each = [(now - then) / max(1, len(times)) for now, then in zip(spent(), before, strict=True)]
    return rate, times, each[0] + each[1], each


# -- clients


class Client(Connection):
    """A connection with a stream of its own that repeats its requests, each as soon as the one before is answered."""

    def __init__(self, port, token, is_trip):
        super().__init__(port, token, SIZE)
        self.is_trip, self.step, self.times = is_trip, 0, []

    def begin(self):
        """Send the next request; True when all of it is sent."""
        path = f"/v1/streams/{self.stream.hex()}"
        if self.step == 0:
            self.seq, self.began = self.seq + 1, time.perf_counter()
            line, body = f"PUT {path}/blobs/{self.seq}", blob(self.stream, self.seq, SIZE)
        elif self.step == 1:
            line, body = f"GET {path}/blobs/{self.seq}", b""
        else:
            line, body = f"POST {path}/ack", b'{"upto":%d}' % self.seq
        head = f"{line} HTTP/1.1\r\nHost: relay\r\nAuthorization: Bearer {self.token}\r\n"
        head += f"Content-Length: {len(body)}\r\n\r\n" if body else "\r\n"
        self.left = memoryview(head.encode() + body)
        return self.write()

    def read(self):
        """Take what came; True when the answer is complete."""
        self.reply += self.socket.recv(65_536)
        head, found, body = self.reply.partition(b"\r\n\r\n")
        if not found:
            return False
        if head[9:12] not in (b"201", b"200", b"204"):
            raise RuntimeError(f"expected success: {self.reply[:400]!r}")
        length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        if length and len(body) < int(length[0].partition(b":")[2]):
            return False
        self.reply = b""
        self.step = (self.step + 1) % 3 if self.is_trip else 0
        if self.step == 0:
            self.times.append(time.perf_counter() - self.began)
        return True


def load(ports, tokens, count, seconds, *, is_trip):
    """So many clients spread over the servers: what they did a second, and the times of each."""
    chosen, both = selectors.DefaultSelector(), selectors.EVENT_READ | selectors.EVENT_WRITE
    clients = [Client(ports[n % len(ports)], tokens[n // len(ports) % len(tokens)], is_trip) for n in range(count)]
    began = time.perf_counter()
    for one in clients:
        chosen.register(one.socket, selectors.EVENT_READ if one.begin() else both, one)
    while time.perf_counter() - began < seconds:
        for key, events in chosen.select(1):
            one = key.data
            if events & selectors.EVENT_WRITE and one.write():
                chosen.modify(one.socket, selectors.EVENT_READ, one)
            if events & selectors.EVENT_READ and one.read() and not one.begin():
                chosen.modify(one.socket, both, one)
    took = time.perf_counter() - began
    for one in clients:
        one.socket.close()
    times = sorted(time for one in clients for time in one.times)
    return len(times) / took, times


def make_bare(url):
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("CREATE TABLE bare (stream bytea, seq bigint, body bytea, PRIMARY KEY (stream, seq))")
        db.execute("ALTER TABLE bare ALTER COLUMN body SET STORAGE EXTERNAL")


def bare(url, count, seconds):
    """Inserts a second of the same bytes, through so many connections, each insert with its own commit."""
    make_bare(url)
    ends_at, times = time.perf_counter() + seconds, []

    def insert():
        stream, body, seq, mine = os.urandom(16), FILLING[:SIZE], 0, []
        with psycopg.connect(url, autocommit=True) as db:
            while (began := time.perf_counter()) < ends_at:
                seq += 1
                db.execute(BARE, (stream, seq, body), prepare=True)
                mine.append(time.perf_counter() - began)
        times.extend(mine)

    threads = [threading.Thread(target=insert) for _ in range(count)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return len(times) / seconds, sorted(times)


# -- the questions


def measure(folder, database, given, number):
    """One round: (a second, times, microseconds of processor time each) for each name."""
    found = {}
    data = database.folder / "data" if database else None
    kinds = [("SQLite", Settings(data_dir=folder / f"sqlite-{number}"), 1)]
    if database is not None:
        for nodes in given.nodes:
            url = database.database(f"relay-{number}-{nodes}")
            kinds.append((f"PostgreSQL, {nodes}", Settings(data_dir=folder, store=url), nodes))
        found["bare insert"] = max(
            costed(partial(bare, database.database(f"bare-{number}-{one}"), one, given.seconds), [os.getpid()], data)
            for one in BARE_CONNECTIONS
        )
        settings = Settings(data_dir=folder, store=database.database(f"routes-{number}"))
        make_bare(settings.store)
        tokens = tokens_for(settings, given.accounts)
        with servers(settings, 1, is_bare=True) as (ports, pids):
            asked = partial(load, ports, tokens, given.connections, is_trip=False)
            asked(given.seconds / 4)
            found["bare, same routes"] = costed(partial(asked, given.seconds), pids, data)
    for name, settings, nodes in kinds if number % 2 else reversed(kinds):
        tokens = tokens_for(settings, given.accounts)
        with servers(settings, nodes) as (ports, pids):
            load(ports, tokens, given.connections, given.seconds / 4, is_trip=False)
            for verb, is_trip in (("puts", False), ("trips", True)):
                asked = partial(load, ports, tokens, given.connections, given.seconds, is_trip=is_trip)
                found[f"{name}: {verb}"] = costed(asked, pids, data)
            found[f"{name}: memory"] = max(memory_of(pids)), [], 0, []
    return found


def main():
    told = argparse.ArgumentParser()
    told.add_argument("--seconds", type=float, default=3)
    told.add_argument("--rounds", type=int, default=3)
    told.add_argument("--nodes", type=int, nargs="*", default=[1, 2, 4])
    told.add_argument("--connections", type=int, default=64)
    told.add_argument("--accounts", type=int, default=8)
    told.add_argument("--serve-bare", nargs=2, help=argparse.SUPPRESS)
    given = told.parse_args()
    if given.serve_bare:
        serve_bare(given.serve_bare[0], int(given.serve_bare[1]))
        return 0
    with contextlib.ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        database = opened.enter_context(running(fsync=True)) if programs() else None
        rounds = [measure(folder, database, given, number) for number in range(given.rounds)]
    return report(rounds)


def ratios(rounds, name, other):
    """Return how a name compares with another in pace, and in work for a second of the processor, by the rounds."""
    pace = [one[name][0] / one[other][0] for one in rounds]
    work = [one[other][2] / one[name][2] for one in rounds]
    found = (f"{statistics.median(each):.2f} ({min(each):.2f} to {max(each):.2f})" for each in (pace, work))
    return statistics.median(pace), " in pace, ".join(found)


def report(rounds):
    """Print the medians; 1 if the target is missed."""
    best = 0.0
    for name in rounds[0]:
        middle = statistics.median(one[name][0] for one in rounds)
        if name.endswith("memory"):
            print(f"{name:24} {middle:.0f} MB at most in one server")
            continue
        times = sorted(time for one in rounds for time in one[name][1]) or [0.0]
        p50, p99 = (1000 * times[int(len(times) * share)] for share in (0.5, 0.99))
        each = statistics.median(one[name][2] for one in rounds)
        line = f"{name:24} {middle:6.0f}/s  p50 {p50:6.1f} ms  p99 {p99:6.1f} ms  {each:5.0f} us of processor time"
        split = [statistics.median(some) for some in zip(*(one[name][3] for one in rounds), strict=True)]
        line += f": servers {split[0]:.0f}, database {split[1]:.0f}, clients {split[2]:.0f}"
        if "bare insert" in rounds[0] and name.endswith("puts"):
            for other in ("bare insert", "bare, same routes"):
                pace, words = ratios(rounds, name, other)
                line += f"\n{name} / {other}: {words} in work"
            best = max(best, pace if "PostgreSQL" in name else 0)
        print(line)
    if "bare insert" not in rounds[0]:
        print("PostgreSQL is not installed: SQLite alone")
        return 0
    print(f"target: {SHARE:.2f} of the bare insert behind the same routes: {'kept' if best >= SHARE else 'MISSED'}")
    return 0 if best >= SHARE else 1


if __name__ == "__main__":
    sys.exit(main())
