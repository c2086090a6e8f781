"""The reader of memory-crystal's ``crystal.db``: chunks of messages with their vectors, and memories.

A chunk of a message is a turn. Its vectors are in the tables that sqlite-vec keeps, which are read as they are.

Source: the program's public source up to 0.7.28; no real database was read.
"""

from __future__ import annotations

from collections.abc import Iterator

from crystal.transcript.line import Fields, word
from crystal.transcript.messages import Record
from crystal.transcript.parts import Part
from crystal.transcript.snapshot import Snapshot, SourceError
from crystal.transcript.stores import (
    NO_TEXT,
    StoredMemory,
    StoredVector,
    StoreReader,
    StoreRow,
    record_of,
    role_of,
    session_name,
)
from crystal.transcript.tables import columns_of, moment_of, rows_of

IDS = "memory-crystal"
MODELS = {1536: ("openai", "text-embedding-3-small"), 3072: ("openai", "text-embedding-3-large"),
          768: ("ollama", "nomic-embed-text")}  # fmt: skip
_PREFIXES = ("cc:", "ce:")
NOT_TAKEN = {
    "file": "a piece of a file: crystal sources add has the file",
    "manual": "the text of a memory, which comes as one",
}


class MemoryCrystalReader(StoreReader):
    """See ``StoreReader``."""

    models = MODELS

    def rows(self, source: Snapshot) -> Iterator[StoreRow]:
        """Yield the chunks, then the rows of the tables that repeat or only count them."""
        if "text_hash" not in columns_of(source, "chunks"):
            raise SourceError(f"{source.path} is no database of memory-crystal", hint="name another with --from")
        sql = (
            "SELECT id, text_hash, source_type, source_id, created_at, trim(text) = ''"
            " FROM chunks ORDER BY created_at, id"
        )
        for key, digest, kind, origin, at, is_empty in source.rows(sql):
            left_out = NO_TEXT if is_empty else NOT_TAKEN.get(str(kind), "")
            yield StoreRow("chunks", key, record_id(digest, moment_of(at)), session_of(origin), None, digest, left_out)
        for table, why in (("entities", "crystal keeps no entities"), ("relationships", "crystal keeps no entities")):
            yield from (StoreRow(table, row.get("id"), left_out=why) for row in rows_of(source, table))

    def record(self, row: StoreRow, fields: Fields) -> Record:
        """Return the record of a chunk."""
        said = [Part(role_of(fields.pop("role", None)), word(fields.pop("text", None)) or "")]
        return record_of(row, moment_of(fields.pop("created_at", None)), said, fields)

    def memories(self, source: Snapshot) -> Iterator[StoredMemory]:
        """Yield the memories."""
        for row in rows_of(source, "memories", "ORDER BY id"):
            left_out = "" if row.get("status") == "active" else "forgotten in memory-crystal"
            text, category = word(row.get("text")) or "", str(row.get("category"))
            yield StoredMemory(str(row.get("id")), text, category, None, moment_of(row.get("created_at")), left_out)

    def vectors(self, source: Snapshot) -> Iterator[StoredVector]:
        """Yield the vector of each chunk."""
        if not columns_of(source, "chunks_vec_rowids"):
            return
        for (block,) in source.rows("SELECT chunk_id FROM chunks_vec_chunks ORDER BY chunk_id"):
            data = next(
                source.rows("SELECT vectors FROM chunks_vec_vector_chunks00 WHERE rowid = ?", (block,)), (b"",)
            )[0]
            size = len(data) // next(source.rows("SELECT size FROM chunks_vec_chunks WHERE chunk_id = ?", (block,)))[0]
            sql = (
                "SELECT c.text_hash, c.created_at, c.text, r.chunk_offset FROM chunks_vec_rowids r"
                " JOIN chunks c ON c.id = r.rowid WHERE r.chunk_id = ?"
            )
            for digest, at, text, place in source.rows(sql, (block,)):
                yield StoredVector(record_id(digest, moment_of(at)), text, data[place * size : (place + 1) * size])


def record_id(digest: object, at: int | None) -> str:
    """Return the id of a text that was said at a time: the same in every store that memory-crystal filled."""
    return f"{str(digest)[:32]}-{at or 0}"


def session_of(origin: object) -> str:
    """Return the session of a source's id: memory-crystal puts the kind of its source before it."""
    text = str(origin or "")
    return session_name(next((text.removeprefix(one) for one in _PREFIXES if text.startswith(one)), text))


READER = MemoryCrystalReader()
