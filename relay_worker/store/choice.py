"""Open the store named in the settings. psycopg and obstore are imported only if they are used."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

from relay_worker.errors import CannotServeError
from relay_worker.settings import Settings, read_value
from relay_worker.store import operator
from relay_worker.store.folder_ends import folder_source, folder_target
from relay_worker.store.interface import RelayStore
from relay_worker.store.moving import MoveEnd
from relay_worker.store.rows import Rows
from relay_worker.store.sqlite import SqliteStore

COMMAND_SECONDS = 5
_LIBRARIES = {"postgres": ("a store in PostgreSQL", "psycopg[binary]"), "bucket": ("a bucket for bodies", "obstore")}


def open_store(settings: Settings, *, now: int, observe: Callable[[int, float], None] = lambda *_: None) -> RelayStore:
    """Open the store for serving.

    Raises:
        CannotServeError: It cannot be served.
    """
    bucket_of = _bucket_of(settings.bodies, settings.store)
    if not settings.store:
        return SqliteStore(settings.data_dir, settings, now=now, observe=observe)
    make = _optional("postgres.store").PostgresStore
    store: RelayStore = make(settings, now=now, observe=observe, bucket_of=bucket_of)
    return store


def check(settings: Settings) -> None:
    """Refuse a store whose server cannot be reached, or refuses the relay.

    Raises:
        CannotServeError: See ``transaction``.
    """
    bucket_of = _bucket_of(settings.bodies, settings.store)
    if settings.store:
        _optional("postgres.connecting").connect_patiently(settings.store, COMMAND_SECONDS).close()
    if bucket_of:
        bucket_of("check").check()


def source_of(place: str, bodies: str = "") -> AbstractContextManager[MoveEnd]:
    """Open a relay as the source of a move, from an address or a folder; its large bodies may be in a bucket."""
    return _end(place, bodies, "from", folder_source, "database_source")


def target_of(place: str, bodies: str = "") -> AbstractContextManager[MoveEnd]:
    """Open an empty database or a new folder as the target of a move; its large bodies may go to a bucket."""
    return _end(place, bodies, "to", folder_target, "database_target")


def _end(
    place: str, bodies: str, flag: str, in_folder: Callable[[Path], AbstractContextManager[MoveEnd]], in_database: str
) -> AbstractContextManager[MoveEnd]:
    """Open one end of a move: a folder with ``in_folder``, or a database with the function named ``in_database``."""
    bucket_of = _bucket_of(read_value("bodies", f"--{flag}-bodies", bodies), place)
    if "://" not in place:
        return in_folder(Path(place))
    url = read_value("store", f"--{flag}", place)
    found: AbstractContextManager[MoveEnd] = getattr(_optional("postgres.ends"), in_database)(url, bucket_of)
    return found


@contextlib.contextmanager
def transaction(settings: Settings, *, create: bool = False) -> Iterator[Rows]:
    """Run a command's statements in one transaction, also while servers run.

    Args:
        settings: The store.
        create: Create the relay if it does not exist.

    Raises:
        CannotServeError: It does not exist or cannot be used: exit code 4 if its server cannot be reached, 5 if it
            refuses the relay.
    """
    if not settings.store:
        if create:
            operator.create(settings.data_dir)
        with operator.opened(settings.data_dir) as rows, rows.db:
            yield rows
        return
    connecting = _optional("postgres.connecting")
    with connecting.session(settings.store, COMMAND_SECONDS, create=create) as rows, rows.db.transaction():
        yield rows


def _bucket_of(bodies: str, store: str) -> Callable[[str], Any] | None:
    """Return a function that opens a folder of the bucket, or None without a bucket.

    Raises:
        CannotServeError: The store is no database, or obstore is not installed.
    """
    if not bodies:
        return None
    if "://" not in store:
        hint = "name a database too: --store postgresql://user@host/database; or leave the bucket out"
        raise CannotServeError(f"{bodies} is for a relay with PostgreSQL", hint=hint, exit_code=2)
    return partial(_optional("bucket").Bucket, bodies)


def _optional(module: str) -> Any:
    """Import a module that needs an optional library.

    Raises:
        CannotServeError: The library is not installed.
    """
    try:
        return importlib.import_module(f"relay_worker.store.{module}")
    except ModuleNotFoundError as error:
        what, package = _LIBRARIES[module.partition(".")[0]]
        hint = f"{sys.executable} -m pip install '{package}'"
        raise CannotServeError(f"{what} needs {error.name}, which is not installed", hint=hint, exit_code=3) from None
