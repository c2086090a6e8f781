"""Upgrade a crystal.db to the newest schema: numbered SQL, forward only, all missing steps in one transaction."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import struct
from functools import cache
from pathlib import Path
from typing import NoReturn

import apsw

from crystal.config.paths import refused
from crystal.errors import ForeignStoreError, NewerStoreError, StoreDamagedError
from crystal.store import texts

APPLICATION_ID = 0x43525953
"""``CRYS``: marks a database file as crystal's, see https://www.sqlite.org/fileformat2.html, section 1.3.17."""

REWRITES = "see recompress.py"
"""Marks a migration after which Python rewrites rows, because SQL alone cannot."""

HEADER = b"SQLite format 3\x00"
REPAIR_HINT = "run: crystal verify --repair"
FOREIGN_HINT = "move it away, or point CRYSTAL_DATA_DIR at another folder"
PAGE_SIZE, OLD_PAGE_SIZE = 2048, 4096
"""Size of the pages of a new store, which has many small tables, and of an older one, which keeps them."""
EXPECTED_HEADER = b"\0\x40\x20\x20\0\0\0\x04\0\0\0\x01"
"""Fractions, format and encoding in the header of every store; SQLite cannot use a file with others."""
MAX_VERSION = 999
"""Largest plausible schema number; a larger one means a damaged header."""

_FOLDER = Path(__file__).with_name("migrations")


def steps() -> tuple[tuple[int, str], ...]:
    """Return the migrations as (number, SQL), in order."""
    files = sorted(_FOLDER.glob("[0-9][0-9][0-9][0-9]_*.sql"))
    return tuple((int(file.name[:4]), file.read_text("utf-8")) for file in files)


@cache
def newest() -> int:
    """Return the schema version that this crystal writes, without reading a migration: every hook's worker needs it."""
    return max(int(name[:4]) for name in os.listdir(_FOLDER) if name.endswith(".sql"))  # noqa: PTH208 - the quickest


def version_of(db: apsw.Connection) -> int:
    """Return the schema version of an open file; 0 for an empty one."""
    return int(db.execute("PRAGMA user_version").get)


def changed_definition(db: apsw.Connection) -> str | None:
    """Describe the first definition of a store that differs from a new store of the same schema, or return None.

    A name with a changed letter is valid to SQLite: its own checks pass, and only a statement that uses it fails. A
    table that not every store has, such as one of vectors, must at least be readable.

    Raises:
        apsw.SQLError: A definition cannot be parsed.
    """
    try:
        found = _definitions(db)
    except UnicodeDecodeError:
        return "a definition in it cannot be decoded"
    for name, (kind, sql) in _expected(version_of(db)).items():
        if found.pop(name, None) != (kind, sql):
            return f"the definition of the {kind} {name} is damaged"
    for name, (kind, _) in found.items():
        if kind == "table":
            columns = next((read for end, read in _OF_VECTORS.items() if name.endswith(end)), "*")
            db.execute(f'SELECT {columns} FROM "{name}" LIMIT 0')
    return None


_OF_VECTORS = {
    "_chunks": "chunk_id, size, validity, rowids",
    "_rowids": "rowid, id, chunk_id, chunk_offset",
    "_vector_chunks00": "rowid, vectors",
}
"""The columns of sqlite-vec's own tables, by the suffix of the table's name."""


@cache
def _expected(version: int) -> dict[str, tuple[str, str]]:
    """Return the definitions of a new store of a schema."""
    with contextlib.closing(apsw.Connection(":memory:")) as fresh:
        texts.register(fresh)
        _apply(fresh, version)
        return _definitions(fresh)


_COMMENT = r" *--[^\n]*"
"""A comment of a migration. Each store would keep a copy, 29 KB, and every process that opens it would read them."""

_NO_MATTER = rf'{_COMMENT}|[\s"]+'


def _definitions(db: apsw.Connection) -> dict[str, tuple[str, str]]:
    """Return kind and SQL of all definitions in a database, by name; comments, quotes and spaces are ignored."""
    rows = db.execute("SELECT name, type, coalesce(sql, '') FROM sqlite_schema")
    return {name: (kind, re.sub(_NO_MATTER, "", sql)) for name, kind, sql in rows if not name.startswith("sqlite_stat")}


def one_line(error: apsw.SQLError) -> str:
    """Return SQLite's message about an unreadable definition, without bytes that are not text."""
    return " ".join(str(error).replace("\ufffd", "?").split())


def refuse_foreign(path: Path) -> None:
    """Check only the header, before SQLite opens (and may change) the file.

    Raises:
        ForeignStoreError: The file is not a crystal store, or has a newer schema.
        StoreDamagedError: Its header is damaged.
        CrystalError: The operating system refuses to read it.
    """
    header = _read_header(path)
    if not header or _is_without_tables(header):
        return
    version, application = struct.unpack_from(">i4xi", header.ljust(100, b"\0"), 60)
    if len(header) < 100 or not header.startswith(HEADER) or application != APPLICATION_ID:
        raise ForeignStoreError(f"{path} is not a crystal store", hint=FOREIGN_HINT)
    if not has_usual_pages(header) or not set(header[18:20]) <= {1, 2} or not 0 < version <= MAX_VERSION:
        raise StoreDamagedError(f"{path}: its header is damaged", hint=REPAIR_HINT)
    if version > newest():
        _refuse_newer(path, version)


def has_usual_pages(header: bytes) -> bool:
    """Return True if a header has a store's size of pages, format and encoding."""
    fields = header[20:24] + header[44:48] + header[56:60]
    return int.from_bytes(header[16:18], "big") in (PAGE_SIZE, OLD_PAGE_SIZE) and fields == EXPECTED_HEADER


def _read_header(path: Path) -> bytes:
    """Return the first 100 bytes of a store; empty if there is no file."""
    try:
        if not stat.S_ISREG(mode := path.stat().st_mode):  # checked before opening: reading a pipe would block forever
            kind = "a folder" if stat.S_ISDIR(mode) else "no regular file"
            raise ForeignStoreError(f"{path} is {kind}", hint=FOREIGN_HINT)
        with path.open("rb") as file:
            return file.read(100)
    except OSError as error:
        if path.is_symlink() and error.errno in (errno.ENOENT, errno.ELOOP):
            raise ForeignStoreError(f"{path} is a link to a missing file", hint=FOREIGN_HINT) from error
        if isinstance(error, FileNotFoundError):
            return b""
        raise refused(error, path) from error


def _refuse_newer(path: Path, version: int) -> NoReturn:
    """Refuse a store whose schema number is above the newest: it is damaged, or from a newer crystal."""
    if _defines_no_more(path):
        raise StoreDamagedError(f"{path}: the schema number in its header is damaged", hint=REPAIR_HINT)
    import shlex  # noqa: PLC0415 - for an error alone, and every hook's worker loads this file

    moved = f"mv {shlex.quote(str(path))} {shlex.quote(f'{path}.damaged-newer')} && crystal verify --repair"
    raise NewerStoreError(
        f"{path} has schema {version}, this crystal knows up to {newest()}",
        hint=f"upgrade crystal on this machine; if it is the newest, run: {moved}",
    )


def _defines_no_more(path: Path) -> bool:
    """Return True if a database has no other definitions than the newest schema, or none that can be read.

    A database of a newer crystal has others, because each migration changes one.
    """
    with contextlib.closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as db:
        try:
            found = _definitions(db)
        except (apsw.CorruptError, apsw.NotADBError, UnicodeDecodeError):
            return True
        except apsw.Error:
            return False
    return _expected(newest()) == {name: one for name, one in found.items() if "chunks_vec_" not in name}


def folder_in_place_of_log(path: Path) -> str | None:
    """Return the path of a folder that has the name of one of SQLite's logs for a database, or None."""
    names = (f"{path}{suffix}" for suffix in ("-wal", "-shm", "-journal"))
    return next((name for name in names if os.path.isdir(name)), None)  # noqa: PTH112 - never raises


def _is_without_tables(header: bytes) -> bool:
    """Return True if a database never had a table: a process is creating it, or died before its first table."""
    pages, schema_changes = struct.unpack(">I8xI", header[28:44]) if len(header) == 100 else (0, 0)
    return header.startswith(HEADER) and pages == 1 and schema_changes == 0


def upgrade(db: apsw.Connection, path: Path) -> bool:
    """Apply the missing migrations in one transaction; an existing store is copied first.

    The write lock serialises processes that start together; the later ones find nothing to do.

    Returns:
        Whether a migration was applied. Then reopen the file: data read during a migration is cached.
    """
    found = version_of(db)
    if found >= newest():
        return False
    if found > 0:
        _copy(db, path.with_name(f"{path.name}.v{found}.backup"))
    else:  # before the first table: allows freeing pages incrementally, see space.py
        db.execute(f"PRAGMA page_size = {PAGE_SIZE}")
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")
    _apply(db, newest())
    return True


def _apply(db: apsw.Connection, until: int) -> None:
    """Apply the missing migrations up to a number, in one transaction."""
    found = version_of(db)
    db.execute("BEGIN IMMEDIATE")
    try:
        for number, sql in steps():
            if version_of(db) < number <= until:
                db.execute(re.sub(_COMMENT, "", sql))
                if REWRITES in sql and found > 0:
                    from crystal.store.recompress import rewrite  # noqa: PLC0415 - once per store

                    rewrite(db)
                db.execute(f"PRAGMA user_version = {number}")
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _copy(db: apsw.Connection, target: Path) -> None:
    temporary = target.with_name(f"{target.name}.{os.getpid()}.tmp")  # another process may be upgrading the same file
    for stale in (temporary, target):
        with contextlib.suppress(FileNotFoundError):
            stale.unlink()
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    db.execute("VACUUM INTO ?", (str(temporary),))
    temporary.replace(target)
