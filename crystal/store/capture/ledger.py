"""Store the byte ledger and the watermarks: the state of every byte of every transcript.

Every byte before a transcript's watermark is in exactly one row of ``segments``. Rows are only written inside the
transaction that uses them; a claim fails if another process was there first.
"""

import hashlib
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from crystal.errors import WatermarkMovedError
from crystal.model.capture import BEFORE_CRYSTAL, PRIVACY_LOST, Origin, Segment, SegmentPiece, Watermark
from crystal.model.named_tuple import NamedTuple
from crystal.store.connection import GIVEN, Store


class TranscriptState(NamedTuple):
    """State of one transcript in the store."""

    id: int
    origin: Origin
    path: str
    mark: Watermark
    archive: str | None
    updated_at: int


FORKED_FROM = 1_000_000
"""First generation number for the files that a device and its copy continued differently, assigned by home."""
UNPLACED = -1
"""Generation of a rebuilt ledger's rows for another machine's lines, whose places in their file are unknown."""

_COLUMNS = (
    "id, agent, device, session_id, subagent, harness, path, transcript, offset, dev, inode, generation, tail_hash,"
    " written, archive, updated_at"
)


def stored_path(path: Path | str) -> str | bytes:
    """Return a path as it is stored: text, or the raw bytes if they are not UTF-8."""
    text = str(path)
    try:
        text.encode()
    except UnicodeEncodeError:
        return os.fsencode(text)
    return text


def _state(*row: Any) -> TranscriptState:
    mark = Watermark._make((*row[7:12], bytes(row[12]), row[13]))
    return TranscriptState._make((row[0], Origin._make(row[1:6]), os.fsdecode(row[6]), mark, *row[14:]))


def state_of(store: Store, device: str, transcript: str) -> TranscriptState | None:
    """Return the state of one transcript, or None if it was never seen."""
    where = "WHERE device = ? AND transcript = ?"
    return store.find(_state, f"SELECT {_COLUMNS} FROM capture_state {where}", (device, transcript))


def all_states(store: Store, device: str | None = None) -> list[TranscriptState]:
    """Return the state of every transcript ever seen (on one device)."""
    where, values = ("", ()) if device is None else (" WHERE device = ?", (device,))
    return store.all(_state, f"SELECT {_COLUMNS} FROM capture_state{where} ORDER BY id", values)


def count_transcripts(store: Store, device: str) -> int:
    """Return how many transcripts of one device were ever seen."""
    return int(store.value("SELECT count(*) FROM capture_state WHERE device = ?", (device,)))


def first_rows(store: Store) -> dict[int, int]:
    """Return the id of each transcript's first ledger row; the transcript that repeats another has the larger one."""
    return dict(store.rows("SELECT transcript, min(id) FROM segments GROUP BY transcript"))


def read_to(store: Store, device: str) -> dict[str, tuple[int, int, int, int]]:
    """Return (offset, dev, inode, written) of each transcript file of a device, by path."""
    # A scan in the table's own order is faster than an index, which needs a look-up for each row, and sorting.
    sql = "SELECT path, offset, dev, inode, written FROM capture_state NOT INDEXED WHERE device = ? ORDER BY id"
    return {os.fsdecode(row[0]): row[1:] for row in store.rows(sql, (device,))}


def raw_hashes(store: Store, state: TranscriptState) -> list[tuple[int, int, bytes]]:
    """Return (first byte, end, hash) of the captured ranges of the present file, without forgotten ones."""
    return store.rows(
        "SELECT start, stop, raw_hash FROM segments WHERE transcript = ? AND generation = ? AND state = 'captured'"
        " AND raw_hash > x'' ORDER BY start",
        (state.id, state.mark.generation),
    )


def frames_of_lines(store: Store, uuids: Collection[str]) -> list[tuple[str, int, int]]:
    """Return (archive, offset, length) of the frames that contain lines which have turns."""
    return store.rows(
        "SELECT DISTINCT c.archive, s.archive_offset, s.archive_length FROM turns t JOIN segments s ON s.id = t.segment"
        " JOIN capture_state c ON c.id = s.transcript"
        f" WHERE t.uuid IN {GIVEN} AND s.archive_length > 0",
        (uuids,),
    )


def frames_of(store: Store, transcript: int) -> list[tuple[int, int]]:
    """Return (offset, length) of each frame in a transcript's archive, in the order of capture."""
    sql = "SELECT archive_offset, archive_length FROM segments WHERE transcript = ? AND archive_length > 0 ORDER BY id"
    return store.rows(sql, (transcript,))


def states_of_session(store: Store, session_id: str, harnesses: Collection[str]) -> list[TranscriptState]:
    """Return the states of a session's transcripts, with its subagents', that these harnesses wrote."""
    where = f"WHERE session_id = ? AND harness IN {GIVEN} ORDER BY id"
    return store.all(_state, f"SELECT {_COLUMNS} FROM capture_state {where}", (session_id, harnesses))


def paths_of_session(store: Store, session_id: str) -> list[tuple[str, str]]:
    """Return (harness, last known path) of the transcripts of a session."""
    rows = store.rows("SELECT harness, path FROM capture_state WHERE session_id = ?", (session_id,))
    return [(harness, str(path)) for harness, path in rows]


def last_rule(store: Store, state: TranscriptState) -> str | None:
    """Return the rule that makes the bytes just before the watermark private, or None."""
    return store.find(
        str,
        "SELECT rule FROM segments WHERE transcript = ? AND generation = ? AND stop = ? AND state = 'private'",
        (state.id, state.mark.generation, state.mark.offset),
    )


def has_private(store: Store, session_id: str, *, except_for: str) -> bool:
    """Return True if bytes of a session's transcripts are private under any rule but ``except_for``."""
    return store.has(
        "SELECT 1 FROM capture_state c JOIN segments s ON s.transcript = c.id"
        " WHERE c.session_id = ? AND s.state = 'private' AND s.rule <> ? LIMIT 1",
        (session_id, except_for),
    )


def skipped_ranges(store: Store, state: TranscriptState, rule: str = BEFORE_CRYSTAL) -> list[tuple[int, int]]:
    """Return the byte ranges [start, stop) of the present file that were skipped under ``rule``, in order."""
    return store.rows(
        "SELECT start, stop FROM segments WHERE transcript = ? AND generation = ? AND state = 'skipped'"
        " AND rule = ? ORDER BY start",
        (state.id, state.mark.generation, rule),
    )


class LeftOut(NamedTuple):
    """Describe the skipped bytes of a file: where they end, when they were skipped (ms), and the rule."""

    stop: int
    at: int
    rule: str


def left_out(store: Store, state: TranscriptState) -> LeftOut | None:
    """Return the skipped bytes of the present file that an import can still read, or None.

    If both rules apply to parts of it, ``rule`` is the one for bytes that may be private: ``max`` returns it.
    """
    return store.find(
        LeftOut,
        "SELECT max(stop), max(captured_at), max(rule) FROM segments WHERE transcript = ? AND generation = ?"
        " AND state = 'skipped' AND rule IN (?, ?) GROUP BY transcript",
        (state.id, state.mark.generation, BEFORE_CRYSTAL, PRIVACY_LOST),
    )


def transcripts_with_skipped(store: Store, rule: str = BEFORE_CRYSTAL) -> dict[int, int]:
    """Return how many bytes of each transcript's present file are skipped under ``rule``, by transcript id."""
    sql = (
        "SELECT s.transcript, sum(s.stop - s.start) FROM segments s JOIN capture_state c ON c.id = s.transcript"
        " AND c.generation = s.generation WHERE s.state = 'skipped' AND s.rule = ? GROUP BY s.transcript"
    )
    return dict(store.rows(sql, (rule,)))


def claim_tail(store: Store, segment: Segment, now: int) -> int:
    """Move the watermark over a segment that starts at it. Inside a transaction.

    Returns:
        The transcript's row id.

    Raises:
        WatermarkMovedError: The watermark is not where the segment was read from.
    """
    known = state_of(store, segment.origin.device, segment.before.transcript)
    if known is None:
        if segment.before.offset or segment.before.generation:
            raise WatermarkMovedError(f"{segment.path}: its watermark is gone")
        return _insert_state(store, segment.origin, segment.path, segment.after, now)
    if (known.mark.offset, known.mark.generation) != (segment.before.offset, segment.before.generation):
        raise WatermarkMovedError(f"{segment.path}: captured up to byte {known.mark.offset} by another process")
    move_mark(store, known.id, segment.path, segment.after, now)
    return known.id


def move_mark(store: Store, transcript: int, path: str, mark: Watermark, now: int) -> None:
    """Point a transcript at a file and a watermark in it. Inside a transaction."""
    store.execute(
        "UPDATE capture_state SET path = ?, offset = ?, dev = ?, inode = ?, generation = ?, tail_hash = ?,"
        " written = ?, updated_at = ? WHERE id = ?",
        (stored_path(path), *mark[1:], now, transcript),
    )


def claim_skipped(store: Store, segment: Segment, now: int, rule: str = BEFORE_CRYSTAL) -> int:
    """Claim bytes of a range that was skipped under ``rule``; the watermark stays. Inside a transaction.

    Raises:
        WatermarkMovedError: No skipped range starts where the segment does, or the file was replaced meanwhile.
    """
    known = state_of(store, segment.origin.device, segment.before.transcript)
    start, stop = segment.pieces[0].start, segment.pieces[-1].end
    row = None
    if known is not None and known.mark.generation == segment.before.generation:
        row = store.row(
            "SELECT id, stop FROM segments WHERE transcript = ? AND generation = ? AND start = ? AND stop >= ?"
            " AND state = 'skipped' AND rule = ?",
            (known.id, known.mark.generation, start, stop, rule),
        )
    if known is None or row is None:
        raise WatermarkMovedError(f"{segment.path}: bytes {start} to {stop} are no longer skipped")
    if row[1] == stop:
        store.execute("DELETE FROM segments WHERE id = ?", (row[0],))
    else:
        store.execute("UPDATE segments SET start = ? WHERE id = ?", (stop, row[0]))
    store.execute(
        "UPDATE capture_state SET path = ?, updated_at = ? WHERE id = ?", (stored_path(segment.path), now, known.id)
    )
    return known.id


def claim_sent(store: Store, segment: Segment, now: int) -> int:
    """Claim a segment's bytes that another machine captured and sent. Inside a transaction.

    Segments may arrive in any order, so the watermark is not checked: it is at the end of the last bytes that arrived,
    and earlier bytes count as skipped until they arrive. The bytes must not be covered yet.

    Raises:
        WatermarkMovedError: Another process claimed some of these bytes.
    """
    start, stop, generation = segment.pieces[0].start, segment.pieces[-1].end, segment.after.generation
    known = state_of(store, segment.origin.device, segment.before.transcript)
    if known is None:
        # A file of a device's copy is not the device's: its watermark is at the beginning of a file that never arrived.
        is_own = UNPLACED < generation < FORKED_FROM
        mark = segment.after.at(stop) if is_own else Watermark(segment.after.transcript)
        ident = _insert_state(store, segment.origin, segment.path, mark, now)
        _cover_gap(store, ident, generation, 0, start, now)
        return ident
    if covered(store, known.id, generation, start, stop):
        raise WatermarkMovedError(f"{segment.path}: bytes {start} to {stop} have come already")
    _carve(store, known.id, generation, start, stop)
    end = store.value("SELECT max(stop) FROM segments WHERE transcript = ? AND generation = ?", (known.id, generation))
    _cover_gap(store, known.id, generation, end or 0, start, now)
    mark = known.mark
    if generation < FORKED_FROM and (generation, stop) > (mark.generation, mark.offset):
        mark = segment.after.at(stop)
    move_mark(store, known.id, segment.path, mark, now)
    return known.id


_OPEN = (
    "state = 'skipped' AND rule = ?5 OR state = 'captured' AND archive_length IS NULL AND start >= ?3 AND stop <= ?4"
)
"""Condition for rows whose bytes or lines may still arrive, in a segment of [?3, ?4)."""


def covered(store: Store, transcript: int, generation: int, start: int, stop: int) -> list[tuple[int, int, int]]:
    """Return (row id, first byte, end) of the rows with bytes of [start, stop) in a final state, in order.

    A row whose lines are not kept on this machine is not final: it is replaced when its lines arrive.
    """
    return store.rows(
        "SELECT id, start, stop FROM segments WHERE transcript = ?1 AND generation = ?2 AND start < ?4 AND stop > ?3"
        f" AND NOT ({_OPEN}) ORDER BY start",
        (transcript, generation, start, stop, BEFORE_CRYSTAL),
    )


def _carve(store: Store, transcript: int, generation: int, start: int, stop: int) -> None:
    """Remove [start, stop) from the rows that count as skipped, or whose lines are on another machine."""
    rows = store.rows(
        "SELECT id, start, stop, captured_at FROM segments WHERE transcript = ?1 AND generation = ?2 AND start < ?4"
        f" AND stop > ?3 AND ({_OPEN})",
        (transcript, generation, start, stop, BEFORE_CRYSTAL),
    )
    for ident, first, end, at in rows:
        store.execute("DELETE FROM segments WHERE id = ?", (ident,))
        for low, high in ((first, start), (stop, end)):
            if low < high:
                add_row(store, transcript, generation, low, high, "skipped", BEFORE_CRYSTAL, at)


def _cover_gap(store: Store, transcript: int, generation: int, start: int, stop: int, now: int) -> None:
    if start < stop:
        add_row(store, transcript, generation, start, stop, "skipped", BEFORE_CRYSTAL, now)


def mark_seen(store: Store, origin: Origin, path: str, mark: Watermark, now: int) -> None:
    """Note a transcript as seen up to ``mark``, its bytes skipped under before-crystal. Inside a transaction.

    Does nothing if the transcript is known already.
    """
    if state_of(store, origin.device, mark.transcript) is not None:
        return
    ident = _insert_state(store, origin, path, mark, now)
    if mark.offset:
        add_row(store, ident, mark.generation, 0, mark.offset, "skipped", BEFORE_CRYSTAL, now)


def moved(store: Store, state: TranscriptState, path: str, mark: Watermark) -> None:
    """Record that a file is at another path or inode, or was written without a change."""
    sql = "UPDATE capture_state SET path = ?, dev = ?, inode = ?, written = ? WHERE id = ?"
    store.execute(sql, (stored_path(path), mark.dev, mark.inode, mark.written, state.id))


def add_row(
    store: Store, transcript: int, generation: int, start: int, stop: int, state: str, rule: str | None, now: int
) -> None:
    """Write a ledger row for bytes that are not kept. Inside a transaction."""
    columns = "transcript, generation, start, stop, state, rule, captured_at"
    store.insert("segments", columns, transcript, generation, start, stop, state, rule, now)


class CapturedRange(NamedTuple):
    """A captured byte range and the place of its clean lines in the archive; None if only home keeps them."""

    start: int
    stop: int
    raw_hash: bytes
    archive_offset: int | None
    archive_length: int | None
    clean_hash: bytes
    clean_length: int


def add_captured(store: Store, transcript: int, generation: int, kept: CapturedRange, now: int) -> int:
    """Write a ledger row for captured bytes and return its id. Inside a transaction."""
    columns = f"transcript, generation, state, {', '.join(CapturedRange._fields)}, captured_at"
    return store.insert("segments", columns, transcript, generation, "captured", *kept, now)


def add_relayed(store: Store, transcript: int, generation: int, piece: SegmentPiece, now: int) -> None:
    """Write a ledger row for captured bytes whose lines only home keeps. Inside a transaction."""
    clean = hashlib.sha256(piece.clean).digest()
    kept = CapturedRange(piece.start, piece.end, piece.raw_hash or b"", None, None, clean, len(piece.clean))
    add_captured(store, transcript, generation, kept, now)


def set_archive(store: Store, transcript: int, archive: str | None) -> None:
    """Record the transcript's archive file, relative to the LDM home; None if it has no archive."""
    store.execute("UPDATE capture_state SET archive = ? WHERE id = ?", (archive, transcript))


def has_archive(store: Store, archive: str) -> bool:
    """Return True if a transcript is archived in this file, relative to the LDM home."""
    return store.has("SELECT 1 FROM capture_state WHERE archive = ? LIMIT 1", (archive,))


def archive_end(store: Store, transcript: int) -> int:
    """Return the end of the last frame in the ledger, in bytes, or 0."""
    sql = "SELECT max(archive_offset + archive_length) FROM segments WHERE transcript = ?"
    return store.value(sql, (transcript,)) or 0


def met_roots(store: Store) -> set[str]:
    """Return the transcript folders that crystal has scanned."""
    return {os.fsdecode(path) for (path,) in store.rows("SELECT path FROM capture_roots")}


def meet_root(store: Store, root: Path, now: int) -> None:
    """Record that a transcript folder was scanned. Inside a transaction."""
    store.insert("capture_roots", "path, met_at", stored_path(root), now, on_conflict="DO NOTHING")


def _insert_state(store: Store, origin: Origin, path: str, mark: Watermark, now: int) -> int:
    columns = ", ".join([*Origin._fields, "path", *Watermark._fields, "updated_at"])
    return store.insert("capture_state", columns, *origin, stored_path(path), *mark, now)
