"""Open a relay in PostgreSQL as the source or the target of a move."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from relay_worker.errors import CannotServeError
from relay_worker.settings import without_password
from relay_worker.store.moving import TABLES, MoveEnd
from relay_worker.store.postgres.connecting import MOVING, SCHEMA, SERVING_LOCK, WRITING_LOCK, PostgresRows, session
from relay_worker.store.postgres.unnamed import ReservedBodies, clear_named, open_bucket

if TYPE_CHECKING:
    from relay_worker.store.bucket import Bucket

SECONDS = 5
STOPPED_SECONDS = 2.0
_PATIENT = "SET idle_in_transaction_session_timeout = 0; SET statement_timeout = 0"


def _locked(rows: PostgresRows) -> bool:
    """Keep servers from serving and writing, if none serves now; released with the connection.

    PostgreSQL ends the session of a server that has just stopped a moment later, so this waits for it.
    """
    ends_at = time.monotonic() + STOPPED_SECONDS
    while not _try_lock(rows):
        if time.monotonic() > ends_at:
            return False
        time.sleep(0.05)
    rows.one("SELECT pg_advisory_lock(?)", WRITING_LOCK)
    return True


def _try_lock(rows: PostgresRows) -> bool:
    (is_mine,) = rows.one("SELECT pg_try_advisory_lock(?)", SERVING_LOCK) or (False,)
    return bool(is_mine)


def _bodies(rows: PostgresRows, url: str, bucket_of: Callable[[str], Bucket] | None) -> ReservedBodies | None:
    bucket = open_bucket(rows, url, bucket_of, SECONDS)
    return ReservedBodies(bucket, rows) if bucket else None


@contextlib.contextmanager
def database_source(url: str, bucket_of: Callable[[str], Bucket] | None) -> Iterator[MoveEnd]:
    """Open a relay's schema for reading, as of now. If no server serves it, none can start meanwhile.

    Raises:
        CannotServeError: There is no relay in it, or it cannot be used.
    """
    with session(url, SECONDS) as rows:
        rows.db.execute(_PATIENT)
        is_serving = not _locked(rows)
        bodies = _bodies(rows, url, bucket_of)
        rows.db.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        yield MoveEnd(rows, is_serving, rows.db.transaction, bodies)


@contextlib.contextmanager
def database_target(url: str, bucket_of: Callable[[str], Bucket] | None) -> Iterator[MoveEnd]:
    """Open a new schema for writing. It has another name until it is complete.

    Raises:
        CannotServeError: There is a relay already, or another move writes it.
    """
    with session(url, SECONDS, MOVING, create=True) as rows:
        rows.db.execute(_PATIENT)
        if not _locked(rows):
            raise CannotServeError(f"another command moves a relay to {without_password(url)}", hint="wait for it")
        end = MoveEnd(rows, False, rows.db.transaction, _bodies(rows, url, bucket_of))
        yield end
        if end.is_complete:
            with rows.db.transaction():
                clear_named(rows)
                for table in TABLES:
                    if table.columns[0] == "id" and table.name != "tokens":
                        name = f"{MOVING}.{table.name}"
                        newest = f"(SELECT coalesce(max(id), 0) + 1 FROM {name})"
                        rows.run(f"SELECT setval(pg_get_serial_sequence(?, 'id'), {newest}, false)", name)
                rows.db.execute(f"ALTER SCHEMA {MOVING} RENAME TO {SCHEMA}")
