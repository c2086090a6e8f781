"""Verify that nothing is missing: every byte of every transcript, its copy in the archive, and the data of search.

``verify`` reads and reports; ``repair`` (crystal/integrity/repair.py) fixes. A transcript that Claude Code has deleted
is verified from its archive alone.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from crystal.capture import finder, tail
from crystal.capture.safe_open import Folders
from crystal.capture.unread import unproved_bytes
from crystal.config.harnesses import CLAUDE_CODE, HARNESSES
from crystal.config.paths import refused
from crystal.errors import CrystalError, DamagedError, StoreBusyError, UnavailableError
from crystal.ingest import archive
from crystal.ingest.said_by_agent import Twins, repeated_turns
from crystal.integrity.proof import Fault, FaultKind, Proof
from crystal.integrity.revisions import revised_after
from crystal.model.capture import Turn
from crystal.store import Store
from crystal.store.capture import ledger, snapshots
from crystal.store.capture.snapshots import SUPERSEDED
from crystal.store.forget import forgetting
from crystal.store.health import checks
from crystal.store.memories import learned, memories
from crystal.store.search.vectors import table_of
from crystal.store.work.index import count_faults
from crystal.text import chunking
from crystal.transcript.framing import end_of_lines, read_lines
from crystal.transcript.line_context import revised_ids, without_context
from crystal.transcript.reader import reader_of

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Verification:
    """One run of ``verify``, which reads and compares everything.

    Attributes:
        store: The store, open for writing: archives are compared with it under the write lock.
        ldm_home: The folder to which archive paths are relative.
        device: The machine whose transcripts can be on this disk.
        folders: The folders of transcripts.
        cleaner: The hashes of this store.
        progress: Called with the bytes read.
        proof: The result so far.
    """

    store: Store
    ldm_home: Path
    device: str
    folders: Folders
    cleaner: tail.Cleaner
    progress: Callable[[int], None]
    proof: Proof = field(default_factory=Proof)

    def run(self, unread: Iterable[tuple[Path, int, Exception | None]] = ()) -> Proof:
        """Verify everything.

        Args:
            unread: Files that are rewritten with records that were not captured: their bytes, or why they are
                unreadable.
        """
        proof = self.proof
        proof.faults += [Fault("database", str(self.store.path), text) for text in checks.database_faults(self.store)]
        for listed in ledger.all_states(self.store):
            proof.transcripts += 1
            if listed.origin.harness in HARNESSES:
                self._check_transcript(*_as_of_one_moment(self.store, listed))
                continue
            # Any other name means damage, or a newer crystal on another machine.
            kind: FaultKind = "ledger" if listed.origin.device == self.device else "unreadable"
            words = f"this crystal knows no agent {listed.origin.harness!r}, whose session this is"
            proof.faults.append(Fault(kind, listed.path, words, transcript=listed.id))
        self._find_unseen()
        for path, size, problem in unread:
            if problem is not None:
                self._cannot_read(str(path), problem)
            if size:
                proof.add_behind(str(path), "not captured yet", 0, size)
        proof.faults += self._unknown_archives()
        with self.store.reading():  # one snapshot, because a worker embeds meanwhile
            proof.faults += _index_faults(self.store)
        if wrong_calls := count_faults(self.store):
            proof.faults.append(Fault("work", "work index", f"{wrong_calls} tool calls differ from their text"))
        return proof

    def _cannot_read(self, path: str, error: Exception, transcript: int | None = None, start: int = 0) -> None:
        """Record a file whose bytes after ``start`` cannot be verified."""
        problem = refused(error, Path(path)) if isinstance(error, OSError) else error
        words = problem.message if isinstance(problem, CrystalError) else str(problem)
        words = words.removeprefix(path).lstrip(": ")
        found = finder.look_at(Path(path))
        size = 0 if found is None else unproved_bytes(error, found.size)
        stop = size if size > start else None
        if stop is not None:
            self.proof.count("unreadable", stop - start)
        begin = None if stop is None else start
        self.proof.faults.append(Fault("unreadable", path, words, begin, stop, transcript))

    def _check_transcript(self, state: ledger.TranscriptState, rows: list[checks.LedgerRow]) -> None:
        proof = self.proof
        proof.faults += ledger_faults(state, rows)
        proof.faults += self._archive_faults(state, rows)
        proof.faults += tail_faults(self.store, state, self.ldm_home)
        if state.origin.device == self.device:
            try:
                self._check_file(state, rows)
            except FileNotFoundError:
                proof.files_gone += 1
            except UnavailableError as error:
                self._cannot_read(state.path, error, state.id, state.mark.offset)
        for row in rows:
            if row.generation == state.mark.generation:
                proof.count(row.rule or row.state if row.state == "skipped" else row.state, row.stop - row.start)
        for kind, size in snapshots.bytes_by_state(self.store, state.id).items():
            proof.count(kind, size)
            if kind == SUPERSEDED:
                proof.count("captured", -size)

    def _archive_faults(self, state: ledger.TranscriptState, rows: list[checks.LedgerRow]) -> Iterator[Fault]:
        """Find captured rows whose archived lines differ, or whose turns are not in the store."""
        twins = repeated_turns(self.store, self.ldm_home, state.origin)
        for row in rows:
            if row.state != "captured" or not row.length:
                continue  # a row without a frame: its lines were sent to home, see relay.local_memory
            fault = (row.start, row.stop, state.id, row.id)
            try:
                clean = archive.read_frame(self.ldm_home / str(state.archive), archive.Frame(row.offset, row.length))
            except DamagedError as error:
                now_state, now_rows = _as_of_one_moment(self.store, state)
                if now_state.archive != state.archive:  # rewritten meanwhile, without forgotten lines
                    yield from self._archive_faults(now_state, now_rows)
                    return
                yield Fault("archive", str(state.archive), error.message, *fault)
                continue
            self.progress(row.stop - row.start)
            if hashlib.sha256(clean).digest() != row.clean_hash:
                words = f"frame at byte {row.offset} holds other lines than were captured"
                yield Fault("archive", str(state.archive), words, *fault)
                continue
            lines = lines_of(clean)
            del clean  # a line may be huge
            missing = [turn.uuid for turn, _ in missing_turns(self.store, row.id, row.start, lines, state, twins)]
            if missing and not revised_after(state, rows, row, self.ldm_home).issuperset(missing):
                place = f"bytes {row.start} to {row.stop}"
                words = f"{len(missing)} turns of {place} are not in the store as they were said"
                yield Fault("turns", state.path, words, *fault)

    def _check_file(self, state: ledger.TranscriptState, rows: list[checks.LedgerRow]) -> None:
        """Compare the transcript on disk with the ledger. Records of files that are rewritten are compared elsewhere.

        Raises:
            FileNotFoundError: It is gone.
        """
        found = finder.look_at(Path(state.path))
        if found is None:
            raise FileNotFoundError(state.path)
        root = finder.root_of(found.path, self.folders, state.origin.harness)
        if root.place.form != "lines" or state.mark.counts_records:
            return
        with finder.opened(found.path) as file:
            end = end_of_lines(file, found.size)
            mark = tail.recognise(file, found, state.mark, self.cleaner)
            if mark.generation != state.mark.generation:
                self.proof.add_behind(state.path, "the file was replaced", 0, end, state.id)
                return
            for row in rows:
                if row.generation == mark.generation and row.state == "captured":
                    # The hash of a forgotten line is deleted too: it would confirm a guess.
                    if row.raw_hash and self.cleaner.hash(read_lines(file, row.start, row.stop)) != row.raw_hash:
                        words = f"bytes {row.start} to {row.stop} changed since they were captured"
                        fault = Fault("edited", state.path, words, row.start, row.stop, state.id, row.id)
                        self.proof.faults.append(fault)
                    self.progress(row.stop - row.start)
            self.proof.add_behind(state.path, "not captured yet", mark.offset, end, state.id)

    def _find_unseen(self) -> None:
        """Find transcripts on disk that are missing in the ledger, and unreadable folders."""
        there = finder.all_transcripts(
            self.folders.roots, lambda path, error: self._cannot_read(str(path), error), self.folders
        )
        states = ledger.all_states(self.store, self.device)
        paths = {state.path for state in states}
        # The same file may be in another folder, because of a link.
        same = {(state.mark.dev, state.mark.inode, Path(state.path).name) for state in states}
        for found in there:
            if str(found.path) in paths or (found.dev, found.inode, found.path.name) in same:
                continue
            try:
                with finder.opened(found.path) as file:
                    end = end_of_lines(file, found.size)
            except FileNotFoundError:
                continue
            except UnavailableError as error:
                self._cannot_read(str(found.path), error)
            else:
                self.proof.add_behind(str(found.path), "never seen", 0, end)

    def _unknown_archives(self) -> Iterator[Fault]:
        """Find archive files without a transcript."""
        there = sorted(self.ldm_home.glob("agents/*/memory/transcripts/**/*.jsonl.zst"))
        known = at_rest(self.store, lambda: checks.known_archives(self.store))
        for path in there:
            if path.exists() and path.relative_to(self.ldm_home).as_posix() not in known:
                yield Fault("archive-unknown", str(path), "the store knows nothing of this archive file")


def at_rest(store: Store, read: Callable[[], Result]) -> Result:
    """Return what ``read`` returns while nobody writes, because an archive or a record is written before its rows."""
    try:
        with store.transaction():
            return read()
    except StoreBusyError:
        raise
    except UnavailableError:  # the disk is full or cannot be written, so no process writes an archive now
        return read()


def _as_of_one_moment(
    store: Store, listed: ledger.TranscriptState
) -> tuple[ledger.TranscriptState, list[checks.LedgerRow]]:
    """Return a transcript's watermark and its rows in one snapshot, because capture continues meanwhile."""
    with store.reading():
        state = ledger.state_of(store, listed.origin.device, listed.mark.transcript) or listed
        return state, checks.ledger_rows(store, state.id)


def ledger_faults(state: ledger.TranscriptState, rows: list[checks.LedgerRow]) -> Iterator[Fault]:
    """Find gaps and overlaps: the rows of the present file must be contiguous from 0 to the watermark."""
    at = 0
    for row in rows:
        if row.generation != state.mark.generation:
            continue
        if row.start != at:
            word = "no row covers" if row.start > at else "two rows cover"
            low, high = sorted((at, row.start))
            yield Fault("ledger", state.path, f"{word} bytes {low} to {high}", low, high, state.id, row.id)
        at = row.stop
    if at != state.mark.offset:
        low, high = sorted((at, state.mark.offset))
        words = f"the rows end at {at}, the watermark is {state.mark.offset}"
        yield Fault("ledger", state.path, words, low, high, state.id)


def tail_faults(store: Store, state: ledger.TranscriptState, ldm_home: Path) -> Iterator[Fault]:
    """Find archives longer than the ledger says: the database is older, or a process was killed."""
    if state.archive is None:
        return
    path = ldm_home / state.archive
    end = ledger.archive_end(store, state.id)
    if not path.exists() or path.stat().st_size <= end or not end:
        return
    unknown = [
        turn
        for _, text in archive.placed_frames(path, end)
        for turn in turns_in(lines_of(text or b""), state.mark.offset, state)
        if not is_stored(store, turn) and not forgetting.is_line_forgotten(store, turn.uuid)
    ]
    if unknown and at_rest(store, lambda: _archive_of(store, state)) == (state.archive, end):
        message = f"{len(unknown)} turns at its end are not in the database"
        yield Fault("archive-unknown", str(path), message, transcript=state.id)


def _archive_of(store: Store, listed: ledger.TranscriptState) -> tuple[str | None, int]:
    """Return a transcript's archive and its end according to the ledger, as they are now."""
    state = ledger.state_of(store, listed.origin.device, listed.mark.transcript) or listed
    return state.archive, ledger.archive_end(store, state.id)


def lines_of(clean: bytes) -> list[bytes]:
    """Return the lines of an archived frame, without their newlines."""
    return clean.split(b"\n")[:-1]


def turns_in(lines: Sequence[bytes], start: int, state: ledger.TranscriptState) -> Iterator[Turn]:
    """Return the turns of archived lines.

    Offsets count the cleaned bytes from ``start``: they are exact only if nothing was removed.
    """
    own = lines if state.mark.counts_records else map(without_context, lines)
    starts = itertools.accumulate((len(line) + 1 for line in own), initial=start)
    reader = reader_of(state.origin.harness)
    placed = zip(starts, lines, strict=False)
    return reader.turns(placed, state.mark.transcript, subagent=state.origin.subagent is not None)


def missing_turns(
    store: Store, row: int, start: int, lines: Sequence[bytes], state: ledger.TranscriptState, twins: Twins
) -> list[tuple[Turn, int | None]]:
    """Return the turns of a ledger row's archived lines that are missing in the store or differ, with the id if stored.

    Turns in ``twins`` are in the agent's transcript and not missing. Text and role are compared only for turns captured
    with this row, because the client may have rewritten a line.
    """
    stored = checks.turns_of_row(store, row)
    revised, blocks = revised_ids(lines), forgetting.read_blocks(store)
    missing: list[tuple[Turn, int | None]] = []
    for turn in turns_in(lines, start, state):
        known = stored.get((turn.uuid, turn.part))
        if known is not None and not _says(known, turn):
            missing.append((turn, known.id))
        elif (
            known is not None
            or (turn.uuid, turn.part) in twins
            or _is_elsewhere(store, turn, row, state.origin.harness, revised=revised)
        ):
            continue
        elif blocks is None or not blocks.holds(turn.uuid, state.origin.session_id, turn.timestamp, turn.cwd):
            missing.append((turn, None))
    return missing


def misread_turns(store: Store, row: int, lines: Sequence[bytes], state: ledger.TranscriptState) -> list[int]:
    """Return the row ids of turns that were captured with a ledger row, but that its lines do not say."""
    said = {(turn.uuid, turn.part) for turn in turns_in(lines, 0, state)}
    facts = reader_of(state.origin.harness).facts
    read = {facts(line).uuid for line in lines}  # a line that has no id is known by its place, which may be another now
    stored = checks.turns_of_row(store, row).items()
    return [one.id for key, one in stored if key[0] in read and key not in said]


def _is_elsewhere(store: Store, turn: Turn, row: int, harness: str, *, revised: Collection[str]) -> bool:
    """Return True if a turn that is not stored with its ledger row is stored with another valid row.

    A revised record has turns only with the newest row, possibly fewer than with an earlier one.
    """
    newest = checks.newest_row_of(store, turn.uuid)
    if newest is not None and newest > row and harness != CLAUDE_CODE:
        return True
    return turn.uuid not in revised and is_stored(store, turn)


def _says(known: checks.StoredTurn, turn: Turn) -> bool:
    try:
        return known.role == turn.role and chunking.merge(known.chunks) == turn.text
    except ValueError:
        return False


def is_stored(store: Store, turn: Turn) -> bool:
    """Return True if a turn is in the store: by its uuid, or by its text if its line has none.

    A uuid derived from a line's offset differs if secrets were removed before the line.
    """
    if checks.has_turn(store, turn.uuid, turn.part):
        return True
    return turn.uuid.startswith("line-") and checks.has_text(store, chunking.split(turn.text)[0].text)


def _index_faults(store: Store) -> Iterator[Fault]:
    if wrong := checks.chunks_with_wrong_hash(store):
        yield Fault("chunks", "chunks", f"texts that are not what was stored: {len(wrong)}")
    if bare := checks.count_turns_without_chunks(store):
        yield Fault("chunks", "turns", f"turns without text: {bare}")
    if lost := memories.memories_with_other_chunks(store):
        yield Fault("chunks", "memories", f"memories that search does not find as they are: {len(lost)}")
    if taught := learned.falsely_taught(store):
        message = f"lines that taught these are not stored, or damaged: {', '.join(taught[:9])}"
        yield Fault("memories", "learned_from", message)
    if read := learned.sessions_read_too_far(store):
        yield Fault("memories", "sessions", f"nothing more is learned from these sessions: {', '.join(read[:9])}")
    for faults in checks.vector_faults(store):
        message = f"{len(faults.stray)} vectors without a chunk, {len(faults.missing)} chunks without their vector"
        message += f", {faults.lost} vectors not in their place" if faults.lost else ""
        yield Fault("vectors", table_of(faults.generation), message)
