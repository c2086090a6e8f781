"""Remove forgotten lines from a segment, whatever its source: the final filter before writing.

Capture already leaves them out if it can (capture/privacy.py). This filter is for other sources: another machine, an
archive, a file that was read before the tombstone existed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from crystal.model.capture import Origin, Segment, SegmentPiece, Turn
from crystal.store import Store
from crystal.store.forget.forgetting import FORGOTTEN, Tombstones, add_tombstones, is_session_forgotten, make_tombstone
from crystal.transcript.reader import LineFacts, is_forgotten, reader_of

BY_FORGETTING = f"private-{FORGOTTEN}"
"""Rule name for bytes that are private because they were forgotten."""


def without_forgotten(blocks: Tombstones, segment: Segment) -> Segment:
    """Return the segment with forgotten lines made private; unchanged if there are none.

    If a part of its session was forgotten, now or earlier, the client's notes and summaries are removed as well,
    because they may repeat it.
    """
    return without_lines(segment, forgotten_lines(blocks, segment))


def forgotten_lines(blocks: Tombstones, segment: Segment) -> frozenset[int]:
    """Return the offsets of the forgotten lines of a segment."""
    lines = [(at, line) for piece in segment.pieces if piece.state == "captured" for at, line in piece.lines]
    return forgotten_among(blocks, lines, segment.origin, segment.before.transcript, is_tainted=has_forgotten(segment))


def forgotten_among(
    blocks: Tombstones, lines: Sequence[tuple[int, bytes]], origin: Origin, key: str, *, is_tainted: bool = False
) -> frozenset[int]:
    """Return the offsets of the forgotten lines among some lines of a transcript."""
    turns = _turns_by_offset(lines, origin, key)
    reader = reader_of(origin.harness)
    facts = {at: reader.facts(line) for at, line in lines}
    gone = {
        at
        for at, line in lines
        if is_forgotten(line) or _is_forgotten(blocks, origin.session_id, facts[at], turns.get(at, []))
    }
    is_tainted = is_tainted or bool(gone) or is_session_forgotten(blocks.store, origin.session_id)
    notes = {at for at, one in facts.items() if one.is_bookkeeping or one.is_summary} if is_tainted else set()
    return frozenset(gone | notes)


def has_forgotten(segment: Segment) -> bool:
    """Return True if lines of a segment were left out because they were forgotten."""
    return any(piece.rule == BY_FORGETTING for piece in segment.pieces)


def is_touched(blocks: Tombstones, segment: Segment) -> bool:
    """Return True if lines of a segment are forgotten, or were removed from it."""
    return has_forgotten(segment) or bool(forgotten_lines(blocks, segment))


def note_touched(store: Store, segment: Segment, now: int) -> None:
    """Record that a part of a segment's session was forgotten, if that is new. Runs inside a transaction."""
    session = segment.origin.session_id
    if has_forgotten(segment) and not is_session_forgotten(store, session):
        name_touched(store, [session], segment.origin.device, now)


def name_touched(store: Store, sessions: Sequence[str], device: str, now: int) -> None:
    """Record sessions in a separate tombstone, so that all machines leave out what may repeat forgotten text."""
    value = {"lines": [], "sessions": list(sessions)}
    add_tombstones(store, [make_tombstone("lines", value, None, now, device)], now)


def without_lines(segment: Segment, gone: Collection[int]) -> Segment:
    """Return the segment with the lines at these offsets made private; unchanged if it has none of them."""
    reader = reader_of(segment.origin.harness)
    pieces: list[SegmentPiece] = []
    uuids: list[str] = []
    for piece in segment.pieces:
        lines = [line for at, line in piece.lines if at in gone] if piece.state == "captured" else []
        pieces += _split(piece, gone) if lines else [piece]
        uuids += [uuid for line in lines if (uuid := reader.facts(line).uuid) is not None]
    if tuple(pieces) == segment.pieces:
        return segment
    return segment._replace(pieces=tuple(pieces), private_uuids=(*segment.private_uuids, *uuids))


def _turns_by_offset(lines: Sequence[tuple[int, bytes]], origin: Origin, key: str) -> dict[int, list[Turn]]:
    found: dict[int, list[Turn]] = {}
    reader = reader_of(origin.harness)
    for turn in reader.turns(lines, key, subagent=origin.subagent is not None):
        found.setdefault(turn.offset, []).append(turn)
    return found


def _is_forgotten(blocks: Tombstones, session: str, facts: LineFacts, turns: list[Turn]) -> bool:
    ids = {facts.uuid, *(turn.uuid for turn in turns)}
    return any(blocks.holds(uuid, session, facts.timestamp_ms, facts.cwd) for uuid in ids)


def _split(piece: SegmentPiece, gone: Collection[int]) -> list[SegmentPiece]:
    """Split a captured piece into runs of kept and of removed lines. Blank lines belong to the line before."""
    runs: list[tuple[bool, int, list[tuple[int, bytes]]]] = []
    for at, line in piece.lines:
        is_gone = at in gone
        if not runs or runs[-1][0] != is_gone:
            runs.append((is_gone, at if runs else piece.start, []))
        runs[-1][2].append((at, line))
    pieces = []
    for number, (is_gone, start, lines) in enumerate(runs):
        end = runs[number + 1][1] if number + 1 < len(runs) else piece.end
        if is_gone:
            pieces.append(SegmentPiece(start, end, "private", BY_FORGETTING))
        else:
            clean = b"".join(line + b"\n" for _, line in lines)
            pieces.append(SegmentPiece(start, end, "captured", piece.rule, clean, None, tuple(lines)))
    return pieces
