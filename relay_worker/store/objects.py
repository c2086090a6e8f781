"""Objects: all SQL statements on them. Writing functions run inside the writer's transaction."""

from __future__ import annotations

from typing import Any

import apsw

from relay_worker.errors import RequestRefusedError
from relay_worker.model import NewBody, ObjectEntry
from relay_worker.store.blobs import check_room
from relay_worker.store.database import ACCOUNT, Batch, one


def put(batch: Batch, new: NewBody, object_id: bytes) -> bool:
    """Store a write-once object."""
    db = batch.db
    account = one(db, "SELECT id, bytes FROM accounts WHERE name = ?", new.account)
    if account is None:
        raise RequestRefusedError("unauthenticated", "the account is gone")
    account_id, held = account
    stored = one(
        db, "SELECT id, size, digest, file FROM objects WHERE account = ? AND object = ?", account_id, object_id
    )
    row, replaced, digest, replaced_file = stored or (None, 0, new.digest, None)
    if digest != new.digest:
        raise RequestRefusedError("object-conflict", "another object is stored under this id")
    if stored and not new.resend:
        batch.drop(new.file)
        return False
    check_room(batch, new, held - replaced)
    db.execute("DELETE FROM objects WHERE id = ?", (row,))
    db.execute(
        "INSERT INTO objects (account, object, size, at, digest, file, body) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (account_id, object_id, new.size, new.now, new.digest, new.file, new.inline),
    )
    db.execute("UPDATE accounts SET bytes = bytes + ? WHERE id = ?", (new.size - replaced, account_id))
    batch.drop(replaced_file)
    return True


def delete(batch: Batch, account: str, object_id: bytes) -> None:
    """Delete an object if it exists."""
    db = batch.db
    sql = f"SELECT id, size, file, account FROM objects WHERE account = {ACCOUNT} AND object = ?"
    stored = one(db, sql, account, object_id)
    if stored is None:
        return
    row, size, file, account_id = stored
    db.execute("DELETE FROM objects WHERE id = ?", (row,))
    db.execute("UPDATE accounts SET bytes = bytes - ? WHERE id = ?", (size, account_id))
    batch.drop(file)


def list_after(db: apsw.Connection, account: str, after: bytes, limit: int) -> list[ObjectEntry]:
    """Return the objects above ``after`` by rising id."""
    sql = (
        f"SELECT lower(hex(object)), size, at FROM objects WHERE account = {ACCOUNT} AND object > ?"
        " ORDER BY object LIMIT ?"
    )
    return [ObjectEntry(*row) for row in db.execute(sql, (account, after, limit))]


def find(db: apsw.Connection, account: str, object_id: bytes) -> tuple[Any, ...]:
    """Return size, digest as tag, digest, file and body of an object.

    Raises:
        RequestRefusedError: ``no-object``.
    """
    sql = f"SELECT size, digest, digest, file, body FROM objects WHERE account = {ACCOUNT} AND object = ?"
    row = one(db, sql, account, object_id)
    if row is None:
        raise RequestRefusedError("no-object", "there is no such object")
    return row
