"""Read a file that is rewritten, or a database, as one consistent snapshot.

SQLite's locks, even those of a reader, can make the owner's writes fail. So SQLite gets files without locks here, that
nothing can write to. What is committed later is after the end of the write-ahead log as it is now. When the owner
moves the log into the database, or begins it anew, that is noticed before any row is given.
"""

import contextlib
import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any, BinaryIO

import apsw

from crystal.capture import finder
from crystal.capture.finder import LOG_SUFFIX
from crystal.capture.safe_open import Folders, call_with_deadline
from crystal.config.harness import Form
from crystal.errors import CrystalError, UnavailableError
from crystal.transcript.snapshot import Snapshot, SourceError

QUERY_SECONDS = 60.0
"""One query may take so long; a query reads all of a database at most."""

REST_NS = 20_000_000
MAX_WAITS = 5
JOURNAL_SUFFIX = "-journal"
_LOG_HEAD_BYTES, _FRAME_HEAD_BYTES = 32, 24
_HEAD_BYTES = 100
_JOURNAL_MARK = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"
_MAX_NAME = 64
_numbers = itertools.count()


class DatabaseChangedError(UnavailableError):
    """Another program wrote to the database while it was read. The rows that were returned before are correct."""


def beside(path: Path, suffix: str) -> Path:
    """Return the file that SQLite keeps beside a database."""
    return path.with_name(path.name + suffix)


@contextlib.contextmanager
def opened_database(
    path: Path, folders: Folders, damaged: list[SourceError] | None = None
) -> Iterator[Callable[..., Iterator[tuple[Any, ...]]]]:
    """Open a database, and give a function that runs a query on it with its values.

    The function raises ``SourceError`` where the database has another form, and ``DatabaseChangedError``.

    Args:
        path: The database.
        folders: The folders that may be read.
        damaged: Gets an error if something was committed that its write-ahead log has, but after damage.

    Raises:
        FileNotFoundError: It is gone.
        SourceError: It is no database.
        UnavailableError: The owner is writing to it.
        TranscriptRefusedError, TranscriptBlockedError: As for every transcript.
    """
    with contextlib.ExitStack() as stack:
        opened = {"": stack.enter_context(finder.opened(path, folders))}
        written = _written_at_rest(path, opened[""])
        before = _state(opened)
        with contextlib.suppress(FileNotFoundError):
            opened[LOG_SUFFIX] = stack.enter_context(finder.opened(beside(path, LOG_SUFFIX), folders))
            before = _state(opened)
        # After the state: what the owner begins to write from here on changes it.
        if before[1] != written or _head(beside(path, JOURNAL_SUFFIX), folders, len(_JOURNAL_MARK)) == _JOURNAL_MARK:
            raise _changed_error(path)
        _refuse_cut(path, opened, before)
        system = _ReadOnlySystem(f"crystal-{next(_numbers)}", opened)
        stack.callback(_quietly, system.unregister)
        with _errors_named(path):
            database = apsw.Connection("db", flags=apsw.SQLITE_OPEN_READONLY, vfs=system.name)
            stack.callback(_quietly, database.close)
            database.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            database.pragma("locking_mode", "EXCLUSIVE")  # else the log needs shared memory
            database.pragma("temp_store", "MEMORY")  # else a large sort writes a file

        lost = 0

        def read(sql: str, values: tuple[object, ...]) -> list[tuple[Any, ...]]:
            nonlocal lost
            try:
                with _errors_named(path):
                    found = database.execute(sql, values).fetchall()
            finally:  # else what was read, and its errors, mean nothing
                if _state(opened) != before:
                    raise _changed_error(path)
                if system.files[""].is_short:
                    raise _cut_error(path, system.files[""].size)
            if damaged is not None and not lost and (lost := _lost_bytes(system.files)):
                words = f"{beside(path, LOG_SUFFIX)} is damaged: its last {lost:,} bytes cannot be read"
                damaged.append(SourceError(words, hint="check the disk; put a whole copy in its place if there is one"))
            return found

        def rows(sql: str, values: tuple[object, ...] = ()) -> Iterator[tuple[Any, ...]]:
            return iter(call_with_deadline(lambda: read(sql, values), path, QUERY_SECONDS))

        yield rows


def _quietly(step: Callable[[], None]) -> None:
    with contextlib.suppress(apsw.Error):  # a query that did not answer still uses it
        step()


@contextlib.contextmanager
def _errors_named(path: Path) -> Iterator[None]:
    try:
        yield
    except (apsw.CorruptError, apsw.NotADBError) as error:
        hint = "check the file; if an agent writes it, crystal tries again by itself"
        raise SourceError(f"{path} is damaged: {error}", hint=hint) from error
    except (apsw.Error, UnicodeDecodeError) as error:
        raise SourceError(f"{path} has another form than expected: {error}", hint="update crystal") from error


def _written_at_rest(path: Path, file: BinaryIO) -> int:
    """Return when a file was last written (ns). Wait until that is long enough ago that a later write changes it.

    A file system's clock is coarse: two writes within one tick have the same time.
    """
    for _ in range(MAX_WAITS):
        written = os.fstat(file.fileno()).st_mtime_ns
        if not 0 <= time.time_ns() - written < REST_NS:
            return written
        time.sleep(REST_NS / 1e9)
    raise _changed_error(path)


def _changed_error(path: Path) -> DatabaseChangedError:
    return DatabaseChangedError(f"{path} is being written", hint="crystal tries again by itself")


def _state(opened: Mapping[str, BinaryIO]) -> tuple[object, ...]:
    """Return a value that changes when the owner writes to the database in a way that makes a read inconsistent."""
    status = os.fstat(opened[""].fileno())
    head = os.pread(opened[LOG_SUFFIX].fileno(), _LOG_HEAD_BYTES, 0) if LOG_SUFFIX in opened else b""
    return status.st_size, status.st_mtime_ns, head


def _refuse_cut(path: Path, opened: Mapping[str, BinaryIO], before: tuple[object, ...]) -> None:
    """Refuse a database that is shorter than it says: SQLite takes what is missing of a page for zeros."""
    head = os.pread(opened[""].fileno(), _HEAD_BYTES, 0)
    page, count = int.from_bytes(head[16:18], "big"), int.from_bytes(head[28:32], "big")
    size = count * (page if page > 1 else 1 << 16)
    is_size_known = head[24:28] == head[92:96] and len(head) == _HEAD_BYTES
    has_log = LOG_SUFFIX in opened and os.fstat(opened[LOG_SUFFIX].fileno()).st_size > 0  # the rest may be in it
    status = os.fstat(opened[""].fileno())
    if is_size_known and not has_log and status.st_size < size:
        raise _changed_error(path) if _state(opened) != before else _cut_error(path, status.st_size, f" of {size:,}")


def _cut_error(path: Path, has: int, wanted: str = "") -> SourceError:
    words = f"{path} is cut off: it has {has:,}{wanted} bytes"
    return SourceError(words, hint="put a whole copy in its place; crystal then reads it by itself")


def _lost_bytes(files: Mapping[str, "_ReadOnlyFile"]) -> int:
    """Return how many bytes of the log are committed, but after the place where SQLite stopped reading it.

    It stops at the first frame that is not whole. Behind that may be frames of an older log, which has other numbers
    (salts), and of a transaction that was taken back, which has no commit.
    """
    log = files.get(LOG_SUFFIX)
    if log is None or log.size <= log.read_until:
        return 0
    size = int.from_bytes(files[""].xRead(2, 16), "big")
    frame = _FRAME_HEAD_BYTES + (size if size > 1 else 1 << 16)
    behind, log_size = max(log.read_until, _LOG_HEAD_BYTES), log.size
    salts = log.xRead(_LOG_HEAD_BYTES, 0)[16:24] if behind > _LOG_HEAD_BYTES else log.xRead(16, behind)[8:]
    heads = (log.xRead(_FRAME_HEAD_BYTES, at) for at in range(behind, log_size - frame + 1, frame))
    return log_size - behind if any(head[8:16] == salts and any(head[4:8]) for head in heads) else 0


def _head(path: Path, folders: Folders, count: int) -> bytes:
    with contextlib.suppress(FileNotFoundError), finder.opened(path, folders) as file:
        return file.read(count)
    return b""


class _ReadOnlySystem(apsw.VFS):
    """A file system with the two files of one database."""

    def __init__(self, name: str, opened: Mapping[str, BinaryIO]) -> None:
        self.name = name
        self._opened = opened
        self.files = dict[str, _ReadOnlyFile]()
        super().__init__(name, "", maxpathname=_MAX_NAME)

    def xFullPathname(self, name: str) -> str:  # noqa: N802 - SQLite's names
        return name

    def xAccess(self, pathname: str, flags: int) -> bool:  # noqa: N802
        del flags
        return pathname.removeprefix("db") in self._opened

    def xOpen(self, name: Any, flags: list[int]) -> Any:  # noqa: N802
        flags[1] = apsw.SQLITE_OPEN_READONLY
        asked = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        suffix = asked.removeprefix("db")
        return self.files.setdefault(suffix, _ReadOnlyFile(self._opened.get(suffix)))


class _ReadOnlyFile:
    """A file that knows no locks; an empty one where none was opened. What is not defined here fails.

    Attributes:
        size: Its length, in bytes, when it was opened.
        read_until: The end of what was read.
        is_short: Whether more was asked for than it has: SQLite takes what is missing of a page for zeros.
    """

    def __init__(self, file: BinaryIO | None) -> None:
        self._descriptor = None if file is None else file.fileno()
        self.size = 0 if self._descriptor is None else os.fstat(self._descriptor).st_size
        self.read_until, self.is_short = 0, False

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        data = b"" if self._descriptor is None else os.pread(self._descriptor, amount, offset)
        self.read_until = max(self.read_until, offset + len(data))
        self.is_short |= len(data) < amount and offset + amount > _HEAD_BYTES
        return data

    def xFileSize(self) -> int:  # noqa: N802
        return self.size

    def xLock(self, level: int) -> None:  # noqa: N802
        """Do nothing: a lock would be the owner's, too."""

    xUnlock = xSync = xLock  # noqa: N815

    def xClose(self) -> None:  # noqa: N802
        """Do nothing: the opener closes the file."""

    def xCheckReservedLock(self) -> bool:  # noqa: N802
        return False

    def xFileControl(self, operation: int, pointer: int) -> bool:  # noqa: N802
        del operation, pointer
        return False

    def xSectorSize(self) -> int:  # noqa: N802
        return 4096

    def xDeviceCharacteristics(self) -> int:  # noqa: N802
        return 0


MAX_DOCUMENT_BYTES = 256 << 20


@contextlib.contextmanager
def opened_source(path: Path, form: Form, folders: Folders, sides: Mapping[PurePath, bytes]) -> Iterator[Snapshot]:
    """Open a file as a source.

    Args:
        path: The file.
        form: ``document`` or ``database``.
        folders: The folders that may be read.
        sides: The side files that exist.

    Raises:
        FileNotFoundError: It is gone.
        SourceError: It is no database, or too large.
        TranscriptRefusedError, TranscriptBlockedError, UnavailableError: As for every transcript.
    """
    if form == "document":
        with finder.opened(path, folders) as file:
            data = file.read(MAX_DOCUMENT_BYTES + 1)
        if len(data) > MAX_DOCUMENT_BYTES:
            raise SourceError(f"{path} is larger than {MAX_DOCUMENT_BYTES >> 20} MB", hint="crystal reads no such file")
        yield Snapshot(path, data, _no_rows, sides)
        return
    damaged = list[SourceError]()
    with opened_database(path, folders, damaged) as rows:
        source = Snapshot(path, b"", rows, sides)
        source.damaged = damaged
        yield source


def _no_rows(*_: object) -> Iterator[tuple[Any, ...]]:
    raise CrystalError("a document has no tables")
