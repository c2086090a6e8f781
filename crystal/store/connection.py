"""Open crystal.db safely, and run transactions.

A foreign or newer file is refused unchanged, and files are private to the user (0600). This module does not know what
the tables mean.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import apsw

from crystal.config.paths import refused, system_errors
from crystal.errors import (
    NotConfiguredError,
    StoreFullError,
    UnavailableError,
)
from crystal.store import upgrade
from crystal.store.driver import (
    BUSY_TIMEOUT_MS,
    TRANSLATION,
    connect,
    driver_errors,
    prepared,
    translated,
)
from crystal.store.private_record import Recorder

if TYPE_CHECKING:
    from crystal.store.hidden import Hidden

CHECKPOINT_PAGES = 1000
IMPORT_CHECKPOINT_PAGES = 4000
_UNWRITABLE = (apsw.CantOpenError, apsw.ReadOnlyError, apsw.IOError, apsw.FullError, apsw.PermissionsError)

Row = tuple[Any, ...]
T = TypeVar("T")


def _is_empty(path: Path) -> bool:
    """Return True if the file is missing or empty."""
    try:
        return path.stat().st_size == 0
    except FileNotFoundError:
        return True
    except OSError as error:
        raise refused(error, path) from error


_LISTS = (dict, frozenset, list, range, set, tuple, type(TRANSLATION.keys()))


def as_json(names: Iterable[Any]) -> str:
    """Return names as the JSON array that ``json_each`` reads; sorted if they come from a set."""
    return json.dumps([*names] if isinstance(names, list | tuple) else sorted(names))


def _bound(values: Sequence[Any]) -> Sequence[Any]:
    """Return the values of a statement, with lists and sets converted to JSON."""
    if any(isinstance(value, _LISTS) for value in values):
        return [as_json(value) if isinstance(value, _LISTS) else value for value in values]
    return values


GIVEN = "(SELECT value FROM json_each(?))"
"""Members of a list that is given as one value, for ``IN``."""


def columns_of(kind: Any) -> str:
    """Return the columns that the fields of a class of rows are named after, as SQL lists them."""
    return ", ".join(kind.__match_args__)


class Store:
    """An open crystal.db. The caller that opened it closes it; use it from one thread.

    Attributes:
        path: The file.
        db: The driver's connection, for this package only.
        before_commit: Called at the end of each transaction, inside it, or None.
        changed_memories: The ids of memories that this transaction has changed, each with its new rows of history.
        deleted_memories: The ids of memories that this transaction has deleted.
    """

    def __init__(self, path: Path, db: apsw.Connection, recorder: Recorder | None = None) -> None:
        self.path = path
        self.db = db
        self.before_commit: Callable[[], None] | None = None
        self.changed_memories: dict[str, list[int]] = {}
        self.deleted_memories: set[str] = set()
        self.hidden: Hidden | None = None  # content that this connection hides, see isolation.py
        self._recorder = recorder

    @classmethod
    def open(cls, path: Path, record: Path | None = None, *, complete: bool = True) -> Store:
        """Open the store for reading and writing; create it or upgrade its schema first.

        Args:
            path: The file.
            record: The record of private lines to keep beside the archive, see ``private_record``; None for a store
                that is not the machine's own memory.
            complete: Whether a record that is created now lists everything that was ever private.

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

        The schema of an older crystal is upgraded first: in the file, or in a copy if the file cannot be written.

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
            return cls(path, prepared(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)))

    def close(self) -> None:
        """Close the file. Closing twice does nothing."""
        self.db.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _commit(self) -> None:
        """Commit, or raise the private record's error if it has refused the commit."""
        try:
            self.db.execute("COMMIT")
        except apsw.ConstraintError as error:
            cause = None if self._recorder is None else self._recorder.error()
            if cause is None:
                raise
            raise cause from error

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Hold the only write lock; commit at the end, or roll back after any exception."""
        with driver_errors(self.path):
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
        """Commit without waiting for the disk each time; all commits are durable when the block ends.

        For work that the ledger makes resumable: a power failure can undo the last commits, whole and in order.
        """
        with driver_errors(self.path):
            self.db.execute(f"PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = {IMPORT_CHECKPOINT_PAGES}")
            try:
                yield
            finally:
                self.db.execute(f"PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
                with contextlib.suppress(apsw.BusyError, apsw.LockedError):
                    self.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Run several queries on one snapshot of the store, unaffected by writers."""
        with driver_errors(self.path):
            self.db.execute("BEGIN")
            try:
                yield
            finally:
                if self.db.in_transaction:
                    self.db.execute("ROLLBACK")

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Return all rows of a query."""
        with translated(self.path):
            return list(self.db.execute(sql, _bound(values)))

    def stream(self, sql: str, values: Sequence[Any] = ()) -> Iterator[Row]:
        """Yield the rows of a query one by one, for results too large for memory."""
        with translated(self.path):
            yield from self.db.execute(sql, _bound(values))

    def row(self, sql: str, values: Sequence[Any] = ()) -> Row | None:
        """Return the first row of a query, or None."""
        with translated(self.path):
            return self.db.execute(sql, _bound(values)).fetchone()

    def find(self, kind: Callable[..., T], sql: str, values: Sequence[Any] = ()) -> T | None:
        """Return ``kind(*columns)`` of the first row; None if there is no row or its first column is NULL."""
        row = self.row(sql, values)
        return None if row is None or row[0] is None else kind(*row)

    def value(self, sql: str, values: Sequence[Any] = ()) -> Any:
        """Return the first column of the first row, or None."""
        return (self.row(sql, values) or (None,))[0]

    def all(self, kind: Callable[..., T], sql: str, values: Sequence[Any] = ()) -> list[T]:
        """Return ``kind(*columns)`` of each row."""
        return [kind(*row) for row in self.rows(sql, values)]

    def select(self, kind: Callable[..., T], rest: str, values: Sequence[Any] = ()) -> list[T]:
        """Return rows as ``kind``, whose fields are named after columns; ``rest`` is the query after FROM."""
        return self.all(kind, f"SELECT {columns_of(kind)} FROM {rest}", values)

    def execute(self, sql: str, values: Sequence[Any] = ()) -> None:
        """Run one statement and ignore its rows."""
        with translated(self.path):
            self.db.execute(sql, _bound(values))

    def insert(self, table: str, columns: str, *values: Any, on_conflict: str = "") -> int:
        """Insert a row and return its id; ``on_conflict`` as in ``insert_many``."""
        self.insert_many(table, columns, [values], on_conflict=on_conflict)
        return self.db.last_insert_rowid()

    def insert_many(self, table: str, columns: str, rows: Iterable[Sequence[Any]], on_conflict: str = "") -> None:
        """Insert rows with values for some columns; ``on_conflict`` follows ``ON CONFLICT`` in the statement."""
        marks = ", ".join("?" * len(columns.split()))
        more = f" ON CONFLICT {on_conflict}" if on_conflict else ""
        self.execute_many(f"INSERT INTO {table} ({columns}) VALUES ({marks}){more}", rows)

    def upsert(self, table: str, key: str, row: Mapping[str, Any]) -> None:
        """Insert a row, or update the row with the same values in the columns of ``key``."""
        sets = ", ".join(f"{column} = excluded.{column}" for column in row if column not in key.split(", "))
        more = f"({key}) DO UPDATE SET {sets}"
        self.insert(table, ", ".join(row), *row.values(), on_conflict=more)

    def count_of_others(self) -> int:
        """Return a number that changes when another connection commits."""
        return int(self.value("PRAGMA data_version"))

    def has(self, sql: str, values: Sequence[Any] = ()) -> bool:
        """Return True if a query returns a row."""
        return self.row(sql, values) is not None

    def execute_many(self, sql: str, many: Iterable[Sequence[Any]]) -> None:
        """Run a statement once for each sequence of values."""
        with translated(self.path):
            self.db.executemany(sql, many)


def _connect_for_reading(path: Path) -> apsw.Connection:
    """Open a store for reading, also if its folder is read-only and its log therefore cannot be shared.

    In such a folder nobody writes: a file without a log is read in place, else a copy of both is read.
    """
    with contextlib.suppress(*_UNWRITABLE), contextlib.ExitStack() as failed:
        db = failed.enter_context(contextlib.closing(connect(path)))
        upgrade.version_of(db)
        failed.pop_all()
        return db
    log = path.with_name(path.name + "-wal")
    if not log.is_file() or log.stat().st_size == 0:  # nobody changes the file: neither locks nor log files are needed
        uri, flags = f"{path.absolute().as_uri()}?immutable=1", apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        return prepared(apsw.Connection(uri, flags=flags))
    return _connect_to_copy(path)


def _connect_to_copy(path: Path) -> apsw.Connection:
    """Open an upgraded copy of a store with its log. Its files are unlinked, so closing it frees their space."""
    import shutil  # noqa: PLC0415 - every hook's worker opens the store, and nearly none reads a copy
    import tempfile  # noqa: PLC0415

    with system_errors(path), tempfile.TemporaryDirectory(prefix="crystal-read-") as folder:
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


def _switch_to_wal(db: apsw.Connection) -> None:
    """Turn on the write-ahead log, and wait if another process is doing the same: SQLite does not wait itself."""
    deadline = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except apsw.BusyError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
