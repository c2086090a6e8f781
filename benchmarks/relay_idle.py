"""Measure what waiting devices cost a relay: processor time of servers and database, a device and minute.

Each device has an account and a connection of its own, and asks for changes again and again; each question waits up to
``--wait`` seconds for one. A device whose question is answered early with nothing waits itself for the rest.

Run: python benchmarks/relay_idle.py [--devices 10000] [--nodes 0 3] [--seconds 60] [--wait 55]; 0 nodes: SQLite.
It raises the number of open files itself; the limit that the system grants must be above the number of devices.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.relay_scale import memory_of, processes_of, processor_seconds, servers, tokens_for
from relay_worker.settings import Settings
from tests.support.postgres import programs, running

TARGET_MS = 1.0


class Tally:
    """Count questions answered, of these at once, and devices whose connection the server refused."""

    def __init__(self):
        self.answered = self.early = self.refused = 0


async def idle(port, token, tally, delay, wait):
    """Be a device for ever."""
    await asyncio.sleep(delay)
    head_lines = f"HTTP/1.1\r\nHost: relay\r\nAuthorization: Bearer {token}\r\n\r\n"
    change = 0
    while True:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            while True:
                began = time.monotonic()
                writer.write(f"GET /v1/streams?changed_after={change}&wait={wait} {head_lines}".encode())
                head = await reader.readuntil(b"\r\n\r\n")
                lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                body = await reader.readexactly(int(lengths[0].partition(b":")[2]))
                if head[9:12] != b"200":
                    raise RuntimeError(f"expected 200: {head + body!r}")
                change = json.loads(body)["change"]
                tally.answered += 1
                rest = wait - (time.monotonic() - began)
                if rest > wait / 10:
                    tally.early += 1
                    await asyncio.sleep(rest)
        except (OSError, asyncio.IncompleteReadError):
            tally.refused += 1
            await asyncio.sleep(wait)


async def measure(name, settings, nodes, given, data):
    """Print what so many devices cost."""
    tokens = tokens_for(settings, given.devices)
    tally = Tally()
    with servers(settings, nodes) as (ports, pids):
        before = memory_of(pids)
        tasks = [
            asyncio.ensure_future(idle(ports[n % len(ports)], token, tally, given.wait * n / given.devices, given.wait))
            for n, token in enumerate(tokens)
        ]
        await asyncio.sleep(1.2 * given.wait)
        tally.answered = tally.early = tally.refused = 0
        began, server, store = time.monotonic(), processor_seconds(pids), processor_seconds(processes_of(data))
        await asyncio.sleep(given.seconds)
        minutes = (time.monotonic() - began) / 60
        each = 1000 / minutes / given.devices
        spent = each * (processor_seconds(pids) - server)
        stored = each * (processor_seconds(processes_of(data)) - store)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        print(
            f"{name}, {given.devices} devices: server {spent:.2f} ms, database {stored:.2f} ms a device and minute;"
            f" {tally.answered / minutes:.0f} answers a minute, {tally.early} early, {tally.refused} refused;"
            f" a server {max(before):.0f} -> {max(memory_of(pids)):.0f} MB",
            flush=True,
        )
    return spent


def main():
    told = argparse.ArgumentParser()
    told.add_argument("--devices", type=int, default=10_000)
    told.add_argument("--seconds", type=float, default=60)
    told.add_argument("--wait", type=float, default=55)
    told.add_argument("--nodes", type=int, nargs="*", default=[0, 3])
    given = told.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory() as folder:
        costs = []
        for nodes in given.nodes:
            if nodes == 0:
                settings = Settings(data_dir=Path(folder) / "sqlite")
                costs.append(asyncio.run(measure("SQLite", settings, 1, given, None)))
            elif programs():
                with running(fsync=True) as database:
                    settings = Settings(data_dir=Path(folder), store=database.database("idle"))
                    name = f"PostgreSQL, {nodes} servers"
                    costs.append(asyncio.run(measure(name, settings, nodes, given, database.folder / "data")))
    print(f"target: {TARGET_MS} ms: {'kept' if max(costs) <= TARGET_MS else 'MISSED'}")
    return 0 if max(costs) <= TARGET_MS else 1


if __name__ == "__main__":
    sys.exit(main())
