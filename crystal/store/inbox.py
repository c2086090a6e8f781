"""The inbox: streams that others write, how far each is committed, what stands in the way, what was set aside."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from crystal.errors import WatermarkMoved
from crystal.store.connection import Row, Store
from crystal.store.ledger import FORKED_FROM
from crystal.store.outbox import NO_TAG

MOST_ASIDE = 4
"""How many different blobs of one place are kept; of more only the hash."""


@dataclass(frozen=True, slots=True)
class InStream:
    """A stream that this machine reads; see the table ``relay_in``."""

    id: int
    stream: bytes
    peer: int | None
    channel: int
    lane: str | None
    last_seq: int
    last_tag: bytes
    head: int
    listed: int
    state: str
    code: str | None
    detail: str | None
    since: int | None
    tries: int
    retry_at: int | None
    resend: int | None
    opened_at: int


@dataclass(frozen=True, slots=True)
class Skip:
    """A hole that the user decided to leave."""

    stream: bytes
    seq: int
    code: str | None
    at: int


@dataclass(frozen=True, slots=True)
class Aside:
    """A blob that was refused."""

    stream: bytes
    seq: int
    code: str
    detail: str
    first_at: int
    last_at: int
    times: int


_COLUMNS = (
    "id, stream, peer, channel, lane, last_seq, last_tag, head, listed, state, code, detail, since, tries, retry_at,"
    " resend, opened_at"
)


def _stream(row: Row) -> InStream:
    fields = list(row)
    fields[1], fields[6] = bytes(row[1]), bytes(row[6])
    return InStream(*fields)


def all_streams(store: Store) -> list[InStream]:
    """Every stream ever met, in that order."""
    return [_stream(row) for row in store.rows(f"SELECT {_COLUMNS} FROM relay_in ORDER BY id")]


def find_stream(store: Store, stream: bytes) -> InStream | None:
    """One stream, None when it was never met."""
    row = store.row(f"SELECT {_COLUMNS} FROM relay_in WHERE stream = ?", (stream,))
    return None if row is None else _stream(row)


def meet_stream(store: Store, stream: bytes, now: int) -> InStream:
    """A stream, written down at the first meeting."""
    found = find_stream(store, stream)
    if found is None:
        store.execute(
            "INSERT INTO relay_in (stream, last_tag, opened_at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            (stream, NO_TAG, now),
        )
        found = find_stream(store, stream)
        assert found is not None
    return found


def note_listed(store: Store, ident: int, listed: int) -> None:
    """Note the newest seq that the relay lists."""
    store.execute(
        "UPDATE relay_in SET listed = max(listed, ?1), head = max(head, ?1) WHERE id = ?2 AND listed < ?1",
        (listed, ident),
    )


def note_head(store: Store, ident: int, head: int) -> None:
    """Note the newest seq that the sender told of."""
    store.execute("UPDATE relay_in SET head = ?1 WHERE id = ?2 AND head < ?1", (head, ident))


def bind(store: Store, ident: int, peer: int, channel: int, lane: str) -> None:
    """Note who seals a stream and what it carries, after a blob of it opened."""
    store.execute("UPDATE relay_in SET peer = ?, channel = ?, lane = ? WHERE id = ?", (peer, channel, lane, ident))


def advance(store: Store, known: InStream, seq: int, tag: bytes) -> None:
    """Move the cursor over one more blob. Inside the transaction that used it.

    Raises:
        WatermarkMoved: Another poller was there first.
    """
    store.execute(
        "UPDATE relay_in SET last_seq = ?1, last_tag = ?2, head = max(head, ?1), state = 'ok', code = NULL,"
        " detail = NULL, since = NULL, tries = 0, retry_at = NULL, resend = NULL WHERE id = ?3 AND last_seq = ?4",
        (seq, tag, known.id, known.last_seq),
    )
    if not store.value("SELECT changes()"):
        raise WatermarkMoved(f"stream {known.stream.hex()[:8]}: another poller took number {seq}")


def stand_still(
    store: Store,
    known: InStream,
    state: str,
    code: str,
    detail: str,
    *,
    now: int,
    retry_at: int | None,
    resend: int | None,
) -> None:
    """Note why a stream cannot go on. The cursor stays."""
    store.execute(
        "UPDATE relay_in SET tries = iif(state = ?1 AND code IS ?2, tries + 1, 1),"
        " since = iif(state = ?1 AND code IS ?2, since, ?4), state = ?1, code = ?2, detail = ?3, retry_at = ?5,"
        " resend = ?6 WHERE id = ?7 AND last_seq = ?8",
        (state, code, detail, now, retry_at, resend, known.id, known.last_seq),
    )


def go_on(store: Store, known: InStream) -> None:
    """Forget why a stream stood still."""
    if known.state != "ok":
        store.execute(
            "UPDATE relay_in SET state = 'ok', code = NULL, detail = NULL, since = NULL, tries = 0, retry_at = NULL,"
            " resend = NULL WHERE id = ?",
            (known.id,),
        )


def leave(store: Store, stream: bytes, code: str, detail: str, now: int) -> None:
    """Wait for nothing more of a stream: what it would hold goes on in another. Inside a transaction."""
    store.execute(
        "UPDATE relay_in SET state = 'left', code = ?, detail = ?, since = ?, retry_at = NULL, resend = NULL,"
        " head = last_seq WHERE stream = ?",
        (code, detail, now, stream),
    )


def set_aside(store: Store, stream: bytes, seq: int, blob: bytes, code: str, detail: str, now: int) -> None:
    """Keep a refused blob."""
    sha = hashlib.sha256(blob).digest()
    with store.transaction():
        kept = int(
            store.value(
                "SELECT count(*) FROM relay_aside WHERE stream = ? AND seq = ? AND blob IS NOT NULL", (stream, seq)
            )
        )
        store.execute(
            "INSERT INTO relay_aside (stream, seq, sha256, code, detail, first_at, last_at, times, blob)"
            " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6, 1, ?7) ON CONFLICT DO UPDATE SET last_at = ?6, times = times + 1",
            (stream, seq, sha, code, detail, now, blob if kept < MOST_ASIDE else None),
        )


def set_aside_list(store: Store) -> list[Aside]:
    """What was set aside, the oldest first."""
    return [
        Aside(bytes(row[0]), *row[1:])
        for row in store.rows(
            "SELECT stream, seq, code, detail, first_at, last_at, times FROM relay_aside ORDER BY first_at, seq"
        )
    ]


def add_skip(store: Store, stream: bytes, seq: int, code: str | None, now: int) -> None:
    """Put a hole on record. Inside the transaction that moves the cursor over it."""
    store.execute(
        "INSERT INTO relay_skips (stream, seq, code, at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (stream, seq, code, now),
    )


def skips(store: Store) -> list[Skip]:
    """The holes on record, the oldest first."""
    return [
        Skip(bytes(row[0]), *row[1:])
        for row in store.rows("SELECT stream, seq, code, at FROM relay_skips ORDER BY at, seq")
    ]


def aside_blobs(store: Store, stream: bytes, seq: int) -> list[bytes]:
    """The blobs of one place that were set aside and kept."""
    rows = store.rows(
        "SELECT blob FROM relay_aside WHERE stream = ? AND seq = ? AND blob IS NOT NULL ORDER BY first_at",
        (stream, seq),
    )
    return [bytes(blob) for (blob,) in rows]


def skip_over(store: Store, known: InStream, seq: int, tag: bytes, now: int) -> None:
    """Move the cursor over a number that is not taken, on record. Inside a transaction.

    Args:
        store: The store, open for writing.
        known: The stream.
        seq: The number.
        tag: Its tag, which the next blob must name; empty when it is unknown: then the next may name any.
        now: The time, ms.

    Raises:
        WatermarkMoved: A poller took it.
    """
    add_skip(store, known.stream, seq, known.code, now)
    advance(store, known, seq, tag)
    drop_fragments(store, known.id)  # a message of which a part is missing never becomes whole


def add_fragment(store: Store, stream: int, seq: int, body: bytes) -> None:
    """Keep a part of a message whose last part has not come. Inside the transaction that moves the cursor over it."""
    store.execute("INSERT INTO relay_fragments (stream, seq, body) VALUES (?, ?, ?)", (stream, seq, body))


def fragments(store: Store, stream: int) -> list[bytes]:
    """The parts that have come, in order."""
    return [
        bytes(body)
        for (body,) in store.rows("SELECT body FROM relay_fragments WHERE stream = ? ORDER BY seq", (stream,))
    ]


def fragments_bytes(store: Store, stream: int) -> int:
    """How many bytes of a message have come that is not whole."""
    return int(store.value("SELECT coalesce(sum(length(body)), 0) FROM relay_fragments WHERE stream = ?", (stream,)))


def drop_fragments(store: Store, stream: int) -> None:
    """Let go of the parts: the message is whole, or given up. Inside a transaction."""
    store.execute("DELETE FROM relay_fragments WHERE stream = ?", (stream,))


def file_generation(store: Store, device: str, transcript: str, stream: bytes, sent_as: int) -> int:
    """The ledger's generation for a file of a stream: as it was sent, unless a copy of the device went on from it."""
    value = store.value(
        "SELECT generation FROM relay_files WHERE device = ? AND transcript = ? AND stream = ? AND sent_as = ?",
        (device, transcript, stream, sent_as),
    )
    return sent_as if value is None else int(value)


def fork_file(store: Store, device: str, transcript: str, stream: bytes, sent_as: int) -> int:
    """Give a file of a stream a generation of its own, apart from those that devices count. Gives it."""
    known = store.value(
        "SELECT max(generation) FROM relay_files WHERE device = ? AND transcript = ?", (device, transcript)
    )
    generation = FORKED_FROM if known is None else int(known) + 1
    store.execute(
        "INSERT INTO relay_files (device, transcript, stream, sent_as, generation) VALUES (?, ?, ?, ?, ?)",
        (device, transcript, stream, sent_as, generation),
    )
    return generation
