"""Store the inbox: streams from other machines, the committed position in each, and what blocks it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from crystal.errors import WatermarkMovedError
from crystal.model.capture import RESTORED, Project
from crystal.store.capture.ledger import FORKED_FROM
from crystal.store.connection import Store
from crystal.store.sync.outbox import NO_TAG

_SILENT_MS = 3_600_000
MAX_UNPROVEN_STREAMS = 256
"""Maximum number of recorded streams of one device of which no blob was opened yet."""


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
    forked: int


@dataclass(frozen=True, slots=True)
class Skip:
    """A gap that the user decided to skip."""

    stream: bytes
    seq: int
    code: str | None
    at: int


_CLEARED = "state = 'ok', code = NULL, detail = NULL, since = NULL, tries = 0, retry_at = NULL, resend = NULL"


def all_streams(store: Store) -> list[InStream]:
    """Return every known stream, in the order of recording."""
    return store.select(InStream, "relay_in ORDER BY id")


def find_stream(store: Store, stream: bytes) -> InStream | None:
    """Return one stream, or None if it was never seen."""
    return next(iter(store.select(InStream, "relay_in WHERE stream = ?", (stream,))), None)


def meet_stream(store: Store, stream: bytes, now: int) -> InStream:
    """Return a stream; record it first if it is new."""
    found = find_stream(store, stream)
    if found is None:
        store.insert("relay_in", "stream, last_tag, opened_at", stream, NO_TAG, now, on_conflict="DO NOTHING")
        found = find_stream(store, stream)
        assert found is not None
    return found


def seen_stream(store: Store, stream: bytes, now: int) -> InStream:
    """Return a stream that the relay lists; record a new one only if its device has few unproven streams.

    An unrecorded stream has the id 0, and its cursor cannot move: ``meet_stream`` records it.
    """
    found = find_stream(store, stream)
    if found is not None:
        return found
    unproven = store.value(
        "SELECT count(*) FROM relay_in WHERE stream BETWEEN ? AND ? AND peer IS NULL AND channel = 0",
        (stream[:8] + bytes(8), stream[:8] + b"\xff" * 8),
    )
    if int(unproven) < MAX_UNPROVEN_STREAMS:
        return meet_stream(store, stream, now)
    return InStream(0, stream, None, 0, None, 0, NO_TAG, 0, 0, "ok", None, None, None, 0, None, None, 0)


def drop_unlisted(store: Store, listed: Collection[bytes]) -> None:
    """Delete streams of which no blob was ever opened and which the relay no longer lists."""
    rows = store.rows(
        "SELECT id, stream FROM relay_in WHERE peer IS NULL AND channel = 0 AND last_seq = 0 AND state <> 'left'"
    )
    gone = [(ident,) for ident, stream in rows if bytes(stream) not in listed]
    if gone:
        with store.transaction():
            store.execute_many("DELETE FROM relay_in WHERE id = ?", gone)


def note_listed(store: Store, ident: int, listed: int) -> None:
    """Record the newest seq that the relay lists."""
    store.execute(
        "UPDATE relay_in SET listed = max(listed, ?1), head = max(head, ?1) WHERE id = ?2 AND listed < ?1",
        (listed, ident),
    )


def take_claims(store: Store, source: int, claims: Mapping[bytes, int]) -> None:
    """Record the newest seq that a device says it has sealed, for each of its streams. Inside a transaction.

    Args:
        store: The store.
        source: The stream of heartbeats with these claims; they replace its earlier claims.
        claims: The newest seq by stream. The streams are recorded already.
    """
    before = {bytes(row[0]) for row in store.rows("SELECT stream FROM relay_claims WHERE source = ?", (source,))}
    store.execute("DELETE FROM relay_claims WHERE source = ?", (source,))
    store.insert_many("relay_claims", "source, stream, head", [(source, *claim) for claim in claims.items()])
    for stream in before | set(claims):
        _settle_head(store, stream)


def _settle_head(store: Store, stream: bytes) -> None:
    store.execute(
        "UPDATE relay_in SET head = max(last_seq, listed,"
        " coalesce((SELECT max(c.head) FROM relay_claims c WHERE c.stream = relay_in.stream), 0))"
        " WHERE stream = ? AND state <> 'left'",
        (stream,),
    )


def missing(store: Store) -> dict[bytes, range]:
    """Return the numbers of sealed blobs that were not ingested, by stream.

    They follow from the relay's listing and from the devices' claims. Streams that continue in another are excluded.
    """
    rows = store.rows(
        "SELECT stream, last_seq, head FROM relay_in WHERE head > last_seq AND state <> 'left'"
        " AND coalesce(lane, '') <> 'latest' ORDER BY id"
    )
    return {bytes(stream): range(last + 1, head + 1) for stream, last, head in rows}


def bind(store: Store, ident: int, peer: int, channel: int, lane: str | None) -> None:
    """Record the sender and the content of a stream after one of its blobs was opened."""
    store.execute("UPDATE relay_in SET peer = ?, channel = ?, lane = ? WHERE id = ?", (peer, channel, lane, ident))


def advance(store: Store, known: InStream, seq: int, tag: bytes) -> None:
    """Move the cursor past an ingested blob. Inside the transaction that ingested it.

    Raises:
        WatermarkMovedError: Another poller ingested it.
    """
    store.execute(
        f"UPDATE relay_in SET last_seq = ?1, last_tag = ?2, head = max(head, ?1), {_CLEARED}"
        " WHERE id = ?3 AND last_seq = ?4 AND state <> 'left'",
        (seq, tag, known.id, known.last_seq),
    )
    if not store.value("SELECT changes()"):
        raise WatermarkMovedError(f"stream {known.stream.hex()[:8]}: another poller took number {seq}")


def suspend(
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
    """Record why a stream cannot continue. The cursor stays; nothing happens if another poller has moved it."""
    store.execute(
        "UPDATE relay_in SET tries = iif(state = ?1 AND code IS ?2, tries + 1, 1),"
        " since = iif(state = ?1 AND code IS ?2, since, ?4), state = ?1, code = ?2, detail = ?3, retry_at = ?5,"
        " resend = ?6 WHERE id = ?7 AND last_seq = ?8 AND state <> 'left'",
        (state, code, detail, now, retry_at, resend, known.id, known.last_seq),
    )


def is_due(store: Store, now: int) -> bool:
    """Return True if a suspended stream is due for its next try."""
    return store.has("SELECT 1 FROM relay_in WHERE retry_at <= ? AND state <> 'left' LIMIT 1", (now,))


def end_waiting(store: Store) -> None:
    """Clear fetch failures of streams without missing blobs: these arrived in another way, or never existed."""
    store.execute(
        f"UPDATE relay_in SET {_CLEARED} WHERE state = 'waiting' AND code IN ('relay', 'gap') AND head <= last_seq"
    )


def resume(store: Store, known: InStream) -> None:
    """Clear the reason why a stream was suspended."""
    if known.state != "ok":
        store.execute(f"UPDATE relay_in SET {_CLEARED} WHERE id = ?", (known.id,))


def leave(store: Store, known: InStream, code: str, detail: str, now: int) -> None:
    """Stop waiting for a stream that continues in another one. Inside a transaction."""
    store.execute(
        "UPDATE relay_in SET state = 'left', code = ?, detail = ?, since = ?, retry_at = NULL, resend = NULL,"
        " head = last_seq WHERE id = ?",
        (code, detail, now, known.id),
    )
    drop_fragments(store, known.id)


def note_forked(store: Store, known: InStream) -> None:
    """Record that a copy of the device continued elsewhere; ignore its claims about this stream. In a transaction."""
    store.execute("UPDATE relay_in SET forked = 1, listed = last_seq WHERE id = ?", (known.id,))
    _settle_head(store, known.stream)


def skips(store: Store) -> list[Skip]:
    """Return the skipped gaps, oldest first."""
    return store.select(Skip, "relay_skips ORDER BY at, seq")


def skip_over(store: Store, known: InStream, seq: int, now: int) -> None:
    """Skip a blob that cannot be ingested: move the cursor past it, and record the gap. Inside a transaction.

    Its tag is unknown, so the next blob may name any predecessor.

    Raises:
        WatermarkMovedError: A poller ingested it.
    """
    values = (known.stream, seq, known.code, now)
    store.insert("relay_skips", "stream, seq, code, at", *values, on_conflict="DO NOTHING")
    advance(store, known, seq, b"")
    drop_fragments(store, known.id)  # a message with a missing part can never be completed


def add_fragment(store: Store, stream: int, seq: int, body: bytes) -> None:
    """Store a part of a message whose last part has not arrived. Inside the transaction that moves the cursor."""
    store.insert("relay_fragments", "stream, seq, body", stream, seq, body)


def fragments(store: Store, stream: int) -> list[bytes]:
    """Return the parts that have arrived, in order."""
    return store.all(bytes, "SELECT body FROM relay_fragments WHERE stream = ? ORDER BY seq", (stream,))


def fragments_bytes(store: Store, stream: int) -> int:
    """Return the number of bytes of an incomplete message."""
    return int(store.value("SELECT coalesce(sum(length(body)), 0) FROM relay_fragments WHERE stream = ?", (stream,)))


def drop_fragments(store: Store, stream: int) -> None:
    """Delete the parts of a message that was completed or given up. Inside a transaction."""
    store.execute("DELETE FROM relay_fragments WHERE stream = ?", (stream,))


def successors(store: Store) -> dict[str, str]:
    """Return by name the devices that may be gone, each with a later one that has sent the same transcripts.

    Nothing was heard of them since the later one was paired, or for an hour in which that one was heard.
    """
    sql = (
        "SELECT old.name, new.name FROM relay_peers old JOIN relay_peers new ON new.paired_at > old.paired_at"
        " AND coalesce(old.heard_at, 0) < max(new.paired_at, coalesce(new.heard_at, 0) - ?)"
        " WHERE old.side = 'device' AND new.side = 'device' AND old.revoked_at IS NULL AND new.revoked_at IS NULL"
        " AND EXISTS (SELECT 1 FROM capture_state c JOIN capture_state d ON d.session_id = c.session_id"
        " AND d.transcript = c.transcript AND d.device = new.name JOIN segments s ON s.transcript = d.id"
        " WHERE c.device = old.name AND s.rule = ?) ORDER BY new.paired_at"
    )
    return dict(store.rows(sql, (_SILENT_MS, RESTORED)))


def file_generation(store: Store, device: str, transcript: str, stream: bytes, sent_as: int) -> int:
    """Return the ledger's generation for a file of a stream: as sent, unless a copy of the device continued it."""
    sql = "SELECT generation FROM relay_files WHERE device = ? AND transcript = ? AND stream = ? AND sent_as = ?"
    found = store.find(int, sql, (device, transcript, stream, sent_as))
    return sent_as if found is None else found


def fork_file(store: Store, device: str, transcript: str, stream: bytes, sent_as: int) -> int:
    """Assign a file of a stream a new generation, apart from those that devices number. In a transaction."""
    known = store.value(
        "SELECT max(generation) FROM (SELECT generation FROM relay_files WHERE device = ?1 AND transcript = ?2"
        " UNION ALL SELECT s.generation FROM segments s JOIN capture_state c ON c.id = s.transcript"
        " WHERE c.device = ?1 AND c.transcript = ?2 AND s.generation >= ?3)",
        (device, transcript, FORKED_FROM),
    )
    generation = FORKED_FROM if known is None else int(known) + 1
    use_generation(store, device, transcript, stream, sent_as, generation)
    return generation


def forked_generations(store: Store, device: str, transcript: str, sent_as: int) -> list[int]:
    """Return the ledger's generations of a file that copies of the device continued, in order of appearance."""
    sql = "SELECT DISTINCT generation FROM relay_files WHERE device = ? AND transcript = ? AND sent_as = ? ORDER BY 1"
    return store.all(int, sql, (device, transcript, sent_as))


def use_generation(store: Store, device: str, transcript: str, stream: bytes, sent_as: int, generation: int) -> None:
    """Map a file of a stream to a version that is already stored. Inside a transaction."""
    key = {"device": device, "transcript": transcript, "stream": stream, "sent_as": sent_as}
    store.upsert("relay_files", ", ".join(key), {**key, "generation": generation})


def project_here(store: Store, cwd: str) -> Project | None:
    """Return the known project of a folder with this path, on any machine."""
    return store.find(Project, "SELECT cwd, git_root, remote, name FROM projects WHERE cwd = ?", (cwd,))


def is_project_of_others(store: Store, cwd: str, device: str) -> bool:
    """Return True if sessions of machines other than ``device`` belong to a folder with this path."""
    sql = "SELECT 1 FROM sessions s JOIN projects p ON p.id = s.project WHERE p.cwd = ? AND s.device <> ? LIMIT 1"
    return store.has(sql, (cwd, device))


def is_session_of(store: Store, session_id: str, device: str) -> bool:
    """Return True if a session began on ``device``."""
    return store.has("SELECT 1 FROM sessions WHERE session_id = ? AND device = ?", (session_id, device))
