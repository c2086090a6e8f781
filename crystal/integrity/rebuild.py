"""Rebuild the rows of a database from archive files, if it was lost or is older than its archive.

Private lines are not in the archive. So a transcript that is still on disk is not read again up to its last archived
line: the bytes of these lines count as archived, as private if they are known to be, or else as from before crystal,
which backfill imports. The next sweep captures the rest, using the known private ranges; if those are unknown, all
lines that are not archived are left out until the user imports them.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from crystal.capture import finder, tail
from crystal.capture.engine import Capture, Tally
from crystal.errors import CrystalError
from crystal.ingest import archive
from crystal.ingest.result_names import name_results
from crystal.ingest.said_by_agent import leave_to_agent, repeated_turns
from crystal.integrity.resume_point import RECOVERED, find_resume_point, lines_in, set_resume_point
from crystal.integrity.revisions import revised_in
from crystal.integrity.verify import ledger_faults, lines_of, missing_turns, turns_in
from crystal.model.capture import PRIVACY_LOST, Origin, Project, Turn, Watermark
from crystal.store import Store
from crystal.store.capture import ledger, ledger_rebuild, snapshots, turns
from crystal.store.capture.snapshots import SeenRecord
from crystal.store.forget.forgetting import Tombstone, add_tombstones, is_line_forgotten
from crystal.store.health import checks
from crystal.store.health.salvage import device_of_agent
from crystal.text import chunking
from crystal.transcript.framing import end_of_lines
from crystal.transcript.line_context import Context, parse_completed, without_context
from crystal.transcript.messages import SnapshotReader
from crystal.transcript.reader import FORGOTTEN, find_facts, identify, is_forgotten, reader_of, split_key

FindProject = Callable[[str], Project]
_SUFFIXES = re.compile(r"(\+\d+)?$")
"""Suffix of an archive rewritten without forgotten lines, see archive.next_name."""
_KEY_END = re.compile("~[0-9a-f]{8}$")
"""Suffix of a key that was in use for another archive, see ledger_rebuild.begin_archived."""


@dataclass(slots=True)
class RebuildResult:
    """Result of a rebuild: number of turns, unreadable bytes by archive file, and bytes that only transcripts have.

    ``unread`` names the transcripts that could not be compared with their archive.
    """

    turns: int = 0
    unreadable: Counter[str] = field(default_factory=Counter)
    not_archived: int = 0
    unread: Tally = field(default_factory=Tally)


@dataclass(frozen=True, slots=True)
class Rebuild:
    """Context of the steps.

    Attributes:
        capture: The machine's capture; its store is rebuilt.
        ldm_home: The folder to which archive paths are relative.
        find_project: Returns the git project of a folder.
        own_agents: Agents of this machine, other than the capture's.
    """

    capture: Capture
    ldm_home: Path
    find_project: FindProject
    own_agents: Collection[str] = ()
    _on_disk: dict[str, finder.TranscriptFile] = field(default_factory=dict)

    @property
    def store(self) -> Store:
        """Return the store that is rebuilt."""
        return self.capture.store

    def take_archive(self, path: Path, taken: RebuildResult) -> None:
        """Read one archive file, in one transaction.

        Ledger rows recovered from the damaged database are kept if they agree with the file. Otherwise the lines are
        counted from 0, and the transcript on disk is compared with them.
        """
        store, name = self.store, path.relative_to(self.ldm_home).as_posix()
        with store.transaction():
            self._block_again(path)
            state = ledger_rebuild.state_archived_in(store, name) or self._misnamed(path, name)
            if state is not None and not self._is_named_rightly(state, path):
                ledger_rebuild.forget_transcript(store, state.id)
                state = None
            if state is not None and self._agrees(state, path):
                for row in (row for row in checks.ledger_rows(store, state.id) if row.length):
                    text = archive.text_of(path, archive.Frame(row.offset, row.length))
                    if text is None:
                        taken.unreadable[str(path)] += row.length
                    else:
                        taken.turns += write_turns(
                            store, state, row.id, row.start, text, self.find_project, self.ldm_home
                        )
                if self._is_recognised(state):
                    return
            else:
                state = self._begin(state, path, name)
                self._take_frames(state, path, 0, taken)
                name_results(store, self.ldm_home, state)
            if state.origin.device == self.capture.device:
                self._compare_with_disk(state, taken)

    def take_tail(self, state: ledger.TranscriptState, taken: RebuildResult) -> None:
        """Read the frames at the end of an archive that are not in the ledger, in one transaction."""
        with self.store.transaction():
            self._take_frames(
                state, self.ldm_home / str(state.archive), ledger.archive_end(self.store, state.id), taken
            )

    def leave_to_transcript(self, state: ledger.TranscriptState) -> int | None:
        """Drop the rows of lost frames, so that their lines are read from the transcript again.

        Returns:
            How many bytes of the transcript only backfill imports; None if nothing was changed: every frame is
            readable, or the transcript cannot be read on this disk, or does not consist of lines.
        """
        if state.archive is None or state.origin.device != self.capture.device or state.mark.counts_records:
            return None
        path, taken = self.ldm_home / state.archive, RebuildResult()
        rows = [row for row in checks.ledger_rows(self.store, state.id) if row.length]
        lost = [row for row in rows if not _is_kept(path, row)]
        if not lost:
            return None
        with self.store.transaction():
            if not self._compare_with_disk(state, taken):
                return None
            ledger_rebuild.drop_rows(self.store, [row.id for row in lost])
            frames = [archive.Frame(row.offset, row.length) for row in rows]
            for row in lost:
                archive.void(path, archive.Frame(row.offset, row.length), frames)
            return taken.not_archived

    # -- one archive -------------------------------------------------------------------------------------------------

    def _agrees(self, state: ledger.TranscriptState, path: Path) -> bool:
        """Return True if the ledger's rows are contiguous and place every readable frame."""
        rows = checks.ledger_rows(self.store, state.id)
        if any(ledger_faults(state, rows)):
            return False
        placed = {(row.offset, row.length): row.clean_hash for row in rows if row.length}
        end = max((offset + length for offset, length in placed), default=0)
        for frame, text in archive.placed_frames(path):
            told = placed.pop((frame.offset, frame.length), None)
            if text is None:
                return True  # if the file is damaged, only these rows show its former content
            if told is None and frame.offset < end and text.strip():
                return False
            if told is not None and hashlib.sha256(text).digest() != told:
                return False
        return not placed

    def _misnamed(self, path: Path, name: str) -> ledger.TranscriptState | None:
        """Write a file's name into its transcript's row if that names a missing file; return the transcript."""
        states = [one for one in ledger.all_states(self.store) if one.archive is not None]
        astray = [one for one in states if not (self.ldm_home / str(one.archive)).exists()]
        if not astray:
            return None
        key, _ = self._origin(path)
        is_whole = all(text is not None for _, text in archive.placed_frames(path))
        found = next((one for one in astray if one.mark.transcript == key), None) or next(
            (one for one in astray if is_whole and ledger.archive_end(self.store, one.id) and self._agrees(one, path)),
            None,
        )
        if found is not None:
            ledger.set_archive(self.store, found.id, name)
        return ledger_rebuild.state_archived_in(self.store, name)

    def _is_named_rightly(self, state: ledger.TranscriptState, path: Path) -> bool:
        """Return False if the key or the origin of a transcript is damaged: it is not what its archive's path tells.

        Under another name the transcript on disk would count as new, and be archived again.
        """
        own, (name, told), key = state.origin, self._origin(path), _KEY_END.sub("", state.mark.transcript)
        stem, with_device = (archive.file_name(one).removesuffix(".jsonl.zst") for one in (key, f"{key}--{own.device}"))
        return (
            (name in {stem, with_device} or name.startswith(f"{stem}--"))
            and own.agent == told.agent
            and (own.device == told.device or own.agent != self.capture.agent)
            and (own.session_id == told.session_id or turns.harness_of(self.store, own.session_id) is not None)
        )

    def _begin(self, known: ledger.TranscriptState | None, path: Path, name: str) -> ledger.TranscriptState:
        """Create a transcript of which only the archive is known."""
        if known is not None:
            ledger_rebuild.forget_rows(self.store, known.id)
            origin, key = known.origin, known.mark.transcript
        else:
            key, origin = self._origin(path)
        nowhere, now = str(self.ldm_home / RECOVERED / f"{key}.jsonl"), self.capture.clock()
        generation = 0 if origin.device == self.capture.device else ledger.UNPLACED
        return ledger_rebuild.begin_archived(self.store, origin, nowhere, key, name, now, generation)

    def _origin(self, path: Path) -> tuple[str, Origin]:
        """Return the key and the origin of an archive, from its name, or else from its lines."""
        folder = next(parent for parent in path.parents if parent.name == "transcripts")
        agent = folder.parent.parent.name
        key = _SUFFIXES.sub("", path.relative_to(folder).as_posix().removesuffix(".jsonl.zst"))
        harness, session, name = split_key(key)
        reader = reader_of(harness)
        _, owner, subagent = reader.identify(reader.path_of(session, name))
        if owner is None or not reader.is_session_id(owner):
            named, by_lines = reader.owner(lines_in(path), Context())
            on_disk = self._on_disk_of(key) if named is None and agent == self.capture.agent else None
            if on_disk is not None:  # the archive has no line that names it any more
                return key, self.capture.origin_of(on_disk.path)[1]
            owner, subagent = named or owner or key, subagent or by_lines
        is_own = agent in (self.capture.agent, *self.own_agents) or self._on_disk_of(key) is not None
        device = device_of_agent(self.store, agent) or (
            self.capture.device if is_own else ledger_rebuild.unknown_owner(agent)
        )
        return key, Origin(agent, device, owner, subagent, harness)

    def _take_frames(self, state: ledger.TranscriptState, path: Path, start: int, taken: RebuildResult) -> None:
        """Write rows and turns of the frames from an offset on, after the rows of the ledger.

        The places of another machine's lines are not known, see ``ledger.UNPLACED``.
        """
        generation, at = state.mark.generation, state.mark.offset
        if state.origin.device != self.capture.device:
            generation, at = ledger.UNPLACED, ledger_rebuild.end_of_unplaced(self.store, state.id)
        for frame, text in archive.placed_frames(path, start):
            if text is None:
                taken.unreadable[str(path)] += frame.length
                continue
            sha = hashlib.sha256(text).digest()
            raw = self.capture.cleaner.hash(text)
            kept = ledger.CapturedRange(at, at + len(text), raw, frame.offset, frame.length, sha, len(text))
            ident = ledger.add_captured(self.store, state.id, generation, kept, self.capture.clock())
            taken.turns += write_turns(self.store, state, ident, at, text, self.find_project, self.ldm_home)
            snapshots.put_records(self.store, state.id, records_in(text, state.origin.harness))
            at += len(text)
        if generation == state.mark.generation:
            mark = Watermark(state.mark.transcript, at, 0, 0, generation, b"")
            ledger.move_mark(self.store, state.id, state.path, mark, self.capture.clock())

    # -- what is private, or forgotten -------------------------------------------------------------------------------

    def _on_disk_of(self, key: str) -> finder.TranscriptFile | None:
        """Return the transcript on disk with a key; None if it is gone."""
        if not self._on_disk:
            roots, folders = self.capture.roots, self.capture.folders
            for one in finder.all_transcripts(roots):
                self._on_disk[identify(one.path, finder.root_of(one.path, folders).harness).key] = one
        return self._on_disk.get(key)

    def _is_recognised(self, state: ledger.TranscriptState) -> bool:
        """Return False if capture would read a transcript again from its start: its watermark may be damaged, too.

        One that cannot be read is taken for the same: the sweep names it, and the rest is rebuilt.
        """
        found = self._on_disk_of(state.mark.transcript)
        if found is None:
            return True
        with suppress(CrystalError, OSError), finder.opened(found.path) as file:
            mark = tail.recognise(file, found, state.mark, self.capture.cleaner)
            return mark.generation == state.mark.generation
        return True

    def _compare_with_disk(self, state: ledger.TranscriptState, taken: RebuildResult) -> bool:
        """Set the watermark after the last archived line of the transcript on disk; False if it cannot be read."""
        found = self._on_disk_of(state.mark.transcript)
        if found is None:
            return False
        try:
            point = find_resume_point(self.capture, self.ldm_home, state, found)
        except (CrystalError, OSError) as error:  # capture compares it when it can be read
            taken.unread.fail(found.path, error)
            return False
        taken.not_archived += set_resume_point(self.capture, state, found, point)
        return True

    def _block_again(self, path: Path) -> None:
        """Block lines again if the rest of them in the archive shows that they were forgotten."""
        frames = (text for _, text in archive.placed_frames(path) if text and FORGOTTEN.encode() in text)
        lines_left = (line for text in frames for line in text.split(b"\n") if is_forgotten(line))
        facts = [find_facts(line) for line in lines_left]
        lines = sorted({one.uuid for one in facts if one.uuid and not is_line_forgotten(self.store, one.uuid)})
        if not lines:
            return
        sessions = sorted({one.session_id for one in facts if one.session_id})
        uid = hashlib.sha256("\n".join((path.name, *lines)).encode("utf-8", "surrogatepass")).hexdigest()[:32]
        value = {"lines": lines, "sessions": sessions}
        now = self.capture.clock()
        add_tombstones(self.store, [Tombstone(uid, "lines", value, None, now, self.capture.device)], now)


def _is_kept(path: Path, row: checks.LedgerRow) -> bool:
    """Return True if an archive still has the lines of a ledger row."""
    text = archive.text_of(path, archive.Frame(row.offset, row.length))
    return text is not None and hashlib.sha256(text).digest() == row.clean_hash


def leave_out_rest(capture: Capture) -> int:
    """Mark everything in transcripts that is not archived as left out. Return the number of bytes.

    For a database without information on private lines: ``ledger_rebuild.let_in`` makes them available to backfill.
    One that cannot be read counts whole; capture compares it with its archive when it can be read.
    """
    capture.meet()
    for found in finder.all_transcripts(capture.roots):
        state = capture.state_for(found)
        end, tail_hash = max(found.size, 0 if state is None else state.mark.offset + 1), b""
        with suppress(CrystalError, OSError), finder.opened(found.path) as file:
            end = end_of_lines(file, found.size)
            tail_hash = tail.tail_hash(file, end, capture.cleaner)
        with capture.store.transaction():
            if state is None:
                key, origin = capture.origin_of(found.path)
                mark = Watermark(key, end, found.dev, found.inode, 0, tail_hash)
                ledger.mark_seen(capture.store, origin, str(found.path), mark, capture.clock())
            elif state.mark.offset < end:
                ledger_rebuild.skip_to(capture.store, state, end, tail_hash, capture.clock())
    left_out = ledger_rebuild.leave_out(capture.store)
    for state in filter(partial(_is_absent, capture), ledger.all_states(capture.store)):
        with capture.store.transaction():  # one byte says so, should the transcript come back
            stop, now = state.mark.offset + 1, capture.clock()
            ledger_rebuild.skip_to(capture.store, state, stop, b"", now, PRIVACY_LOST)
    return left_out


def _is_absent(capture: Capture, state: ledger.TranscriptState) -> bool:
    """Return True for a transcript of this machine that consists of lines and was not on disk."""
    is_own = state.origin.device == capture.device and Path(state.path).parent.name == RECOVERED
    is_known = ledger.left_out(capture.store, state) is not None
    return is_own and not is_known and not isinstance(reader_of(state.origin.harness), SnapshotReader)


def _drop_revised(store: Store, row: int, clean: bytes, again: Collection[str]) -> bool:
    """Delete the turns of records that the lines replace, if those are written again or later than the turns.

    Return whether there were any: all that the lines say of these records is missing now.
    """
    older = [one for one in revised_in(clean) if one in again or (checks.newest_row_of(store, one) or row) < row]
    found = checks.turns_with_ids(store, older)
    checks.drop_turns(store, found)
    return bool(found)


def write_turns(
    store: Store,
    state: ledger.TranscriptState,
    row: int,
    start: int,
    clean: bytes,
    find_project: FindProject,
    ldm_home: Path,
    superseded: Collection[str] = (),
) -> int:
    """Write the turns of a ledger row's archived lines that are missing in the store, or differ. Return their number.

    Runs inside a transaction. ``superseded`` are ids of records that later rows replace: their turns are not written.
    """
    lines, repeated = lines_of(clean), repeated_turns(store, ldm_home, state.origin)

    def missing_now() -> list[tuple[Turn, int | None]]:
        found = missing_turns(store, row, start, lines, state, repeated)
        return [one for one in found if one[0].uuid not in superseded]

    missing = missing_now()
    if _drop_revised(store, row, clean, {turn.uuid for turn, _ in missing}):
        missing = missing_now()
    again = {turn.uuid for turn, _ in missing}
    checks.drop_turns(store, [ident for _, ident in missing if ident is not None])
    said = [(turn, row, chunking.split(turn.text)) for turn, _ in missing]
    others = [turn for turn in turns_in(lines, start, state) if turn.uuid not in again]
    # A line that is stored with another session is recorded as a copy.
    said += [(turn, row, []) for turn in others if checks.has_turn(store, turn.uuid, turn.part)]
    projects = {turn.cwd: find_project(turn.cwd) for turn, *_ in said if turn.cwd}
    title = reader_of(state.origin.harness).title([(start, line) for line in lines])
    added = turns.add_turns(store, state.origin, said, projects, title)
    leave_to_agent(store, ldm_home, state.origin, repeated)
    return added.turns


def records_in(text: bytes, harness: str) -> list[SeenRecord]:
    """Return the records in archived lines of a harness that rewrites its files, as recovered."""
    if not isinstance(reader_of(harness), SnapshotReader):
        return []
    contexts = [(line, parse_completed(line)[1].id or "") for line in text.split(b"\n")]
    found = {ident.partition(":")[2]: line for line, ident in contexts if ident}
    return [SeenRecord(ident, "recovered", None, len(without_context(line)) + 1) for ident, line in found.items()]
