"""Overwrite the unused bytes of a database file in place.

SQLite deletes securely, but leaves copies of rows between the cells of a page when it moves them. VACUUM removes them
by writing everything three times. This module writes only pages that have such copies, and in these only bytes that
SQLite never reads. So a process killed at any time leaves a sound file, and the next run continues.

Other processes may have cached pages with such copies. So a row changes under the same write lock: their cache is then
out of date, and they do not write it back.
"""

from __future__ import annotations

import contextlib
import struct
import time
from collections.abc import Callable, Iterator

import apsw

from crystal.errors import StoreDamagedError
from crystal.store.connection import Store
from crystal.store.driver import connect, translated
from crystal.store.notes import write_note
from crystal.store.upgrade import REPAIR_HINT

CLEARED = "unused_bytes_cleared"
"""Key in ``meta`` of the row that changes: the time of the last run."""

PIECE = 4 << 20
_INNER_KINDS = (2, 5)
_FIRST_HEADER = 100
"""Bytes before the header of the first page. Source of all numbers: https://www.sqlite.org/fileformat2.html"""


def can_clear(store: Store) -> bool:
    """Return True if this SQLite can report the use of each page."""
    return bool(store.value("SELECT sqlite_compileoption_used('ENABLE_DBSTAT_VTAB')"))


def clear_unused(store: Store, progress: Callable[[int, int], None] = lambda *_: None) -> bool:
    """Overwrite the unused bytes with zeros. No transaction may be open. Return False if the log is not empty.

    Raises:
        StoreBusyError, StoreDamagedError: Nothing is lost; try again later.
    """
    path = store.path
    with translated(path), contextlib.closing(connect(path)) as db, contextlib.closing(connect(path)) as reader:
        writer = Store(path, db)
        with writer.transaction():
            log = path.with_name(f"{path.name}-wal")
            if log.exists() and log.stat().st_size:  # its pages are newer than those of the file
                return False
            # Not opened by Python: closing it would release the locks that SQLite holds (howtocorrupt.html, 2.2).
            file = apsw.VFSFile("", str(path), [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READWRITE, 0])
            try:
                for start, end in _Pages(reader, file).unused(progress):
                    file.xWrite(bytes(end - start), start)
                file.xSync(apsw.SQLITE_SYNC_FULL)
            except struct.error as error:
                raise StoreDamagedError(f"{path}: a page of it is damaged", hint=REPAIR_HINT) from error
            finally:
                file.xClose()
            write_note(writer, CLEARED, f"{time.time_ns():020}")
    return True


class _Pages:
    """The pages of a database file, each with its use."""

    def __init__(self, db: apsw.Connection, file: apsw.VFSFile) -> None:
        self._file = file
        header = file.xRead(_FIRST_HEADER, 0)
        size, reserved = struct.unpack_from(">H2xB", header, 16)
        self._size = 65_536 if size == 1 else size
        self._usable = self._size - reserved
        self._tree, self._tails = set[int](), dict[int, int]()
        for number, kind, unused in db.execute("SELECT pageno, pagetype, unused FROM dbstat"):
            if kind in ("leaf", "internal"):
                self._tree.add(number)
            elif kind == "overflow" and unused:
                self._tails[number] = self._usable - unused
        self._tails |= dict(self._free_pages(*struct.unpack_from(">I", header, 32)))

    def _free_pages(self, trunk: int) -> Iterator[tuple[int, int]]:
        """Yield (page, number of used bytes) of the free pages: a trunk page lists others, a leaf uses none."""
        while trunk:
            page = self._file.xRead(self._size, (trunk - 1) * self._size)
            after, count = struct.unpack_from(">II", page)
            yield trunk, 8 + 4 * count
            yield from ((number, 0) for number in struct.unpack_from(f">{count}I", page, 8))
            trunk = after

    def unused(self, progress: Callable[[int, int], None]) -> Iterator[tuple[int, int]]:
        """Yield (start, end) of the unused bytes of the file that are not zeros."""
        size, whole = self._size, self._file.xFileSize()
        for piece in range(0, whole, PIECE):
            data = self._file.xRead(min(PIECE, whole - piece), piece)
            for at in range(0, len(data), size):
                page = data[at : at + size]
                for start, end in self._gaps((piece + at) // size + 1, page):
                    if page.count(0, start, end) < end - start:
                        yield piece + at + start, piece + at + end
            progress(piece + len(data), whole)

    def _gaps(self, number: int, page: bytes) -> Iterator[tuple[int, int]]:
        """Yield (start, end) of the unused bytes of a page."""
        if number in self._tails:
            yield self._tails[number], self._usable
        if number not in self._tree:
            return
        header = _FIRST_HEADER if number == 1 else 0
        kind, free, cells, content = struct.unpack_from(">BHHH", page, header)
        yield header + (12 if kind in _INNER_KINDS else 8) + 2 * cells, content or 65_536
        while free:
            after, length = struct.unpack_from(">HH", page, free)
            yield free + 4, free + length
            free = after if after > free else 0
