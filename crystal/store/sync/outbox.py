"""Store the outbox: this machine's streams, and the sealed blobs that wait for a receipt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from crystal.store.connection import GIVEN, Store

NO_TAG = bytes(32)


@dataclass(frozen=True, slots=True)
class OutStream:
    """A stream that this machine writes; see the table ``relay_out``."""

    id: int
    stream: bytes
    peer: int
    channel: int
    lane: str
    generation: int
    last_seq: int
    last_tag: bytes
    verified: int
    closed_at: int | None


@dataclass(frozen=True, slots=True)
class WaitingBlob:
    """A sealed blob of the outbox, without its bytes."""

    seq: int
    sent_at: int | None
    again: int


def open_stream(store: Store, peer: int, channel: int, lane: str) -> OutStream | None:
    """Return the open stream of a lane, or None before the first."""
    where = "peer = ? AND channel = ? AND lane = ? AND closed_at IS NULL"
    return next(iter(store.select(OutStream, f"relay_out WHERE {where}", (peer, channel, lane))), None)


def stream_by_id(store: Store, ident: int) -> OutStream:
    """Return one stream, by its row."""
    [found] = store.select(OutStream, "relay_out WHERE id = ?", (ident,))
    return found


def new_stream(
    store: Store, stream: bytes, peer: int, channel: int, lane: str, generation: int, now: int, because: str
) -> OutStream:
    """Open a stream that replaces the open one. Inside a transaction.

    A replaced stream of documents is deleted, so that no rows accumulate however often the relay loses it.
    """
    store.execute(
        "DELETE FROM relay_out WHERE peer = ? AND channel = ? AND lane = ? AND lane = 'latest'", (peer, channel, lane)
    )
    store.execute(
        "UPDATE relay_out SET closed_at = ? WHERE peer = ? AND channel = ? AND lane = ? AND closed_at IS NULL",
        (now, peer, channel, lane),
    )
    columns = "stream, peer, channel, lane, generation, last_tag, opened_at, because"
    store.insert("relay_out", columns, stream, peer, channel, lane, generation, NO_TAG, now, because)
    found = open_stream(store, peer, channel, lane)
    assert found is not None
    return found


def streams(store: Store, peer: int | None = None) -> list[OutStream]:
    """Return every stream of this machine (to one peer), in the order of opening."""
    return store.select(OutStream, "relay_out WHERE peer = coalesce(?, peer) ORDER BY id", (peer,))


def is_lost(store: Store, peer: int, heads: Mapping[bytes, int]) -> bool:
    """Return True if a relay that lists streams up to ``heads`` has lost the newest document of a stream."""
    rows = store.rows(
        "SELECT stream, last_seq FROM relay_out WHERE peer = ? AND lane = 'latest' AND closed_at IS NULL", (peer,)
    )
    return any(heads.get(bytes(stream), 0) < last for stream, last in rows)


def advance(store: Store, stream: int, seq: int, tag: bytes) -> None:
    """Record the newest blob of a stream. Inside a transaction."""
    store.execute("UPDATE relay_out SET last_seq = ?, last_tag = ? WHERE id = ?", (seq, tag, stream))


def put_blob(store: Store, stream: int, seq: int, tag: bytes, sealed: bytes, now: int) -> None:
    """Store a sealed blob until its receipt arrives. Inside the transaction of its content."""
    store.insert("outbox", "stream, seq, tag, sealed, created_at", stream, seq, tag, sealed, now)


def sealed_blob(store: Store, stream: int, seq: int) -> bytes | None:
    """Return the bytes of a stored blob, or None."""
    return store.find(bytes, "SELECT sealed FROM outbox WHERE stream = ? AND seq = ?", (stream, seq))


def tag_at(store: Store, stream: int, seq: int) -> bytes | None:
    """Return the tag of a stored blob, or None."""
    return store.find(bytes, "SELECT tag FROM outbox WHERE stream = ? AND seq = ?", (stream, seq))


def unsent(store: Store, stream: int, limit: int = 100) -> list[WaitingBlob]:
    """Return blobs of a stream that the relay has not accepted, in order."""
    return _waiting(store, "stream = ? AND sent_at IS NULL AND receipted_at IS NULL", stream, limit)


def unreceipted(store: Store, stream: int, limit: int = -1) -> list[WaitingBlob]:
    """Return blobs of a stream without a receipt, in order."""
    return _waiting(store, "stream = ? AND receipted_at IS NULL", stream, limit)


def kept_from(store: Store, stream: int, start: int) -> list[WaitingBlob]:
    """Return the stored blobs of a stream from a number on, with or without receipt."""
    return _waiting(store, f"stream = ? AND seq >= {int(start)}", stream, -1)


def sealed_at(store: Store, stream: int, seqs: Sequence[int]) -> list[int]:
    """Return when stored blobs of a stream were sealed first, ms."""
    return store.all(int, f"SELECT created_at FROM outbox WHERE stream = ? AND seq IN {GIVEN}", (stream, seqs))


def first_kept(store: Store, stream: int) -> int:
    """Return the lowest stored number of a stream; the one after its last number if none is stored."""
    sql = "SELECT coalesce((SELECT min(seq) FROM outbox WHERE stream = ?1), last_seq + 1) FROM relay_out WHERE id = ?1"
    return int(store.value(sql, (stream,)))


def _waiting(store: Store, where: str, stream: int, limit: int) -> list[WaitingBlob]:
    return store.select(WaitingBlob, f"outbox WHERE {where} ORDER BY seq LIMIT ?", (stream, limit))


def mark_sent(store: Store, stream: int, seqs: list[int], now: int) -> None:
    """Record that the relay has stored blobs durably."""
    store.execute_many(
        "UPDATE outbox SET sent_at = ? WHERE stream = ? AND seq = ?", [(now, stream, seq) for seq in seqs]
    )


def mark_again(store: Store, stream: int, seqs: Sequence[int]) -> None:
    """Queue blobs again, with or without receipt, because the relay or home has lost them."""
    if not seqs:
        return
    with store.transaction():
        first = min(seqs)
        store.execute("UPDATE relay_out SET verified = min(verified, ?) WHERE id = ?", (first - 1, stream))
        store.execute_many(
            "UPDATE outbox SET receipted_at = NULL, sent_at = NULL, again = 1 WHERE stream = ? AND seq = ?",
            [(stream, seq) for seq in seqs],
        )


def mark_receipted(store: Store, stream: int, upto: int, now: int) -> None:
    """Record that home has committed all blobs up to ``upto``. Inside a transaction."""
    store.execute("UPDATE relay_out SET verified = max(verified, ?) WHERE id = ?", (upto, stream))
    store.execute(
        "UPDATE outbox SET receipted_at = ? WHERE stream = ? AND seq <= ? AND receipted_at IS NULL", (now, stream, upto)
    )


def lower_verified(store: Store, stream: int, upto: int) -> None:
    """Record that home has lost the blobs above ``upto`` that it had committed. Inside a transaction."""
    store.execute("UPDATE relay_out SET verified = min(verified, ?) WHERE id = ?", (upto, stream))


def count_unreceipted(store: Store, lane: str) -> int:
    """Return the number of a lane's blobs without a receipt."""
    sql = "SELECT count(*) FROM outbox b JOIN relay_out s ON s.id = b.stream WHERE s.lane = ? AND receipted_at IS NULL"
    return int(store.value(sql, (lane,)))


def drop_blobs(store: Store, stream: int, seqs: list[int]) -> None:
    """Delete blobs that were sealed again in another stream. Inside the same transaction."""
    store.execute_many("DELETE FROM outbox WHERE stream = ? AND seq = ?", [(stream, seq) for seq in seqs])


def prune(store: Store, before: int) -> None:
    """Delete blobs with a receipt from before a time; parts of a message only when its last part has a receipt."""
    for stream, last in store.rows(
        "SELECT stream, max(seq) FROM outbox WHERE receipted_at < ? GROUP BY stream", (before,)
    ):
        start = last + 1
        while _more(store, stream, start - 1):
            start -= 1
        store.execute("DELETE FROM outbox WHERE stream = ? AND seq < ? AND receipted_at < ?", (stream, start, before))


def _more(store: Store, stream: int, seq: int) -> bool:
    """Return True if a blob's message continues in the next blob: the lowest bit of the header's byte of flags."""
    flags = store.value("SELECT substr(sealed, 8, 1) FROM outbox WHERE stream = ? AND seq = ?", (stream, seq))
    return bool(flags) and bool(flags[0] & 1)


@dataclass(frozen=True, slots=True)
class Backlog:
    """The state of the outbox: blobs and bytes without a receipt, unsent blobs, and the time of the oldest."""

    blobs: int
    bytes: int
    unsent: int
    since: int | None


def backlog(store: Store) -> Backlog:
    """Count the waiting blobs."""
    return store.all(
        Backlog,
        "SELECT count(*), coalesce(sum(length(sealed)), 0), coalesce(sum(sent_at IS NULL), 0), min(created_at)"
        " FROM outbox WHERE receipted_at IS NULL",
    )[0]
