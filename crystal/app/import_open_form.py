"""Import what ``crystal export --as jsonl`` wrote: the archived lines, with the origin that they had.

Lines that are archived here already, were forgotten, or are private here are left out, so importing again adds nothing.
Secrets are taken out again: the file may come from anybody.

Source: docs/spec/export-format.md, section 4.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path

from crystal.app.capture_engine import make_capture
from crystal.app.context import Machine
from crystal.app.project_finder import project_finder
from crystal.capture.engine import Capture, Tally
from crystal.config.harnesses import HARNESSES
from crystal.errors import UnavailableError, UsageError
from crystal.export.archived import stretches
from crystal.export.form import LineRecord, StretchRecord, TranscriptRecord, read_export
from crystal.ingest import archive
from crystal.ingest.forgotten_filter import forgotten_among
from crystal.ingest.ingest import prepare, write
from crystal.integrity.rebuild import records_in
from crystal.model.capture import Finding, Origin, Project, Segment, SegmentPiece, Watermark
from crystal.store import Store
from crystal.store.capture import ledger, snapshots
from crystal.store.forget.forgetting import read_blocks
from crystal.store.sync.relay_peers import home_peer
from crystal.transcript.reader import reader_of

BATCH_BYTES = 4 << 20
BATCH_STRETCHES = 500


@dataclass(slots=True)
class _Transcript:
    """A transcript of the file; ``known`` counts the lines of it that were archived here before, by their hash."""

    key: str
    origin: Origin
    known: Counter[bytes]


@dataclass(frozen=True, slots=True)
class _Stretch:
    """A stretch of the file with its lines, each with its offset."""

    of: _Transcript
    place: StretchRecord
    lines: list[tuple[int, bytes]] = field(default_factory=list)


def import_export(machine: Machine, path: Path, progress: Callable[[int], None]) -> Tally:
    """Import a file of the open form. It can be stopped anywhere and run again.

    Args:
        machine: This machine, open for writing.
        path: The file, see ``crystal.export.form.is_export``.
        progress: Told the bytes of the file that were read.

    Raises:
        UsageError: It is no export, or this machine sends its memory to home.
        DamagedError: It is cut off or malformed; what came before stays imported.
        StoreFullError, StoreBusyError, UnavailableError: What came before stays imported.
    """
    if machine.config.role == "device" and home_peer(machine.store) is not None:
        raise UsageError("this machine's memory is kept by its home", hint="run the same command on the home machine")
    tally = Tally(files=1)
    take = _Import(machine, make_capture(machine, "past"), cache(project_finder(machine.store)), tally)
    batch, size = list[_Stretch](), 0
    with machine.store.importing():
        try:
            for stretch in _stretches(machine, path, tally, progress):
                batch.append(stretch)
                size += sum(len(line) for _, line in stretch.lines)
                if size >= BATCH_BYTES or len(batch) >= BATCH_STRETCHES:
                    take.take(batch)
                    batch, size = [], 0
        finally:  # the stretches before a malformed record, too
            take.take(batch)
    return tally


def _stretches(machine: Machine, path: Path, tally: Tally, progress: Callable[[int], None]) -> Iterator[_Stretch]:
    """Yield the stretches of a file; ``tally`` gets the transcripts that cannot be read here."""
    current: _Transcript | None = None
    stretch: _Stretch | None = None
    for record, size in read_export(path):
        if stretch is not None and not isinstance(record, LineRecord):
            yield stretch
            stretch = None
        if isinstance(record, TranscriptRecord):
            current = _transcript(machine, record, tally)
        elif isinstance(record, StretchRecord) and current is not None:
            stretch = _Stretch(current, record)
        elif isinstance(record, LineRecord) and stretch is not None:
            stretch.lines.append((record.offset, record.line))
        progress(size)


def _transcript(machine: Machine, record: TranscriptRecord, tally: Tally) -> _Transcript | None:
    """Return a transcript with the lines of it that are archived here, None if no reader here knows its agent."""
    if record.harness not in HARNESSES:
        tally.fail(Path(record.key), UnavailableError(f"transcripts of {record.harness} cannot be read here"))
        return None
    machine.places.agent_folder(record.agent)  # refuses what is no name of a folder
    origin = Origin(record.agent, record.device, record.session, record.subagent, record.harness)
    state = ledger.state_of(machine.store, record.device, record.key)
    known: Counter[bytes] = Counter()
    if state is not None and state.archive is not None:
        for stretch in stretches(machine.store, state, machine.places.ldm_home):
            known.update(_hash(line.raw) for line in stretch.lines)
    return _Transcript(record.key, origin, known)


def _hash(line: bytes) -> bytes:
    return hashlib.sha256(line).digest()


@dataclass(frozen=True, slots=True)
class _Import:
    """Writes stretches into a machine's memory."""

    machine: Machine
    capture: Capture
    find_project: Callable[[str], Project]
    tally: Tally

    def take(self, batch: list[_Stretch]) -> None:
        """Write some stretches in one transaction."""
        store, written = self.machine.store, archive.Written()
        with store.transaction():
            for stretch in batch:
                self._take(stretch, written)
            archive.make_durable(written)

    def _take(self, stretch: _Stretch, written: archive.Written) -> None:
        lines, findings = self._new_lines(stretch)
        if not lines:
            return
        segment = self._segment(stretch, lines, findings)
        prepared = prepare(segment)
        report = write(
            self.machine.store,
            segment,
            prepared,
            ldm_home=self.machine.places.ldm_home,
            archive_folder=self.machine.places.agent_folder(stretch.of.origin.agent) / "transcripts",
            projects={cwd: self.find_project(cwd) for cwd in prepared.folders},
            now=self.machine.now(),
            claim=partial(_claim, harness=stretch.of.origin.harness),
            written=written,
        )
        self.tally.add(report)

    def _new_lines(self, stretch: _Stretch) -> tuple[list[tuple[int, bytes]], Counter[str]]:
        """Return the lines that are to be stored, cleaned, and the secrets that were found in them."""
        of, findings = stretch.of, Counter[str]()
        cleaned: list[tuple[int, bytes]] = []
        if stretch.lines:
            raw = b"".join(line + b"\n" for _, line in stretch.lines)
            for (at, _), (line, found) in zip(stretch.lines, self.capture.cleaner.clean_lines(raw), strict=True):
                findings.update(found)
                cleaned.append((at, line))
        left_out = self._left_out(stretch, cleaned)
        kept = []
        for at, line in cleaned:
            digest = _hash(line)
            if of.known[digest]:
                of.known[digest] -= 1
            elif at not in left_out and line.strip():
                kept.append((at, line))
        return kept, findings

    def _left_out(self, stretch: _Stretch, lines: list[tuple[int, bytes]]) -> frozenset[int]:
        """Return the offsets of the lines that were forgotten here, or are private by what is known here."""
        store, of, capture = self.machine.store, stretch.of, self.capture
        blocks = read_blocks(store)
        forgotten = forgotten_among(blocks, lines, of.origin, of.key) if blocks is not None else frozenset()
        # The times at which capture was off are those of this machine, not of the one that exported.
        policy = capture.policy()._replace(marks=())
        if policy.is_open(of.origin.session_id):
            return forgotten
        reader = reader_of(of.origin.harness)
        facts = [reader.facts(line) for _, line in lines]
        reasons = policy.reasons(of.origin, facts, first=stretch.place.start == 0, inherited=None)
        return forgotten | {at for (at, _), reason in zip(lines, reasons, strict=True) if reason is not None}

    def _segment(self, stretch: _Stretch, lines: list[tuple[int, bytes]], findings: Counter[str]) -> Segment:
        of, start = stretch.of, stretch.place.start
        clean = _laid_out(start, lines)
        stop = max(stretch.place.stop, start + 1)
        state = ledger.state_of(self.machine.store, of.origin.device, of.key)
        generation = stretch.place.generation if state is None else self._free_generation(state, stretch.place, stop)
        path = str(self.machine.places.ldm_home / "imported" / f"{of.key}.jsonl") if state is None else state.path
        within = tuple((min(at, stop - 1), line) for at, line in lines)  # contexts made them longer than their file
        piece = SegmentPiece(start, stop, "captured", None, clean, self.capture.cleaner.hash(clean), within)
        before = Watermark(of.key, start, generation=generation)
        told = tuple(Finding(kind, number) for kind, number in sorted(findings.items()))
        return Segment(of.origin, path, before, before._replace(offset=stop), (piece,), told)

    def _free_generation(self, state: ledger.TranscriptState, place: StretchRecord, stop: int) -> int:
        """Return the stretch's generation, or the first one in which nothing has its place.

        Where other lines have it, the file was continued differently on two machines of one name.
        """
        generation = place.generation
        while ledger.covered(self.machine.store, state.id, generation, place.start, stop):
            generation = max(ledger.FORKED_FROM, generation + 1)
        return generation


def _laid_out(start: int, lines: list[tuple[int, bytes]]) -> bytes:
    """Return the lines one after the other at their offsets, where that is possible; a gap is a blank line."""
    clean = bytearray()
    for at, line in lines:
        gap = at - start - len(clean)
        if gap > 0:
            clean += b" " * (gap - 1) + b"\n"
        clean += line + b"\n"
    return bytes(clean)


def _claim(store: Store, segment: Segment, now: int, *, harness: str) -> int:
    """Claim a segment as one that another machine sent, and note its records as known."""
    ident = ledger.claim_sent(store, segment, now)
    found = [one for piece in segment.pieces for one in records_in(piece.clean, harness)]
    if found:
        known = snapshots.seen_records(store, ident)
        snapshots.put_records(store, ident, [one for one in found if one.record not in known])
    return ident
