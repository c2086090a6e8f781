"""Open relay.db safely, translate errors of the driver, and run transactions."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

import apsw

from relay_worker.errors import CannotServeError, RequestRefusedError
from relay_worker.model import NewBody
from relay_worker.settings import Settings
from relay_worker.store.files import BodyFiles, sync_path
from relay_worker.store.rows import CHARGE, Row

APPLICATION_ID = 0x43525259
"""``CRRY``: marks the file as a relay's."""

BUSY_TIMEOUT_MS = 10_000
CHECKPOINT_PAGES = 2000
PAGE_BYTES = 8192


class SqliteRows:
    """A connection on which statements run; see ``relay_worker.store.rows``.

    Attributes:
        db: The connection.
    """

    def __init__(self, db: apsw.Connection) -> None:
        self.db = db

    def one(self, sql: str, *values: Any) -> tuple[Any, ...] | None:
        """Return the first row."""
        for row in self.db.execute(sql, values):
            return tuple(row)
        return None

    def all(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return all rows."""
        return self.db.execute(sql, values).fetchall()

    def run(self, sql: str, *values: Any) -> None:
        """Run a statement that returns nothing."""
        self.db.execute(sql, values)

    def many(self, sql: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Run a statement once for each row of values."""
        self.db.executemany(sql, rows)


class Batch(SqliteRows):
    """A transaction of some jobs, with everything that they need.

    Attributes:
        settings: The limits of streams and accounts.
        files: The body files.
        unused: Names of body files to be deleted after the COMMIT.
        unseen: Empty, because each body is stored before the next body's query.
    """

    unseen: Mapping[int, int] = MappingProxyType({})

    def __init__(self, db: apsw.Connection, settings: Settings, files: BodyFiles) -> None:
        super().__init__(db)
        self.settings, self.files = settings, files
        self.unused: list[str] = []

    def run_later(self, *statements: tuple[str, Row]) -> None:
        """Run statements with their values now; with SQLite a delay would save nothing."""
        for sql, values in statements:
            self.db.execute(sql, values)

    def charge(self, account: int, size: int, change: int) -> None:
        """Add to the bytes of an account, and raise its change counter."""
        self.db.execute(CHARGE, (size, change, change, account))

    def check_disk(self, new: NewBody) -> None:
        """Refuse a body without room. Pages of deleted rows are reused before the database grows."""
        (free,) = (0,) if new.file else self.one("PRAGMA freelist_count") or (0,)
        self.files.check_room(free * PAGE_BYTES)

    def drop(self, *files: str | None) -> None:
        """Delete body files after the COMMIT."""
        self.unused += [name for name in files if name]


def refusal_of(error: apsw.Error) -> RequestRefusedError:
    """Return the refusal for the client. The log has more details."""
    if isinstance(error, apsw.FullError):
        return RequestRefusedError("disk-full", "the relay's disk is full", retry_after=300)
    refusal = RequestRefusedError("unavailable", "the relay's store does not answer", retry_after=5)
    refusal.__cause__ = error
    return refusal


def migrations() -> list[tuple[int, str]]:
    """Return the migrations as (number, SQL), in order."""
    files = sorted(Path(__file__).with_name("migrations").glob("[0-9][0-9][0-9][0-9]_*.sql"))
    return [(int(file.name[:4]), file.read_text("utf-8")) for file in files]


def connect(path: Path) -> apsw.Connection:
    """Open a configured connection for reading and writing."""
    db = apsw.Connection(str(path))
    db.set_busy_timeout(BUSY_TIMEOUT_MS)
    db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)  # else a join is planned again for every value
    db.execute("PRAGMA foreign_keys = ON")
    db.execute("PRAGMA synchronous = FULL")
    db.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
    return db


def lock(folder: Path) -> BinaryIO:
    """Lock a data directory for one server, until the file is closed or the process ends.

    Raises:
        CannotServeError: Another process holds it.
    """
    file = os.fdopen(os.open(folder / "serve.lock", os.O_CREAT | os.O_RDWR, 0o600), "r+b")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        hint = "stop it, or set CRYSTAL_RELAY_DATA_DIR"
        raise CannotServeError(f"another crystal-relay serves {folder}", hint=hint) from error
    return file


def prepare(path: Path) -> None:
    """Create the database, or upgrade it.

    Raises:
        CannotServeError: It is not a relay's database, is newer, or cannot be opened. Nothing was changed.
    """
    _refuse_foreign(path)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    sync_path(path.parent)
    try:
        with contextlib.closing(connect(path)) as db:
            _upgrade(db)
    except apsw.Error as error:
        raise CannotServeError(f"{path}: {error}", hint="check the folder's permissions and its disk") from error


def part_of(folder: Path) -> Path:
    """Return the temporary name of an incomplete copy of a relay to this folder."""
    folder = folder.resolve()  # "." has no name
    return folder.with_name(f".{folder.name}.part")


def refuse_incomplete(folder: Path) -> None:
    """Refuse to create a relay where another is being copied to: it would be empty, and unknown to all clients.

    Raises:
        CannotServeError: A move or a backup to the folder is not complete.
    """
    part = part_of(folder)
    if part.exists() and not (folder / "relay.db").exists():
        hint = f"run crystal-relay move or backup again until it exits with 0; or delete {part}"
        raise CannotServeError(f"the copy of a relay to {folder} is not complete", hint=hint)


def _refuse_foreign(path: Path) -> None:
    try:
        with path.open("rb") as file:
            header = file.read(100)
    except FileNotFoundError:
        return
    except OSError as error:
        raise CannotServeError(f"{path} cannot be read: {error.strerror}", hint="check its permissions") from error
    # See https://www.sqlite.org/fileformat2.html, section 1.3.
    version, application = int.from_bytes(header[60:64], "big"), int.from_bytes(header[68:72], "big")
    if header and not (header.startswith(b"SQLite format 3\x00") and application == APPLICATION_ID):
        raise CannotServeError(
            f"{path} is not a relay's database", hint="point CRYSTAL_RELAY_DATA_DIR at another folder"
        )
    newest = migrations()[-1][0]
    if version > newest:
        raise CannotServeError(
            f"{path} has schema {version}, this relay knows up to {newest}", hint="upgrade the relay"
        )


def _upgrade(db: apsw.Connection) -> None:
    """Apply the missing migrations, each in one transaction; concurrent processes take turns.

    WAL mode is switched on afterwards: until then the file is empty, or its header identifies it.
    """
    if _version(db) == 0:
        db.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    for number, sql in migrations():
        db.execute("BEGIN IMMEDIATE")
        try:
            if _version(db) < number:
                db.execute(sql)
                db.execute(f"PRAGMA user_version = {number}")
                db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
    deadline = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:  # SQLite does not wait itself if another process does the same
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except apsw.BusyError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _version(db: apsw.Connection) -> int:
    return int(db.execute("PRAGMA user_version").get)
