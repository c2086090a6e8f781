"""Generated transcripts of Claude Code, of any size, in the proportions of real ones.

    python benchmarks/transcripts.py FOLDER [--size 1GB] [--seed 1]

A short session of today's client is bookkeeping: some 150 kB of prompt snapshots, request shapes and listings
for one question. A long one is mostly tool results: whole files, twice (for the model and in ``toolUseResult``), edits
with the file before them, pictures in base64. Sizes of sessions are log-normal, with a long tail. One session in three
is of an older client, which wrote hardly any bookkeeping; one in seven has a subagent. The lines are made in
sessions.py, the words in words.py. The same size and seed give the same bytes. Memory stays flat: lines go to disk as
they are made.
"""

from __future__ import annotations

import argparse
import zlib
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path

import orjson
from session_world import Client, make_project
from sessions import Session
from words import Writer

UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9}
LATEST = datetime(2026, 11, 20, 18, 0, tzinfo=timezone.utc)


@dataclass
class Proportions:
    """What was written: bytes by kind of line, and lines."""

    sessions: int = 0
    lines: int = 0
    size: int = 0
    kinds: Counter[str] = field(default_factory=Counter)

    def add(self, kind: str, size: int) -> None:
        self.lines += 1
        self.size += size
        self.kinds[kind] += size


def generate(folder: Path, size: int, seed: int = 1) -> Proportions:
    """Write sessions below ``folder/<project>/`` until they have ``size`` bytes; the last one is cut to fit."""
    writer = Writer(seed)
    client = Client(writer)
    projects = [make_project(writer, number) for number in range(12)]
    told = Proportions()
    while told.size < size:
        project = projects[min(11, int(writer.random.expovariate(1 / 3)))]
        session = Session(writer, client, project, LATEST - timedelta(minutes=writer.random.randrange(60 * 24 * 180)))
        # The median session has a dozen requests, one in twenty more than a hundred.
        steps = min(1500, 1 + int(writer.random.lognormvariate(2.5, 1.4)))
        home = folder / project.cwd.replace("/", "-")
        told.sessions += 1
        write(home / f"{session.id}.jsonl", session, steps, size, told)
        if told.size < size and writer.random.random() < 1 / 7:
            inner = session.subagent()
            write(home / session.id / "subagents" / f"agent-{inner.agent}.jsonl", inner, 1 + steps // 2, size, told)
    return told


def write(path: Path, session: Session, steps: int, most: int, told: Proportions) -> None:
    """Write one session; stop when ``most`` bytes are written in all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb", buffering=1 << 20) as file:
        for kind, fields in session.lines(steps):
            line = orjson.dumps(fields) + b"\n"
            file.write(line)
            told.add(kind, len(line))
            if told.size >= most:
                return


def half_of(session: str) -> str:
    """Return to which half of the sessions one belongs: the rules were made on the first."""
    return "held out" if zlib.crc32(session.encode()) % 2 else "development"


def parse_size(text: str) -> int:
    """``200MB`` or ``1GB``, in decimal units; a plain number is bytes."""
    unit = text[-2:].upper()
    return int(float(text[:-2]) * UNITS[unit]) if unit in UNITS else int(text)


def describe(told: Proportions) -> str:
    """One line: how much, and what share each kind of line has."""
    shares = ", ".join(
        f"{kind} {100 * size / told.size:.0f} %" for kind, size in told.kinds.most_common() if size > told.size / 100
    )
    return f"{told.size / 1e6:.1f} MB in {told.sessions} sessions, {told.lines} lines: {shares}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", type=parse_size, default=parse_size("1GB"))
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    print(describe(generate(given.folder, given.size, given.seed)))


if __name__ == "__main__":
    main()
