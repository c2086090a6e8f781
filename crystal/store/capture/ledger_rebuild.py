"""Rebuild the ledger of transcripts that are only in the archive, or whose private parts are unknown.

Where another machine's archived lines are in their file only the lost database knew: their rows are in the generation
``UNPLACED``, with starts and stops that count archived bytes, until the machine sends the lines again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from crystal.model.capture import BEFORE_CRYSTAL, PRIVACY_LOST, Origin, Segment, SegmentPiece, Turn, Watermark
from crystal.model.named_tuple import NamedTuple
from crystal.store.capture import ledger, snapshots
from crystal.store.capture.ledger import UNPLACED, TranscriptState
from crystal.store.connection import GIVEN, Store


def state_archived_in(store: Store, archive: str) -> TranscriptState | None:
    """Return the state of the transcript with this archive file, relative to the LDM home."""
    row = store.row("SELECT device, transcript FROM capture_state WHERE archive = ?", (archive,))
    return None if row is None else ledger.state_of(store, *row)


def begin_archived(
    store: Store, origin: Origin, path: str, key: str, archive: str, now: int, generation: int = 0
) -> TranscriptState:
    """Add a transcript of which only the archive is known. Inside a transaction.

    If the key is in use for another archive, the transcript gets a new key; if without one, its rows are made again.
    """
    known = ledger.state_of(store, origin.device, key)
    if known is not None and known.archive is None:
        forget_rows(store, known.id)
    elif known is not None and known.archive != archive:
        key = f"{key}~{hashlib.sha256(archive.encode()).hexdigest()[:8]}"
    mark = Watermark(key, generation=generation)
    ledger.mark_seen(store, origin, path, mark, now)
    ident = int(store.value("SELECT id FROM capture_state WHERE device = ? AND transcript = ?", (origin.device, key)))
    ledger.set_archive(store, ident, archive)
    return TranscriptState(ident, origin, path, mark, archive, now)


def unknown_owner(agent: str) -> str:
    """Return the name of the machine whose agent this was, until a machine that pairs claims the agent."""
    return f"unknown ({agent})"


def end_of_unplaced(store: Store, transcript: int) -> int:
    """Return the number of archived bytes whose rows have no place."""
    sql = "SELECT coalesce(max(stop), 0) FROM segments WHERE transcript = ? AND generation = ?"
    return int(store.value(sql, (transcript, UNPLACED)))


class UnplacedRow(NamedTuple):
    """A ledger row without a place: its id, the SHA-256 of its lines, and its frame."""

    id: int
    clean_hash: bytes
    offset: int
    length: int


def unplaced_rows(store: Store, transcript: int) -> list[UnplacedRow]:
    """Return a transcript's rows without a place, in order."""
    sql = "SELECT id, clean_hash, archive_offset, archive_length FROM segments WHERE transcript = ? AND generation = ?"
    return store.all(UnplacedRow, f"{sql} AND archive_length > 0 ORDER BY start", (transcript, UNPLACED))


def frames_elsewhere(store: Store, segment: Segment) -> list[tuple[str, int, int]]:
    """Return (archive, offset, length) of frames that may have lines of a segment already, in order.

    They are those of the same transcript on other machines and, if the segment is of a copy of its device, on that.
    Nothing has lines from behind the last byte that was captured elsewhere.
    """
    origin, generation, key = segment.origin, segment.after.generation, segment.before.transcript
    known = (segment.pieces[0].start, UNPLACED, origin.session_id, key, origin.harness, origin.device)
    rows = store.rows(
        "SELECT c.archive, s.archive_offset, s.archive_length, s.stop > ? OR s.generation = ? FROM capture_state c"
        " JOIN segments s ON s.transcript = c.id AND s.archive_length > 0"
        " WHERE c.session_id = ? AND c.transcript = ? AND c.harness = ? AND (c.device <> ? OR ? AND s.generation <> ?)"
        " ORDER BY c.id, s.archive_offset",
        (*known, generation >= ledger.FORKED_FROM, generation),
    )
    return [row[:3] for row in rows] if any(row[3] for row in rows) else []


def place_row(store: Store, row: int, generation: int, piece: SegmentPiece) -> None:
    """Give a row without a place the place of its lines in their file. Inside the transaction that claims it."""
    store.execute(
        "UPDATE segments SET generation = ?, start = ?, stop = ?, raw_hash = ? WHERE id = ?",
        (generation, piece.start, piece.end, piece.raw_hash or b"", row),
    )


def place_turns(store: Store, row: int, turns: Iterable[Turn]) -> None:
    """Store where the turns of a row are in their file. Inside a transaction."""
    placed = [(turn.offset, turn.uuid, row) for turn in turns]
    store.execute_many("UPDATE turns SET offset = ? WHERE uuid = ? AND segment = ?", placed)


def turns_without_id(store: Store, row: int) -> list[int]:
    """Return the row ids of a ledger row's turns whose line has no id: theirs is made from the line's place."""
    return store.all(int, "SELECT id FROM turns WHERE segment = ? AND uuid LIKE 'line-%'", (row,))


def forget_rows(store: Store, transcript: int) -> None:
    """Delete a transcript's ledger rows, so that its archived lines can be claimed again. Inside a transaction."""
    store.execute("DELETE FROM snapshot_records WHERE transcript = ?", (transcript,))
    drop_rows(store, store.all(int, "SELECT id FROM segments WHERE transcript = ?", (transcript,)))


def drop_rows(store: Store, rows: Sequence[int]) -> None:
    """Delete ledger rows; their turns stay, and belong to the next row that claims them. Inside a transaction."""
    store.execute(f"UPDATE turns SET segment = NULL WHERE segment IN {GIVEN}", (rows,))
    store.execute(f"DELETE FROM segments WHERE id IN {GIVEN}", (rows,))


def forget_transcript(store: Store, transcript: int) -> None:
    """Delete a transcript and its ledger rows, because its own row is damaged. Inside a transaction."""
    forget_rows(store, transcript)
    store.execute("DELETE FROM capture_state WHERE id = ?", (transcript,))


def skip_to(
    store: Store, state: TranscriptState, end: int, tail_hash: bytes, now: int, rule: str = BEFORE_CRYSTAL
) -> None:
    """Move a watermark without reading: the bytes count as skipped under a rule. Inside a transaction."""
    ledger.add_row(store, state.id, state.mark.generation, state.mark.offset, end, "skipped", rule, now)
    store.execute("UPDATE capture_state SET offset = ?, tail_hash = ? WHERE id = ?", (end, tail_hash, state.id))


def leave_out(store: Store) -> int:
    """Exclude the bytes that backfill would import, until ``let_in``; return their number."""
    with store.transaction():
        _rename_rule(store, BEFORE_CRYSTAL, PRIVACY_LOST)
        snapshots.set_lost(store, lost=True)
    return sum(ledger.transcripts_with_skipped(store, PRIVACY_LOST).values())


def let_in(store: Store) -> None:
    """Let backfill import the bytes that ``leave_out`` excluded."""
    with store.transaction():
        _rename_rule(store, PRIVACY_LOST, BEFORE_CRYSTAL)
        snapshots.set_lost(store, lost=False)


def _rename_rule(store: Store, old: str, new: str) -> None:
    store.execute("UPDATE segments SET rule = ? WHERE state = 'skipped' AND rule = ?", (new, old))
