"""Read the input of the derived index: chunks with their place in the conversation, and their vectors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter

import apsw

from crystal.errors import StoreDamagedError
from crystal.model.named_tuple import NamedTuple
from crystal.store.connection import GIVEN, Row, Store
from crystal.store.search.vectors import table_of

MANY = 100
"""With more than this many wanted vectors in it, a block of sqlite-vec (1,024 vectors) is read as a whole."""


class DocumentRow(NamedTuple):
    """A chunk without its text. ``offset`` and ``part`` are those of its turn."""

    id: int
    session: int | None
    turn: int | None
    project: int | None
    ts: int | None
    offset: int | None
    part: int | None
    start: int
    role: str
    source: str
    agent: str
    device: str
    branch: str | None
    subagent: str | None


_DOCUMENTS = """
SELECT c.id, c.session, c.turn, c.project, c.ts, t.offset, t.part, c.start, c.role, c.source, c.agent, c.device,
       c.branch, c.subagent, c.text
FROM chunks AS c LEFT JOIN turns AS t ON t.id = c.turn
"""


def documents_down_from(store: Store, newest: int) -> Iterator[tuple[DocumentRow, str]]:
    """Yield chunks with their texts, one by one, from an id downwards."""
    return map(_document, store.stream(f"{_DOCUMENTS} WHERE c.id <= ? ORDER BY c.id DESC", (newest,)))


def documents(store: Store, ids: Sequence[int]) -> Iterator[tuple[DocumentRow, str]]:
    """Yield some chunks with their texts, in any order; deleted chunks are left out."""
    return map(_document, store.stream(f"{_DOCUMENTS} WHERE c.id IN {GIVEN}", (ids,)))


def vectors(store: Store, generation: int, ids: Sequence[int]) -> Iterator[tuple[int, bytes]]:
    """Yield a generation's vectors of some chunks, as (id, signed bytes), in any order."""
    with _damage_translated(store):
        for size, rows, block in _blocks(store, generation, ids):
            data = block.read() if len(rows) > MANY else b""
            for _, at, ident in rows:
                if data:
                    yield ident, data[at * size : (at + 1) * size]
                    continue
                block.seek(at * size)
                yield ident, block.read(size)


def blocks_of_vectors(store: Store, generation: int, ids: Sequence[int]) -> Iterator[tuple[Row, Row, bytes]]:
    """Yield the same by block: the chunks, the row of each in the block, and the rows, one after the other."""
    with _damage_translated(store):
        for size, rows, block in _blocks(store, generation, ids):
            _, places, chunks = zip(*rows, strict=True)
            data = block.read()
            if len(data) % size or len(data) <= max(places) * size:
                raise ValueError("a block has another length")
            yield chunks, places, data


@contextlib.contextmanager
def _damage_translated(store: Store) -> Iterator[None]:
    """Translate the errors of a block, or a place in it, that does not exist."""
    try:
        yield
    except (apsw.SQLError, ValueError) as error:
        words = f"{store.path}: its vectors are damaged"
        raise StoreDamagedError(words, hint="run: crystal verify --repair") from error


def _blocks(store: Store, generation: int, ids: Sequence[int]) -> Iterator[tuple[int, list[Row], apsw.Blob]]:
    """Yield the size of a vector, the (block, row, id) of all chunks in one block, and the block."""
    size = store.value("SELECT dimension FROM embedding_generations WHERE id = ?", (generation,))
    if size is None or not ids:
        return
    # For an IN, sqlite-vec reads all rows; one row takes 20 to 50 microseconds. So whole blocks are read instead.
    table = table_of(generation)
    sql = f"SELECT chunk_id, chunk_offset, rowid FROM {table}_rowids WHERE rowid IN {GIVEN}"
    places = sorted(store.rows(sql, (ids,)))
    if not places:
        return
    blocks = store.db.blob_open("main", f"{table}_vector_chunks00", "vectors", places[0][0], False)
    try:
        for block, group in groupby(places, key=itemgetter(0)):
            blocks.reopen(block)
            yield int(size), list(group), blocks
    finally:
        blocks.close(True)  # without the error of a read that failed, which its reader has


def ids_where(store: Store, sql: str, values: Sequence[object], limit: int = -1) -> list[int]:
    """Return the chunks that meet a condition on columns of ``chunks``; all chunks if it is empty."""
    return store.all(int, f"SELECT id FROM chunks WHERE {sql or 'TRUE'} LIMIT ?", (*values, limit))


def copied_turns(store: Store, session: int) -> list[int]:
    """Return the turns of other sessions that are in the transcript of this one too."""
    return store.all(int, "SELECT turn FROM turn_copies WHERE session = ?", (session,))


def _document(row: Row) -> tuple[DocumentRow, str]:
    return DocumentRow(*row[:-1]), row[-1]
