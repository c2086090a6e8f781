"""How many blobs a second the relay makes durable, against an append-only log and against no store, in one run.

The same server runs three times, each with another store behind the same routes: the relay's own (SQLite, synchronous
FULL, group commit, large bodies in files), an append-only log with group commit (one fdatasync for all that came while
the last one ran; no index, so it could not answer a single GET), and none. Rounds alternate; the ratio is the median of
those within a round.
Beside them stand what the disk does without HTTP: one thread, and the same log fed by 64 threads.

The client is one process over raw sockets: requests are prepared, answers are looked at no further than their status.

Run: python benchmarks/relay_put.py [--seconds 2] [--rounds 5] [--sizes 4096 ...] [--folder DIR] [--uploads 64]
Exits 1 when, at 4 KB, the relay is below 60 % of the log, or its memory was over 200 MB while uploads came.
"""

import argparse
import asyncio
import contextlib
import os
import queue
import selectors
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from operator import truediv
from pathlib import Path

from relay_worker import log, serving
from relay_worker.app import RelayApp
from relay_worker.services import Services
from relay_worker.settings import Settings
from relay_worker.store import accounts, choice
from relay_worker.store.sqlite import SqliteStore
from relay_worker.tokens import new_token

SHARE, MEMORY = 0.60, 200_000_000
CONNECTIONS = {4096: 64, 65_536: 64, 1_048_576: 16}
STORES = ("none", "log", "relay")
MIB = 1 << 20


# -- the server's side: three stores


class NoStore(SqliteStore):
    """Tokens as ever; blobs go nowhere."""

    async def put(self, *_, **__):
        return True


class Log:
    """An append-only file: one writer thread, one fdatasync for all that queued up meanwhile."""

    def __init__(self, path):
        self.number = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        self.jobs = queue.SimpleQueue()
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def work(self):
        while (job := self.jobs.get()) is not None:
            jobs = [job]
            while len(jobs) < 512 and not self.jobs.empty():
                jobs.append(self.jobs.get())
            if jobs[-1] is None:
                return
            write_all(self.number, [part for parts, _ in jobs for part in parts])
            os.fdatasync(self.number)
            loops = {}
            for _, done in jobs:
                if isinstance(done, threading.Event):
                    done.set()
                else:
                    loops.setdefault(done.get_loop(), []).append(done)
            for loop, done in loops.items():
                loop.call_soon_threadsafe(resolve, done)

    def close(self):
        self.jobs.put(None)
        self.thread.join()
        os.close(self.number)


class LogStore(NoStore):
    """Blobs are appended to a log."""

    def __init__(self, folder, limits, **more):
        super().__init__(folder, limits, **more)
        self.log = Log(folder / "log")

    async def put(self, _, new, stream, seq, _tag):
        done = asyncio.get_running_loop().create_future()
        self.log.jobs.put(([struct.pack(">16sQ32sI", stream, seq, new.digest, new.size), new.body], done))
        await done
        return True


def resolve(futures):
    for future in futures:
        if not future.done():
            future.set_result(None)


def write_all(number, parts):
    for at in range(0, len(parts), 1000):
        batch = [memoryview(part) for part in parts[at : at + 1000]]
        while batch:
            written = os.writev(number, batch)
            while batch and written >= len(batch[0]):
                written -= len(batch.pop(0))
            if batch:
                batch[0] = batch[0][written:]


def settings_of(folder):
    many = 1 << 60
    return Settings(
        listen="127.0.0.1:0",
        data_dir=folder,
        rate=0,
        quota_bytes=many,
        max_blobs=many,
        max_streams=many,
        metrics_listen="",
        max_connections_per_address=0,
    )


def serve(name, folder):
    """Serve with one of the stores until a signal comes; the port is the first line of standard output."""
    settings = settings_of(folder)
    kind = {"none": NoStore, "log": LogStore, "relay": SqliteStore}[name]
    store = kind(folder, settings, now=time.time_ns() // 1_000_000)
    app = RelayApp(Services(settings, store))
    listener = serving._bind(settings)
    print(listener.getsockname()[1], flush=True)
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        log.configure("json", nowhere)
        limits = serving._connection_limits(settings, app.relay.metrics)
        serving.RelayServer(serving._config(settings, app), app.relay, limits).run([listener])
    store.close()


# -- the client's side


@contextlib.contextmanager
def server(name, folder):
    """A running server: its port, its process and a token."""
    folder.mkdir(parents=True)
    made, text = new_token("default", "bench", ["home"], 1, os.urandom)
    with choice.transaction(Settings(data_dir=folder), create=True) as rows:
        accounts.add(rows, made)
    command = [sys.executable, __file__, "--serve", name, "--folder", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield int(process.stdout.readline()), process.pid, text
        finally:
            process.send_signal(signal.SIGTERM)


def blob(stream, seq, size):
    """The outside of a sealed blob: what is in it nobody can tell."""
    inside = size - 148
    start = struct.pack(
        ">4sBBBB16s16sQ32s32sI", b"CRB1", 1, 1, 1, 0, bytes(16), stream, seq, b"", os.urandom(32), inside
    )
    return start + FILLING[:inside] + os.urandom(32)


FILLING = os.urandom(8 * MIB)


class Connection:
    """One connection that stores blob after blob of its own stream, each as soon as the one before is answered."""

    def __init__(self, port, token, size):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.stream, self.seq, self.size, self.token = os.urandom(16), 0, size, token
        self.left, self.reply = memoryview(b""), b""

    def next(self):
        self.seq += 1
        head = (
            f"PUT /v1/streams/{self.stream.hex()}/blobs/{self.seq} HTTP/1.1\r\nHost: relay\r\n"
            f"Authorization: Bearer {self.token}\r\nContent-Length: {self.size}\r\n\r\n"
        )
        self.left = memoryview(head.encode() + blob(self.stream, self.seq, self.size))
        return self.write()

    def write(self):
        """Send what goes; True when all of the request is sent."""
        with contextlib.suppress(BlockingIOError):
            while self.left:
                self.left = self.left[self.socket.send(self.left) :]
        return not self.left


def load(port, token, size, count, seconds, each=None):
    """Requests that were answered 201, and the seconds that it took. ``each``: so many a connection, then stop."""
    chosen, done, answered = selectors.DefaultSelector(), 0, 0
    both = selectors.EVENT_READ | selectors.EVENT_WRITE
    connections = [Connection(port, token, size) for _ in range(count)]
    began = time.perf_counter()
    for one in connections:
        chosen.register(one.socket, selectors.EVENT_READ if one.next() else both, one)
    while answered < count * each if each else time.perf_counter() - began < seconds:
        for key, events in chosen.select(1):
            one = key.data
            if events & selectors.EVENT_WRITE and one.write():
                chosen.modify(one.socket, selectors.EVENT_READ, one)
            if events & selectors.EVENT_READ:
                reply = one.reply = one.reply + one.socket.recv(65_536)
                if reply.startswith(b"HTTP/1.1 201") and not reply.endswith(b"}"):
                    continue  # the head alone
                one.reply = b""
                if not reply.startswith(b"HTTP/1.1 201"):
                    raise RuntimeError(f"expected 201: {reply[:400]!r}")
                done, answered = done + 1, answered + 1
                if each and one.seq >= each:
                    chosen.unregister(one.socket)
                elif not one.next():
                    chosen.modify(one.socket, both, one)
    took = time.perf_counter() - began
    for one in connections:
        one.socket.close()
    return done, took


# -- what the disk does by itself


def disk_alone(folder, size, seconds):
    """Appends a second of one thread, each with its fdatasync."""
    number, body, count = os.open(folder / f"one-{size}", os.O_CREAT | os.O_WRONLY, 0o600), FILLING[:size], 0
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        write_all(number, [body])
        os.fdatasync(number)
        count += 1
    os.close(number)
    return count / (time.perf_counter() - began)


def disk_shared(folder, size, seconds, threads):
    """Appends a second of many threads that share the log's fdatasync."""
    shared, ends_at, counts = Log(folder / f"many-{size}"), time.perf_counter() + seconds, []

    def feed():
        count = 0
        while time.perf_counter() < ends_at:
            done = threading.Event()
            shared.jobs.put(([FILLING[:size]], done))
            done.wait()
            count += 1
        counts.append(count)

    feeding = [threading.Thread(target=feed) for _ in range(threads)]
    for one in feeding:
        one.start()
    for one in feeding:
        one.join()
    shared.close()
    return sum(counts) / seconds


# -- the questions


def measure(folder, size, seconds, rounds):
    """Medians of alternating rounds: blobs a second by store; gives the share of the log within a round."""
    count, found = CONNECTIONS.get(size, 32), {name: [] for name in STORES}
    alone, shared = [], []
    for number in range(rounds):
        for name in STORES if number % 2 else reversed(STORES):
            place = folder / f"{size}-{number}-{name}"
            with server(name, place) as (port, _, token):
                load(port, token, size, count, seconds / 5)
                done, took = load(port, token, size, count, seconds)
            found[name].append(done / took)
        alone.append(disk_alone(folder, size, seconds / 3))
        shared.append(disk_shared(folder, size, seconds / 3, count))
    rates = {name: statistics.median(some) for name, some in found.items()}
    ratio, of_none = (statistics.median(map(truediv, found["relay"], found[name])) for name in ("log", "none"))
    print(
        f"{size:>8} bytes: relay {rates['relay']:.0f}/s, log {rates['log']:.0f}/s, no store {rates['none']:.0f}/s;"
        f" relay is {ratio:.2f} of the log, {of_none:.2f} of no store"
    )
    print(
        f"{'':>8} without HTTP: one thread {statistics.median(alone):.0f}/s,"
        f" a log fed by {count} threads {statistics.median(shared):.0f}/s"
    )
    return ratio


def memory(folder, uploads):
    """The most memory that the server took while so many uploads of 8 MiB came at once, in bytes."""
    with server("relay", folder / "memory") as (port, pid, token):
        before = peak(pid)
        done, took = load(port, token, 8 * MIB + 148, uploads, 0, each=1)
        most = peak(pid)
    print(
        f"memory: {most / 1e6:.0f} MB at most while {done} uploads of 8 MiB came at once, {before / 1e6:.0f} MB before;"
        f" {done * 8 / took:.0f} MiB/s"
    )
    return most


def peak(pid):
    """The largest resident memory so far (VmHWM)."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) * 1024


def main():
    told = argparse.ArgumentParser()
    told.add_argument("--seconds", type=float, default=2)
    told.add_argument("--rounds", type=int, default=5)
    told.add_argument("--sizes", type=int, nargs="*", default=list(CONNECTIONS))
    told.add_argument("--uploads", type=int, default=64)
    told.add_argument("--folder", type=Path)
    told.add_argument("--serve", choices=STORES, help=argparse.SUPPRESS)
    given = told.parse_args()
    if given.serve:
        serve(given.serve, given.folder)
        return 0
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        shares = {size: measure(folder, size, given.seconds, given.rounds) for size in given.sizes}
        most = memory(folder, given.uploads) if given.uploads else 0
    kept = shares.get(4096, 1) >= SHARE and most <= MEMORY
    print(f"targets: {SHARE:.2f} of the log at 4096 bytes, {MEMORY / 1e6:.0f} MB: {'kept' if kept else 'MISSED'}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
