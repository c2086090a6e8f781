"""Open databases with the driver, and translate its errors.

No ``apsw`` exception that a user can act on leaves this package untranslated.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
from pathlib import Path
from types import ModuleType

import apsw

from crystal.errors import (
    CrystalError,
    NotConfiguredError,
    StoreBusyError,
    StoreDamagedError,
    StoreFullError,
    UnavailableError,
)
from crystal.store import texts, upgrade

BUSY_TIMEOUT_MS = 15_000
FULL_BELOW_BYTES = 128 << 10

# Grouped by what a user can do. Not listed: damage that sqlite-vec reports as an SQL error, and bugs.
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
    StoreFullError: "free some disk space, then run the command again; turns are captured by themselves",
    StoreDamagedError: upgrade.REPAIR_HINT,
    UnavailableError: "check that its disk is present and can be written",
    NotConfiguredError: "reinstall the package sqlite-vec",
}


class driver_errors:  # noqa: N801 - used as a function; a generator costs each statement 2 µs
    """Translate errors of the driver, for blocks that also run other code."""

    __slots__ = ("path",)

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is None:
            return
        ours = self._translation(error)
        if ours is not None:
            try:
                raise ours from error
            finally:
                del ours, error  # they refer to this frame, which would keep the connection alive

    def _translation(self, error: BaseException) -> CrystalError | None:
        return _translation(error, self.path) if isinstance(error, apsw.Error) else None


class translated(driver_errors):  # noqa: N801 - as above
    """Translate the driver's errors into crystal's, and the error of a text that cannot be decoded."""

    __slots__ = ()

    def _translation(self, error: BaseException) -> CrystalError | None:
        if isinstance(error, UnicodeDecodeError):
            return StoreDamagedError(f"{self.path}: a text in it cannot be decoded", hint=HINTS[StoreDamagedError])
        return super()._translation(error)


def _translation(error: apsw.Error, path: Path) -> CrystalError | None:
    """Return crystal's error for one of the driver's; None for bugs and for queries that crystal interrupted."""
    if isinstance(error, apsw.InterruptError):
        return None
    ours = next((ours for ours, kinds in TRANSLATION.items() if isinstance(error, kinds)), None)
    if ours is None:
        changed = changed_definition(path) or (str(error) if str(error).startswith("vec0 ") else None)
        return StoreDamagedError(f"{path}: {changed}", hint=HINTS[StoreDamagedError]) if changed else None
    # SQLite reports an I/O error if the file that WAL readers share cannot grow.
    if ours is StoreFullError or (isinstance(error, apsw.IOError) and _is_full(path.parent)):
        return StoreFullError(f"the disk of {path.parent} is full", hint=HINTS[StoreFullError])
    if ours is UnavailableError:
        return _unavailable_error(error, path)
    hint = HINTS[ours]
    if ours is NotConfiguredError:
        hint = f"{hint}: {_config('packages').reinstall_command('sqlite-vec')}"
    return ours(f"{path}: {error}", hint=hint)


def _unavailable_error(error: apsw.Error, path: Path) -> CrystalError:
    """Return the error for a store that cannot be opened or written."""
    folder = upgrade.folder_in_place_of_log(path)
    if folder is not None:
        return StoreDamagedError(f"{folder} is a folder", hint=HINTS[StoreDamagedError])
    access = _config("file_access")
    words = f"{path}: {error}{access.owner_in_the_way(path)}"
    return UnavailableError(words, hint=access.way_in(path) or HINTS[UnavailableError])


def _config(name: str) -> ModuleType:
    """Import a module of ``crystal.config`` only when it is needed: every hook's worker opens the store."""
    return importlib.import_module(f"crystal.config.{name}")


def _is_full(folder: Path) -> bool:
    try:
        import shutil  # noqa: PLC0415 - every hook's worker opens the store, and nearly none asks this

        return shutil.disk_usage(folder).free < FULL_BELOW_BYTES
    except OSError:
        return False


@functools.cache
def sqlite_vec_library() -> str:
    """Return the path of the sqlite-vec extension without importing its package, which imports NumPy."""
    spec = importlib.util.find_spec("sqlite_vec")
    if spec is None or spec.origin is None:
        hint = _config("packages").install_command("sqlite-vec")
        raise NotConfiguredError("the package sqlite-vec is not installed", hint=hint)
    return str(Path(spec.origin).with_name("vec0"))


def changed_definition(path: Path) -> str | None:
    """Describe the first definition in a store's schema that crystal did not write, or return None."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    with contextlib.closing(prepared(db)):
        return changed_definition_in(db)


def changed_definition_in(db: apsw.Connection) -> str | None:
    """Do the same for an open store."""
    try:
        return upgrade.changed_definition(db)
    except apsw.SQLError as error:
        return upgrade.one_line(error)


def connect(path: Path) -> apsw.Connection:
    """Open a database with the functions and extensions that the schema needs."""
    return prepared(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE))


def prepared(db: apsw.Connection) -> apsw.Connection:
    """Give a connection the functions, extensions and settings that the schema needs."""
    db.set_busy_timeout(BUSY_TIMEOUT_MS)
    db.enable_load_extension(True)
    db.load_extension(sqlite_vec_library())
    db.enable_load_extension(False)
    texts.register(db)
    # One at a time: APSW stops at a statement that returns a row, such as secure_delete.
    for setting in "foreign_keys=1 secure_delete=1 synchronous=FULL cache_size=-32768 temp_store=MEMORY".split():
        db.execute(f"PRAGMA {setting}")
    return db
