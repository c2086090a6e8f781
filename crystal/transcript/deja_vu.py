"""The reader of deja-vu's notes: ``notes.jsonl``, an object in each line, which become memories.

Its index can be made again from the transcripts, and is left.

Source: the program's ARCHITECTURE.md; no real file was read.
"""

from __future__ import annotations

from collections.abc import Iterator

from crystal.transcript.line import Fields, digest, parse_line, parse_time, word
from crystal.transcript.messages import Record
from crystal.transcript.snapshot import Snapshot
from crystal.transcript.stores import NO_TEXT, StoredMemory, StoreReader, StoreRow, record_of


class DejaVuReader(StoreReader):
    """See ``StoreReader``."""

    def rows(self, source: Snapshot) -> Iterator[StoreRow]:  # noqa: ARG002 - the interface's
        """Yield nothing: every note is a memory."""
        yield from ()

    def record(self, row: StoreRow, fields: Fields) -> Record:
        """Return the record of a row."""
        return record_of(row, None, (), fields)

    def memories(self, source: Snapshot) -> Iterator[StoredMemory]:
        """Yield the notes."""
        for line in source.data.split(b"\n"):
            if line.strip():
                fields = parse_line(line)
                said = fields or {}
                text, key = word(said.get("text")) or "", digest(line)
                left_out = "not JSON" if fields is None else "" if text else NO_TEXT
                at, project = parse_time(said.get("ts")), word(said.get("project"))
                yield StoredMemory(key, text, "fact", project, at, left_out)


READER = DejaVuReader()
