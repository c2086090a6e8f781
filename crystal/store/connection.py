"""Open crystal.db safely, run transactions, and translate the driver's errors.

A foreign or newer file is refused unchanged, files are private to the user (0600), and no ``apsw`` exception that a
user can act on leaves this package untranslated. This module does not know what the tables mean.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import apsw

from crystal.config.paths import refused
from crystal.errors import (
    CrystalError,
    NotConfiguredError,
    StoreBusyError,
    StoreDamagedError,
    StoreFullError,
    UnavailableError,
)
from crystal.store import texts, upgrade
from crystal.store.private_record import Recorder

if TYPE_CHECKING:
    from crystal.store.hidden import Hidden

BUSY_TIMEOUT_MS = 15_000
CHECKPOINT_PAGES = 1000
IMPORT_CHECKPOINT_PAGES = 4000
FULL_BELOW_BYTES = 128 << 10
_UNWRITABLE = (apsw.CantOpenError, apsw.ReadOnlyError, apsw.IOError, apsw.FullError, apsw.PermissionsError)

Row = tuple[Any, ...]
T = TypeVar("T")

# By what a user can do. Missing: damage (sqlite-vec tells its own as an error in SQL) and bugs, which keep a traceback.
TRANSLATION: dict[type[CrystalError], tuple[type[apsw.Error], ...]] = {
    StoreBusyError: (apsw.BusyError, apsw.LockedError, apsw.ProtocolError),
    StoreFullError: (apsw.FullError,),
    StoreDamagedError: (apsw.CorruptError, apsw.FormatError, apsw.NotADBError),
    UnavailableError: (
        apsw.CantOpenError, apsw.IOError, apsw.NoMemError, apsw.PermissionsError, apsw.ReadOnlyError, apsw.AuthError,
        apsw.NoLFSError,
    ),
    NotConfiguredError: (apsw.ExtensionLoadingError,),
}  # fmt: skip

HINTS: dict[type[CrystalError], str] = {
    StoreBusyError: "another crystal process is writing; try again in a moment",
    StoreFullError: "free some disk space; nothing was lost, capture continues by itself",
    StoreDamagedError: upgrade.REPAIR_HINT,
    UnavailableError: "check that its disk is present and can be written",
    NotConfiguredError: "reinstall the package sqlite-vec",
}


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """Translate the driver's errors into crystal's, also that of a text that cannot be decoded."""
    try:
        with _translated(path):
            yield
    except UnicodeDecodeError as error:
        raise StoreDamagedError(f"{path}: a text in it cannot be decoded", hint=HINTS[StoreDamagedError]) from error


@contextlib.contextmanager
def _translated(path: Path) -> Iterator[None]:
    """Translate errors around work that is not only the driver's."""
    try:
        yield
    except apsw.Error as error:
        ours = next((ours for ours, kinds in TRANSLATION.items() if isinstance(error, kinds)), None)
        if ours is None:
            if changed := changed_definition(path) or (str(error) if str(error).startswith("vec0 ") else None):
                raise StoreDamagedError(f"{path}: {changed}", hint=HINTS[StoreDamagedError]) from error
            raise
        if ours is UnavailableError and (folder := upgrade.folder_in_place_of_log(path)):
            raise StoreDamagedError(f"{folder} is a folder", hint=HINTS[StoreDamagedError]) from error
        if isinstance(error, apsw.IOError) and _is_full(path.parent):
            ours = StoreFullError  # the file that WAL readers share cannot grow: an input/output error to SQLite
        hint = (_config("file_access").way_in(path) if ours is UnavailableError else None) or HINTS[ours]
        if ours is NotConfiguredError:
            hint = f"{hint}: {_config('packages').reinstall_command('sqlite-vec')}"
        words = f"the disk of {path.parent} is full" if ours is StoreFullError else f"{path}: {error}"
        raise ours(words, hint=hint) from error


def _config(name: str) -> ModuleType:
    """Return a module of ``crystal.config``: every hook's worker opens the store, and nearly none asks for one."""
    return importlib.import_module(f"crystal.config.{name}")


def _is_full(folder: Path) -> bool:
    try:
        import shutil  # noqa: PLC0415 - every hook's worker opens the store, and nearly none asks this

        return shutil.disk_usage(folder).free < FULL_BELOW_BYTES
    except OSError:
        return False


def _is_empty(path: Path) -> bool:
    """Return True if there is no file, or one without content."""
    try:
        return path.stat().st_size == 0
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError as error:
        raise refused(error, path) from error


class Store:
    """An open crystal.db. The caller that opened it closes it; use it from one thread.

    Attributes:
        path: The file.
        db: The driver's connection, for this package only.
        before_commit: Called at the end of each transaction, inside it; None for nothing.
        changed_memories: The ids of memories that this transaction has changed, each with its new rows of history.
        deleted_memories: The ids of memories that this transaction has deleted.
    """

    def __init__(self, path: Path, db: apsw.Connection, recorder: Recorder | None = None) -> None:
        self.path = path
        self.db = db
        self.before_commit: Callable[[], None] | None = None
        self.changed_memories: dict[str, list[int]] = {}
        self.deleted_memories: set[str] = set()
        self.hidden: Hidden | None = None  # what it does not see: isolation.py
        self._recorder = recorder

    @classmethod
    def open(cls, path: Path, record: Path | None = None, *, complete: bool = True) -> Store:
        """Open the store for reading and writing; create it, or upgrade its schema, first.

        Args:
            path: The file.
            record: The record of private lines to keep beside the archive, see ``private_record``; None for a store
                that is not the machine's own memory.
            complete: Whether a record that is created now lists all that was ever private.

        Raises:
            ForeignStoreError: The file belongs to another program or to a newer crystal. Nothing is changed.
            StoreBusyError, StoreFullError, StoreDamagedError, UnavailableError: As their names say.
        """
        upgrade.refuse_foreign(path)
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        with translated(path):
            db = connect(path)
            try:
                if upgrade.upgrade(db, path):
                    db.close()
                    db = connect(path)
                _switch_to_wal(db)
                recorder = None if record is None else Recorder(db, record)
                if recorder is not None:
                    recorder.start(complete=complete)
            except BaseException:
                db.close()
                raise
        return cls(path, db, recorder)

    @classmethod
    def open_existing(cls, path: Path) -> Store:
        """Open an existing store for reading only.

        A store of an older crystal is upgraded first, if it cannot be written a copy of it.

        Raises:
            NotConfiguredError: There is no store at ``path`` yet.
            ForeignStoreError: As for ``open``.
            CrystalError: The operating system refuses to read it.
        """
        if _is_empty(path):
            raise NotConfiguredError(f"there is no memory at {path} yet", hint="run: crystal init")
        upgrade.refuse_foreign(path)
        with translated(path):
            db = _connect_for_reading(path)
            try:
                outdated = upgrade.version_of(db) < upgrade.newest()
                if outdated:
                    db.close()
                    with contextlib.suppress(UnavailableError, StoreFullError):
                        return cls.open(path)
                    db = _connect_to_copy(path)
                db.execute("PRAGMA query_only = 1")
            except BaseException:
                db.close()
                raise
        return cls(path, db)

    @classmethod
    def open_untouched(cls, path: Path) -> Store:
        """Open a store without any change: no migration, no write, no checkpoint of its log.

        Raises:
            ForeignStoreError, StoreDamagedError, UnavailableError: As their names say.
        """
        upgrade.refuse_foreign(path)
        with translated(path):
            return cls(path, _prepared(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)))

    def close(self) -> None:
        """Close the file. Closing twice does nothing."""
        self.db.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _commit(self) -> None:
        """Commit, or raise the error for which the private record refuses it."""
        try:
            self.db.execute("COMMIT")
        except apsw.ConstraintError as error:
            cause = None if self._recorder is None else self._recorder.error()
            if cause is None:
                raise
            raise cause from error

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Hold the only write lock; commit at the end, undo everything on any exception."""
        with _translated(self.path):
            self.db.execute("BEGIN IMMEDIATE")
            self.changed_memories.clear()
            self.deleted_memories.clear()
            try:
                yield
                if self.before_commit is not None:
                    self.before_commit()
                self._commit()
            except BaseException:
                if self.db.in_transaction:
                    self.db.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def importing(self) -> Iterator[None]:
        """Commit without waiting for the disk each time; all commits are durable when the block has ended.

        For work that the ledger makes resumable: a power failure can undo the last commits, whole and in order.
        """
        with _translated(self.path):
            self.db.execute(f"PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = {IMPORT_CHECKPOINT_PAGES}")
            try:
                yield
            finally:
                self.db.execute(f"PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
                with contextlib.suppress(apsw.BusyError, apsw.LockedError):
                    self.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Read one snapshot of the store in several queries, whatever writers do meanwhile."""
        with _translated(self.path):
            self.db.execute("BEGIN")
            try:
                yield
            finally:
                if self.db.in_transaction:
                    self.db.execute("ROLLBACK")

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Return all rows of a query."""
        with translated(self.path):
            return list(self.db.execute(sql, values))

    def row(self, sql: str, values: Sequence[Any] = ()) -> Row | None:
        """Return the first row of a query, or None."""
        with translated(self.path):
            return self.db.execute(sql, values).fetchone()

    def find(self, kind: Callable[..., T], sql: str, values: Sequence[Any] = ()) -> T | None:
        """Return ``kind`` of the columns of the first row; None if there is none, or it begins with NULL."""
        row = self.row(sql, values)
        return None if row is None or row[0] is None else kind(*row)

    def value(self, sql: str, values: Sequence[Any] = ()) -> Any:
        """Return the first column of the first row, or None."""
        return (self.row(sql, values) or (None,))[0]

    def all(self, kind: Callable[..., T], sql: str, values: Sequence[Any] = ()) -> list[T]:
        """Return ``kind`` of the columns of each row."""
        return [kind(*row) for row in self.rows(sql, values)]

    def execute(self, sql: str, values: Sequence[Any] = ()) -> None:
        """Run one statement and ignore its rows."""
        with translated(self.path):
            self.db.execute(sql, values)

    def execute_many(self, sql: str, many: Iterable[Sequence[Any]]) -> None:
        """Run one statement for each sequence of values."""
        with translated(self.path):
            self.db.executemany(sql, many)


@functools.cache
def sqlite_vec_library() -> str:
    """Return the path of the sqlite-vec extension without importing its package, which imports NumPy."""
    spec = importlib.util.find_spec("sqlite_vec")
    if spec is None or spec.origin is None:
        hint = _config("packages").install_command("sqlite-vec")
        raise NotConfiguredError("the package sqlite-vec is not installed", hint=hint)
    return str(Path(spec.origin).with_name("vec0"))


def _connect_for_reading(path: Path) -> apsw.Connection:
    """Open a store for reading, also where nothing can be written beside it and its log therefore cannot be shared.

    Then nobody else writes either: a file without a log is read in place; with one, a copy of both is read.
    """
    with contextlib.suppress(*_UNWRITABLE), contextlib.ExitStack() as failed:
        db = failed.enter_context(contextlib.closing(connect(path)))
        upgrade.version_of(db)
        failed.pop_all()
        return db
    log = path.with_name(path.name + "-wal")
    if not log.is_file() or log.stat().st_size == 0:  # nobody changes it: neither locks nor log files are needed
        uri, flags = f"{path.absolute().as_uri()}?immutable=1", apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        return _prepared(apsw.Connection(uri, flags=flags))
    return _connect_to_copy(path)


def _connect_to_copy(path: Path) -> apsw.Connection:
    """Open an upgraded copy of a store with its log. Its files are unlinked, so closing it frees them."""
    import shutil  # noqa: PLC0415 - as above
    import tempfile  # noqa: PLC0415

    try:
        with tempfile.TemporaryDirectory(prefix="crystal-read-") as folder:
            copy = Path(folder) / path.name
            for suffix in ("", "-wal"):
                with contextlib.suppress(FileNotFoundError):
                    shutil.copyfile(f"{path}{suffix}", f"{copy}{suffix}")
            db = connect(copy)
            if upgrade.upgrade(db, copy):  # also opens the log, which is unlinked next
                db.close()
                db = connect(copy)
                upgrade.version_of(db)
            return db
    except OSError as error:
        raise refused(error, path) from error


def changed_definition(path: Path) -> str | None:
    """Return which definition in a store is not as crystal wrote it, in words, or None."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    with contextlib.closing(_prepared(db)):
        try:
            return upgrade.changed_definition(db)
        except apsw.SQLError as error:
            return upgrade.one_line(error)


def connect(path: Path) -> apsw.Connection:
    """Open a database with the functions and extensions that the schema needs."""
    return _prepared(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE))


def _prepared(db: apsw.Connection) -> apsw.Connection:
    db.set_busy_timeout(BUSY_TIMEOUT_MS)
    db.enable_load_extension(True)
    db.load_extension(sqlite_vec_library())
    db.enable_load_extension(False)
    texts.register(db)
    # One at a time: APSW stops at a statement that returns a row, as that of secure_delete does.
    for setting in "foreign_keys=1 secure_delete=1 synchronous=FULL cache_size=-32768 temp_store=MEMORY".split():
        db.execute(f"PRAGMA {setting}")
    return db


def _switch_to_wal(db: apsw.Connection) -> None:
    """Turn on the write-ahead log; SQLite does not wait by itself when another process is doing the same."""
    deadline = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except apsw.BusyError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
