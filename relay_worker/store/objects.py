"""Objects: all SQL statements on them. Writing functions run inside the writer's transaction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import apsw

from relay_worker.errors import Refusal
from relay_worker.model import Limits, ObjectEntry, Result
from relay_worker.store.blobs import one, reusable
from relay_worker.store.writer import Batch


@dataclass(frozen=True, slots=True)
class NewObject:
    """Object to be stored; exactly one of ``body`` and ``file`` is set."""

    account: str
    object_id: bytes
    size: int
    digest: bytes
    body: bytes | None
    file: str | None
    resend: bool
    now: int


def put(batch: Batch, new: NewObject, limits: Limits, check_room: Callable[[int], None]) -> tuple[Result, str | None]:
    """Store a write-once object. Also return the replaced file, to be deleted."""
    db = batch.db
    account = one(db, "SELECT id, bytes FROM accounts WHERE name = ?", new.account)
    if account is None:
        raise Refusal("unauthenticated", "the account is gone")
    account_id, held = account
    stored = one(
        db, "SELECT id, size, digest, file FROM objects WHERE account = ? AND object = ?", account_id, new.object_id
    )
    if stored:
        if stored[2] != new.digest:
            raise Refusal("object-conflict", "another object is stored under this id")
        if not new.resend:
            return "duplicate", None
    replaced = stored[1] if stored else 0
    if held - replaced + new.size > limits.quota_bytes:
        raise Refusal("account-full", f"the account may hold {limits.quota_bytes} bytes", retry_after=300)
    check_room(0 if new.body is None else reusable(db))
    if stored:
        db.execute("DELETE FROM objects WHERE id = ?", (stored[0],))
    db.execute(
        "INSERT INTO objects (account, object, size, at, digest, file, body) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (account_id, new.object_id, new.size, new.now, new.digest, new.file, new.body),
    )
    db.execute("UPDATE accounts SET bytes = bytes + ? WHERE id = ?", (new.size - replaced, account_id))
    return ("replaced" if stored else "created"), (stored[3] if stored else None)


def delete(batch: Batch, account: str, object_id: bytes) -> str | None:
    """Delete an object if it exists. Return its file."""
    db = batch.db
    stored = one(
        db,
        "SELECT o.id, o.size, o.file, a.id FROM objects o JOIN accounts a ON a.id = o.account"
        " WHERE a.name = ? AND o.object = ?",
        account,
        object_id,
    )
    if stored is None:
        return None
    row, size, file, account_id = stored
    db.execute("DELETE FROM objects WHERE id = ?", (row,))
    db.execute("UPDATE accounts SET bytes = bytes - ? WHERE id = ?", (size, account_id))
    return None if file is None else str(file)


def list_after(db: apsw.Connection, account: str, after: bytes, limit: int) -> list[ObjectEntry]:
    """Return the objects above ``after`` by rising id."""
    rows = db.execute(
        "SELECT o.object, o.size, o.at FROM objects o JOIN accounts a ON a.id = o.account"
        " WHERE a.name = ? AND o.object > ? ORDER BY o.object LIMIT ?",
        (account, after, limit),
    )
    return [ObjectEntry(*row) for row in rows]


def find(db: apsw.Connection, account: str, object_id: bytes) -> tuple[Any, ...] | None:
    """Return size, digest, file and body of an object."""
    return one(
        db,
        "SELECT o.size, o.digest, o.file, o.body FROM objects o JOIN accounts a ON a.id = o.account"
        " WHERE a.name = ? AND o.object = ?",
        account,
        object_id,
    )
