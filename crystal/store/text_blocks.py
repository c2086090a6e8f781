"""Store the texts of chunks in blocks, each compressed as a whole.

The texts of one transaction become blocks; small blocks are combined later. A block is never changed: when a chunk is
deleted, the other texts get a new block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from crystal.store.connection import GIVEN, Store
from crystal.store.notes import read_note, write_note
from crystal.store.texts import BLOCK_SIZE, pack_block, reference

PACKED_TO, SEEN_TO = "texts_packed_to", "texts_seen_to"
"""Keys in ``meta`` of the chunks up to which texts are in large blocks, and were examined."""

MIN_CHUNKS = 64
"""Minimum number of new chunks to examine."""

MANY = 2_000
"""Number of chunks that are read for one transaction."""


def put_texts(store: Store, texts: Iterable[tuple[int, str]]) -> None:
    """Store the texts of new chunks in blocks. Inside a transaction."""
    block: list[tuple[int, str]] = []
    size = 0
    for one in texts:
        block.append(one)
        size += len(one[1])
        if size >= BLOCK_SIZE or len(block) == MANY:
            _write_block(store, block)
            block, size = [], 0
    if block:
        _write_block(store, block)


def take_texts(store: Store, ids: Sequence[int]) -> None:
    """Remove the texts of some chunks from their blocks. Inside a transaction."""
    blocks = store.rows(
        f"SELECT id, first, last FROM text_blocks WHERE id IN (SELECT block_of(body) FROM chunks WHERE id IN {GIVEN})",
        (ids,),
    )
    for block, first, last in blocks:
        others = store.rows(
            f"SELECT id, text FROM chunks WHERE id BETWEEN ? AND ? AND block_of(body) = ? AND id NOT IN {GIVEN}",
            (first, last, block, ids),
        )
        put_texts(store, others)
        store.execute("DELETE FROM text_blocks WHERE id = ?", (block,))


def is_due(store: Store) -> bool:
    """Return True if new chunks may have enough small blocks for a large one. Fast: it reads two numbers."""
    return int(store.value("SELECT max(id) FROM chunks") or 0) - _number(store, SEEN_TO) >= MIN_CHUNKS


def pack_texts(store: Store, should_stop: Callable[[], bool]) -> bool:
    """Combine small blocks in short transactions until too few are left for a large one. Return False if stopped."""
    is_done = False
    while not is_done:
        if should_stop():
            return False
        with store.transaction():
            is_done = _pack_some(store)
    return True


def texts_alone(store: Store) -> int:
    """Return the number of texts in blocks that belong to no chunk."""
    used = "SELECT count(*) FROM chunks WHERE block_of(body) IN (SELECT id FROM text_blocks)"
    return int(store.value(f"SELECT (SELECT coalesce(sum(texts), 0) FROM text_blocks) - ({used})"))


def _number(store: Store, note: str) -> int:
    return int(read_note(store, note) or 0)


def _pack_some(store: Store) -> bool:
    """Make the next large blocks; return True if too little is left for another one."""
    sql = f"SELECT id, text FROM chunks WHERE id > ? ORDER BY id LIMIT {MANY}"
    rows = store.rows(sql, (_number(store, PACKED_TO),))
    is_last = len(rows) < MANY
    size, end = 0, 0 if is_last else len(rows)
    for at, (_, text) in enumerate(rows if is_last else ()):
        size += len(text)
        if size >= BLOCK_SIZE:
            size, end = 0, at + 1
    if end:
        take_texts(store, [ident for ident, _ in rows[:end]])
        put_texts(store, rows[:end])
        write_note(store, PACKED_TO, str(rows[end - 1][0]))
    if rows:
        write_note(store, SEEN_TO, str(rows[-1][0]))
    return is_last


def _write_block(store: Store, texts: Sequence[tuple[int, str]]) -> None:
    ids = [ident for ident, _ in texts]
    body = pack_block([text for _, text in texts])
    block = store.insert("text_blocks", "first, last, texts, body", min(ids), max(ids), len(texts), body)
    bodies = [(reference(block, at), ident) for at, ident in enumerate(ids)]
    store.execute_many("UPDATE chunks SET body = ? WHERE id = ?", bodies)
