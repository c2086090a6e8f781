"""Clearing what deleting leaves in pages that are still used: copies in the room between a page's cells.

SQLite deletes securely, but when it moves cells between pages it leaves the old copies where no cell is any more, and
writes over them only when it needs the room. Nothing reads these bytes, so they can be cleared in the file itself,
while nobody writes and the log is empty. The commit at the end makes every other connection read its pages anew, so
that none of them brings an old copy back.

The file is opened by way of SQLite's own file system: closing another handle on it would let go of all locks that this
process has (https://www.sqlite.org/howtocorrupt.html, section 2.2).

Source: https://www.sqlite.org/fileformat2.html, section 1.6.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import apsw

from crystal.store.connection import BUSY_TIMEOUT_MS, Store, translated

ATTEMPTS = 5
STRETCH = 1 << 22
HEADER = 100
"""Bytes of the file's own header, before the header of its first page."""


def scrub(store: Store) -> bool:
    """Clear what was deleted from the file and empty its log; False while others read, then try again later.

    Call it outside of transactions.

    Raises:
        StoreBusy, StoreFull, Unavailable: The file is as it was, or cleaner.
    """
    with translated(store.path), contextlib.closing(apsw.Connection(str(store.path))) as db:
        db.set_busy_timeout(BUSY_TIMEOUT_MS // 10)
        for _ in range(ATTEMPTS):
            if not _empty_log(db):
                return False
            db.execute("BEGIN IMMEDIATE")
            try:
                if _log_size(store.path):  # somebody has written since
                    continue
                _clear(db, store.path)
                db.execute(
                    "INSERT INTO meta (key, value) VALUES ('scrubs', 1)"
                    " ON CONFLICT (key) DO UPDATE SET value = value + 1"
                )
                db.execute("COMMIT")
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")
            return _empty_log(db)
    return False


def _empty_log(db: apsw.Connection) -> bool:
    try:
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except (apsw.BusyError, apsw.LockedError):
        return False
    return True


def _log_size(path: Path) -> int:
    try:
        return path.with_name(path.name + "-wal").stat().st_size
    except FileNotFoundError:
        return 0


def _clear(db: apsw.Connection, path: Path) -> None:
    """Clear the room between the cells of every page of a tree. The file is what the database is: the log is empty."""
    size = next(int(size) for (size,) in db.execute("PRAGMA page_size"))
    # Other kinds of pages may look like these: only the database knows.
    pages = [
        int(page)
        for (page,) in db.execute(
            "SELECT pageno FROM dbstat WHERE pagetype IN ('leaf', 'internal') AND unused > 0 ORDER BY pageno"
        )
    ]
    file = apsw.VFSFile("", str(path), [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READWRITE, 0])
    try:
        is_changed = False
        for number, page in _read(file, pages, size):
            low, high = _room(page, HEADER if number == 1 else 0)
            if page[low:high].strip(b"\0"):
                file.xWrite(bytes(high - low), (number - 1) * size + low)
                is_changed = True
        if is_changed:
            file.xSync(apsw.SQLITE_SYNC_FULL)
    finally:
        file.xClose()


def _read(file: apsw.VFSFile, pages: list[int], size: int) -> Iterator[tuple[int, bytes]]:
    """The content of pages with their numbers; the file is read many at a time."""
    at = 0
    while at < len(pages):
        first = pages[at]
        stop = at
        while stop < len(pages) and (pages[stop] - first) * size < STRETCH:
            stop += 1
        data = file.xRead((pages[stop - 1] - first + 1) * size, (first - 1) * size)
        for page in pages[at:stop]:
            yield page, data[(page - first) * size : (page - first + 1) * size]
        at = stop


def _room(page: bytes, at: int) -> tuple[int, int]:
    """Where the room between the list of cells and the cells begins and ends."""
    kind, cells = page[at], int.from_bytes(page[at + 3 : at + 5], "big")
    if kind not in (2, 5, 10, 13):
        return 0, 0
    content = int.from_bytes(page[at + 5 : at + 7], "big") or 65_536
    low = at + (12 if kind in (2, 5) else 8) + 2 * cells
    return (low, content) if low < content <= len(page) else (0, 0)
