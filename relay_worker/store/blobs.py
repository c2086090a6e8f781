"""Streams and blobs: all SQL statements on them. Writing functions run inside the writer's transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import apsw

from relay_worker.errors import RequestRefusedError
from relay_worker.model import BlobEntry, NewBody, StreamState
from relay_worker.store.database import ACCOUNT, PAGE_BYTES, Batch, one

STATE = "SELECT lower(hex(stream)), head, acked, count, bytes, expired_upto FROM streams"
STREAM = f"(SELECT id FROM streams WHERE account = {ACCOUNT} AND stream = ?)"
SWEEP_ROWS = 1000


def check_room(batch: Batch, new: NewBody, held: int) -> None:
    """Refuse a body for which the account or the disk has no room.

    Args:
        batch: The transaction.
        new: The body.
        held: Bytes that the account holds besides it.

    Raises:
        RequestRefusedError: ``account-full``, ``disk-full``.
    """
    most = batch.settings.quota_bytes
    if held + new.size > most:
        raise RequestRefusedError("account-full", f"the account may hold {most} bytes", retry_after=300)
    # Pages of deleted rows are reused before the database grows.
    reusable = 0 if new.file else int(batch.db.execute("PRAGMA freelist_count").get) * PAGE_BYTES
    batch.files.check_room(reusable)


def put(batch: Batch, new: NewBody, stream: bytes, seq: int, tag: bytes) -> bool:
    """Store a blob, see docs/spec/relay-http.md, section 3."""
    db = batch.db
    account = one(db, "SELECT id, bytes, change FROM accounts WHERE name = ?", new.account)
    if account is None:
        raise RequestRefusedError("unauthenticated", "the account is gone")
    account_id, held, change = account
    known = one(db, "SELECT id, count FROM streams WHERE account = ? AND stream = ?", account_id, stream)
    stream_id, count = known or (None, 0)
    stored = one(db, "SELECT id, size, tag, digest, file FROM blobs WHERE stream = ? AND seq = ?", stream_id, seq)
    settled = one(db, "SELECT tag, digest, expired FROM settled WHERE stream = ? AND seq = ?", stream_id, seq)
    if _is_duplicate(new, seq, tag, stored, settled):
        batch.drop(new.file)
        return False
    row, replaced, *_, replaced_file = stored or (None, 0, None)
    if not stored and count >= batch.settings.max_blobs:
        raise RequestRefusedError("stream-full", f"a stream may hold {batch.settings.max_blobs} blobs", retry_after=300)
    check_room(batch, new, held - replaced)
    if stream_id is None:
        stream_id = _new_stream(batch, account_id, stream)
    if stored:
        db.execute("DELETE FROM blobs WHERE id = ?", (row,))
    elif settled:
        db.execute("DELETE FROM settled WHERE stream = ? AND seq = ?", (stream_id, seq))
    db.execute(
        "INSERT INTO blobs (stream, seq, size, at, tag, digest, file, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (stream_id, seq, new.size, new.now, tag, new.digest, new.file, new.inline),
    )
    change = max(change + 1, new.now * 1000)
    db.execute(
        "UPDATE streams SET head = max(head, ?), count = count + ?, bytes = bytes + ?, change = ? WHERE id = ?",
        (seq, 0 if stored else 1, new.size - replaced, change, stream_id),
    )
    db.execute(
        "UPDATE accounts SET bytes = bytes + ?, change = ? WHERE id = ?", (new.size - replaced, change, account_id)
    )
    batch.drop(replaced_file)
    return True


def _is_duplicate(
    new: NewBody, seq: int, tag: bytes, stored: tuple[Any, ...] | None, settled: tuple[Any, ...] | None
) -> bool:
    """Return True if there is nothing to store; refuse another blob of the same number."""
    if stored:
        (known_tag, digest), expired = stored[2:4], 0
    elif settled:
        known_tag, digest, expired = settled
    else:
        return False
    if tag != known_tag or (new.digest != digest and not new.resend and not expired):
        raise RequestRefusedError("blob-conflict", f"another blob is or was stored as {seq}")
    return not (new.resend or expired)


def _new_stream(batch: Batch, account: int, stream: bytes) -> int:
    most = batch.settings.max_streams
    if batch.db.execute("SELECT count(*) FROM streams WHERE account = ?", (account,)).get >= most:
        raise RequestRefusedError("too-many-streams", f"the account may have {most} streams")
    batch.db.execute("INSERT INTO streams (account, stream) VALUES (?, ?)", (account, stream))
    return batch.db.last_insert_rowid()


def ack(batch: Batch, account: str, stream: bytes, upto: int, now: int) -> None:
    """Delete the bodies up to and including ``upto``."""
    db = batch.db
    known = one(db, f"SELECT id, account FROM streams WHERE account = {ACCOUNT} AND stream = ?", account, stream)
    if known is None:
        return
    stream_id, account_id = known
    _settle(batch, stream_id, account_id, "stream = ? AND seq <= ?", (stream_id, upto), now, expired=0)
    db.execute("UPDATE streams SET acked = max(acked, min(?, head)) WHERE id = ?", (upto, stream_id))


def _settle(
    batch: Batch, stream: int, account: int, where: str, values: tuple[Any, ...], now: int, *, expired: int
) -> None:
    """Turn stored blobs of one stream into tombstones."""
    db = batch.db
    batch.drop(*(name for (name,) in db.execute(f"SELECT file FROM blobs WHERE {where} AND file IS NOT NULL", values)))
    count, size = db.execute(f"SELECT count(*), coalesce(sum(size), 0) FROM blobs WHERE {where}", values).get
    if count == 0:
        return
    db.execute(
        "INSERT OR REPLACE INTO settled (stream, seq, at, expired, tag, digest)"
        f" SELECT stream, seq, ?, ?, tag, digest FROM blobs WHERE {where}",
        (now, expired, *values),
    )
    db.execute(f"DELETE FROM blobs WHERE {where}", values)
    db.execute("UPDATE streams SET count = count - ?, bytes = bytes - ? WHERE id = ?", (count, size, stream))
    db.execute("UPDATE accounts SET bytes = bytes - ? WHERE id = ?", (size, account))


def expire(batch: Batch, before: int, now: int) -> Counter[str]:
    """Delete some blobs stored before a time, oldest first. Return their numbers by account."""
    db = batch.db
    rows: list[Any] = db.execute(
        "SELECT b.id, b.seq, s.id, a.id, a.name FROM blobs b JOIN streams s ON s.id = b.stream"
        " JOIN accounts a ON a.id = s.account WHERE b.at < ? ORDER BY b.at LIMIT ?",
        (before, SWEEP_ROWS),
    ).fetchall()
    for blob, seq, stream, account, _ in rows:
        _settle(batch, stream, account, "id = ?", (blob,), now, expired=1)
        db.execute("UPDATE accounts SET change = max(change + 1, ?) WHERE id = ?", (now * 1000, account))
        db.execute(
            "UPDATE streams SET expired_upto = max(expired_upto, ?),"
            " change = (SELECT change FROM accounts WHERE id = ?) WHERE id = ?",
            (seq, account, stream),
        )
    return Counter(name for *_, name in rows)


def forget(batch: Batch, before: int) -> int:
    """Delete some tombstones set before a time. Return their number."""
    batch.db.execute(
        "DELETE FROM settled WHERE (stream, seq) IN (SELECT stream, seq FROM settled WHERE at < ? LIMIT ?)",
        (before, SWEEP_ROWS),
    )
    return batch.db.changes()


def state(db: apsw.Connection, account: str, stream: bytes) -> StreamState:
    """Return the state of a stream."""
    row = one(db, f"{STATE} WHERE account = {ACCOUNT} AND stream = ?", account, stream)
    return StreamState(stream.hex()) if row is None else StreamState(*row)


def list_after(
    db: apsw.Connection, account: str, stream: bytes, after: int, limit: int
) -> tuple[StreamState, list[BlobEntry]]:
    """Return a page of a stream, and the stream, in one snapshot."""
    with db:
        sql = f"SELECT seq, size, lower(hex(tag)) FROM blobs WHERE stream = {STREAM} AND seq > ? ORDER BY seq LIMIT ?"
        page = [BlobEntry(*row) for row in db.execute(sql, (account, stream, after, limit))]
        found = state(db, account, stream)
    return found, page


def streams(
    db: apsw.Connection, account: str, prefixes: Sequence[bytes], changed_after: int
) -> tuple[int, list[StreamState]]:
    """Return the account's change counter, and its streams that changed since, by id."""
    with db:
        row = one(db, "SELECT id, change, floor FROM accounts WHERE name = ?", account)
        if row is None:
            return 0, []
        account_id, change, floor = row
        since = changed_after if floor <= changed_after <= change else 0
        found = [
            StreamState(*state_row)
            for prefix in prefixes
            for state_row in db.execute(
                f"{STATE} WHERE account = ? AND stream BETWEEN ? AND ? AND (change > ? OR ? = 0) ORDER BY stream",
                (account_id, prefix, prefix.ljust(16, b"\xff"), since, since),
            )
        ]
    return change, found


def find(db: apsw.Connection, account: str, stream: bytes, seq: int) -> tuple[Any, ...]:
    """Return size, tag, digest, file and body of a stored blob.

    Raises:
        RequestRefusedError: ``no-blob``.
    """
    sql = f"SELECT size, tag, digest, file, body FROM blobs WHERE stream = {STREAM} AND seq = ?"
    row = one(db, sql, account, stream, seq)
    if row is None:
        raise RequestRefusedError("no-blob", f"there is no blob {seq}")
    return row
