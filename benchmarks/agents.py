"""How fast the conversations of each agent are read, found, and seen to have nothing new.

    python benchmarks/agents.py [readers|discovery|sweep] [--size 8MB] [--files 10000]

``readers`` repeats the samples of the tests and compares with parsing the same lines; memory is the most that Python
holds beyond the lines, for an eighth of the size and for half of it. ``discovery`` spreads files over the folders of
all agents and compares with ``os.walk``. ``sweep`` captures the samples of every agent and some transcripts, then
sweeps again. Times are processor time. Exits 1 where a target is missed.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import orjson
from transcripts import parse_size

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from crystal.capture import finder  # noqa: E402
from crystal.capture.safe_open import Folders  # noqa: E402
from crystal.config.harnesses import CLAUDE_CODE, HARNESSES, Root, usual_roots  # noqa: E402
from crystal.text.chunking import split  # noqa: E402
from crystal.transcript.line import parse_line  # noqa: E402
from crystal.transcript.line_context import Context  # noqa: E402
from crystal.transcript.reader import TranscriptReader, completed, reader_of  # noqa: E402
from tests.support import agent_samples  # noqa: E402
from tests.support.command import crystal  # noqa: E402

CLAUDE_SAMPLES = ROOT / "tests" / "data" / "transcripts"
DISCOVERY_SECONDS = 0.300
SWEEP_SECONDS = 0.050
FLAT = 1.5
RUNS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("part", nargs="?", choices=("readers", "discovery", "sweep"))
    parser.add_argument("--size", type=parse_size, default=8_000_000)
    parser.add_argument("--files", type=int, default=10_000)
    given = parser.parse_args()
    parts: dict[str, Callable[[], bool]] = {
        "readers": lambda: measure_readers(given.size),
        "discovery": lambda: measure_discovery(given.files),
        "sweep": lambda: measure_sweep(given.files // 10),
    }
    held = [work() for name, work in parts.items() if given.part in (None, name)]
    sys.exit(0 if all(held) else 1)


# --------------------------------------------------------------------------------------------------------- readers


def measure_readers(size: int) -> bool:
    print(f"{'agent':<14}{'MB/s':>8}{'turns/s':>10}{'of parsing':>12}{'memory':>10}{'at 4 times':>12}")
    is_flat = True
    for harness in (name for name, row in HARNESSES.items() if not row.is_store):
        reader, lines = reader_of(harness), stored_lines(harness)
        once = sum(map(len, lines))
        repeats = max(1, size // once)
        seconds, turns = timed(reader, lines, repeats)
        plain = timed_parsing(lines, repeats)
        small, large = (peak_memory(reader, lines, count) for count in (1 + repeats // 8, 1 + repeats // 2))
        is_flat = is_flat and large < FLAT * small + 1_000_000
        print(
            f"{harness:<14}{once * repeats / seconds / 1e6:8.1f}{turns / seconds:10,.0f}{seconds / plain:12.1f}"
            f"{small / 1e6:7.1f} MB{large / 1e6:9.1f} MB"
        )
    text = "\n\n".join(turn.text for turn in reader_of(CLAUDE_CODE).turns(enumerate(stored_lines(CLAUDE_CODE)), "t",
                       subagent=False)) * 20  # fmt: skip
    start = time.process_time()
    split(text)
    print(f"chunking: {len(text.encode()) / (time.process_time() - start) / 1e6:.0f} MB/s")
    return is_flat


def stored_lines(harness: str) -> list[bytes]:
    """Return the lines of an agent's samples as capture stores them."""
    if harness != CLAUDE_CODE:
        return agent_samples.stored_lines(harness)
    raw = [line for path in sorted(CLAUDE_SAMPLES.glob("*.jsonl")) for line in path.read_bytes().split(b"\n")]
    return list(completed(reader_of(harness), raw, Context(), lambda _: "id"))


def timed(reader: TranscriptReader, lines: Sequence[bytes], repeats: int) -> tuple[float, int]:
    """Return the processor time for facts and turns, and the number of turns."""
    start = time.process_time()
    for line in repeated(lines, repeats):
        reader.facts(line)
    turns = sum(1 for _ in reader.turns(enumerate(repeated(lines, repeats)), "t", subagent=False))
    return time.process_time() - start, turns


def timed_parsing(lines: Sequence[bytes], repeats: int) -> float:
    start = time.process_time()
    for line in repeated(lines, repeats):
        parse_line(line)
    return time.process_time() - start


def peak_memory(reader: TranscriptReader, lines: Sequence[bytes], repeats: int) -> int:
    tracemalloc.start()
    for _ in reader.turns(enumerate(repeated(lines, repeats)), "t", subagent=False):
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def repeated(lines: Sequence[bytes], repeats: int) -> Iterator[bytes]:
    return itertools.chain.from_iterable(itertools.repeat(lines, repeats))


# ------------------------------------------------------------------------------------------------ discovery, sweep


def measure_discovery(count: int) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        roots = spread(home, count)
        found = sum(1 for root in roots for _ in finder.in_root(root, Folders(roots)))
        own = best(lambda: [list(finder.in_root(root, Folders(roots))) for root in roots])
        plain = best(lambda: [Path(at, name).stat() for at, _, names in os.walk(home) for name in names])
    print(f"discovery: {found:,} files in {1000 * own:.0f} ms, {own / plain:.2f} of os.walk (limit 300 ms)")
    return own < DISCOVERY_SECONDS


def spread(home: Path, count: int) -> tuple[Root, ...]:
    """Write files into the folders of all agents, a fitting name each."""
    roots = usual_roots(home)
    patterns = [(root, pattern) for root in roots if root.place.form != "database" for pattern in root.place.files]
    for number in range(count):
        root, pattern = patterns[number % len(patterns)]
        head, star, tail = pattern.replace("**", "*").rpartition("*")
        path = root.folder / (head.replace("*", f"n{number % 20}") + (f"n{number}" if star else "") + tail)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return roots


def measure_sweep(count: int) -> bool:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # a worker may still write
        os.environ |= {"HOME": folder, "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"}
        for harness in agent_samples.sampled():
            agent_samples.lay_out(harness, Path(folder))
        write_transcripts(Path(folder, ".claude", "projects", "p"), count)
        for words in (("init", "--yes", "--no-import"), ("backfill",), ("sync",)):
            done = crystal(*words)
            assert done.code == 0, done.err
        seconds, found = timed_sweep()
    print(f"a sweep with nothing new: {1000 * seconds:.0f} ms of processor time, {found:,} files (limit 50 ms)")
    return seconds < SWEEP_SECONDS


def write_transcripts(folder: Path, count: int) -> None:
    folder.mkdir(parents=True)
    for number in range(count):
        session = f"00000000-0000-4000-8000-{number:012}"
        line = {"type": "user", "uuid": f"u{number}", "sessionId": session, "cwd": "/w", "timestamp":
                "2026-11-20T10:00:00Z", "message": {"role": "user", "content": f"question {number}"}}  # fmt: skip
        folder.joinpath(f"{session}.jsonl").write_bytes(orjson.dumps(line) + b"\n")


def timed_sweep() -> tuple[float, int]:
    from crystal.app.capture_engine import make_capture
    from crystal.app.context import open_machine

    with open_machine() as machine:
        capture = make_capture(machine)
        costs = []
        for _ in range(RUNS):
            start = time.process_time()
            tally = capture.sweep()
            costs.append(time.process_time() - start)
            assert tally.bytes_captured == 0, "the sweep found something new"
        roots = machine.transcript_folders.roots
        return statistics.median(costs), sum(1 for root in roots for _ in finder.in_root(root, Folders(roots)))


def best(work: Callable[[], object]) -> float:
    times = []
    for _ in range(RUNS):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


if __name__ == "__main__":
    main()
