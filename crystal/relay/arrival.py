"""What another machine captured, taken into this machine's memory: each byte range once, whatever came before.

A device that was restored from a backup, or cloned, sends ranges that are here already. Lines that are the same are
left out; where a copy of the device went on differently, its file is kept beside the other one. So the same segment
may come any number of times, in any order, over any stream.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from crystal import archive
from crystal.errors import Damaged
from crystal.ingest import IngestReport, ingest
from crystal.model import Piece, Project, Segment, Watermark
from crystal.relay.wire import Sent
from crystal.store import Store, checks, inbox, ledger

NOTHING = IngestReport(0, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Where segments of other machines go.

    Attributes:
        store: This machine's store, open for writing.
        ldm_home: What archive paths are relative to.
        agent_folder: Gives an agent's folder.
    """

    store: Store
    ldm_home: Path
    agent_folder: Callable[[str], Path]


def arrive(arrivals: Arrivals, sent: Sent, stream: bytes, *, advance: Callable[[], None], now: int) -> IngestReport:
    """Ingest what is new of a segment; ``advance`` is called inside the (last) transaction.

    Args:
        arrivals: This machine.
        sent: The segment; its origin's device and agent are trusted.
        stream: The stream that it came over.
        advance: Moves the stream's cursor. It raises when another poller did so first.
        now: The time, ms.

    Raises:
        WatermarkMoved: Another process was first; look again. Nothing was written.
        StoreFull, StoreBusy, Unavailable: Nothing was written; try again later.
    """
    store = arrivals.store
    new = _new_parts(arrivals, sent.segment, stream)
    if not new:
        with store.transaction():
            advance()
        return NOTHING
    total = NOTHING
    for number, part in enumerate(new, 1):
        total = _sum(total, _ingest(arrivals, part, sent, advance if number == len(new) else _nothing, now))
    return total


def _nothing() -> None:
    """Leave the cursor: the rest of the segment comes in a transaction of its own."""


def _ingest(arrivals: Arrivals, part: Segment, sent: Sent, advance: Callable[[], None], now: int) -> IngestReport:
    def claim(store: Store, segment: Segment, at: int) -> int:
        advance()
        return ledger.claim_sent(store, segment, at)

    return ingest(
        arrivals.store,
        part,
        ldm_home=arrivals.ldm_home,
        archive_folder=arrivals.agent_folder(part.origin.agent) / "transcripts",
        find_project=lambda cwd: sent.projects.get(cwd) or _unknown_project(cwd),
        now=now,
        claim=claim,
    )


def _unknown_project(cwd: str) -> Project:
    """A folder of another machine of which nothing is told: this machine's folders say nothing of it."""
    return Project(cwd, name=cwd.replace("\\", "/").rstrip("/").rpartition("/")[2] or cwd)


def _new_parts(arrivals: Arrivals, segment: Segment, stream: bytes) -> list[Segment]:
    """What of a segment is not here yet, as segments of the ledger's own generations."""
    store, device, key = arrivals.store, segment.origin.device, segment.before.transcript
    state = ledger.state_of(store, device, key)
    sent_as = segment.after.generation
    generation = inbox.file_generation(store, device, key, stream, sent_as)
    segment = _as_generation(segment, generation)
    if state is None:
        return [segment]
    start, stop = segment.pieces[0].start, segment.pieces[-1].end
    known = ledger.covered(store, state.id, generation, start, stop)
    if known and not _agrees(arrivals, state, known, segment):
        with store.transaction():
            generation = inbox.fork_file(store, device, key, stream, sent_as)
        segment = _as_generation(segment, generation)
        known = []
    return _without(segment, [(low, high) for _, low, high in known])


def _as_generation(segment: Segment, generation: int) -> Segment:
    if segment.after.generation == generation:
        return segment
    return replace(segment, after=replace(segment.after, generation=generation))


def _agrees(
    arrivals: Arrivals, state: ledger.TranscriptState, known: list[tuple[int, int, int]], segment: Segment
) -> bool:
    """Whether the lines that are here are the lines that come, wherever both are there to be compared."""
    rows = {row.id: row for row in checks.ledger_rows(arrivals.store, state.id)}
    for ident, low, high in known:
        row = rows[ident]
        coming = _lines_between(segment, low, high)
        if coming is None:
            return False
        if row.state != "captured" or not coming:
            continue  # private stays private, whatever a copy of the device says
        if row.clean_hash is not None and row.length == 0:
            continue
        frame = archive.Frame(row.offset, row.length)
        try:
            clean = archive.read_frame(arrivals.ldm_home / str(state.archive), frame)
        except Damaged:
            continue  # verify reports it; what is here counts as what it was
        here = [line for line in clean.split(b"\n")[:-1] if line.strip()]
        if not _holds(here, coming):
            return False
    return True


def _lines_between(segment: Segment, low: int, high: int) -> list[bytes] | None:
    """The captured lines of a segment that begin in [low, high); None when the cuts fall into its lines."""
    lines = []
    for piece in segment.pieces:
        begins = {offset for offset, _ in piece.lines}
        for cut in (low, high):
            if piece.start < cut < piece.end and piece.state == "captured" and cut not in begins:
                return None
        lines += [line for offset, line in piece.lines if low <= offset < high]
    return lines


def _holds(here: list[bytes], coming: list[bytes]) -> bool:
    """Whether lines stand in others in one run."""
    for at in range(len(here) - len(coming) + 1):
        if here[at] == coming[0] and here[at : at + len(coming)] == coming:
            return True
    return False


def _without(segment: Segment, known: list[tuple[int, int]]) -> list[Segment]:
    """A segment without the ranges that are here: one segment for each stretch between them."""
    if not known:
        return [segment]
    stretches = []
    at, end = segment.pieces[0].start, segment.pieces[-1].end
    for low, high in [*known, (end, end)]:
        if at < low:
            stretches.append((at, low))
        at = max(at, high)
    parts: list[Segment] = []
    for low, high in stretches:
        pieces = tuple(cut for piece in segment.pieces if (cut := _cut(piece, low, high)) is not None)
        after = segment.after if segment.after.offset == high else _mark_at(segment.after, high)
        parts.append(replace(segment, pieces=pieces, after=after, findings=() if parts else segment.findings))
    return parts


def _mark_at(mark: Watermark, offset: int) -> Watermark:
    return Watermark(mark.transcript, offset, 0, 0, mark.generation)


def _cut(piece: Piece, low: int, high: int) -> Piece | None:
    """The part of a piece in [low, high), None when there is none."""
    start, end = max(piece.start, low), min(piece.end, high)
    if start >= end:
        return None
    if (start, end) == (piece.start, piece.end):
        return piece
    lines = tuple((offset, line) for offset, line in piece.lines if start <= offset < end)
    if piece.state != "captured" or not lines:
        return Piece(start, end, piece.state if piece.state != "captured" else "skipped", piece.rule or "blank")
    return Piece(start, end, "captured", piece.rule, b"".join(line + b"\n" for _, line in lines), None, lines)


def _sum(one: IngestReport, other: IngestReport) -> IngestReport:
    return IngestReport(
        one.bytes_captured + other.bytes_captured,
        one.bytes_private + other.bytes_private,
        one.turns + other.turns,
        one.chunks + other.chunks,
        one.repeated + other.repeated,
    )
