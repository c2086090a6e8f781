"""How fast transcripts become turns and turns become chunks, in MB/s of transcript or text, on one core.

Run: python benchmarks/parse.py [TRANSCRIPT...]; without arguments the fixtures of the tests are read.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from crystal.text.chunking import split
from crystal.transcript.claude_code.reader import READER

FIXTURES = Path(__file__).parent.parent / "tests" / "data" / "transcripts"
ENOUGH_BYTES = 20_000_000


def rate(size: int, work: Callable[[], object]) -> str:
    start = time.perf_counter()
    work()
    return f"{size / (time.perf_counter() - start) / 1e6:7.0f} MB/s"


def main(paths: Sequence[str]) -> None:
    files = [Path(path) for path in paths] or sorted(FIXTURES.glob("*.jsonl"))
    raw = b"".join(file.read_bytes() for file in files)
    raw *= max(1, ENOUGH_BYTES // max(1, len(raw)))
    lines = list(enumerate(raw.split(b"\n")))
    turns = list(READER.turns(lines, "t", subagent=False))
    text = "\n\n".join(turn.text for turn in turns)
    print(f"{len(raw) / 1e6:.0f} MB, {len(lines)} lines, {len(turns)} turns")
    print("facts ", rate(len(raw), lambda: [READER.facts(line) for _, line in lines]))
    print("turns ", rate(len(raw), lambda: list(READER.turns(lines, "t", subagent=False))))
    print("titles", rate(len(raw), lambda: READER.title(lines)))
    print("chunks", rate(len(text.encode()), lambda: split(text)))


if __name__ == "__main__":
    main(sys.argv[1:])
