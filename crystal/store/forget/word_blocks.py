"""Keep for blocks of archived lines which words they may have. Triggers delete a block whose lines change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crystal.model.named_tuple import NamedTuple
from crystal.store.connection import Store

if TYPE_CHECKING:
    from crystal.store.forget.forgotten_rows import KeptRow

BLOCK_BYTES = 1 << 20
"""Bytes of archives, compressed, whose words are kept together."""
_MAX_ROW = (1 << 63) - 1


class WordBlock(NamedTuple):
    """Rows of the ledger from ``first`` to ``last``, and a filter of the words in their lines."""

    first: int
    last: int
    words: bytes


def all_blocks(store: Store) -> list[WordBlock]:
    """Return all blocks, in the order of the ledger."""
    return store.all(WordBlock, "SELECT first, last, words FROM archive_words ORDER BY last")


def are_words_due(store: Store) -> bool:
    """Return True if there are rows that are to become a block."""
    return _range_due(store) is not None


def rows_due(store: Store) -> list[KeptRow]:
    """Return the rows that are to become the next block; none if there are none."""
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
    """Return the first and the last number of rows without a block: those before one, or so many that they fill one."""
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
    """Keep the words of some rows, unless their lines have changed since. Inside a transaction."""
    from crystal.store.forget.forgotten_rows import kept_rows_between  # noqa: PLC0415 - as above

    first, last = rows[0].id, rows[-1].id
    if list(kept_rows_between(store, first, last)) == rows:
        store.insert("archive_words", "first, last, words", first, last, words)


def drop_blocks(store: Store, form: bytes) -> None:
    """Delete the blocks whose filter does not begin with this form."""
    store.execute("DELETE FROM archive_words WHERE substr(words, 1, ?) != ?", (len(form), form))
