"""Measure how soon the MCP server answers, and what a tool's call costs, against Python's own call.

    python benchmarks/mcp_latency.py [--chunks 100000] [--folder DIR] [--runs 15] [--questions 12]

Starts are alternated with a bare interpreter's and with ``import mcp`` (the official package) alone; calls are
alternated with the same question asked in Python of the same store. The store is made once and kept in the folder
(without it in a temporary one), see ``search.py``. The exit code is 1 when a target was missed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from search_process import this_machine
from search_questions import questions
from search_stores import Place, drop_texts, ready

from crystal import Crystal

ANSWERED = 1.3
SERVER = [sys.executable, "-m", "crystal", "mcp"]
GREETING = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "benchmark", "version": "1"}}
OURS = ("CRYSTAL_", "LDM_", "CLAUDE")


class Server:
    """A server in a process of its own."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._start = time.perf_counter()
        self._process = subprocess.Popen(SERVER, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._number = 0

    def ask(self, method: str, params: object = None) -> tuple[dict[str, Any], float]:
        """The answer, and how long it took (ms)."""
        self._number += 1
        start = time.perf_counter()
        message = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params or {}}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        return answer, (time.perf_counter() - start) * 1000

    @property
    def age(self) -> float:
        """Since its start, ms."""
        return (time.perf_counter() - self._start) * 1000

    def end(self) -> None:
        self._process.communicate()


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--chunks", type=int, default=100_000)
    options.add_argument("--folder", type=Path, help="where the store is made and kept")
    options.add_argument("--runs", type=int, default=15, help="starts of each kind")
    options.add_argument("--questions", type=int, default=12)
    given = options.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        folder = given.folder or Path(temporary)
        print(this_machine())
        place = ready(Place(folder, given.chunks, 0), plain=False)
        drop_texts(folder)
        env = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
        env |= {"CRYSTAL_DATA_DIR": str(place.crystal.parent), "LDM_HOME": temporary, "HOME": temporary}
        is_quick = measure_starts(env, given.runs)
        asked = [
            one.text for one in questions(Place(folder, given.chunks, 384), given.questions) if one.kind == "natural"
        ]
        measure_calls(env, place, asked[: given.questions])
    print("target kept" if is_quick else "the target was missed")
    return 0 if is_quick else 1


def measure_starts(env: Mapping[str, str], runs: int) -> bool:
    """Print how soon a server answers, by what else starts."""
    bare, package, answered, listed = [], [], [], []
    for _ in range(runs):
        bare.append(started("pass", env))
        package.append(started("import mcp", env))
        server = Server(env)
        server.ask("initialize", GREETING)
        answered.append(server.age)
        server.ask("tools/list")
        listed.append(server.age)
        server.end()
    middle = {name: statistics.median(many) for name, many in
              {"bare": bare, "package": package, "answered": answered, "listed": listed}.items()}  # fmt: skip
    print(f"starts, medians of {runs}: bare interpreter {middle['bare']:.0f} ms, import mcp {middle['package']:.0f} ms")
    for name, what in (("answered", "initialize"), ("listed", "tools/list after it")):
        to_bare, to_package = middle[name] / middle["bare"], middle[name] / middle["package"]
        print(f"{what}: {middle[name]:.0f} ms, ratio to a bare start {to_bare:.1f}, to import mcp {to_package:.2f}")
    return middle["answered"] <= ANSWERED * middle["package"]


def started(code: str, env: Mapping[str, str]) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], env=env, check=True)
    return (time.perf_counter() - start) * 1000


def measure_calls(env: Mapping[str, str], place: Place, asked: list[str]) -> None:
    """Print what a call costs: the first, and those after it, beside Python's own."""
    os.environ.update({name: env[name] for name in ("CRYSTAL_DATA_DIR", "LDM_HOME", "HOME")})
    server = Server(env)
    server.ask("initialize", GREETING)
    first = server.ask("tools/call", search(asked[0]))[1]
    calls: dict[str, list[float]] = {
        name: [] for name in ("python", "python, opened for it", "search", "recent", "status")
    }
    with Crystal.reader(place.crystal.parent) as memory:
        memory.search(asked[0])
        for question in asked:
            start = time.perf_counter()
            found = memory.search(question)
            calls["python"].append((time.perf_counter() - start) * 1000)
            start = time.perf_counter()
            with Crystal.reader(place.crystal.parent) as opened:
                opened.search(question)
            calls["python, opened for it"].append((time.perf_counter() - start) * 1000)
            answer, ms = server.ask("tools/call", search(question))
            calls["search"].append(ms)
            text = answer["result"]["content"][0]["text"]
            assert found.hits
            assert str(found.hits[0].id) in text
            calls["recent"].append(server.ask("tools/call", {"name": "crystal_recent", "arguments": {"all": True}})[1])
            calls["status"].append(server.ask("tools/call", {"name": "crystal_status", "arguments": {}})[1])
    server.end()
    middle = {name: statistics.median(many) for name, many in calls.items()}
    print(f"calls at {place.chunks:,} chunks, medians of {len(asked)}; the very first: {first:.0f} ms")
    for name, ms in middle.items():
        print(f"{name}: {ms:.1f} ms, ratio to the call in Python {ms / middle['python']:.2f}")


def search(question: str) -> dict[str, Any]:
    return {"name": "crystal_search", "arguments": {"query": question, "limit": 10}}


if __name__ == "__main__":
    sys.exit(main())
