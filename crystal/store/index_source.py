"""What the derived index is made of: chunks with their place in the conversation, and their vectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from crystal.store.connection import Row, Store, translated
from crystal.store.vectors import table_of

PAGE = 500

MANY = 16
"""Vectors of one block of sqlite-vec: it is read as a whole for so many."""


class DocumentRow(NamedTuple):
    """A chunk without its text. ``offset`` and ``part`` are its turn's."""

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
    """Chunks with their texts from an id downwards, read one by one."""
    with translated(store.path):
        for row in store.db.execute(_DOCUMENTS + "WHERE c.id <= ? ORDER BY c.id DESC", (newest,)):
            yield _document(row)


def documents(store: Store, ids: Sequence[int]) -> Iterator[tuple[DocumentRow, str]]:
    """Some chunks with their texts, in any order; ids that are gone are left out."""
    for some in _pages(ids):
        for row in store.rows(f"{_DOCUMENTS}WHERE c.id IN ({', '.join('?' * len(some))})", some):
            yield _document(row)


def vectors(store: Store, generation: int, ids: Sequence[int]) -> Iterator[tuple[int, bytes]]:
    """The vectors that a generation has of some chunks, as (id, signed bytes), in any order."""
    table = table_of(generation)
    if store.value("SELECT 1 FROM embedding_generations WHERE id = ?", (generation,)) is None:
        return
    # sqlite-vec reads all its rows for an IN, and looks one up in 20 to 50 microseconds; a block of its own has 1,024.
    size = int(store.value("SELECT dimension FROM embedding_generations WHERE id = ?", (generation,)))
    places = []
    for some in _pages(ids):
        marks = ", ".join("?" * len(some))
        places += store.rows(f"SELECT chunk_id, chunk_offset, rowid FROM {table}_rowids WHERE rowid IN ({marks})", some)
    for block, group in groupby(sorted(places), key=lambda place: place[0]):
        rows = list(group)
        if len(rows) < MANY:
            for _, _, ident in rows:
                yield ident, store.value(f"SELECT embedding FROM {table} WHERE rowid = ?", (ident,))
            continue
        data = store.value(f"SELECT vectors FROM {table}_vector_chunks00 WHERE rowid = ?", (block,))
        for _, at, ident in rows:
            yield ident, data[at * size : (at + 1) * size]


def ids_where(store: Store, sql: str, values: Sequence[object]) -> list[int]:
    """The chunks that fulfil a condition on columns of ``chunks``."""
    return [int(ident) for (ident,) in store.rows(f"SELECT id FROM chunks WHERE {sql}", values)]


def copied_turns(store: Store, session: int) -> list[int]:
    """The turns of other sessions that stand in the transcript of this one too."""
    return [int(turn) for (turn,) in store.rows("SELECT turn FROM turn_copies WHERE session = ?", (session,))]


def _document(row: Row) -> tuple[DocumentRow, str]:
    return DocumentRow(*row[:-1]), row[-1]


def _pages(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    for at in range(0, len(ids), PAGE):
        yield ids[at : at + PAGE]
