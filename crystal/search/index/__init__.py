"""Maintain the derived index beside crystal.db: words and vectors in mapped files, rebuilt whenever they are lost.

Every result can be computed from crystal.db alone; the index makes it fast. ``open_index.open_index`` opens it for a
search, ``bring_up_to_date`` updates it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from crystal.store import Store
from crystal.store.search import index_log

MAX_FRESH = 5_000
"""Maximum number of new chunks that a search reads beside the files; with more, the index counts as behind."""

MAX_ENTRIES = 50_000


folder_of = index_log.folder_of


def bring_up_to_date(
    store: Store, *, now: int, budget_seconds: float = 20.0, progress: Callable[[int, int], None] = lambda *_: None
) -> bool:
    """Add new chunks to the index. If there are none, this costs one SELECT and a check of the files.

    Call it outside of transactions, and in one process at a time: two do no harm, but the work of one is lost.

    Returns:
        True if work is left for the next call.

    Raises:
        StoreBusyError, StoreFullError, OSError: The index is unchanged, or partly updated; nothing else is changed.
    """
    folder = folder_of(store.path)
    if not index_log.has_news(store) and not any(index_log.changed_files(store)):
        return False
    from crystal.search.index.refresh import refresh

    return refresh(store, folder, now=now, budget_seconds=budget_seconds, progress=progress)


def why_unusable(store: Store) -> str | None:
    """Return why searches cannot use the index, None if they can. Checks the list and the files' sizes, reads no file.

    Call it inside ``store.reading()``.
    """
    lost = (why for why, is_lost in index_log.changed_files(store) if is_lost)
    return why_unready(store, index_log.read_state(store)) or next(lost, None)


def why_unready(store: Store, state: index_log.State | None) -> str | None:
    """Return the same without checking the files, which ``open_index`` checks one by one."""
    if state is None:
        return "it is not made yet"
    if state.format != index_log.FORMAT:
        return "it was made by another version of crystal"
    if state.to_read is not None:
        return "it is being made"
    entries = index_log.count_log(store)[0]
    if entries > MAX_ENTRIES:
        return f"it is behind by {entries:,} changes"
    fresh = len(index_log.read_log(store).fresh) if entries > MAX_FRESH else 0
    return f"it is behind by {fresh:,} chunks" if fresh > MAX_FRESH else None


def discard(db: Path) -> None:
    """Delete the index of a deleted store, because it contains the store's words."""
    folder = folder_of(db)
    for path in folder.glob(f"*{index_log.SUFFIX}*"):
        path.unlink(missing_ok=True)
    for empty in (folder, folder.parent):
        with contextlib.suppress(OSError):  # it contains other files, or does not exist
            empty.rmdir()
