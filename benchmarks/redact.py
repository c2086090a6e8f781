"""How fast secrets are looked for, against reading the same lines as JSON, and what is found.

Run: python benchmarks/redact.py [--show] [--engines] [--hostile [--every N]] [--mixtures N] [FILE|FOLDER...]

Without arguments the fixtures of the tests are read. ``--show`` prints each different finding with what stands around
it, to be judged by eye: for files that hold no secret of yours. ``--engines`` compares the ways to look first.

``--hostile`` cleans 1 MB of what each rule begins with, repeated and before random letters, each in a new process,
and fails below 5 MB/s. ``--every N`` measures each n-th rule.

``--mixtures N`` cleans N lines of 1 MB, each in a new process, and fails below 5 MB/s: every other one mixes the
samples of all rules in many forms, the others say one thing over and over. So that a busy machine does not count, each
is measured beside a fixed piece of work; the speed is what it would be where that work took the least time. The
slowest are measured twice, and 2 MB of them, too.

Processor time is measured, of one core: the automata of the first look are built while they read, so the first pass
over new text is slower than any later one.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from math import inf
from multiprocessing import Pipe
from pathlib import Path

import orjson

from crystal.redact import Redactor, prefilter, regex_engines
from crystal.redact.spans import Cut
from tests.support.hostile_texts import ALPHABETS, PREFIXES, WIDTHS, before_random, mixture, repeated, series

FIXTURES = Path(__file__).parent.parent / "tests" / "data" / "transcripts"


class Watched(Redactor):
    """A redactor that remembers what it took out, and what stood around it."""

    def __init__(self) -> None:
        super().__init__(b"a key for measuring")
        self.seen: dict[tuple[str, bytes], bytes] = {}

    def _spliced(self, source: bytes, cuts: list[Cut], marks: list[bytes]) -> bytes:
        for cut in cuts:
            around = source[max(0, cut.start - 70) : cut.start] + b" >>> <<< " + source[cut.end : cut.end + 30]
            self.seen.setdefault((cut.kind, cut.secret[:120]), around)
        return super()._spliced(source, cuts, marks)


def lines_of(places: Iterable[Path]) -> list[bytes]:
    """Read the lines of all transcripts in the places, each once."""
    files = [file for place in places for file in (sorted(place.rglob("*.jsonl")) if place.is_dir() else [place])]
    return list(dict.fromkeys(line for file in files for line in file.read_bytes().split(b"\n") if line))


def rate(lines: Sequence[bytes], work: Callable[[bytes], object]) -> float:
    """Return the MB a second at which the work goes through the lines once."""
    start = time.process_time()
    for line in lines:
        work(line)
    return sum(map(len, lines)) / max(time.process_time() - start, 1e-9) / 1e6


def parsed(line: bytes) -> object:
    """Do what everything is compared to."""
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return None


def compare_engines(lines: Sequence[bytes]) -> None:
    """Print the speed of each way to look first."""
    hints = [hint for group in prefilter.secret_hints() for hint in group]
    looks: dict[str, Callable[[bytes], object]] = {
        "re, one pattern": re.compile(b"|".join(b"(?:" + hint + b")" for hint in hints)).search,
        "re2, one pattern": regex_engines.scanner(tuple(hints)),
    }
    for name, look in looks.items():
        few = lines if "re2" in name else lines[:: max(1, sum(map(len, lines)) // 3_000_000)]
        passed = sum(len(line) for line in few if look(line)) / sum(map(len, few))
        print(f"  {name:30} {rate(few, look):7.0f} MB/s, {passed:.2%} of the bytes go on to the rules")


HOSTILE_BYTES = 1_000_000
MIN_RATE = 5.0
PROSE = "The tests of the parser fail since line 12 of src/main.py says x = y + 1; see the log.\n"


def cold_rate(text: str) -> float:
    """Return the MB a second at which a process that has read nothing before cleans a line of the text."""
    line = orjson.dumps({"content": text})
    return len(line) / cold_seconds(line) / 1e6


def cold_seconds(line: bytes) -> float:
    """Return the processor time in which a process that has read nothing before cleans a line.

    The automata grow with what they read: a second text of the same kind is read up to ten times as fast.
    """
    receiver, sender = Pipe(duplex=False)
    child = os.fork()
    if child == 0:
        start = time.process_time()
        _, findings = Redactor(b"a key for measuring").clean_line(line)
        sender.send(inf if "unprocessable" in findings else time.process_time() - start)
        os._exit(0)
    os.waitpid(child, 0)
    found: float = receiver.recv()
    return found


def measure_hostile(every: int) -> bool:
    """Print the speed for what each rule begins with; return whether all are fast.

    Random letters are measured in each alphabet, in lines of a width that changes from one to the next: eight
    widths and seven alphabets, so that each prefix meets each alphabet at another width.
    """
    prefilter.secret_prefilter()
    baseline = cold_rate(PROSE * (HOSTILE_BYTES // len(PROSE)))
    print(f"  {'MB/s of prose':24} {baseline:7.1f}")
    print(f"  {'MB/s of hostile text':24} repeated", *(f"{alphabet:>12}" for alphabet in ALPHABETS))
    widths = itertools.cycle(WIDTHS)
    lowest = baseline
    for prefix in PREFIXES[::every]:
        row = [cold_rate(repeated(prefix, HOSTILE_BYTES))] if prefix else [baseline]
        row += [cold_rate(before_random(prefix, alphabet, next(widths), HOSTILE_BYTES)) for alphabet in ALPHABETS]
        print(f"  {prefix!r:24} {row[0]:8.1f}", *(f"{speed:12.1f}" for speed in row[1:]), flush=True)
        lowest = min(lowest, *row)
    print(f"  the slowest: {lowest:.1f} MB/s, {baseline / lowest:.0f} times as long as prose")
    return lowest >= MIN_RATE


def reference_seconds() -> float:
    """Return the processor time of a fixed piece of work: a program beside this one makes both slower."""
    start = time.process_time()
    for _ in re.finditer(rb"[a-z]+", PROSE.encode() * 3000):
        pass
    return time.process_time() - start


def measure_mixtures(count: int) -> bool:
    """Print the slowest mixtures; return whether all are fast, and twice as long ones take twice as long."""
    prefilter.secret_prefilter()
    times = [_mixture_seconds(seed, HOSTILE_BYTES) for seed in range(count)]
    least = min(reference for _, _, reference in times)
    speeds = sorted(
        (size / seconds * reference / least / 1e6, seed) for seed, (size, seconds, reference) in enumerate(times)
    )
    print(f"  {count} mixtures: slowest {speeds[0][0]:.1f} MB/s, median {speeds[count // 2][0]:.1f} MB/s")
    growths, best = [], []
    for speed, seed in [row for number, row in enumerate(speeds) if number < 5 or row[0] < MIN_RATE]:
        one, two = _mixture_seconds(seed, HOSTILE_BYTES), _mixture_seconds(seed, 2 * HOSTILE_BYTES)
        growths.append(two[1] / two[2] / two[0] / (one[1] / one[2] / one[0]) * 2)
        best.append(max(speed, one[0] / one[1] * one[2] / least / 1e6))
        print(f"  mixture {seed:6}: {best[-1]:5.1f} MB/s; twice as much takes {growths[-1]:.2f} times as long")
    return min(best) >= MIN_RATE and max(growths) <= MAX_GROWTH


MAX_GROWTH = 2.3


def _mixture_seconds(seed: int, size: int) -> tuple[int, float, float]:
    line = (mixture, series)[seed % 2](seed // 2, size)
    before = reference_seconds()
    seconds = cold_seconds(line)
    return len(line), seconds, (before + reference_seconds()) / 2


def main() -> None:
    parser = argparse.ArgumentParser(description="How fast secrets are looked for, and what is found.")
    parser.add_argument("places", nargs="*", type=Path, default=[FIXTURES])
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--engines", action="store_true")
    parser.add_argument("--hostile", action="store_true")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--mixtures", type=int, default=0)
    options = parser.parse_args()
    lines = lines_of(options.places)
    redactor = Watched()
    counts: Counter[str] = Counter()
    first = rate(lines, redactor.clean_line)
    redactor.seen.clear()
    again = rate(lines, lambda line: counts.update(redactor.clean_line(line)[1]))
    baseline = rate(lines, parsed)
    on = [line for line in lines if redactor._may_hold(line, len(line))]
    size = sum(map(len, lines))
    print(f"{size / 1e6:.1f} MB in {len(lines):,} different lines; {sum(map(len, on)) / size:.2%} pass the first look")
    print(f"  orjson.loads {baseline:7.0f} MB/s")
    print(f"  first pass   {first:7.0f} MB/s, {baseline / first:.1f} times as long")
    print(f"  second pass  {again:7.0f} MB/s, {baseline / again:.1f} times as long")
    print("  findings    ", dict(counts.most_common()) or "none", f"({len(redactor.seen)} different)")
    if options.show:
        for (kind, secret), around in sorted(redactor.seen.items()):
            print(f"  {kind:20} {secret!r}\n{'':23}{around!r}")
    if options.engines:
        compare_engines(lines)
    if options.hostile and not measure_hostile(options.every):
        sys.exit(f"slower than {MIN_RATE} MB/s")
    if options.mixtures and not measure_mixtures(options.mixtures):
        sys.exit(f"a mixture is slower than {MIN_RATE} MB/s, or grows faster than its size")


if __name__ == "__main__":
    main()
