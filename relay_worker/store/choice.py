"""Choose the store that the settings name. psycopg is imported only for a store in PostgreSQL."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from relay_worker.errors import CannotServeError
from relay_worker.settings import Settings, read_value
from relay_worker.store import operator
from relay_worker.store.folder_ends import folder_source, folder_target
from relay_worker.store.interface import RelayStore
from relay_worker.store.moving import Source, Target
from relay_worker.store.rows import Rows
from relay_worker.store.sqlite import SqliteStore

COMMAND_SECONDS = 5


def open_store(settings: Settings, *, now: int, observe: Callable[[int, float], None] = lambda *_: None) -> RelayStore:
    """Open the store for serving.

    Raises:
        CannotServeError: It cannot be served.
    """
    if not settings.store:
        return SqliteStore(settings.data_dir, settings, now=now, observe=observe)
    store: RelayStore = _postgres("store").PostgresStore(settings, now=now, observe=observe)
    return store


def check(settings: Settings) -> None:
    """Refuse a store whose server cannot be reached, or refuses the relay.

    Raises:
        CannotServeError: See ``transaction``.
    """
    if settings.store:
        _postgres("connecting").connect_patiently(settings.store, COMMAND_SECONDS).close()


def source_of(place: str) -> AbstractContextManager[Source]:
    """Open the relay at an address or in a folder, to be moved."""
    if "://" in place:
        found: AbstractContextManager[Source] = _postgres("ends").database_source(read_value("store", "--from", place))
        return found
    return folder_source(Path(place))


def target_of(place: str) -> AbstractContextManager[Target]:
    """Open an empty database or a new folder, to move a relay to."""
    if "://" in place:
        found: AbstractContextManager[Target] = _postgres("ends").database_target(read_value("store", "--to", place))
        return found
    return folder_target(Path(place))


@contextlib.contextmanager
def transaction(settings: Settings, *, create: bool = False) -> Iterator[Rows]:
    """Run a command's statements in one transaction, also while servers run.

    Args:
        settings: The store.
        create: Make the relay if there is none.

    Raises:
        CannotServeError: There is none, or it cannot be used: exit code 4 if its server cannot be reached, 5 if it
            refuses the relay.
    """
    if not settings.store:
        if create:
            operator.create(settings.data_dir)
        with operator.opened(settings.data_dir) as rows, rows.db:
            yield rows
        return
    connecting = _postgres("connecting")
    with connecting.session(settings.store, COMMAND_SECONDS, create=create) as rows, rows.db.transaction():
        yield rows


def _postgres(module: str) -> Any:
    """Import a module of the store in PostgreSQL.

    Raises:
        CannotServeError: psycopg is not installed.
    """
    try:
        return importlib.import_module(f"relay_worker.store.postgres.{module}")
    except ModuleNotFoundError as error:
        raise CannotServeError(
            f"a store in PostgreSQL needs {error.name}, which is not installed",
            hint=f"{sys.executable} -m pip install 'psycopg[binary]'",
            exit_code=3,
        ) from None
