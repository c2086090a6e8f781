"""Write a segment to archive, ledger, turns and chunks in one transaction, together with its watermark.

The hook's worker, the sweep, backfill, repair and the poller all call ``ingest``. It is idempotent: a turn is
identified by its transcript line's uuid, so repeated lines (forks, replaced files, another process) change nothing.
Forgotten lines are removed here, whatever their source.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, count
from pathlib import Path

from crystal.ingest import archive
from crystal.ingest.forgotten_filter import note_touched, without_forgotten
from crystal.ingest.said_by_agent import leave_to_agent, repeated_turns
from crystal.ingest.same_id import with_distinct_ids
from crystal.model.capture import Chunk, Project, Segment, SegmentPiece, Turn
from crystal.model.named_tuple import NamedTuple
from crystal.store import Store
from crystal.store.capture import ledger, privacy, record_counts, turns
from crystal.store.forget import forgetting
from crystal.text import chunking
from crystal.transcript.line_context import revised_ids
from crystal.transcript.reader import reader_of
from crystal.transcript.record_kinds import RecordCounts, count_records, unread_calls

Claim = Callable[[Store, Segment, int], int]
PlaceFrame = Callable[[int, SegmentPiece], int | None]
"""Given a generation and a captured piece, places its archived frame there; returns the row, or None without one."""
_PlacedRow = tuple[int, int, int]
"""First byte, end and id of a ledger row."""


class IngestReport(NamedTuple):
    """Result for one segment."""

    bytes_captured: int
    bytes_private: int
    turns: int = 0
    chunks: int = 0
    repeated: int = 0


def ingest(
    store: Store,
    segment: Segment,
    *,
    ldm_home: Path,
    archive_folder: Path,
    find_project: Callable[[str], Project],
    now: int,
    claim: Claim = ledger.claim_tail,
) -> IngestReport:
    """Write one segment; it is durable when this returns, or nothing is written.

    Args:
        store: The store, open for writing.
        segment: The segment to write.
        ldm_home: The folder to which archive paths are relative.
        archive_folder: Folder of this agent's archives, below ``ldm_home``.
        find_project: Returns the git project of a folder; may read the disk.
        now: The time, ms.
        claim: Claims the segment's bytes in the ledger: ``ledger.claim_tail`` or ``ledger.claim_skipped``.

    Raises:
        WatermarkMovedError: Another process captured these bytes first. Nothing was written.
        StoreFullError, StoreBusyError, UnavailableError: Nothing was written; try again later.
    """
    prepared = prepare(segment)
    projects = {cwd: find_project(cwd) for cwd in prepared.folders}
    written: archive.Written = {}
    with store.transaction():
        report = write(
            store,
            segment,
            prepared,
            ldm_home=ldm_home,
            archive_folder=archive_folder,
            projects=projects,
            now=now,
            claim=claim,
            written=written,
        )
        archive.make_durable(written)
    return report


class Prepared(NamedTuple):
    """Parsed content of a segment, read before the store is locked: turns with their chunks, a title, folders.

    ``counts`` are the numbers of records with turns, without turns and of unknown kinds.
    """

    said: list[tuple[Turn, list[Chunk]]]
    title: str | None
    folders: list[str]
    counts: RecordCounts


def prepare(segment: Segment) -> Prepared:
    """Parse a segment. Pure."""
    lines = [line for piece in segment.pieces if piece.state == "captured" for line in piece.lines]
    reader = reader_of(segment.origin.harness)
    said = [(turn, chunking.split(turn.text)) for turn in turns_of(segment)]
    offsets, unread = {turn.offset for turn, _ in said}, unread_calls(turn for turn, _ in said)
    counts = count_records(reader, lines, offsets, unread)
    return Prepared(said, reader.title(lines), sorted({turn.cwd for turn, _ in said if turn.cwd}), counts)


def turns_of(segment: Segment) -> Iterator[Turn]:
    """Yield the turns of a segment's lines."""
    lines = [line for piece in segment.pieces if piece.state == "captured" for line in piece.lines]
    reader, subagent = reader_of(segment.origin.harness), segment.origin.subagent is not None
    yield from reader.turns(lines, segment.before.transcript, subagent=subagent)


def note_pieces(store: Store, segment: Segment, ident: int, now: int) -> IngestReport:
    """Record what a segment contains besides its captured lines: what was left out and why. Return the sizes."""
    for piece in segment.pieces:
        if piece.state != "captured":
            generation = segment.after.generation
            ledger.add_row(store, ident, generation, piece.start, piece.end, piece.state, piece.rule, now)
    privacy.add_private_lines(store, segment.private_uuids)
    privacy.add_redactions(store, segment.findings)
    captured, private = (
        sum(piece.end - piece.start for piece in segment.pieces if piece.state == state)
        for state in ("captured", "private")
    )
    return IngestReport(captured, private)


def write(  # noqa: PLR0913 - as ingest, with what it prepares
    store: Store,
    segment: Segment,
    prepared: Prepared,
    *,
    ldm_home: Path,
    archive_folder: Path,
    projects: dict[str, Project],
    now: int,
    claim: Claim,
    written: archive.Written,
    place: PlaceFrame | None = None,
) -> IngestReport:
    """Write one segment inside the caller's transaction.

    Call ``archive.make_durable(written)`` before the commit: several segments share one flush of a file. ``place``
    returns the ledger row of a piece whose lines are in the archive already.
    """
    kept = with_distinct_ids(store, ldm_home, segment, [turn for turn, _ in prepared.said])
    blocks = forgetting.read_blocks(store)
    if blocks is not None:
        kept = without_forgotten(blocks, kept)
    if kept != segment:
        segment, prepared = kept, prepare(kept)
    note_touched(store, segment, now)
    captured = [piece for piece in segment.pieces if piece.state == "captured"]
    ident = claim(store, segment, now)
    new, rows = (captured, []) if place is None else _place(segment.after.generation, captured, place)
    if new:
        rows += _keep(store, segment, new, ident, ldm_home, archive_folder, now, written)
    report = note_pieces(store, segment, ident, now)
    record_counts.add_counts(store, ident, *prepared.counts)
    _drop_revised(store, captured)
    origin = segment.origin
    repeated = repeated_turns(store, ldm_home, origin)
    said = [one for one in prepared.said if (one[0].uuid, one[0].part) not in repeated]
    placed = [(turn, _row_of(turn, rows), chunks) for turn, chunks in said]
    added = turns.add_turns(store, origin, placed, projects, prepared.title)
    leave_to_agent(store, ldm_home, origin, repeated)
    if turns.is_followed(store, ident, segment):
        _name_results(store, ldm_home, segment)
    return report._replace(turns=added.turns, chunks=added.chunks, repeated=added.repeated)


def _place(
    generation: int, captured: list[SegmentPiece], place: PlaceFrame
) -> tuple[list[SegmentPiece], list[_PlacedRow]]:
    """Return the pieces that are not archived yet, and the rows of the others."""
    found = [(piece, place(generation, piece)) for piece in captured]
    rows = [(piece.start, piece.end, row) for piece, row in found if row is not None]
    return [piece for piece, row in found if row is None], rows


def _name_results(store: Store, ldm_home: Path, segment: Segment) -> None:
    from crystal.ingest.result_names import name_results  # noqa: PLC0415 - what is captured live follows all else

    state = ledger.state_of(store, segment.origin.device, segment.before.transcript)
    if state is not None and state.archive is not None:
        name_results(store, ldm_home, state)


def _drop_revised(store: Store, pieces: Iterable[SegmentPiece]) -> None:
    """Delete the turns of records that the pieces contain in a newer state."""
    revised = revised_ids(line for piece in pieces for _, line in piece.lines)
    if revised:
        from crystal.store.health import checks  # noqa: PLC0415 - 6 ms; only files that are rewritten need it

        checks.drop_turns(store, checks.turns_with_ids(store, revised))


def _keep(
    store: Store,
    segment: Segment,
    captured: list[SegmentPiece],
    ident: int,
    ldm_home: Path,
    archive_folder: Path,
    now: int,
    written: archive.Written,
) -> list[_PlacedRow]:
    """Archive the captured pieces and write their ledger rows."""
    known = ledger.state_of(store, segment.origin.device, segment.before.transcript)
    relative = known.archive if known is not None else None
    if relative is None:
        relative = _free_name(store, segment, ldm_home, archive_folder)
        ledger.set_archive(store, ident, relative)
    end = ledger.archive_end(store, ident)
    frames = archive.append(ldm_home / relative, end, [piece.clean for piece in captured], written)
    generation = segment.after.generation
    return [
        (piece.start, piece.end, ledger.add_captured(store, ident, generation, _kept_row(piece, frame), now))
        for piece, frame in zip(captured, frames, strict=True)
    ]


def _free_name(store: Store, segment: Segment, ldm_home: Path, folder: Path) -> str:
    """Return an unused name for a transcript's archive: two devices may share an agent and a copied session."""
    key, device = segment.before.transcript, segment.origin.device
    for suffix in chain(("", f"--{device}"), (f"--{number}" for number in count(2))):
        relative = (folder / archive.file_name(key + suffix)).relative_to(ldm_home).as_posix()
        if not ledger.has_archive(store, relative):
            return relative
    raise AssertionError("count() ends nowhere")


def _kept_row(piece: SegmentPiece, frame: archive.Frame) -> ledger.CapturedRange:
    clean = piece.clean  # a huge line is joined at each access
    sha = hashlib.sha256(clean).digest()
    return ledger.CapturedRange(
        piece.start, piece.end, piece.raw_hash or b"", frame.offset, frame.length, sha, len(clean)
    )


def _row_of(turn: Turn, rows: list[_PlacedRow]) -> int | None:
    return next((ident for start, stop, ident in rows if start <= turn.offset < stop), None)
