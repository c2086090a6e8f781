"""List the bodies of the bucket that have no row: not yet, or no longer.

A body's name is listed before its upload begins. The transaction that writes its row takes it off the list, and the
one that deletes the row puts it back. So the worst result of a crash is a body that is deleted later. A server that
hung between the two, until another server gave its upload up, cannot write the row any more. The only clock is the
database's.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from relay_worker.errors import CannotServeError, RequestRefusedError
from relay_worker.settings import without_password
from relay_worker.store.postgres.connecting import SERVING_LOCK, patiently
from relay_worker.store.rows import FILES, Put, Row, Rows, Transaction, answer

if TYPE_CHECKING:
    from relay_worker.store.bucket import Bucket

UPLOAD_MS = 3_600_000
"""Time after which an upload is given up: a body takes some minutes to arrive at most."""
UNREAD_MS = 30_000
"""Time for which a body stays after its row is deleted, for requests that have just read the row."""
PAGE = 1000
MARK_SECONDS = 3.0
"""Time to wait for another server to mark the bucket, or for the session of a stopped one to end."""
NAME_IT = "name the bucket: --bodies s3://bucket/prefix (to move a relay: --from-bodies or --to-bodies)"
NOW = "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)"
_OTHERS = (
    "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND pid <> pg_backend_pid()"
    " AND (CAST(classid AS BIGINT) << 32) + CAST(objid AS BIGINT) = ?"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


def open_bucket(rows: Rows, url: str, bucket_of: Callable[[str], Bucket] | None, seconds: float) -> Bucket | None:
    """Return the bucket of a relay, or None; wait up to ``seconds`` for it.

    Raises:
        CannotServeError: Rows name bodies, and no bucket is configured; or it cannot be used, or is not the relay's.
    """
    (is_used,) = rows.one(f"SELECT EXISTS ({FILES})") or (False,)
    if bucket_of is None:
        if is_used:
            raise CannotServeError(f"{without_password(url)} has bodies in a bucket", hint=NAME_IT, exit_code=2)
        return None
    sql = "INSERT INTO bucket (id, folder) VALUES (1, ?) ON CONFLICT DO NOTHING RETURNING id"
    is_new = rows.one(sql, secrets.token_hex(8)) is not None
    (folder,) = rows.one("SELECT folder FROM bucket") or ("",)
    bucket = bucket_of(folder)
    patiently(bucket.check, seconds, "the bucket")
    has_bodies = bool(bucket.names(1))
    if is_used and not has_bodies:
        raise CannotServeError(
            f"{bucket.address} has none of the bodies that the database names",
            hint="name the bucket and prefix that have them: s3://bucket/prefix",
        )
    ends_at = time.monotonic() + MARK_SECONDS
    while not bucket.is_marked():
        if is_new or has_bodies:
            bucket.mark()
        elif rows.one(_OTHERS, SERVING_LOCK) is None:  # no other server: use this bucket, and a new folder
            (folder,) = rows.one("UPDATE bucket SET folder = ? RETURNING folder", secrets.token_hex(8)) or ("",)
            bucket, is_new = bucket_of(folder), True
        elif time.monotonic() > ends_at:
            raise CannotServeError(
                f"{bucket.address} is not the bucket of the servers that run on this database",
                hint="name the same bucket and prefix for all; to change it, stop them all first",
            )
        else:
            time.sleep(0.2)
    return bucket


def new_name() -> str:
    """Return a new name for a body; names are never reused."""
    return secrets.token_hex(16)


def reserve(rows: Rows, file: str) -> None:
    """List a body before its upload."""
    rows.run(f"INSERT INTO unnamed (file, due) VALUES (?, {NOW} + ?)", file, UPLOAD_MS)


def naming(transaction: Transaction, put: Put, file: str) -> Put:
    """Store a body's row, and take its file off the list; a refused body is released for deletion."""
    row: Row | None = yield next(put)
    if transaction.one(f"DELETE FROM unnamed WHERE file = ? AND due > {NOW} RETURNING file", file) is None:
        raise RequestRefusedError("unavailable", "the body took too long to store", retry_after=1)
    try:
        return answer(put, row)
    except RequestRefusedError:
        transaction.drop(file)
        raise


def release(rows: Rows, file: str) -> None:
    """List a body whose row is deleted."""
    rows.run(
        f"INSERT INTO unnamed (file, due) VALUES (?, {NOW} + ?) ON CONFLICT (file) DO UPDATE SET due = excluded.due",
        *(file, UNREAD_MS),
    )


def give_up(rows: Rows) -> list[str]:
    """Return some bodies to delete; no row can name them from now on."""
    due = f"SELECT file FROM unnamed WHERE due < {NOW} LIMIT ?"
    sql = f"UPDATE unnamed SET due = 0 WHERE file IN ({due}) AND due < {NOW} RETURNING file"
    return [file for (file,) in rows.all(sql, PAGE)]


def forget(rows: Rows, files: Sequence[str]) -> None:
    """Take deleted bodies off the list."""
    rows.many("DELETE FROM unnamed WHERE file = ? AND due = 0", [(file,) for file in files])


def add_unknown(rows: Rows, files: Sequence[str]) -> None:
    """List bodies of the bucket that have neither a row nor an entry in the list, as after a restored backup.

    Args:
        rows: The relay's rows.
        files: The names in the bucket, read before this call; each was listed before its upload.
    """
    known = {file for (file,) in rows.all(f"{FILES} UNION ALL SELECT file FROM unnamed")}
    for file in files:
        if file not in known:
            release(rows, file)


def clear_named(rows: Rows) -> None:
    """Take all bodies with a row off the list, at the end of a move."""
    rows.run(f"DELETE FROM unnamed WHERE file IN ({FILES})")


class ReservedBodies:
    """Bodies of a bucket for a move, each listed before it is uploaded.

    Args:
        bucket: The bucket.
        rows: The relay's rows, outside of a transaction.
    """

    def __init__(self, bucket: Bucket, rows: Rows) -> None:
        self._bucket, self._rows = bucket, rows
        self.read = bucket.read

    def save(self, body: bytes) -> str:
        """Store a body. Return its name."""
        name = new_name()
        reserve(self._rows, name)
        self._bucket.save(name, body)
        return name
