"""Streams and blobs: all SQL statements on them. Writing functions run inside the writer's transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import apsw

from relay_worker.errors import Refusal
from relay_worker.model import BlobEntry, Limits, Result, StreamState
from relay_worker.store.connection import PAGE_BYTES
from relay_worker.store.writer import Batch

STATE = "SELECT stream, head, acked, count, bytes, expired_upto FROM streams"
SWEEP_ROWS = 1000


@dataclass(frozen=True, slots=True)
class NewBlob:
    """Blob to be stored; exactly one of ``body`` and ``file`` is set."""

    account: str
    stream: bytes
    seq: int
    size: int
    tag: bytes
    digest: bytes
    body: bytes | None
    file: str | None
    resend: bool
    now: int


def one(db: apsw.Connection, sql: str, *values: Any) -> tuple[Any, ...] | None:
    """Return the first row."""
    for row in db.execute(sql, values):
        return tuple(row)
    return None


def reusable(db: apsw.Connection) -> int:
    """Return the bytes of deleted rows that are reused before the file grows."""
    return int(db.execute("PRAGMA freelist_count").get) * PAGE_BYTES


def put(batch: Batch, blob: NewBlob, limits: Limits, check_room: Callable[[int], None]) -> tuple[Result, str | None]:
    """Store a blob, see docs/spec/relay-http.md, section 3. Also return the replaced file, to be deleted."""
    db = batch.db
    account = one(db, "SELECT id, bytes, change FROM accounts WHERE name = ?", blob.account)
    if account is None:
        raise Refusal("unauthenticated", "the account is gone")
    account_id, held, change = account
    known = one(db, "SELECT id, count FROM streams WHERE account = ? AND stream = ?", account_id, blob.stream)
    stored = known and one(
        db, "SELECT id, size, tag, digest, file FROM blobs WHERE stream = ? AND seq = ?", known[0], blob.seq
    )
    if stored:
        if _is_there(blob, stored[2], stored[3]):
            return "duplicate", None
    elif known:
        settled = one(db, "SELECT tag, digest, expired FROM settled WHERE stream = ? AND seq = ?", known[0], blob.seq)
        if settled and _is_settled(blob, *settled):
            return "duplicate", None
    replaced = stored[1] if stored else 0
    if held - replaced + blob.size > limits.quota_bytes:
        raise Refusal("account-full", f"the account may hold {limits.quota_bytes} bytes", retry_after=300)
    if known and not stored and known[1] >= limits.max_blobs:
        raise Refusal("stream-full", f"a stream may hold {limits.max_blobs} blobs", retry_after=300)
    check_room(0 if blob.body is None else reusable(db))
    stream_id = known[0] if known else _new_stream(db, account_id, blob.stream, limits)
    if stored:
        db.execute("DELETE FROM blobs WHERE id = ?", (stored[0],))
    elif known:
        db.execute("DELETE FROM settled WHERE stream = ? AND seq = ?", (stream_id, blob.seq))
    db.execute(
        "INSERT INTO blobs (stream, seq, size, at, tag, digest, file, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (stream_id, blob.seq, blob.size, blob.now, blob.tag, blob.digest, blob.file, blob.body),
    )
    change = max(change + 1, blob.now * 1000)
    db.execute(
        "UPDATE streams SET head = max(head, ?), count = count + ?, bytes = bytes + ?, change = ? WHERE id = ?",
        (blob.seq, 0 if stored else 1, blob.size - replaced, change, stream_id),
    )
    db.execute(
        "UPDATE accounts SET bytes = bytes + ?, change = ? WHERE id = ?", (blob.size - replaced, change, account_id)
    )
    return ("replaced" if stored else "created"), (stored[4] if stored else None)


def _is_there(blob: NewBlob, tag: bytes, digest: bytes) -> bool:
    if tag != blob.tag or (digest != blob.digest and not blob.resend):
        raise Refusal("blob-conflict", f"another blob is stored as {blob.seq}")
    return not blob.resend


def _is_settled(blob: NewBlob, tag: bytes, digest: bytes, expired: int) -> bool:
    if tag != blob.tag or (digest != blob.digest and not blob.resend and not expired):
        raise Refusal("blob-conflict", f"another blob was stored as {blob.seq}")
    return not (blob.resend or expired)


def _new_stream(db: apsw.Connection, account: int, stream: bytes, limits: Limits) -> int:
    count = db.execute("SELECT count(*) FROM streams WHERE account = ?", (account,)).get
    if count >= limits.max_streams:
        raise Refusal("too-many-streams", f"the account may have {limits.max_streams} streams")
    db.execute("INSERT INTO streams (account, stream) VALUES (?, ?)", (account, stream))
    return db.last_insert_rowid()


def ack(batch: Batch, account: str, stream: bytes, upto: int, now: int) -> list[str]:
    """Delete the bodies up to and including ``upto``. Return their files."""
    db = batch.db
    known = one(
        db,
        "SELECT s.id, s.account FROM streams s JOIN accounts a ON a.id = s.account WHERE a.name = ? AND s.stream = ?",
        account,
        stream,
    )
    if known is None:
        return []
    stream_id, account_id = known
    files = _settle(db, stream_id, account_id, "stream = ? AND seq <= ?", (stream_id, upto), now, expired=0)
    db.execute(
        "UPDATE streams SET acked = max(acked, min(?, head)) WHERE id = ?",
        (upto, stream_id),
    )
    return files


def _settle(
    db: apsw.Connection, stream: int, account: int, where: str, values: tuple[Any, ...], now: int, *, expired: int
) -> list[str]:
    """Turn stored blobs of one stream into tombstones. Return their files."""
    files = [name for (name,) in db.execute(f"SELECT file FROM blobs WHERE {where} AND file IS NOT NULL", values)]
    count, size = db.execute(f"SELECT count(*), coalesce(sum(size), 0) FROM blobs WHERE {where}", values).get
    if count == 0:
        return []
    db.execute(
        "INSERT OR REPLACE INTO settled (stream, seq, at, expired, tag, digest)"
        f" SELECT stream, seq, ?, ?, tag, digest FROM blobs WHERE {where}",
        (now, expired, *values),
    )
    db.execute(f"DELETE FROM blobs WHERE {where}", values)
    db.execute("UPDATE streams SET count = count - ?, bytes = bytes - ? WHERE id = ?", (count, size, stream))
    db.execute("UPDATE accounts SET bytes = bytes - ? WHERE id = ?", (size, account))
    return files


def expire(batch: Batch, before: int, now: int) -> tuple[dict[str, int], list[str]]:
    """Delete some blobs stored before a time, oldest first. Return numbers by account, and the files."""
    db = batch.db
    rows: list[Any] = db.execute(
        "SELECT b.id, b.seq, s.id, a.id, a.name FROM blobs b JOIN streams s ON s.id = b.stream"
        " JOIN accounts a ON a.id = s.account WHERE b.at < ? ORDER BY b.at LIMIT ?",
        (before, SWEEP_ROWS),
    ).fetchall()
    expired: dict[str, int] = {}
    files: list[str] = []
    for blob, seq, stream, account, name in rows:
        files += _settle(db, stream, account, "id = ?", (blob,), now, expired=1)
        db.execute(
            "UPDATE accounts SET change = max(change + 1, ?) WHERE id = ?",
            (now * 1000, account),
        )
        db.execute(
            "UPDATE streams SET expired_upto = max(expired_upto, ?),"
            " change = (SELECT change FROM accounts WHERE id = ?) WHERE id = ?",
            (seq, account, stream),
        )
        expired[name] = expired.get(name, 0) + 1
    return expired, files


def forget(batch: Batch, before: int) -> int:
    """Delete some tombstones set before a time. Return their number."""
    batch.db.execute(
        "DELETE FROM settled WHERE (stream, seq) IN (SELECT stream, seq FROM settled WHERE at < ? LIMIT ?)",
        (before, SWEEP_ROWS),
    )
    return batch.db.changes()


def state(db: apsw.Connection, account: str, stream: bytes) -> StreamState:
    """Return the state of a stream."""
    row = one(db, f"{STATE} WHERE account = (SELECT id FROM accounts WHERE name = ?) AND stream = ?", account, stream)
    return StreamState(stream) if row is None else StreamState(*row)


def list_after(
    db: apsw.Connection, account: str, stream: bytes, after: int, limit: int
) -> tuple[StreamState, list[BlobEntry]]:
    """Return a page of a stream, and the stream, in one snapshot."""
    with db:
        rows = db.execute(
            "SELECT seq, size, tag FROM blobs WHERE stream = (SELECT s.id FROM streams s JOIN accounts a"
            " ON a.id = s.account WHERE a.name = ? AND s.stream = ?) AND seq > ? ORDER BY seq LIMIT ?",
            (account, stream, after, limit),
        )
        page = [BlobEntry(*row) for row in rows]
        found = state(db, account, stream)
    return found, page


def streams(
    db: apsw.Connection, account: str, prefixes: Sequence[bytes] | None, changed_after: int
) -> tuple[int, list[StreamState]]:
    """Return the account's change counter, and its streams that changed since, by id."""
    with db:
        row = one(db, "SELECT id, change, floor FROM accounts WHERE name = ?", account)
        if row is None:
            return 0, []
        account_id, change, floor = row
        since = changed_after if floor <= changed_after <= change else 0
        ranges = [(b"", b"\xff" * 16)] if prefixes is None else [(prefix, prefix + b"\xff" * 8) for prefix in prefixes]
        found = [
            StreamState(*state_row)
            for first, last in ranges
            for state_row in db.execute(
                f"{STATE} WHERE account = ? AND stream BETWEEN ? AND ? AND (change > ? OR ? = 0) ORDER BY stream",
                (account_id, first, last, since, since),
            )
        ]
    return change, found


def find(db: apsw.Connection, account: str, stream: bytes, seq: int) -> tuple[Any, ...] | None:
    """Return size, tag, digest, file and body of a stored blob."""
    return one(
        db,
        "SELECT b.size, b.tag, b.digest, b.file, b.body FROM blobs b JOIN streams s ON s.id = b.stream"
        " JOIN accounts a ON a.id = s.account WHERE a.name = ? AND s.stream = ? AND b.seq = ?",
        account,
        stream,
        seq,
    )
