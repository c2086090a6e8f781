"""Recognise what a machine sends again, because its database was lost or the one here.

The ledger of a lost database here is lost with it: such archived lines have rows without places in their file, see
``crystal.store.capture.ledger_rebuild``. A machine that lost its own database is another device, or a copy, which has
the same transcripts: their lines are in the archive of the device that it was.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import chain, groupby, pairwise
from pathlib import Path
from typing import TypeAlias

from crystal.ingest import archive
from crystal.ingest.ingest import Prepared
from crystal.model.capture import RESTORED, Segment, SegmentPiece
from crystal.redact.spans import MARKER
from crystal.store import Store
from crystal.store.capture import ledger, ledger_rebuild
from crystal.store.health import checks
from crystal.sync.wire import line_starts
from crystal.transcript.reader import find_facts

LinePair: TypeAlias = tuple[bytes, bytes]
"""The keys of two lines, one after the other."""
BLANK = "blank"
"""Rule name for skipped blank lines that are alone between stored lines."""


def recognise(store: Store, ldm_home: Path, segment: Segment) -> tuple[Segment, dict[int, int]]:
    """Recognise what is archived here already, though the ledger does not know it as this part of this file.

    Return the segment, in which lines that were archived in other frames are skipped, and the rows of those frames of
    a rebuilt archive that have exactly a piece's lines, by the piece's first byte.
    """
    state = ledger.state_of(store, segment.origin.device, segment.before.transcript)
    if segment.after.generation == ledger.UNPLACED:
        return segment, {}
    unplaced = [] if state is None else ledger_rebuild.unplaced_rows(store, state.id)
    rows: dict[int, int] = {}
    for piece in segment.pieces if unplaced else ():
        clean_hash = hashlib.sha256(piece.clean).digest()
        same = next((row for row in unplaced if row.clean_hash == clean_hash), None)
        if piece.state == "captured" and same is not None:
            unplaced.remove(same)
            rows[piece.start] = same.id
    frames = ledger_rebuild.frames_elsewhere(store, segment)
    frames += [(str(state.archive), row.offset, row.length) for row in unplaced if state is not None]
    if frames and any(_is_new(piece, rows) for piece in segment.pieces):
        archived = _ArchivedLines(*_read_lines(ldm_home, tuple(frames)))
        pieces = (archived.split(piece) if _is_new(piece, rows) else [piece] for piece in segment.pieces)
        segment = segment._replace(pieces=tuple(chain.from_iterable(pieces)))
    return segment, rows


def _is_new(piece: SegmentPiece, rows: Mapping[int, int]) -> bool:
    return piece.state == "captured" and piece.start not in rows


@lru_cache(maxsize=1)
def _read_lines(ldm_home: Path, frames: tuple[tuple[str, int, int], ...]) -> tuple[Counter[bytes], set[LinePair]]:
    """Return how often the lines of these frames occur, and which of them are neighbours, by their keys."""
    keys: list[bytes] = []
    for name, offset, length in frames:
        text = archive.text_of(ldm_home / name, archive.Frame(offset, length)) or b""
        keys += [_key(line) for line in text.split(b"\n") if line.strip()]
    return Counter(keys), {*pairwise(keys)}


class _ArchivedLines:
    """Archived lines without places. Secrets do not count: another store of a machine has other marks for them."""

    def __init__(self, lines: Counter[bytes], pairs: set[LinePair]) -> None:
        self._left, self._pairs = Counter(lines), pairs

    def split(self, piece: SegmentPiece) -> Iterator[SegmentPiece]:
        """Yield the parts of a captured piece: its archived lines, which are taken from here, count as skipped.

        A line without an id is archived if one beside it is, and they are neighbours here, too.
        """
        placed = [(at, _key(line), find_facts(line).uuid is not None) for at, line in piece.lines]
        known = {at: self._left[key] > 0 for at, key, has_id in placed if has_id}
        for steps in (placed, placed[::-1]):
            for (at, key, _), (beside, other, _) in zip(steps[1:], steps, strict=False):
                pair = (other, key) if beside < at else (key, other)
                if known.get(beside) and pair in self._pairs:
                    known.setdefault(at, True)
        if not known:  # no line has an id
            known = {at: self._left[key] > 0 for at, key, _ in placed}
        self._left.subtract(key for at, key, _ in placed if known.get(at))
        runs = [(is_known, next(run)[0]) for is_known, run in groupby(placed, lambda one: known.get(one[0], False))]
        starts = [piece.start, *(at for _, at in runs[1:]), piece.end]
        for (is_known, _), low, high in zip(runs or [(False, piece.start)], starts, starts[1:], strict=False):
            part = SegmentPiece(low, high, "skipped", RESTORED) if is_known else cut_piece(piece, low, high)
            if part is not None:
                yield part


def _key(line: bytes) -> bytes:
    return hashlib.blake2b(MARKER.sub(b"", line), digest_size=16).digest()


def place(store: Store, rows: Mapping[int, int], said: Prepared, generation: int, piece: SegmentPiece) -> int | None:
    """Place the row of a piece's frame, with its turns."""
    row = rows.get(piece.start)
    if row is not None:
        ledger_rebuild.place_row(store, row, generation, piece)
        checks.drop_turns(store, ledger_rebuild.turns_without_id(store, row))
        ledger_rebuild.place_turns(store, row, (turn for turn, _ in said.said))
    return row


def cut_piece(piece: SegmentPiece, low: int, high: int) -> SegmentPiece | None:
    """Return the part of a piece from ``low`` up to ``high``, None if it is empty."""
    start, end = max(piece.start, low), min(piece.end, high)
    if start >= end:
        return None
    if (start, end) == (piece.start, piece.end):
        return piece
    if piece.state != "captured":
        return SegmentPiece(start, end, piece.state, piece.rule)
    whole = zip(line_starts(piece), piece.clean.split(b"\n")[:-1], strict=True)
    lines = [(offset, line) for offset, line in whole if start <= offset < end]
    if not lines:
        return SegmentPiece(start, end, "skipped", BLANK)
    clean = b"".join(line + b"\n" for _, line in lines)
    said = tuple((offset, line) for offset, line in lines if line.strip())
    return SegmentPiece(start, end, "captured", piece.rule, clean, None, said)
