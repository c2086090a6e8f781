"""Read a file that its owner rewrites, or a database, as it is at one moment, without a lock that the owner notices.

A database is copied with its write-ahead log, and the copy is read: SQLite's locks, even those of a reader, can make
the owner's writes fail. A copy that changed while it was made is made again.
"""

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any, BinaryIO

import apsw

from crystal.capture import files
from crystal.capture.safe_open import Folders
from crystal.config.harnesses import Form
from crystal.config.paths import make_private_dir
from crystal.errors import CrystalError, UnavailableError
from crystal.transcript import Source, SourceError

MAX_DOCUMENT_BYTES = 256 << 20
MAX_TRIES = 3
LOG_SUFFIX = "-wal"
_BLOCK_BYTES = 1 << 20
_RANGE_BYTES = 1 << 30
_COPY_FLAGS = apsw.SQLITE_OPEN_READWRITE


def stamp_of(found: files.TranscriptFile, form: Form, folders: Folders) -> str:
    """Return a text that differs whenever a file, or the log beside a database, was written."""
    log = files.look_at(_log_of(found.path), folders) if form == "database" else None
    parts = [(one.size, one.modified, one.inode) for one in (found, log) if one is not None]
    return repr(parts)


@contextlib.contextmanager
def opened_source(
    path: Path, form: Form, folders: Folders, sides: Mapping[PurePath, bytes], work_folder: Path
) -> Iterator[Source]:
    """Open a file as a source.

    Args:
        path: The file.
        form: ``document`` or ``database``.
        folders: The folders that may be read.
        sides: The side files that exist.
        work_folder: Gets the copy of a database, in a folder that only the user can read, until the end of the block.

    Raises:
        FileNotFoundError: It is gone.
        SourceError: It is no database, too large, or changes all the time.
        TranscriptRefusedError, TranscriptBlockedError, UnavailableError: As for every transcript.
    """
    if form == "document":
        with files.opened(path, folders) as file:
            data = file.read(MAX_DOCUMENT_BYTES + 1)
        if len(data) > MAX_DOCUMENT_BYTES:
            raise SourceError(f"{path} is larger than {MAX_DOCUMENT_BYTES >> 20} MB", hint="crystal reads no such file")
        yield Source(path, data, _no_rows, sides)
        return
    make_private_dir(work_folder)
    with tempfile.TemporaryDirectory(dir=work_folder) as folder:
        copy = Path(folder, "copy.db")
        _copy_database(path, copy, folders)
        with contextlib.closing(_open_database(str(copy), path)) as database:
            yield Source(path, b"", _rows_of(database, path), sides)


@contextlib.contextmanager
def peeked_source(path: Path, folders: Folders, sides: Mapping[PurePath, bytes]) -> Iterator[Source | None]:
    """Open a database where it is, without locks and without a copy, or give None where that cannot be.

    Only to find out that nothing changed: while its owner writes, anything may be read. A database with a write-ahead
    log is not opened, its newest state is in the log.

    Raises:
        As ``opened_source``.
    """
    log = files.look_at(_log_of(path), folders)
    if sys.platform != "linux" or (log is not None and log.size):
        yield None
        return
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    with files.opened(path, folders) as file:
        name = f"file:/proc/self/fd/{file.fileno()}?immutable=1"  # the file that was checked, whatever its path is now
        with contextlib.closing(_open_database(name, path, flags)) as database:
            yield Source(path, b"", _rows_of(database, path), sides)


def clear_leftovers(work_folder: Path) -> None:
    """Delete copies that a killed process left. Only under the lock of capture."""
    for left in work_folder.glob("*"):
        shutil.rmtree(left, ignore_errors=True)


def _log_of(path: Path) -> Path:
    return path.with_name(path.name + LOG_SUFFIX)


def _copy_database(path: Path, copy: Path, folders: Folders) -> None:
    """Copy a database with its log, such that both belong together."""
    for _ in range(MAX_TRIES):
        before = _states(path, folders)
        _copy(path, copy, folders)
        log = copy.with_name(copy.name + LOG_SUFFIX)
        log.unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):
            _copy(_log_of(path), log, folders)
        if _states(path, folders) == before:
            return
    raise UnavailableError(f"{path} is being written", hint="crystal tries again by itself")


def _states(path: Path, folders: Folders) -> list[files.TranscriptFile | None]:
    return [files.look_at(one, folders) for one in (path, _log_of(path))]


def _copy(source: Path, target: Path, folders: Folders) -> None:
    with files.opened(source, folders) as file, target.open("wb") as copy:
        _copy_blocks(file, copy)


def _copy_blocks(file: BinaryIO, copy: BinaryIO) -> None:
    """Copy to the end: where the system can, without the bytes passing here, or by sharing them on the disk."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # not every file system can
            while os.copy_file_range(file.fileno(), copy.fileno(), _RANGE_BYTES):
                pass
    while block := file.read(_BLOCK_BYTES):
        copy.write(block)


def _open_database(name: str, path: Path, flags: int = _COPY_FLAGS) -> apsw.Connection:
    try:
        return apsw.Connection(name, flags=flags)
    except apsw.Error as error:
        message = f"{path} cannot be read as a database: {error}"
        raise SourceError(message, hint="crystal tries again by itself") from error


def _rows_of(database: apsw.Connection, path: Path) -> Callable[..., Iterator[tuple[Any, ...]]]:
    def rows(sql: str, values: tuple[object, ...] = ()) -> Iterator[tuple[Any, ...]]:
        try:
            yield from database.execute(sql, values)
        except (apsw.Error, UnicodeDecodeError) as error:
            raise SourceError(f"{path} has another form than expected: {error}", hint="update crystal") from error

    return rows


def _no_rows(*_: object) -> Iterator[tuple[Any, ...]]:
    raise CrystalError("a document has no tables")
