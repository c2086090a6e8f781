"""Ingest what other machines captured: each byte range once, in any order.

A device that was restored from a backup, or cloned, sends ranges that are stored already. Equal lines are skipped; if a
copy of the device continued differently, its file is stored beside the original. So the same segment may arrive any
number of times, in any order, over any stream.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from crystal.ingest import archive
from crystal.ingest.forgotten_filter import BY_FORGETTING, without_forgotten
from crystal.ingest.ingest import Prepared, prepare, write
from crystal.model.capture import Project, Segment
from crystal.store import Store
from crystal.store.capture import ledger, privacy
from crystal.store.forget.forgetting import is_anything_forgotten, read_blocks
from crystal.store.health import checks
from crystal.store.sync import inbox
from crystal.sync.known_lines import BLANK, cut_piece, place, recognise
from crystal.sync.wire import SentSegment, line_starts
from crystal.transcript.reader import find_facts


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Destination for segments of other machines.

    Attributes:
        store: This machine's store, open for writing.
        ldm_home: The folder to which archive paths are relative.
        agent_folder: Returns an agent's folder.
    """

    store: Store
    ldm_home: Path
    agent_folder: Callable[[str], Path]


def arrive(
    arrivals: Arrivals, sent: SentSegment, prepared: Prepared, stream: bytes, *, now: int, written: archive.Written
) -> Counter[str]:
    """Write the new part of a segment, and count new turns, new chunks and repeated lines. Runs inside a transaction.

    Args:
        arrivals: This machine.
        sent: The segment; its origin's device and agent are trusted.
        prepared: The parsed content of the segment.
        stream: The stream that delivered it.
        now: The time, ms.
        written: Gets the archive files to make durable before the transaction ends.

    Raises:
        WatermarkMovedError: Another process was first: roll back and try again.
        StoreFullError, StoreBusyError, Unavailable: Roll back and try again later.
    """
    new: Counter[str] = Counter()
    if (blocks := read_blocks(arrivals.store)) is not None:
        kept = without_forgotten(blocks, sent.segment)
        if kept is not sent.segment:
            sent, prepared = replace(sent, segment=kept), prepare(kept)
    privacy.add_private_lines(arrivals.store, sent.segment.private_uuids)
    for new_part in _new_parts(arrivals, sent.segment, stream):
        part, rows = recognise(arrivals.store, arrivals.ldm_home, new_part)
        said = prepared if part.pieces == sent.segment.pieces else prepare(part)
        done = write(
            arrivals.store,
            part,
            said,
            ldm_home=arrivals.ldm_home,
            archive_folder=arrivals.agent_folder(part.origin.agent) / "transcripts",
            projects={cwd: _project(arrivals.store, sent, cwd) for cwd in said.folders},
            now=now,
            claim=ledger.claim_sent,
            written=written,
            place=partial(place, arrivals.store, rows, said) if rows else None,
        )
        new.update(turns=done.turns, chunks=done.chunks, repeated=done.repeated)
    return new


def _project(store: Store, sent: SentSegment, cwd: str) -> Project:
    """Return the stored project of a folder.

    A device never changes what others reported for a folder with the same path.
    """
    told = sent.projects.get(cwd)
    if told is None:  # a folder of another machine says nothing about a local folder with the same path
        return Project(cwd, name=cwd.replace("\\", "/").rstrip("/").rpartition("/")[2] or cwd)
    here = inbox.project_here(store, cwd)
    if here is not None and here != told and inbox.is_project_of_others(store, cwd, sent.segment.origin.device):
        return Project(cwd, name=told.name)
    return told


def _new_parts(arrivals: Arrivals, segment: Segment, stream: bytes) -> list[Segment]:
    """Return the parts of a segment that are not stored yet, as segments with the ledger's own generations."""
    store, device, key = arrivals.store, segment.origin.device, segment.before.transcript
    state = ledger.state_of(store, device, key)
    sent_as = segment.after.generation
    generation = inbox.file_generation(store, device, key, stream, sent_as)
    if state is None:
        return [_as_generation(segment, generation)]
    known = _overlap(store, state, segment, generation)
    if known and not _agrees(arrivals, state, known, segment):
        generation = _version_of(arrivals, state, segment, stream, generation)
        known = _overlap(store, state, segment, generation)
    return _without(_as_generation(segment, generation), [(low, high) for _, low, high in known])


def _overlap(
    store: Store, state: ledger.TranscriptState, segment: Segment, generation: int
) -> list[tuple[int, int, int]]:
    return ledger.covered(store, state.id, generation, segment.pieces[0].start, segment.pieces[-1].end)


def _version_of(
    arrivals: Arrivals, state: ledger.TranscriptState, segment: Segment, stream: bytes, refused: int
) -> int:
    """Return the generation of the file version that a segment continues: one that holds its lines, or a new one."""
    store, device, key = arrivals.store, segment.origin.device, segment.before.transcript
    sent_as = segment.after.generation
    for generation in (sent_as, *inbox.forked_generations(store, device, key, sent_as)):
        if generation != refused:
            known = _overlap(store, state, segment, generation)
            if known and _agrees(arrivals, state, known, segment):
                inbox.use_generation(store, device, key, stream, sent_as, generation)
                return generation
    return inbox.fork_file(store, device, key, stream, sent_as)


def _as_generation(segment: Segment, generation: int) -> Segment:
    if segment.after.generation == generation:
        return segment
    return segment._replace(after=segment.after._replace(generation=generation))


def _agrees(
    arrivals: Arrivals, state: ledger.TranscriptState, known: list[tuple[int, int, int]], segment: Segment
) -> bool:
    """Return True if the stored lines equal the incoming ones wherever both are present."""
    rows = {row.id: row for row in checks.ledger_rows(arrivals.store, state.id)}
    # Lines may be missing on one side only because they were forgotten there.
    may_lack = is_anything_forgotten(arrivals.store) or any(one.rule == BY_FORGETTING for one in segment.pieces)
    for ident, low, high in known:
        coming = _lines_between(segment, low, high)
        if coming is None or (coming and not _row_agrees(arrivals, state, rows[ident], coming, may_lack=may_lack)):
            return False
    return True


def _row_agrees(
    arrivals: Arrivals, state: ledger.TranscriptState, row: checks.LedgerRow, coming: list[bytes], *, may_lack: bool
) -> bool:
    if row.state != "captured":  # private lines stay private, also if a copy of the device sends them
        return not _are_others(arrivals.store, row, coming)
    if row.clean_hash is not None and not row.length:
        return True
    clean = archive.text_of(arrivals.ldm_home / str(state.archive), archive.Frame(row.offset, row.length))
    if clean is None:  # `verify` reports damage; until then the stored lines count as unchanged
        return True
    here = [line for line in clean.split(b"\n")[:-1] if line.strip()]
    return _holds_run(here, coming) or (may_lack and _holds(here, coming))


def _are_others(store: Store, row: checks.LedgerRow, coming: list[bytes]) -> bool:
    """Return True if the lines certainly differ from the lines that were not stored here.

    Only the ids of private lines are known. A line without an id counts as private.
    """
    if row.state == "skipped":
        return row.rule == BLANK
    uuids = [uuid for line in coming if (uuid := find_facts(line).uuid) is not None]
    return any(not privacy.is_private_line(store, uuid) for uuid in uuids)


def _lines_between(segment: Segment, low: int, high: int) -> list[bytes] | None:
    """Return the captured lines of a segment that begin in [low, high), or None if the bounds cut through a line."""
    lines = []
    for piece in segment.pieces:
        if piece.state == "captured":
            begins = set(line_starts(piece))
            if any(piece.start < cut < piece.end and cut not in begins for cut in (low, high)):
                return None
        lines += [line for offset, line in piece.lines if low <= offset < high]
    return lines


def _holds(here: list[bytes], coming: list[bytes]) -> bool:
    """Return True if the ``coming`` lines occur in ``here``, in this order."""
    rest = iter(here)
    return all(line in rest for line in coming)


def _holds_run(here: list[bytes], coming: list[bytes]) -> bool:
    """Return True if the ``coming`` lines occur in ``here`` consecutively."""
    return b"\n".join((b"", *coming, b"")) in b"\n".join((b"", *here, b""))


def _without(segment: Segment, known: list[tuple[int, int]]) -> list[Segment]:
    """Return the segment without the stored ranges: one segment for each part between them."""
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
        pieces = tuple(cut for piece in segment.pieces if (cut := cut_piece(piece, low, high)) is not None)
        parts.append(
            segment._replace(pieces=pieces, after=segment.after.at(high), findings=() if parts else segment.findings)
        )
    return parts
