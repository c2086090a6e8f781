"""Store a filter of the words in each block of archived lines. Triggers delete a block if its lines change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crystal.model.named_tuple import NamedTuple
from crystal.store.connection import Store

if TYPE_CHECKING:
    from crystal.store.forget.forgotten_rows import KeptRow

BLOCK_BYTES = 1 << 20
"""Compressed bytes of the archives whose words one block has."""
_MAX_ROW = (1 << 63) - 1


class WordBlock(NamedTuple):
    """A filter of the words in the lines of ledger rows ``first`` to ``last``."""

    first: int
    last: int
    words: bytes


def all_blocks(store: Store) -> list[WordBlock]:
    """Return all blocks, in the order of the ledger."""
    return store.all(WordBlock, "SELECT first, last, words FROM archive_words ORDER BY last")


def are_words_due(store: Store) -> bool:
    """Return True if there are rows for a new block."""
    return _range_due(store) is not None


def rows_due(store: Store) -> list[KeptRow]:
    """Return the rows of the next block to add; empty if none are due."""
    from crystal.store.forget.forgotten_rows import kept_rows_between  # noqa: PLC0415 - a turn asks if some are due

    rows: list[KeptRow] = []
    size = 0
    for row in kept_rows_between(store, *(_range_due(store) or (0, 0))):
        rows.append(row)
        size += row.length
        if size >= BLOCK_BYTES:
            break
    return rows


def _range_due(store: Store) -> tuple[int, int] | None:
    """Return the first and last id of rows without a block: a gap before an existing block, or enough to fill one."""
    gap = store.row(
        "SELECT before + 1, first - 1 FROM (SELECT first, lag(last, 1, 0) OVER (ORDER BY last) AS before"
        " FROM archive_words) WHERE EXISTS (SELECT 1 FROM segments WHERE id > before AND id < first"
        " AND archive_length > 0) LIMIT 1"
    )
    if gap is not None:
        return int(gap[0]), int(gap[1])
    last = int(store.value("SELECT coalesce(max(last), 0) FROM archive_words"))
    left = store.value("SELECT total(archive_length) FROM segments WHERE id > ?", (last,))
    return (last + 1, _MAX_ROW) if left >= BLOCK_BYTES else None


def add_block(store: Store, rows: list[KeptRow], words: bytes) -> None:
    """Store the word filter of some rows, unless their lines have changed since. Inside a transaction."""
    from crystal.store.forget.forgotten_rows import kept_rows_between  # noqa: PLC0415 - as above

    first, last = rows[0].id, rows[-1].id
    if list(kept_rows_between(store, first, last)) == rows:
        store.insert("archive_words", "first, last, words", first, last, words)


def drop_blocks(store: Store, form: bytes) -> None:
    """Delete the blocks whose filter does not begin with ``form``."""
    store.execute("DELETE FROM archive_words WHERE substr(words, 1, ?) != ?", (len(form), form))
