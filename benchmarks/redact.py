"""How fast secrets are looked for, against reading the same lines as JSON, and what is found.

Run: python benchmarks/redact.py [--show] [--engines] [--hostile] [FILE|FOLDER...]

Without arguments the fixtures of the tests are read. ``--show`` prints each different finding with what stands around
it, to be judged by eye: for files that hold no secret of yours. ``--engines`` compares the ways to look first.

``--hostile`` cleans lines of 1 MB that repeat what rules begin with, and fails below 5 MB/s.

Processor time is measured, of one core, in a process of its own: the automaton of the first look is built while it
reads, so the first pass over new text is slower than any later one.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import orjson

from crystal.redact import Redactor, engine, prefilter
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
        "re, one pattern": engine.re_search(hints),
        "substrings, then re for a few": prefilter.plain_secret_prefilter(),
    }
    if engine.HAVE_RE2:
        looks["re2, one pattern"] = engine.re2_search(hints)
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
LEAST_RATE = 5.0
PROSE = "The tests of the parser fail since line 12 of src/main.py says x = y + 1; see the log.\n"


def measure_hostile(redactor: Redactor) -> bool:
    """Print the speed for each hostile text, and how many times as long as prose takes; return whether all are fast."""
    plain = orjson.dumps({"content": PROSE * (1_000_000 // len(PROSE))})
    redactor.clean_line(plain)
    usual = rate([plain], redactor.clean_line)
    print(f"  {'prose':32} {usual:7.1f} MB/s")
    slow = 0
    for prefix in HOSTILE:
        text = prefix * (1_000_000 // len(prefix)) + " password=hunter2 http://ada:hunter22@host curl -u ada:hunter22 x"
        speed = rate([orjson.dumps({"content": text})], redactor.clean_line)
        slow += speed < LEAST_RATE
        print(f"  {prefix!r:32} {speed:7.1f} MB/s, {usual / speed:5.1f} times as long")
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
    if options.hostile and not measure_hostile(redactor):
        sys.exit(f"slower than {LEAST_RATE} MB/s")


if __name__ == "__main__":
    main()
