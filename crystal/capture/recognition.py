"""Detect which harness wrote a file outside of all known folders, by which reader understands it."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from crystal.config.harnesses import Root
from crystal.transcript.messages import SnapshotReader
from crystal.transcript.reader import reader_of
from crystal.transcript.snapshot import Snapshot, SourceError

RECOGNIZED_LINES = 50


def most_understood(beginning: bytes, path: Path, roots: Sequence[Root]) -> Root:
    """Return the root whose reader understands most of a file's beginning; the first of those that are equal."""
    return max(roots, key=lambda root: understood(beginning, path, root))


def understood(beginning: bytes, path: Path, root: Root) -> int:
    """Return how much of a file's beginning the reader of a root understands, 0 for nothing."""
    reader = reader_of(root.harness)
    if isinstance(reader, SnapshotReader) and reader.file_marks:
        return sum(mark in beginning for mark in reader.file_marks)
    if isinstance(reader, SnapshotReader) and root.place.form != "lines":
        with suppress(SourceError):
            return len(list(reader.conversations(Snapshot(path, beginning, lambda *_: iter(()), {}))))
        return 0
    lines = beginning.split(b"\n")[:RECOGNIZED_LINES]
    facts = (reader.facts(line) for line in lines)
    said = sum(one.is_conversation and (one.uuid is not None or not reader.lines_are_complete) for one in facts)
    return said + len(list(reader.turns(enumerate(lines), path.stem, subagent=False)))
