"""Delete chunks, compress their texts together, and return unused space to the disk.

A deleted row leaves free pages in the file, and a hole in a block of vectors: sqlite-vec frees a block of 1,024 when
its last row is deleted, and fills no holes. ``give_back`` closes the holes and truncates the file, in short
transactions, so that it can be interrupted and other writers do not wait long.
Measured: benchmarks/growth.py.
"""

import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import apsw

from crystal.store.connection import GIVEN, Store
from crystal.store.driver import BUSY_TIMEOUT_MS, connect, translated
from crystal.store.notes import drop_note, read_note, write_note
from crystal.store.recompress import SPARSE
from crystal.store.search import vectors
from crystal.store.text_blocks import is_due as is_packing_due
from crystal.store.text_blocks import pack_texts, take_texts

DELETED = "deleted_chunks"
"""Key in ``meta`` of the number of chunks deleted since the last ``give_back``."""

MIN_BYTES = 4 << 20
MIN_IMPORT_BYTES = 1 << 20
MIN_CHUNKS = 500
SHARE = 10
"""Minimum waste before space is given back: one part in this many."""

SLICE_PAGES = 2_000
INCREMENTAL = 2

PAGE = 500


def delete_chunks(store: Store, ids: Sequence[int]) -> int:
    """Delete chunks with their vectors, inside the caller's transaction; return the number deleted."""
    deleted = 0
    for at in range(0, len(ids), PAGE):
        some = list(ids[at : at + PAGE])
        vectors.delete_vectors(store, some)
        take_texts(store, some)
        gone = f"DELETE FROM chunks WHERE id IN {GIVEN} RETURNING id"
        deleted += len(store.rows(gone, (some,)))
    if deleted:
        write_note(store, DELETED, str(deleted + int(read_note(store, DELETED) or 0)))
    return deleted


# ------------------------------------------------------------------------------------------------------- looking


def size_of(store: Store) -> int:
    """Return the size of the file in bytes, without its log."""
    page, pages, _ = _pages(store)
    return page * pages


def note_import(store: Store, before: int) -> None:
    """Record that the file must be rewritten if an import made it much larger.

    Older rows are inserted between others in every index, which leaves pages half empty.
    """
    size = size_of(store)
    if size - before >= MIN_IMPORT_BYTES and (size - before) * SHARE >= size:
        write_note(store, SPARSE, "1")


def is_due(store: Store) -> bool:
    """Return True if there is enough waste for ``give_back``. Fast: it reads a few numbers."""
    is_sparse = read_note(store, SPARSE) is not None
    return is_sparse or _has_free_pages(store) or _has_deletions(store) or is_packing_due(store)


def _has_free_pages(store: Store) -> bool:
    page, pages, free = _pages(store)
    return free * page >= MIN_BYTES and free * SHARE >= pages


def _has_deletions(store: Store) -> bool:
    deleted = int(read_note(store, DELETED) or 0)
    return deleted >= MIN_CHUNKS and deleted * SHARE >= store.value("SELECT count(*) FROM chunks")


def _pages(store: Store) -> tuple[int, int, int]:
    page, pages, free = (int(store.value(f"PRAGMA {name}")) for name in ("page_size", "page_count", "freelist_count"))
    return page, pages, free


# --------------------------------------------------------------------------------------------------- giving back


def give_back(store: Store, *, should_stop: Callable[[], bool] = lambda: False) -> int:
    """Compress texts and return unused space to the disk, if there is enough; return the number of bytes.

    No transaction may be open. A process that is killed, stopped by ``should_stop``, or short of disk space for what it
    must write first leaves the rest to the next call. Readers and writers continue meanwhile.

    Raises:
        StoreBusyError, StoreFullError: Nothing is lost; try again later.
    """
    before, has_deletions = _pages(store), _has_deletions(store)
    if is_packing_due(store) and not pack_texts(store, should_stop):
        return 0
    if read_note(store, SPARSE) is not None and not should_stop() and rewrite(store):
        drop_note(store, SPARSE)
    is_done = not has_deletions or _fill_holes(store, should_stop)
    if is_done and (has_deletions or _has_free_pages(store)):
        is_done = _cut(store, should_stop)
    if is_done and has_deletions:
        drop_note(store, DELETED)
    return max(0, (before[1] - _pages(store)[1]) * before[0])


def _cut(store: Store, should_stop: Callable[[], bool]) -> bool:
    """Release the free pages and truncate the file. Return False if stopped."""
    if store.value("PRAGMA auto_vacuum") == INCREMENTAL:
        while store.value("PRAGMA freelist_count"):
            if should_stop():
                return False
            store.rows(f"PRAGMA incremental_vacuum({SLICE_PAGES})")
    elif _has_free_pages(store):
        if should_stop():
            return False
        rewrite(store)
    empty_log(store)
    return True


def rewrite(store: Store) -> bool:
    """Rewrite the whole file, so that it contains nothing deleted. Return False if there is no disk space for the copy.

    Needed once for a store from before crystal used incremental vacuum, after a large import, when stored data has
    become smaller, and after forgetting: SQLite leaves copies between the cells of a page.
    """
    page, pages, free = _pages(store)
    import shutil  # noqa: PLC0415 - every hook's worker asks ``is_due``, and nearly none goes on

    copy = page * (pages - free)
    # The copy is made in a temporary file, then written into the log.
    for folder, size in ((store.path.parent, 2 * copy), (_temporary_folder(), copy)):
        if shutil.disk_usage(folder).free < size + MIN_BYTES:
            return False
    # A new connection: changing the folder of temporary data would drop the private record's temporary triggers.
    with translated(store.path), contextlib.closing(connect(store.path)) as db:
        db.execute("PRAGMA temp_store = FILE")  # else the copy would be made in memory
        db.execute(f"PRAGMA auto_vacuum = {INCREMENTAL}")
        db.execute("VACUUM")
    empty_log(store)
    return True


def _temporary_folder() -> Path:
    """Return the folder in which SQLite makes temporary files (https://sqlite.org/tempfiles.html)."""
    named = [os.environ.get(name, "") for name in ("SQLITE_TMPDIR", "TMPDIR")]
    folders = [Path(folder) for folder in (*named, "/var/tmp", "/usr/tmp", "/tmp") if folder]  # noqa: S108 - SQLite's list
    usable = (folder for folder in folders if folder.is_dir() and os.access(folder, os.W_OK | os.X_OK))
    return next(usable, Path())


def empty_log(store: Store, wait_ms: int = 0) -> bool:
    """Checkpoint the log and truncate it. Return False while others read; a later checkpoint then does it."""
    with translated(store.path):
        store.db.set_busy_timeout(wait_ms)
        try:
            store.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except (apsw.BusyError, apsw.LockedError):
            return False
        finally:
            store.db.set_busy_timeout(BUSY_TIMEOUT_MS)
    return True


# ------------------------------------------------------------------------------------------------------- vectors


def _blocks(store: Store, table: str) -> list[tuple[int, int, int]]:
    """Return the blocks of a vec0 table as (id, capacity in rows, rows in use)."""
    rows: list[Any] = store.rows(f"SELECT chunk_id, size, validity FROM {table}_chunks ORDER BY chunk_id")
    return [(ident, size, int.from_bytes(validity, "little").bit_count()) for ident, size, validity in rows]


def _fill_holes(store: Store, should_stop: Callable[[], bool]) -> bool:
    """Move rows of sparse blocks after the newest row, so that the blocks are freed. Return False if stopped."""
    for generation in vectors.generations(store):
        table = vectors.table_of(generation.id)
        for ident, size, used in _blocks(store, table)[:-1]:
            if should_stop():
                return False
            if size - used >= size // SHARE:
                _move(store, table, ident)
    return True


def _move(store: Store, table: str, block: int) -> None:
    with store.transaction():
        rows = store.rows(f"SELECT rowid FROM {table}_rowids WHERE chunk_id = ?", (block,))
        for (ident,) in rows:
            vector = store.value(f"SELECT embedding FROM {table} WHERE rowid = ?", (ident,))
            store.execute(f"DELETE FROM {table} WHERE rowid = ?", (ident,))
            store.execute(f"INSERT INTO {table} (rowid, embedding) VALUES (?, vec_int8(?))", (ident, vector))
