"""Store objects: all SQL statements on them. Writing functions run inside the writer's transaction."""

from __future__ import annotations

from typing import Any

from relay_worker.errors import RequestRefusedError
from relay_worker.model import NewBody, ObjectEntry
from relay_worker.store.blobs import check_room
from relay_worker.store.rows import ACCOUNT, Put, Rows, Transaction

_KNOWN = (
    "SELECT a.id, a.bytes, o.id, coalesce(o.size, 0), o.digest, o.file FROM accounts a"
    " LEFT JOIN objects o ON o.account = a.id AND o.object = ? WHERE a.name = ?"
)
_ADD_OBJECT = "INSERT INTO objects (account, object, size, at, digest, file, body) VALUES (?, ?, ?, ?, ?, ?, ?)"


def put(batch: Transaction, new: NewBody, object_id: bytes) -> Put:
    """Store a write-once object."""
    known = yield _KNOWN, (object_id, new.account)
    if known is None:
        raise RequestRefusedError("unauthenticated", "the account is gone")
    account_id, held, row, replaced, digest, replaced_file = known
    if row is not None and digest != new.digest:
        raise RequestRefusedError("object-conflict", "another object is stored under this id")
    if row is not None and not new.resend:
        batch.drop(new.file)
        return False
    check_room(batch, new, account_id, held - replaced)
    if row is not None:
        batch.run("DELETE FROM objects WHERE id = ?", row)
    batch.run_later((_ADD_OBJECT, (account_id, object_id, new.size, new.now, new.digest, new.file, new.inline)))
    batch.charge(account_id, new.size - replaced, 0)
    batch.drop(replaced_file)
    return True


def delete(batch: Transaction, account: str, object_id: bytes) -> None:
    """Delete an object if it exists."""
    sql = f"SELECT id, size, file, account FROM objects WHERE account = {ACCOUNT} AND object = ?"
    stored = batch.one(sql, account, object_id)
    if stored is None:
        return
    row, size, file, account_id = stored
    batch.run("DELETE FROM objects WHERE id = ?", row)
    batch.run("UPDATE accounts SET bytes = bytes - ? WHERE id = ?", size, account_id)
    batch.drop(file)


def list_after(db: Rows, account: str, after: bytes, limit: int) -> list[ObjectEntry]:
    """Return the objects with ids above ``after``, by rising id."""
    sql = f"SELECT object, size, at FROM objects WHERE account = {ACCOUNT} AND object > ? ORDER BY object LIMIT ?"
    return [ObjectEntry(name.hex(), size, at) for name, size, at in db.all(sql, account, after, limit)]


def find(db: Rows, account: str, object_id: bytes) -> tuple[Any, ...]:
    """Return size, digest as tag, digest, file and body of an object.

    Raises:
        RequestRefusedError: ``no-object``.
    """
    sql = f"SELECT size, digest, digest, file, body FROM objects WHERE account = {ACCOUNT} AND object = ?"
    row = db.one(sql, account, object_id)
    if row is None:
        raise RequestRefusedError("no-object", "there is no such object")
    return row
