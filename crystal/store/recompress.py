"""Rewrite the rows of an older crystal during a migration: compress texts, store vectors as signed bytes.

The blocks of sqlite-vec are rewritten as a whole: row by row would take a hundred times as long.
"""

from __future__ import annotations

from typing import Any

import apsw

from crystal.store.vector_bytes import rounded

SPARSE = "pages_are_sparse"
"""Key of the note that the file must be rewritten later because its pages are half empty. See space.py."""

_PARTS = ("chunks", "rowids", "vector_chunks00")
_COLUMNS = {
    "chunks": "chunk_id, size, validity, rowids",
    "rowids": "rowid, id, chunk_id, chunk_offset",
    "vector_chunks00": "_rowid_, rowid, vectors",
}


def rewrite(db: apsw.Connection) -> None:
    """Rewrite all texts and vectors of a store."""
    db.execute("UPDATE chunks SET body = packed(body) WHERE typeof(body) = 'text'")
    db.execute("INSERT INTO meta (key, value) VALUES (?, '1') ON CONFLICT DO NOTHING", (SPARSE,))
    for ident, dimension in list(db.execute("SELECT id, dimension FROM embedding_generations")):
        _rewrite_vectors(db, f"chunks_vec_{int(ident)}", int(dimension))


def _rewrite_vectors(db: apsw.Connection, table: str, dimension: int) -> None:
    def of_block(data: bytes) -> bytes:
        size = 4 * dimension
        return b"".join(rounded([data[at : at + size] for at in range(0, len(data), size)], dimension))

    convert: Any = of_block
    db.create_scalar_function("rounded_block", convert, 1)
    # sqlite-vec opens a block by its real row number, which its column ``rowid`` hides.
    values = {"vector_chunks00": "_rowid_ AS place, rowid, rounded_block(vectors)"}
    for part in _PARTS:
        db.execute(f"CREATE TABLE moving_{part} AS SELECT {values.get(part, _COLUMNS[part])} FROM {table}_{part}")
    db.execute(f"DROP TABLE {table}")
    db.execute(f"CREATE VIRTUAL TABLE {table} USING vec0(embedding int8[{dimension}] distance_metric=cosine)")
    for part in _PARTS:
        db.execute(f"INSERT INTO {table}_{part} ({_COLUMNS[part]}) SELECT * FROM moving_{part}")
        db.execute(f"DROP TABLE moving_{part}")
    db.create_scalar_function("rounded_block", None, 1)
