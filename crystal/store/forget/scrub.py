"""Clear what deletion leaves in pages that are still used: copies in the unallocated space between a page's cells.

SQLite deletes securely, but when it moves cells between pages it leaves the old copies in unallocated space, and
overwrites them only when it needs the space. Nothing reads these bytes, so they can be cleared in the file itself,
while nobody writes and the log is empty. The commit at the end makes every other connection read its pages again, so
that none of them writes an old copy back.

The file is opened through SQLite's own VFS: closing another handle on it would release all locks of this process
(https://www.sqlite.org/howtocorrupt.html, section 2.2).

Source: https://www.sqlite.org/fileformat2.html, section 1.6.
"""

from __future__ import annotations

import contextlib
import time
from array import array
from collections.abc import Iterator
from pathlib import Path

import apsw

from crystal.store.connection import BUSY_TIMEOUT_MS, Store, translated

ATTEMPTS = 5
STRETCH = 1 << 22
SLICE = 4096
"""Pages cleared in one go, while other writers wait."""
SHORT = 0.5
"""Seconds; a scan of the file this short may block others."""
HEADER = 100
"""Bytes of the file's own header, before the header of its first page."""


def scrub(store: Store) -> bool:
    """Clear deleted data from the file and empty its log; False while others read or write, then try again later.

    Call it outside transactions. The file is scanned while others may write; only the clearing blocks them, some pages
    at a time. A write by anyone else meanwhile restarts the scan.

    Raises:
        StoreBusy, StoreFull, Unavailable: The file is as it was, or cleaner.
    """
    with translated(store.path), contextlib.closing(apsw.Connection(str(store.path))) as db:
        db.set_busy_timeout(BUSY_TIMEOUT_MS // 10)
        seconds = 0.0
        for attempt in range(ATTEMPTS):
            if not _empty_log(db):
                return False
            if attempt and seconds < SHORT:  # others write often: the scan is short enough to block them
                if _cleared(db, store.path, None, _version(db)):
                    return _empty_log(db)
                continue
            began = time.monotonic()
            version = _version(db)
            pages = _unclean(db, store.path)
            seconds = time.monotonic() - began
            if pages is not None and _in_slices(db, store.path, pages, version):
                return _empty_log(db)
    return False


def _unclean(db: apsw.Connection, path: Path) -> array[int] | None:
    """Return the pages with something to clear, read in one read-only transaction; None if the log is not empty."""
    db.execute("BEGIN")
    try:
        db.execute("SELECT 1 FROM meta LIMIT 1").fetchall()  # from here on nobody checkpoints a log into the file
        return None if _log_size(path) else _pages(db, path)
    finally:
        db.execute("ROLLBACK")


def _in_slices(db: apsw.Connection, path: Path, pages: array[int], version: int) -> bool:
    """Clear pages in batches; False if somebody else wrote before all were clear."""
    for at in range(0, max(len(pages), 1), SLICE):
        if at and not _empty_log(db):
            return False
        if not _cleared(db, path, pages[at : at + SLICE], version):
            return False
    return True


def _cleared(db: apsw.Connection, path: Path, pages: array[int] | None, version: int) -> bool:
    """Clear pages, or all, while nobody writes; False if somebody else has written since ``version``."""
    db.execute("BEGIN IMMEDIATE")
    try:
        if _log_size(path) or (pages is not None and _version(db) != version):
            return False
        _clear(path, _pages(db, path) if pages is None else pages, _page_size(db))
        db.execute(
            "INSERT INTO meta (key, value) VALUES ('scrubs', 1) ON CONFLICT (key) DO UPDATE SET value = value + 1"
        )
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")
    return True


def _version(db: apsw.Connection) -> int:
    """Return a number that changes when another connection writes."""
    return next(int(version) for (version,) in db.execute("PRAGMA data_version"))


def _page_size(db: apsw.Connection) -> int:
    return next(int(size) for (size,) in db.execute("PRAGMA page_size"))


def _empty_log(db: apsw.Connection) -> bool:
    try:
        db.execute("SELECT 1 FROM meta LIMIT 1").fetchall()  # a connection that has read nothing knows of no log
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except (apsw.BusyError, apsw.LockedError):
        return False
    return True


def _log_size(path: Path) -> int:
    try:
        return path.with_name(path.name + "-wal").stat().st_size
    except FileNotFoundError:
        return 0


def _pages(db: apsw.Connection, path: Path) -> array[int]:
    """Return the b-tree pages with data between their cells. The file is the whole database: the log is empty."""
    # Other kinds of pages may look like b-tree pages: only the database can tell.
    trees = array("Q")
    for (page,) in db.execute(
        "SELECT pageno FROM dbstat WHERE pagetype IN ('leaf', 'internal') AND unused > 0 ORDER BY pageno"
    ):
        trees.append(page)
    found = array("Q")
    with _opened(path) as file:
        for number, page in _read(file, trees, _page_size(db)):
            low, high = _room(page, HEADER if number == 1 else 0)
            if page[low:high].strip(b"\0"):
                found.append(number)
    return found


def _clear(path: Path, pages: array[int], size: int) -> None:
    """Clear the unallocated space between the cells of b-tree pages."""
    with _opened(path) as file:
        for number, page in _read(file, pages, size):
            low, high = _room(page, HEADER if number == 1 else 0)
            file.xWrite(bytes(high - low), (number - 1) * size + low)
        if pages:
            file.xSync(apsw.SQLITE_SYNC_FULL)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[apsw.VFSFile]:
    file = apsw.VFSFile("", str(path), [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READWRITE, 0])
    try:
        yield file
    finally:
        file.xClose()


def _read(file: apsw.VFSFile, pages: array[int], size: int) -> Iterator[tuple[int, bytes]]:
    """Yield the numbers and the content of pages; the file is read many pages at a time."""
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
    """Return the start and end of the unallocated space between the cell pointers and the cells."""
    kind, cells = page[at], int.from_bytes(page[at + 3 : at + 5], "big")
    if kind not in (2, 5, 10, 13):
        return 0, 0
    content = int.from_bytes(page[at + 5 : at + 7], "big") or 65_536
    low = at + (12 if kind in (2, 5) else 8) + 2 * cells
    return (low, content) if low < content <= len(page) else (0, 0)
