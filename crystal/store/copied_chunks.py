"""Write chunks into a new database with the schema of OpenClaw's context-embeddings."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

import apsw

from crystal.model.named_tuple import NamedTuple


class CopiedChunk(NamedTuple):
    """A piece of a message with its vector; ``timestamp`` in ms."""

    id: int
    agent_id: str | None
    session_key: str | None
    chunk_text: str | None
    role: str | None
    timestamp: int | None
    source_type: str | None
    embedding: tuple[float, ...]


def write_chunks(path: Path, chunks: Iterable[CopiedChunk]) -> None:
    """Write the chunks into a new database."""
    db = apsw.Connection(str(path))
    try:
        db.execute(
            "CREATE TABLE conversation_chunks (id INTEGER PRIMARY KEY, agent_id TEXT, session_key TEXT,"
            " chunk_text TEXT, role TEXT, timestamp INTEGER, source_type TEXT,"
            " embedding BLOB)"
        )
        with db:
            for one in chunks:
                vector = struct.pack(f"<{len(one.embedding)}f", *one.embedding)
                db.execute("INSERT INTO conversation_chunks VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*one[:-1], vector))
    finally:
        db.close()
