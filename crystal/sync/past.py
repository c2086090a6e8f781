"""Send this machine's archive as if it were captured again, to a home that lacks it.

A machine sends its whole ledger if it joins with its own memory, was home before, or its home has lost its memory.
This happens after all live conversation, in steps, each in one transaction with its position, so that it can be
stopped anywhere and never fills the disk with a second copy.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from crystal.errors import DamagedError
from crystal.ingest import archive
from crystal.ingest.forgotten_filter import without_forgotten
from crystal.memories.serialize import memory_to_dict
from crystal.model.capture import LedgerState, Segment, SegmentPiece, Watermark
from crystal.store import Store
from crystal.store.capture import ledger
from crystal.store.forget.forgetting import read_blocks
from crystal.store.health import stats
from crystal.store.health.checks import LedgerRow
from crystal.store.memories import memories
from crystal.store.sync import outbox, past
from crystal.sync.envelope.packing import PayloadKind
from crystal.sync.sending import Link, put_control, put_message
from crystal.sync.wire import encode_segment
from crystal.transcript.reader import reader_of

MAX_WAITING = 200
"""Maximum number of sealed blobs of the past that wait at once."""
UUIDS_AT_ONCE = 2_000
MEMORIES_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class PastReport:
    """Progress: ledger rows sent now, rows left."""

    sent: int = 0
    left: int = 0


def send_some_past(store: Store, link: Link, *, ldm_home: Path, now: int) -> PastReport:
    """Seal the next ledger rows to be sent; none if enough blobs wait already, or all rows are sent."""
    place = past.read_place(store)
    if place is None:
        return PastReport()
    if place.private is not None:
        _send_private(store, link, place.private, now)
    if place.memory is not None:
        _send_memories(store, link, place.memory, now)
    sent = 0
    states = {state.id: state for state in ledger.all_states(store)}
    while outbox.count_unreceipted(store, "past") < MAX_WAITING:
        found = past.next_row(store, place.row, place.until)
        if found is None:
            place, is_all = _finish_if_all_sent(store, place)
            if is_all:
                return PastReport(sent)
            continue
        transcript_id, row = found
        if transcript_id not in states:
            states = {state.id: state for state in ledger.all_states(store)}
        try:
            segment = _segment(store, states[transcript_id], row, ldm_home)
        except DamagedError:
            segment = None  # `verify` reports it
        with store.transaction():
            if segment is not None:
                _put_segment(store, link, segment, row.id, now)
                sent += 1
            place = past.move_place(store, row=row.id)
    return PastReport(sent, past.rows_between(store, place.row, place.until))


def _finish_if_all_sent(store: Store, place: past.PastProgress) -> tuple[past.PastProgress, bool]:
    """Read the position again, and delete it if nothing is left. Return it and whether all ledger rows were sent."""
    with store.transaction():  # another process may have added more meanwhile
        place = past.read_place(store) or place
        is_all = past.rows_between(store, place.row, place.until) == 0
        if is_all and place.private is None and place.memory is None:
            past.forget_place(store)
    return place, is_all


def _put_segment(store: Store, link: Link, segment: Segment, row: int, now: int) -> None:
    """Seal a segment without its forgotten lines. The caller holds the transaction."""
    blocks = read_blocks(store)
    segment = segment if blocks is None else without_forgotten(blocks, segment)
    payload = encode_segment(segment, past.projects_of_row(store, row), "past")
    put_message(store, link, payload, kind=PayloadKind.RECORDS, lane="past", now=now)


def _send_private(store: Store, link: Link, after: str, now: int) -> None:
    """Send the ids of private lines, so that home does not store copies of them from other files."""
    while uuids := past.private_uuids(store, after, UUIDS_AT_ONCE):
        after = uuids[-1]
        with store.transaction():
            put_control(store, link, "private", {"uuids": uuids}, lane="past", now=now)
            past.move_place(store, private=after)
    with store.transaction():
        past.move_place(store, private=None)


def _send_memories(store: Store, link: Link, after: int, now: int) -> None:
    """Send the memories of this machine; home stores those that are newer than its own."""
    while found := memories.versions_after(store, after, MEMORIES_AT_ONCE):
        after = found[-1][0]
        with store.transaction():
            for _, version in found:
                put_control(store, link, "memory", {"memory": memory_to_dict(version)}, lane="past", now=now)
            past.move_place(store, memory=after)
    with store.transaction():
        if stats.newest_memory(store) <= after:
            past.move_place(store, memory=None)


def _segment(store: Store, state: ledger.TranscriptState, row: LedgerRow, ldm_home: Path) -> Segment:
    """Return the segment from which a ledger row was made."""
    key, generation = state.mark.transcript, row.generation
    before, after = (Watermark(key, at, generation=generation) for at in (row.start, row.stop))
    if row.state != "captured":
        piece = SegmentPiece(row.start, row.stop, cast("LedgerState", row.state), row.rule)
        return Segment(state.origin, state.path, before, after, (piece,))
    clean = archive.read_frame(ldm_home / str(state.archive), archive.Frame(row.offset, row.length))
    raw_hash = row.raw_hash or None
    piece = SegmentPiece(row.start, row.stop, "captured", None, clean, raw_hash, _lines(store, state, row, clean))
    return Segment(state.origin, state.path, before, after, (piece,))


def _lines(store: Store, state: ledger.TranscriptState, row: LedgerRow, clean: bytes) -> tuple[tuple[int, bytes], ...]:
    """Return the offset of each line in its file, from the turns of lines that were cleaned before.

    Lines without text are placed between those with text: each has at least one byte and its newline.
    """
    lines = clean.split(b"\n")[:-1]
    known = {} if len(clean) == row.stop - row.start else _known_offsets(store, state, row, lines)
    latest = [row.stop] * (len(lines) + 1)
    for number in range(len(lines) - 1, -1, -1):
        latest[number] = min(known.get(number, row.stop), latest[number + 1] - 1)
    placed: list[tuple[int, bytes]] = []
    at = row.start
    for number, line in enumerate(lines):
        at = min(max(known.get(number, at), placed[-1][0] + 1 if placed else row.start), latest[number])
        if line.strip():
            placed.append((at, line))
        at += len(line) + 1
    return tuple(placed)


def _known_offsets(store: Store, state: ledger.TranscriptState, row: LedgerRow, lines: list[bytes]) -> dict[int, int]:
    """Return the known offsets of lines with text, by their index among the row's lines."""
    by_uuid = past.offsets_of_row(store, row.id)
    derived = deque(sorted((offset, uuid) for uuid, offset in by_uuid.items() if uuid.startswith("line-")))
    known: dict[int, int] = {}
    least = row.start
    reader = reader_of(state.origin.harness)
    for number, line in enumerate(lines):
        uuid = reader.facts(line).uuid
        offset = None if uuid is None else by_uuid.get(uuid)
        if offset is None and derived:
            offset = _derived_offset(state, line, derived)
        if offset is not None and offset >= least:
            known[number] = offset
            least = offset + 1
    return known


def _derived_offset(state: ledger.TranscriptState, line: bytes, derived: deque[tuple[int, str]]) -> int | None:
    """Return the offset of a line without its own uuid: the one at which its derived uuid equals the stored one."""
    offset, uuid = derived[0]
    reader = reader_of(state.origin.harness)
    said = reader.turns([(offset, line)], state.mark.transcript, subagent=state.origin.subagent is not None)
    if all(turn.uuid != uuid for turn in said):
        return None
    derived.popleft()
    return offset
