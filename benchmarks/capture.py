"""Capture, measured: how soon a turn is found, how fast the past is imported, what a hook costs when nothing is new.

    python benchmarks/capture.py [latency] [throughput] [idle] [--size 1GB] [--chunks 500000] [--runs 20] [--folder DIR]

Without a name all three run. Everything is real: the hook, its worker, ``crystal init`` and ``crystal backfill``, each
a process of its own in a temporary HOME. What depends on the machine is measured beside it in the same run, and the
ratio is printed. Exits 1 where a target is missed.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import orjson
from filling import fill
from machine import Cost, Machine, folder_size, run
from session_world import Client, make_project
from sessions import Session
from transcripts import describe, generate, parse_size
from words import Writer

FOUND_SECONDS = 1.0
MB_PER_SECOND = 20.0
MEMORY_BYTES = 300_000_000
UNCHANGED = 1.25
FLUSH_SECONDS = 0.05
READ_AND_PARSE = """\
import sys, orjson
for path in sys.stdin.read().split("\\n"):
    with open(path, "rb") as file:
        for line in file:
            orjson.loads(line)
"""


@dataclass(frozen=True)
class Given:
    """What the command line asks for."""

    size: int
    chunks: int
    runs: int
    folder: Path


# ---------------------------------------------------------------------------------------------- 1: how soon it is found


def latency(given: Given) -> Iterator[str]:
    """From the hook's end until what was said is found by keyword, with a default set-up."""
    machine = Machine(given.folder / "latency")
    machine.crystal("init", "--yes", "--no-import")
    talk = Talk(machine, seed=3)
    bare = [run([sys.executable, "-c", "pass"], machine.env).wall for _ in range(given.runs)]
    yield f"a bare interpreter starts in {ms(statistics.median(bare))}"
    for name, wait in (
        ("line written before the hook", 0.0),
        (f"line written {1000 * FLUSH_SECONDS:.0f} ms after it", FLUSH_SECONDS),
    ):
        times = []
        for number in range(given.runs):
            times.append(talk.say_and_find(f"zq{len(name)}x{number}", wait))
            machine.settle()
        median = statistics.median(times)
        yield (
            f"from the hook's exit until found, {name}: median {ms(median)}, 95 % {ms(quantile(times, 0.95))}, "
            f"{median / statistics.median(bare):.1f} x a bare start{verdict(median < FOUND_SECONDS, 'under 1 s')}"
        )


class Talk:
    """A session that goes on while it is measured."""

    def __init__(self, machine: Machine, seed: int) -> None:
        writer = Writer(seed)
        self.machine = machine
        self.session = Session(writer, Client(writer), make_project(writer, 0), datetime.now(timezone.utc))
        self.path = machine.projects / "-home-dev-talk" / f"{self.session.id}.jsonl"
        self.path.parent.mkdir(exist_ok=True)
        self.append(*(fields for _, fields in self.session.lines(30)))
        machine.hook(self.path)
        machine.settle()

    def append(self, *lines: dict[str, object]) -> None:
        with self.path.open("ab") as file:
            file.write(b"".join(orjson.dumps(line) + b"\n" for line in lines))

    def say_and_find(self, word: str, wait: float) -> float:
        """Seconds from the hook's exit until the assistant's line, written so long after it, is found."""
        self.session.now = datetime.now(timezone.utc)
        asked = self.session.linked({"type": "user", "message": {"role": "user", "content": f"what of {word[:3]}"}})
        text = self.session.writer.prose(800) + f" {word}"
        message = {"role": "assistant", "model": "claude-opus-5-5", "content": [{"type": "text", "text": text}]}
        answer = self.session.linked({"type": "assistant", "message": message})
        self.append(asked)
        if not wait:
            self.append(answer)
        self.machine.hook(self.path, said=text)
        start = time.perf_counter()
        if wait:
            time.sleep(wait)
            self.append(answer)
        self.machine.wait_for(word)
        return time.perf_counter() - start


# ------------------------------------------------------------------------------------------------- 2: how fast, how big


def throughput(given: Given) -> Iterator[str]:
    """Import generated transcripts to keyword-searchable, with redaction; then a quarter of them, to compare memory."""
    data = given.folder / "data"
    told = generate(data, given.size)
    yield describe(told)
    whole, machine = imported(given.folder / "whole", data)
    parsed = read_and_parse(data)
    speed, limit = told.size / whole.wall / 1e6, told.size / parsed.wall / 1e6
    yield (
        f"crystal backfill --no-embed: {whole.wall:.1f} s, {speed:.1f} MB/s"
        f"{verdict(speed >= MB_PER_SECOND, 'at least 20')}; "
        f"{whole.cpu:.1f} s of CPU, {told.size / whole.cpu / 1e6:.1f} MB for each"
    )
    yield f"only reading and parsing the same with orjson: {limit:.0f} MB/s, {limit / speed:.1f} times as fast"
    yield growth(machine, told.size)
    small = given.folder / "quarter-data"
    generate(small, given.size // 4)
    quarter, _ = imported(given.folder / "quarter", small)
    yield (
        f"peak memory {whole.memory / 1e6:.0f} MB{verdict(whole.memory < MEMORY_BYTES, 'under 300')}; "
        f"{quarter.memory / 1e6:.0f} MB with a quarter of the bytes, ratio {whole.memory / max(1, quarter.memory):.2f}"
    )


def imported(home: Path, data: Path) -> tuple[Cost, Machine]:
    """Import all of a folder into a new machine."""
    machine = Machine(home)
    shutil.rmtree(machine.projects)
    machine.projects.symlink_to(data, target_is_directory=True)
    machine.crystal("init", "--yes", "--no-import")
    cost = machine.crystal("backfill", "--no-embed")
    if "captured" not in cost.output or "warning" in cost.output:
        raise RuntimeError(cost.output)
    return cost, machine


def read_and_parse(data: Path) -> Cost:
    """The least that any import must do, in a process of its own."""
    paths = "\n".join(str(path) for path in data.rglob("*.jsonl"))
    return run([sys.executable, "-c", READ_AND_PARSE], {}, paths.encode())


def growth(machine: Machine, size: int) -> str:
    """What the store and the archive take on the disk."""
    machine.value("PRAGMA wal_checkpoint(TRUNCATE)")
    turns, chunks = machine.value("SELECT count(*) FROM turns"), machine.value("SELECT count(*) FROM chunks")
    text = machine.value("SELECT sum(length(CAST(text AS BLOB))) FROM chunks")
    db, archive = machine.db.stat().st_size, folder_size(machine.home / ".ldm" / "agents")
    return (
        f"{turns} turns, {chunks} chunks of {text / max(1, chunks):.0f} bytes; "
        f"for each MB of transcript {1000 * text / size:.0f} kB of chunks, "
        f"{1000 * db / size:.0f} kB of database, {1000 * archive / size:.0f} kB of archive"
    )


# -------------------------------------------------------------------------------------------- 3: when nothing is new


def idle(given: Given) -> Iterator[str]:
    """The hook and its worker when nothing was said, with an empty store and with a big one, taking turns."""
    talks = {}
    for name in ("empty", "full"):
        machine = Machine(given.folder / name)
        machine.crystal("init", "--yes", "--no-import")
        talks[name] = Talk(machine, seed=5)
    full = talks["full"].machine
    start = time.perf_counter()
    fill(full.db, given.chunks)
    spent = time.perf_counter() - start
    yield f"a store of {given.chunks} chunks, {full.db.stat().st_size / 1e6:.0f} MB, made in {spent:.0f} s"
    for what, step in CASES.items():
        costs: dict[str, list[Cost]] = {"empty": [], "full": []}
        for _ in range(given.runs):
            for name, talk in talks.items():
                costs[name].append(step(talk))
                talk.machine.settle()
        yield compared(what, costs["empty"], costs["full"])


def bookkeeping(talk: Talk) -> None:
    """What the client writes when nothing was said."""
    talk.append(*({"type": kind, "sessionId": talk.session.id} for kind in ("mode", "permission-mode", "atis-latch")))


def hook_alone(talk: Talk) -> Cost:
    bookkeeping(talk)
    return talk.machine.hook(talk.path)


def worker_bookkeeping(talk: Talk) -> Cost:
    bookkeeping(talk)
    return talk.machine.worker(talk.path)


def worker_nothing(talk: Talk) -> Cost:
    return talk.machine.worker(talk.path)


def worker_sweep(talk: Talk) -> Cost:
    return talk.machine.worker(talk.path, "SessionStart")


CASES: dict[str, Callable[[Talk], Cost]] = {
    "hook": hook_alone,
    "worker, bookkeeping lines only": worker_bookkeeping,
    "worker, no new byte": worker_nothing,
    "worker, sweep at session start": worker_sweep,
}


def compared(what: str, empty: list[Cost], full: list[Cost]) -> str:
    """One line: medians of wall and CPU with an empty and a full store, and their ratios."""
    said = []
    worst = 0.0
    for unit in ("wall", "cpu"):
        before, after = (statistics.median(getattr(cost, unit) for cost in costs) for costs in (empty, full))
        ratio = after / before
        worst = max(worst, ratio)
        said.append(f"{unit} {ms(before)} and {ms(after)}, ratio {ratio:.2f}")
    return f"{what}: {'; '.join(said)}{verdict(worst <= UNCHANGED, 'about 1')}"


# ----------------------------------------------------------------------------------------------------------- the whole


def ms(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms"


def quantile(times: list[float], part: float) -> float:
    return sorted(times)[min(len(times) - 1, int(len(times) * part))]


MISSED: list[str] = []


def verdict(good: bool, target: str) -> str:
    """``(target: under 1 s, kept)``; a missed one is remembered."""
    if not good:
        MISSED.append(target)
    return f" (target: {target}, {'kept' if good else 'MISSED'})"


PARTS: dict[str, Callable[[Given], Iterator[str]]] = {"latency": latency, "throughput": throughput, "idle": idle}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "parts", nargs="*", choices=[*PARTS, []], metavar="PART", help="latency, throughput, idle; all by default"
    )
    parser.add_argument("--size", type=parse_size, default=parse_size("1GB"), help="how much transcript is imported")
    parser.add_argument("--chunks", type=int, default=500_000, help="how many chunks the full store has")
    parser.add_argument("--runs", type=int, default=20, help="how often latencies are measured")
    parser.add_argument("--folder", type=Path, help="work here and leave everything there")
    given = parser.parse_args(arguments)
    MISSED.clear()
    with tempfile.TemporaryDirectory(prefix="crystal-benchmark-", ignore_cleanup_errors=True) as temporary:
        for part in given.parts or PARTS:
            for line in PARTS[part](Given(given.size, given.chunks, given.runs, given.folder or Path(temporary))):
                print(f"{part}: {line}", flush=True)
    return 1 if MISSED else 0


if __name__ == "__main__":
    sys.exit(main())
