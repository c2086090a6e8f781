"""A relay in PostgreSQL as the source or the target of a move."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

from relay_worker.errors import CannotServeError
from relay_worker.settings import without_password
from relay_worker.store.moving import TABLES
from relay_worker.store.postgres.connecting import MOVING, SCHEMA, SERVING_LOCK, WRITING_LOCK, PostgresRows, session
from relay_worker.store.rows import Rows

SECONDS = 5
_PATIENT = "SET idle_in_transaction_session_timeout = 0; SET statement_timeout = 0"


class DatabaseEnd:
    """Schema of a relay; see ``relay_worker.store.moving``."""

    def __init__(self, rows: PostgresRows, *, is_serving: bool) -> None:
        self.rows: Rows = rows
        self.is_serving, self.is_complete = is_serving, False
        self._db = rows.db

    def body(self, _file: str | None, body: bytes | None) -> bytes | None:
        """Return the bytes of a row, None if they are lost."""
        return body

    def keep(self, body: bytes) -> tuple[str | None, bytes | None]:
        """Return the two columns for a body."""
        return None, body

    def transaction(self) -> AbstractContextManager[Any]:
        """Return a transaction for some rows."""
        return self._db.transaction()


def _locked(rows: PostgresRows) -> bool:
    """Keep servers from serving and from writing, if none serves; released with the connection."""
    (is_mine,) = rows.one("SELECT pg_try_advisory_lock(?)", SERVING_LOCK) or (False,)
    if is_mine:
        rows.one("SELECT pg_advisory_lock(?)", WRITING_LOCK)
    return bool(is_mine)


@contextlib.contextmanager
def database_source(url: str) -> Iterator[DatabaseEnd]:
    """Open a relay's schema for reading, as of now. If no server serves it, none can start meanwhile.

    Raises:
        CannotServeError: There is no relay in it, or it cannot be used.
    """
    with session(url, SECONDS) as rows:
        rows.db.execute(_PATIENT)
        is_serving = not _locked(rows)
        rows.db.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        yield DatabaseEnd(rows, is_serving=is_serving)


@contextlib.contextmanager
def database_target(url: str) -> Iterator[DatabaseEnd]:
    """Open a new schema for writing. It has another name until it is complete.

    Raises:
        CannotServeError: There is a relay already, or another move writes it.
    """
    with session(url, SECONDS, MOVING, create=True) as rows:
        rows.db.execute(_PATIENT)
        if not _locked(rows):
            raise CannotServeError(f"another command moves a relay to {without_password(url)}", hint="wait for it")
        end = DatabaseEnd(rows, is_serving=False)
        yield end
        if end.is_complete:
            with rows.db.transaction():
                for table in TABLES:
                    if table.columns[0] == "id" and table.name != "tokens":
                        name = f"{MOVING}.{table.name}"
                        newest = f"(SELECT coalesce(max(id), 0) + 1 FROM {name})"
                        rows.run(f"SELECT setval(pg_get_serial_sequence(?, 'id'), {newest}, false)", name)
                rows.db.execute(f"ALTER SCHEMA {MOVING} RENAME TO {SCHEMA}")
