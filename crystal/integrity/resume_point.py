"""Find where capture goes on in a transcript of which a rebuild knew the archive alone."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from crystal.capture import finder, tail
from crystal.capture.before_crystal import end_of_old_lines
from crystal.capture.engine import Capture
from crystal.capture.privacy import BY_COPY
from crystal.errors import WatermarkMovedError
from crystal.ingest import archive
from crystal.integrity.archived_lines import ArchivedLines
from crystal.model.capture import BEFORE_CRYSTAL, Watermark
from crystal.model.named_tuple import NamedTuple
from crystal.store.capture import ledger, privacy
from crystal.transcript.framing import end_of_lines
from crystal.transcript.reader import reader_of

RECOVERED = "recovered"
"""Name of the folder, which does not exist, in which the transcripts are whose archive alone is known."""


class ResumePoint(NamedTuple):
    """The watermark from which capture continues in a transcript, and the bytes before it as (first, end, rule)."""

    mark: Watermark
    stretches: tuple[tuple[int, int, str], ...]


def find_resume_point(
    capture: Capture, ldm_home: Path, state: ledger.TranscriptState, found: finder.TranscriptFile
) -> ResumePoint:
    """Compare a transcript on disk with its archive: capture goes on after its last archived line.

    If the record of what is private was lost, older lines after that are left out, too.

    Raises:
        CrystalError, FileNotFoundError: The transcript cannot be read.
    """
    store, cleaner, reader = capture.store, capture.cleaner, reader_of(state.origin.harness)
    lost = ledger.left_out(store, state) if state.mark.counts_records else None
    lines = lines_in(ldm_home / str(state.archive))
    archived = ArchivedLines(lines, reader, cleaner, lambda uuid: privacy.is_private_line(store, uuid))
    with finder.opened(found.path) as file:
        end = end_of_lines(file, found.size)
        file.seek(0)
        # A transcript of which nothing is archived counts as older than crystal, as at the first installation.
        stretches = archived.stretches(file, end) or [(0, end, BEFORE_CRYSTAL)] * bool(end)
        kept = stretches[-1][1] if stretches else 0
        if lost is not None:
            stretches = [(*one[:2], lost.rule if one[2] == BEFORE_CRYSTAL else one[2]) for one in stretches]
            stop = end_of_old_lines(file, found.size, reader, lost)
            stretches += [(kept, stop, lost.rule)] if stop > kept else []
            kept = max(kept, stop)
        tail_hash = tail.tail_hash(file, kept, cleaner)
    mark = Watermark(state.mark.transcript, kept, found.dev, found.inode, state.mark.generation + 1, tail_hash)
    return ResumePoint(mark, tuple(stretches))


def set_resume_point(
    capture: Capture, state: ledger.TranscriptState, found: finder.TranscriptFile, point: ResumePoint
) -> int:
    """Set a transcript's watermark and its rows; return the bytes for backfill. Inside a transaction."""
    store, now = capture.store, capture.clock()
    ledger.move_mark(store, state.id, str(found.path), point.mark, now)
    for start, stop, rule in point.stretches:
        kind = "private" if rule == BY_COPY else "skipped"
        ledger.add_row(store, state.id, point.mark.generation, start, stop, kind, rule, now)
    return sum(stop - start for start, stop, rule in point.stretches if rule == BEFORE_CRYSTAL)


def resume_rebuilt(
    capture: Capture, ldm_home: Path, state: ledger.TranscriptState, found: finder.TranscriptFile
) -> None:
    """Do both for a transcript that the rebuild could not read, or that was not there then.

    Raises:
        CrystalError, FileNotFoundError: The transcript cannot be read.
        WatermarkMovedError: Another process did it.
    """
    point = find_resume_point(capture, ldm_home, state, found)
    with capture.store.transaction():
        if ledger.state_of(capture.store, state.origin.device, state.mark.transcript) != state:
            raise WatermarkMovedError(f"{found.path}: compared with its archive by another process")
        set_resume_point(capture, state, found, point)


def lines_in(path: Path) -> Iterable[bytes]:
    """Yield every line of an archive; none if the file is missing."""
    frames = archive.placed_frames(path) if path.exists() else ()
    return (line for _, text in frames for line in (text or b"").split(b"\n"))
