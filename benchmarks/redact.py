"""How fast secrets are looked for, against reading the same lines as JSON, and what is found.

Run: python benchmarks/redact.py [--show] [--engines] [--hostile] [FILE|FOLDER...]

Without arguments the fixtures of the tests are read. ``--show`` prints each different finding with what stands around
it, to be judged by eye: for files that hold no secret of yours. ``--engines`` compares the ways to look first.

``--hostile`` cleans 1 MB of what rules begin with, in one text, in short lines and in lines of a transcript, and fails
below 5 MB/s (the last: below 1 MB/s).

Processor time is measured, of one core, in a process of its own: the automaton of the first look is built while it
reads, so the first pass over new text is slower than any later one.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import orjson

from crystal.redact import Redactor, prefilter, regex_engines
from crystal.redact.spans import Cut

FIXTURES = Path(__file__).parent.parent / "tests" / "data" / "transcripts"


class Watched(Redactor):
    """A redactor that remembers what it took out, and what stood around it."""

    def __init__(self) -> None:
        super().__init__(b"a key for measuring")
        self.seen: dict[tuple[str, bytes], bytes] = {}

    def _spliced(self, source: bytes, cuts: list[Cut]) -> bytes:
        for cut in cuts:
            around = source[max(0, cut.start - 70) : cut.start] + b" >>> <<< " + source[cut.end : cut.end + 30]
            self.seen.setdefault((cut.kind, cut.secret[:120]), around)
        return super()._spliced(source, cuts)


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
    hints = prefilter.secret_hints()
    looks: dict[str, Callable[[bytes], object]] = {
        "re, one pattern": re.compile(b"|".join(b"(?:" + hint + b")" for hint in hints)).search,
        "re2, one pattern": regex_engines.scanner(tuple(hints)),
    }
    for name, look in looks.items():
        few = lines if "re2" in name else lines[:: max(1, sum(map(len, lines)) // 3_000_000)]
        passed = sum(len(line) for line in few if look(line)) / sum(map(len, few))
        print(f"  {name:30} {rate(few, look):7.0f} MB/s, {passed:.2%} of the bytes go on to the rules")


HOSTILE = (
    *(
        "password=",
        "AKIA",
        "-ppassword=",
        "://",
        "http://a:b",
        "eyJ",
        "Bearer ",
        "sk-",
        "<private>",
        "<crystal-memory>",
    ),
    *(
        "token=abc123def456 ",
        "password=hunter2 ",
        "AKIAIOSFODNN7EXAMPLF ",
        "-----BEGIN PRIVATE KEY-----",
        "%3D",
        "abandon ",
        "\\",
        "\\u0041",
        "QUtJQ",
        "414b4941",
        "-u a:bb ",
        "--token abc123def ",
        "password is ab1 ",
        "api_key = 'x1y2z3a4b5c6d7'\n",
        '"password": "a1b2c3d4",\n',
        "Authorization: Bearer abcdefgh12 ",
    ),
)
MIN_RATE, MIN_RATE_NEW = 5.0, 1.0
"""MB a second: of what repeats, and of lines of which each holds secrets that were not seen before."""
PROSE = "The tests of the parser fail since line 12 of src/main.py says x = y + 1; see the log.\n"


HOSTILE_BYTES = 1_000_000
LINE_BYTES = (20, 60, 200)
SECRETS = " password=hunter2 http://ada:hunter22@host curl -u ada:hunter22 x"


def one_text(prefix: str) -> list[bytes]:
    """Return one line with one long string."""
    return [orjson.dumps({"content": prefix * (HOSTILE_BYTES // len(prefix)) + SECRETS})]


def lines_in_one_text(prefix: str) -> list[bytes]:
    """Return one line with one string of many short lines."""
    return one_text("".join(f"{row}\n" for row in _rows(prefix)))


def short_lines(prefix: str) -> list[bytes]:
    """Return many short lines of JSON."""
    rows = [orjson.dumps({"a": row}) for row in _rows(prefix)]
    return rows * (HOSTILE_BYTES // sum(map(len, rows)))


def short_texts(prefix: str) -> list[bytes]:
    """Return many short lines that are no JSON."""
    rows = [row.encode() for row in _rows(prefix)]
    return rows * (HOSTILE_BYTES // sum(map(len, rows)))


def transcript_lines(prefix: str) -> list[bytes]:
    """Return lines as the client writes them, no two of them equal, each with a short text that differs too."""
    return [
        orjson.dumps(
            {
                "parentUuid": f"8f244c76-0000-4000-8000-{number:012x}",
                "isSidechain": False,
                "type": "user",
                "message": {"role": "user", "content": [{"type": "text", "text": f"{row}{number}"}]},
                "uuid": f"8f244c76-0000-4000-8001-{number:012x}",
                "timestamp": f"2026-01-01T00:00:00.{number % 1000:03}Z",
                "cwd": "/home/ada/shop",
                "sessionId": "8f244c76-0000-4000-8000-000000000000",
                "version": "2.0.0",
                "gitBranch": "main",
            }
        )
        for number in range(HOSTILE_BYTES // 500)
        for row in _rows(prefix)[number % 3 : number % 3 + 1]
    ]


def _rows(prefix: str) -> list[str]:
    return [(prefix * size)[:size] for size in LINE_BYTES]


# The last one is that of what does not repeat.
SHAPES = (one_text, lines_in_one_text, short_lines, short_texts, transcript_lines)


def measure_hostile() -> bool:
    """Print the speed for each hostile text in each shape; return whether all are fast."""
    redactor = Redactor(b"a key for measuring")
    prose = [orjson.dumps({"content": PROSE * (HOSTILE_BYTES // len(PROSE))})]
    redactor.clean_line(prose[0])
    print(f"  {'MB/s of prose':34} {rate(prose, redactor.clean_line):7.1f}")
    print(f"  {'MB/s of hostile text':34}", *(f"{shape.__name__.replace('_', ' '):>18}" for shape in SHAPES))
    slow = False
    for prefix in HOSTILE:
        row = [rate(shape(prefix), redactor.clean_line) for shape in SHAPES]
        print(f"  {prefix!r:34}", *(f"{speed:18.1f}" for speed in row))
        slow = slow or min(row[:-1]) < MIN_RATE or row[-1] < MIN_RATE_NEW
    return not slow


def main() -> None:
    parser = argparse.ArgumentParser(description="How fast secrets are looked for, and what is found.")
    parser.add_argument("places", nargs="*", type=Path, default=[FIXTURES])
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--engines", action="store_true")
    parser.add_argument("--hostile", action="store_true")
    options = parser.parse_args()
    lines = lines_of(options.places)
    redactor = Watched()
    counts: Counter[str] = Counter()
    first = rate(lines, redactor.clean_line)
    redactor.seen.clear()
    again = rate(lines, lambda line: counts.update(redactor.clean_line(line)[1]))
    baseline = rate(lines, parsed)
    on = [line for line in lines if redactor._may_hold(line)]
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
    if options.hostile and not measure_hostile():
        sys.exit(f"slower than {MIN_RATE} MB/s, or {MIN_RATE_NEW} MB/s for lines of a transcript")


if __name__ == "__main__":
    main()
