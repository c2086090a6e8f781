"""The derived index beside crystal.db: words and vectors in mapped files, made again whenever they are lost.

crystal.db is the truth; nothing here is needed for correctness. ``open_index`` (``crystal.index.reader``) reads it,
``bring_up_to_date`` keeps it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from crystal.store import Store, index_log


def folder_of(db: Path) -> Path:
    """Where the index of a store lies: ``crystal.db`` has its own in ``index/crystal/`` beside it."""
    return db.parent / "index" / db.stem


def bring_up_to_date(
    store: Store, *, now: int, budget_seconds: float = 20.0, progress: Callable[[int, int], None] = lambda *_: None
) -> bool:
    """Put into the index what is not in it yet; a SELECT and a look at the files when there is nothing.

    Call it outside of transactions, and in one process at a time (two do no harm, but one of them works in vain).

    Returns:
        True when something is left for the next call.

    Raises:
        StoreBusy, StoreFull, OSError: The index is as it was, or further; nothing else is touched.
    """
    folder = folder_of(store.path)
    if not index_log.has_news(store) and _are_there(store, folder):
        return False
    from crystal.index.refresh import refresh

    return refresh(store, folder, now=now, budget_seconds=budget_seconds, progress=progress).left


def _are_there(store: Store, folder: Path) -> bool:
    for name, size, mtime_ns in index_log.places(store):
        try:
            found = (folder / name).stat()
        except OSError:
            return False
        if (found.st_size, found.st_mtime_ns) != (size, mtime_ns):
            return False
    return True


def discard(db: Path) -> None:
    """Delete the index of a store that is deleted: it has its words."""
    folder = folder_of(db)
    for path in folder.glob(f"*{index_log.SUFFIX}*"):
        path.unlink(missing_ok=True)
    for empty in (folder, folder.parent):
        with contextlib.suppress(OSError):  # something else is in it, or it is not there
            empty.rmdir()
