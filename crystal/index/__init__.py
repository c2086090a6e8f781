"""The derived index beside crystal.db: words and vectors in mapped files, made again whenever they are lost."""

from __future__ import annotations

from pathlib import Path

from crystal.store import Store, index_log


def folder_of(db: Path) -> Path:
    """Where the index of a store lies: ``crystal.db`` has its own in ``index/crystal/`` beside it."""
    return db.parent / "index" / db.stem


def bring_up_to_date(store: Store, *, now: int, budget_seconds: float = 20.0) -> bool:
    """Put into the index what is not in it yet; costs one SELECT when there is nothing.

    Call it outside of transactions, and in one process at a time (two do no harm, but the work twice).

    Returns:
        True when something is left for the next call.
    """
    if not index_log.is_due(store):
        return False
    from crystal.index.refresh import refresh

    return refresh(store, folder_of(store.path), now=now, budget_seconds=budget_seconds).left > 0
