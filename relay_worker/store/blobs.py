"""Store streams and blobs: all SQL statements on them. Writing functions need a transaction that holds the account."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from relay_worker.errors import RequestRefusedError
from relay_worker.model import BlobEntry, NewBody, StreamState
from relay_worker.store.rows import ACCOUNT, Put, Rows, Transaction

_STATE = "s.head, s.acked, s.count, s.bytes, s.expired_upto"
PREFIX_SHARE = 4  # one prefix has at most a quarter of an account's streams: a stolen token leaves room for others
STREAM = f"(SELECT id FROM streams WHERE account = {ACCOUNT} AND stream = ?)"
SWEEP_ROWS = 1000


def check_room(batch: Transaction, new: NewBody, account: int, held: int) -> None:
    """Refuse a body for which the account or the disk has no room.

    Args:
        batch: The transaction.
        new: The body.
        account: The account's id.
        held: Bytes of the account without this body, when the body's query ran.

    Raises:
        RequestRefusedError: ``account-full``, ``disk-full``.
    """
    most = batch.settings.quota_bytes
    if held + batch.unseen.get(account, 0) + new.size > most:
        raise RequestRefusedError("account-full", f"the account may hold {most} bytes", retry_after=300)
    batch.check_disk(new)


class _Known(NamedTuple):
    """The state of a sequence number before a blob is stored there; None for rows that do not exist."""

    account: int
    held: int
    change: int
    stream: int | None
    head: int
    stored: int
    row: int | None
    size: int
    file: str | None
    tag: bytes | None
    digest: bytes | None
    is_settled: bool
    is_expired: bool


_KNOWN = (
    "SELECT a.id, a.bytes, a.change, s.id, coalesce(s.head, 0), coalesce(s.count, 0), b.id, coalesce(b.size, 0),"
    " b.file, coalesce(b.tag, t.tag), coalesce(b.digest, t.digest), b.id IS NULL AND t.seq IS NOT NULL,"
    " b.id IS NULL AND coalesce(t.expired, 0) = 1"
    " FROM accounts a LEFT JOIN streams s ON s.account = a.id AND s.stream = ?"
    " LEFT JOIN blobs b ON b.stream = s.id AND b.seq = ? LEFT JOIN settled t ON t.stream = s.id AND t.seq = ?"
    " WHERE a.name = ?"
)
_ADD_BLOB = "INSERT INTO blobs (stream, seq, size, at, tag, digest, file, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_ADD_TO_STREAM = "UPDATE streams SET head = ?, count = count + ?, bytes = bytes + ?, change = ? WHERE id = ?"


def put(batch: Transaction, new: NewBody, stream: bytes, seq: int, tag: bytes) -> Put:
    """Store a blob, see docs/spec/relay-http.md, section 3."""
    row = yield _KNOWN, (stream, seq, seq, new.account)
    if row is None:
        raise RequestRefusedError("unauthenticated", "the account is gone")
    known = _Known(*row)
    if _is_duplicate(new, seq, tag, known):
        batch.drop(new.file)
        return False
    is_more = known.row is None
    if is_more and known.stored >= batch.settings.max_blobs:
        raise RequestRefusedError("stream-full", f"a stream may hold {batch.settings.max_blobs} blobs", retry_after=300)
    check_room(batch, new, known.account, known.held - known.size)
    stream_id = known.stream or _new_stream(batch, known.account, stream)
    if known.row is not None:
        batch.run("DELETE FROM blobs WHERE id = ?", known.row)
    elif known.is_settled:
        batch.run("DELETE FROM settled WHERE stream = ? AND seq = ?", stream_id, seq)
    change, more = max(known.change + 1, new.now * 1000), new.size - known.size
    batch.run_later(
        (_ADD_BLOB, (stream_id, seq, new.size, new.now, tag, new.digest, new.file, new.inline)),
        (_ADD_TO_STREAM, (max(known.head, seq), int(is_more), more, change, stream_id)),
    )
    batch.charge(known.account, more, change)
    batch.drop(known.file)
    return True


def _is_duplicate(new: NewBody, seq: int, tag: bytes, known: _Known) -> bool:
    """Return True if the blob is already stored; refuse a different blob with the same number."""
    if known.tag is None:
        return False
    if tag != known.tag or (new.digest != known.digest and not new.resend and not known.is_expired):
        raise RequestRefusedError("blob-conflict", f"another blob is or was stored as {seq}")
    return not (new.resend or known.is_expired)


def _new_stream(batch: Transaction, account: int, stream: bytes) -> int:
    most, counted = batch.settings.max_streams, "SELECT count(*) FROM streams WHERE account = ?"
    if (batch.one(counted, account) or (0,))[0] >= most:
        raise RequestRefusedError("too-many-streams", f"the account may have {most} streams")
    share, ends = max(1, most // PREFIX_SHARE), (stream[:8] + bytes(8), stream[:8] + b"\xff" * 8)
    if (batch.one(f"{counted} AND stream BETWEEN ? AND ?", account, *ends) or (0,))[0] >= share:
        raise RequestRefusedError("too-many-streams", f"one prefix may have {share} streams")
    (made,) = batch.one("INSERT INTO streams (account, stream) VALUES (?, ?) RETURNING id", account, stream) or (0,)
    return int(made)


def ack(batch: Transaction, account: str, stream: bytes, upto: int, now: int) -> None:
    """Delete the bodies up to and including ``upto``."""
    sql = f"SELECT id, account, head, acked FROM streams WHERE account = {ACCOUNT} AND stream = ?"
    known = batch.one(sql, account, stream)
    if known is None:
        return
    stream_id, account_id, head, acked = known
    _settle(batch, stream_id, account_id, "stream = ? AND seq <= ?", (stream_id, upto), now, expired=0)
    if acked < min(upto, head):
        batch.run("UPDATE streams SET acked = ? WHERE id = ?", min(upto, head), stream_id)


def _settle(
    batch: Transaction, stream: int, account: int, where: str, values: tuple[Any, ...], now: int, *, expired: int
) -> None:
    """Turn stored blobs of one stream into tombstones."""
    stored = batch.all(f"SELECT size, file FROM blobs WHERE {where}", *values)
    if not stored:
        return
    size = sum(one for one, _ in stored)
    batch.run(
        "INSERT INTO settled (stream, seq, at, expired, tag, digest)"
        f" SELECT stream, seq, ?, ?, tag, digest FROM blobs WHERE {where} ON CONFLICT (stream, seq) DO UPDATE SET"
        " at = excluded.at, expired = excluded.expired, tag = excluded.tag, digest = excluded.digest",
        *(now, expired, *values),
    )
    batch.run(f"DELETE FROM blobs WHERE {where}", *values)
    batch.run("UPDATE streams SET count = count - ?, bytes = bytes - ? WHERE id = ?", len(stored), size, stream)
    batch.run("UPDATE accounts SET bytes = bytes - ? WHERE id = ?", size, account)
    batch.drop(*(file for _, file in stored))


def with_old(db: Rows, before: int) -> list[str]:
    """Return some accounts that have blobs stored before a time."""
    sql = (
        "SELECT DISTINCT a.name FROM (SELECT stream FROM blobs WHERE at < ? ORDER BY at LIMIT ?) b"
        " JOIN streams s ON s.id = b.stream JOIN accounts a ON a.id = s.account ORDER BY a.name"
    )
    return [name for (name,) in db.all(sql, before, SWEEP_ROWS)]


def expire(batch: Transaction, account: str, before: int, now: int) -> int:
    """Delete some blobs of an account stored before a time, oldest first. Return their number."""
    rows = batch.all(
        "SELECT b.id, b.seq, s.id, s.account FROM blobs b JOIN streams s ON s.id = b.stream"
        f" WHERE b.at < ? AND s.account = {ACCOUNT} ORDER BY b.at LIMIT ?",
        *(before, account, SWEEP_ROWS),
    )
    upto: dict[int, int] = {}
    for blob, seq, stream, account_id in rows:
        _settle(batch, stream, account_id, "id = ?", (blob,), now, expired=1)
        upto[stream] = max(seq, upto.get(stream, 0))
    if rows:
        (account_id, change) = batch.one("SELECT id, change FROM accounts WHERE name = ?", account) or (0, 0)
        change = max(change + 1, now * 1000)
        batch.run("UPDATE accounts SET change = ? WHERE id = ?", change, account_id)
        batch.many("UPDATE streams SET change = ? WHERE id = ?", [(change, stream) for stream in upto])
        sql = "UPDATE streams SET expired_upto = ? WHERE id = ? AND expired_upto < ?"
        batch.many(sql, [(seq, stream, seq) for stream, seq in upto.items()])
    return len(rows)


def forget(batch: Transaction, before: int) -> int:
    """Delete some tombstones set before a time. Return their number."""
    old = "SELECT stream, seq FROM settled WHERE at < ? LIMIT ?"
    return len(batch.all(f"DELETE FROM settled WHERE (stream, seq) IN ({old}) RETURNING seq", before, SWEEP_ROWS))


def state(db: Rows, account: str, stream: bytes) -> StreamState:
    """Return the state of a stream."""
    row = db.one(f"SELECT {_STATE} FROM streams s WHERE account = {ACCOUNT} AND stream = ?", account, stream)
    return StreamState(stream.hex(), *(row or ()))


def list_after(db: Rows, account: str, stream: bytes, after: int, limit: int) -> tuple[StreamState, list[BlobEntry]]:
    """Return a page of a stream, and the stream, as of one moment: in one statement."""
    sql = (
        f"SELECT {_STATE}, b.seq, b.size, b.tag FROM streams s LEFT JOIN blobs b ON b.stream = s.id AND b.seq > ?"
        f" WHERE s.account = {ACCOUNT} AND s.stream = ? ORDER BY b.seq LIMIT ?"
    )
    rows = db.all(sql, after, account, stream, limit)
    page = [BlobEntry(seq, size, tag.hex()) for *_, seq, size, tag in rows if seq is not None]
    return StreamState(stream.hex(), *(rows[0][:5] if rows else ())), page


def streams(db: Rows, account: str, prefixes: Sequence[bytes], changed_after: int) -> tuple[int, list[StreamState]]:
    """Return the account's change counter, and its streams that changed since ``changed_after``, by id.

    The counter is read first: a blob stored between the two statements is listed now, and once more next time.
    """
    row = db.one("SELECT id, change, floor FROM accounts WHERE name = ?", account)
    if row is None:
        return 0, []
    account_id, change, floor = row
    since = changed_after if floor <= changed_after <= change else 0
    sql = (
        f"SELECT s.stream, {_STATE} FROM streams s WHERE account = ? AND stream BETWEEN ? AND ?"
        " AND (change > ? OR ? = 0) ORDER BY stream"
    )
    found = [
        StreamState(name.hex(), *rest)
        for prefix in prefixes
        for name, *rest in db.all(sql, account_id, prefix, prefix.ljust(16, b"\xff"), since, since)
    ]
    return change, found


def find(db: Rows, account: str, stream: bytes, seq: int) -> tuple[Any, ...]:
    """Return size, tag, digest, file and body of a stored blob.

    Raises:
        RequestRefusedError: ``no-blob``.
    """
    sql = f"SELECT size, tag, digest, file, body FROM blobs WHERE stream = {STREAM} AND seq = ?"
    row = db.one(sql, account, stream, seq)
    if row is None:
        raise RequestRefusedError("no-blob", f"there is no blob {seq}")
    return row
