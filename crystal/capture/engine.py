"""Capture service: process the hook's notes, sweep for lines that no note reported, import past transcripts.

Every way ends in the same step: read from the watermark, make a Segment, give it to the sink. The sink (ingest on the
home machine, the outbox on others) moves the watermark in its own transaction, so a process may die anywhere here.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path, PurePath
from typing import BinaryIO

from crystal.capture import finder, tail
from crystal.capture.before_crystal import leave_out_again
from crystal.capture.meeting import meet
from crystal.capture.privacy import BY_ECHO, Policy
from crystal.capture.safe_open import Folders
from crystal.config.harnesses import Root
from crystal.errors import CrystalError, StoreBusyError, StoreDamagedError, StoreFullError, WatermarkMovedError
from crystal.ingest.ingest import Claim, IngestReport
from crystal.model.capture import Origin, Segment, Watermark
from crystal.model.named_tuple import NamedTuple
from crystal.store import Store
from crystal.store.capture import ledger, privacy
from crystal.store.forget import forgetting
from crystal.transcript.framing import read_segment
from crystal.transcript.line_context import Context
from crystal.transcript.reader import MISTAKES, TranscriptReader, identify, named_mistake, reader_of

MAX_RACES = 50
FIRST_LINES = 50
FIRST_BYTES = 4 << 20
MAX_SIDE_BYTES = 1 << 20

Sink = Callable[[Segment, Claim], IngestReport]
"""Stores a segment, or sends it, and moves the watermark by the claim."""


class Tally:
    """Result of a run: counts of files, bytes and rows; ``problems`` are unreadable files with the reason."""

    def __init__(self, *, files: int = 0, problems: dict[str, str] | None = None) -> None:
        self.files = files
        self.bytes_captured = self.bytes_private = self.turns = self.chunks = 0
        self.problems = problems

    def __repr__(self) -> str:
        return f"Tally({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    def join(self, other: Tally) -> None:
        """Add the result of another run."""
        self.files += other.files
        self.add(other)
        if other.problems:
            self.problems = {**(self.problems or {}), **other.problems}

    def add(self, report: IngestReport | Tally) -> None:
        """Count one segment, or another run."""
        self.bytes_captured += report.bytes_captured
        self.bytes_private += report.bytes_private
        self.turns += report.turns
        self.chunks += report.chunks

    def fail(self, path: Path, error: Exception) -> None:
        """Note a file or folder that could not be read."""
        from crystal.capture.refused_files import reason_of  # noqa: PLC0415 - most turns meet no such file

        self.problems = {**(self.problems or {}), str(path): reason_of(path, error)}


class WholeFiles(NamedTuple):
    """Ways to capture files that are rewritten, and databases: ``crystal.capture.snapshots``.

    Attributes:
        meet: Notes what is in a folder as there before crystal, or in some files of it; returns what is unreadable.
        sweep: Captures what is new in some folders.
    """

    meet: Callable[[Capture, Root, Collection[str] | None], set[str]]
    sweep: Callable[[Capture, Sequence[Root], Tally], None]


class Capture(NamedTuple):
    """Capture service of one machine: reads new transcript lines and passes segments to a sink.

    Attributes:
        store: Open for writing.
        sink: Takes each segment and the claim of its bytes.
        cleaner: Takes secrets out and makes hashes.
        agent, device: The origin of what is captured here.
        roots: The agents' folders of transcripts.
        private_projects, private_sessions: Patterns from the settings.
        clock: Gives the time, ms.
        allowed: Patterns of further folders that a hook may name transcripts in.
        anywhere: Whether transcripts may be anywhere: a person has named them.
        announced: Gives the private times that notes tell of which nobody has acted on yet.
        ended: Told of a session that has ended, and when.
        whole_files: Captures files that are not written by lines; None for none.
        projects: The folders of known projects in which an agent keeps conversations.
        resume: Sets the watermark of a transcript of which a rebuild knew the archive alone; False if it is another's.
    """

    store: Store
    sink: Sink
    cleaner: tail.Cleaner
    agent: str
    device: str
    roots: tuple[Root, ...]
    private_projects: tuple[str, ...]
    private_sessions: tuple[str, ...]
    clock: Callable[[], int]
    allowed: tuple[str, ...] = ()
    anywhere: bool = False
    announced: Callable[[], tuple[privacy.PrivatePeriod, ...]] = tuple
    ended: Callable[[str, int], None] = lambda *_: None
    whole_files: Callable[[], WholeFiles] | None = None
    projects: Callable[[], tuple[Root, ...]] = tuple
    resume: Callable[[Capture, ledger.TranscriptState, finder.TranscriptFile], bool] = lambda *_: False

    @property
    def folders(self) -> Folders:
        """Return the folders that transcripts are read from."""
        return Folders(self.roots, self.allowed, self.anywhere)

    def policy(self) -> Policy:
        """Return the privacy rules that hold now.

        Call it after the lines were read: a session's first note exists before its first line.
        """
        announced = self.announced()  # first: acting on a note writes its mark, then removes the note
        return Policy(
            announced + privacy.marks(self.store),
            self.private_projects,
            self.private_sessions,
            lambda uuid: privacy.is_private_line(self.store, uuid),
            privacy.has_private_lines(self.store),
        )

    def with_projects(self) -> Capture:
        """Return a copy that also looks into project folders. The note of a single turn does not need them."""
        return self._replace(roots=(*self.roots, *self.projects()), projects=tuple)

    # -- meeting a machine -------------------------------------------------------------------------------------------

    def meet(self, living: frozenset[str] = frozenset()) -> None:
        """Mark the content of new folders as from before crystal, so that it is imported only on request.

        What cannot be read counts, too: a folder, or a file of records, is met when it can be read.

        Args:
            living: Ids and transcript paths of sessions that the hook's notes name; they are captured from their
                beginning, also when crystal was installed in the middle of them.
        """
        meet(self, living)

    def context_at(self, path: Path, file: BinaryIO, start: int, origin: Origin) -> Context | None:
        """Return what holds before the line at ``start``; None if the harness's lines need no context."""
        reader = reader_of(origin.harness)
        if reader.lines_are_complete:
            return None
        first = reader.first_context(path, self.sides_of(path, reader))
        context = tail.context_at(file, start, reader, first)
        return context._replace(session=origin.session_id, subagent=origin.subagent)

    def sides_of(self, path: Path, reader: TranscriptReader) -> dict[PurePath, bytes]:
        """Return the content of the small files beside a transcript that can be read."""
        sides: dict[PurePath, bytes] = {}
        for side in reader.side_files(path):
            with contextlib.suppress(OSError, CrystalError), finder.opened(Path(side), self.folders) as file:
                sides[side] = file.read(MAX_SIDE_BYTES)
        return sides

    # -- one transcript ----------------------------------------------------------------------------------------------

    def capture_tail(
        self,
        path: Path,
        tally: Tally,
        *,
        closed: str | None = None,
        until: int | None = None,
        session: str | None = None,
        kept: Path | None = None,
        pieces: int | None = None,
    ) -> bool:
        """Capture what was added to one transcript since its watermark.

        Args:
            path: The file. One that is not there is no error.
            tally: Counts what came.
            closed: Why all of it is private, None to decide line by line.
            until: Only lines that begin before this byte.
            session: The session's id, where the caller knows it.
            kept: Another name of the file as it was, read instead of it: the client may have replaced the file since.
            pieces: At most so many segments; None for all.

        Returns:
            Whether all was captured. False: more segments were there than asked for.

        It stops at the size that the file has now: one that grows faster than it is read would hold up all others.

        Raises:
            StoreFullError, StoreBusyError, UnavailableError: Nothing is lost; the next run goes on.
            TranscriptRefusedError: The path is no regular file, or not in a folder that transcripts are read from.
        """
        found = finder.examine(path, self.folders)
        if found is None:
            return True
        until = found.size if until is None and kept is None else until
        state = self.state_for(found)
        key, origin = (state.mark.transcript, state.origin) if state else self.origin_of(path, session)
        races = done = 0
        while pieces is None or done < pieces:
            try:
                if not self._capture_piece(path, kept or path, key, origin, tally, closed, until):
                    return True
                done += 1
            except WatermarkMovedError:
                races += 1
                if races > MAX_RACES:
                    raise
                time.sleep(0.001 * races)
        return False

    def _capture_piece(
        self, path: Path, source: Path, key: str, origin: Origin, tally: Tally, closed: str | None, until: int | None
    ) -> bool:
        """Capture at most one segment after the watermark; False when nothing is left."""
        state = ledger.state_of(self.store, self.device, key)
        before = state.mark if state else Watermark(key)
        try:
            with finder.opened(source, self.folders if source == path else Folders((Root(source.parent),))) as file:
                found = finder.look_into(path, file)
                captured = partial(ledger.raw_hashes, self.store, state) if state else tuple
                mark = tail.recognise(file, found, before, self.cleaner, captured)
                if state and leave_out_again(self, file, found, state, mark):
                    return True
                raw = tail.cut_at(read_segment(file, mark.offset, limit=tail.SEGMENT_BYTES), until)
                after = mark._replace(offset=raw.end, tail_hash=tail.tail_hash(file, raw.end, self.cleaner))
                context = self.context_at(path, file, raw.start, origin) if raw.raw else None
        except FileNotFoundError:
            return False
        if not raw.raw:
            if state and mark.generation == before.generation:
                self._note_move(state, str(path), mark)
            return False
        last = state if mark.generation == before.generation else None
        reading = self.reading(origin, str(path), before, last, closed)._replace(context=context)
        segment, is_more = tail.make_segment(raw, reading, after), raw.end < (found.size if until is None else until)
        del raw  # a line may be huge
        tally.add(self.sink(segment, ledger.claim_tail))
        return is_more

    def reading(
        self,
        origin: Origin,
        path: str,
        before: Watermark,
        last: ledger.TranscriptState | None,
        closed: str | None = None,
    ) -> tail.Reading:
        """Return what decides about lines that were read just now.

        ``last`` is what was read before in the file, ``closed`` why the lines are private whatever the policy says.
        """
        policy, session = self.policy(), origin.session_id
        closed, inherited = closed or policy.closed_now(session), ledger.last_rule(self.store, last) if last else None
        tainted = self.is_tainted(policy, session)
        return tail.Reading(origin, path, before, policy, self.cleaner, closed, inherited, tainted)

    def is_tainted(self, policy: Policy, session_id: str) -> bool:
        """Return True if a part of a session was ever private or forgotten: records without an id may repeat it."""
        if forgetting.is_session_forgotten(self.store, session_id):
            return True
        return not policy.is_open(session_id) and ledger.has_private(self.store, session_id, except_for=BY_ECHO)

    def _note_move(self, state: ledger.TranscriptState, path: str, mark: Watermark) -> None:
        if (state.path, state.mark) != (path, mark):
            ledger.moved(self.store, state, path, mark)

    # -- who is who --------------------------------------------------------------------------------------------------

    def state_for(self, found: finder.TranscriptFile) -> ledger.TranscriptState | None:
        """Return what the ledger knows of a file, None if it was never seen."""
        return ledger.state_of(self.store, self.device, self._key_of(found))

    def _key_of(self, found: finder.TranscriptFile) -> str:
        """Return the transcript's key; a second file of the same name in another folder gets a key of its own."""
        key = identify(found.path, finder.root_of(found.path, self.folders).harness).key
        known = ledger.state_of(self.store, self.device, key)
        if known is None or known.path == str(found.path):
            return key
        own = f"{key}~{hashlib.sha256(str(found.path).encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"
        if ledger.state_of(self.store, self.device, own) is not None:
            return own  # also when the other file is gone by now
        other = finder.look_at(Path(known.path), self.folders)
        return key if other is None or (other.dev, other.inode) == (found.dev, found.inode) else own

    def origin_of(self, path: Path, session: str | None = None) -> tuple[str, Origin]:
        """Return the key and origin of a transcript that was never seen; ``session`` is its id if that is known."""
        found = finder.look_at(path, self.folders)
        harness = finder.root_of(path, self.folders).harness
        key, owner, subagent = identify(path, harness)
        if found is not None:
            key = self._key_of(found)
        if owner is None or not reader_of(harness).is_session_id(owner):
            # Not where the client puts it: the lines know better than the name.
            named, by_lines = self._owner_in(path, harness)
            owner, subagent = session or named or owner or key, subagent or by_lines
        return key, Origin(self.agent, self.device, owner, subagent, harness)

    def _owner_in(self, path: Path, harness: str) -> tuple[str | None, str | None]:
        """Return the session and the subagent that the first lines of a transcript name, each None if they do not."""
        reader = reader_of(harness)
        with contextlib.suppress(OSError, CrystalError), finder.opened(path, self.folders) as file:
            lines = file.read(FIRST_BYTES).split(b"\n")[:FIRST_LINES]
            return reader.owner(lines, reader.first_context(path, self.sides_of(path, reader)))
        return None, None

    # -- many transcripts --------------------------------------------------------------------------------------------

    def sweep(self, harness: str | None = None) -> Tally:
        """Capture what was added to any transcript, of one harness or of all: the guarantee behind the hook's hints."""
        here = self.with_projects()
        here.meet()
        tally = Tally()
        known = ledger.read_to(self.store, self.device)
        roots = [root for root in here.roots if harness in (None, root.harness)]
        for found in finder.all_transcripts(roots, tally.fail, here.folders, known):
            tally.files += 1
            here.attempt(found.path, tally, here.capture_tail)
        if here.whole_files is not None:
            here.whole_files().sweep(here, roots, tally)
        if harness is None:
            from crystal.capture.refused_files import record_refused  # noqa: PLC0415 - a turn sweeps nothing

            record_refused(self.store, self.device, tally.problems or {}, self.clock())
        return tally

    def attempt(self, path: Path, tally: Tally, step: Callable[[Path, Tally], object]) -> None:
        """Call ``step`` for one file. An error of the file is added to ``tally``; an error of the store is raised."""
        try:
            step(path, tally)
        except (StoreBusyError, StoreDamagedError, StoreFullError):
            raise
        except (CrystalError, OSError) as error:
            tally.fail(path, error)
        except MISTAKES as error:
            tally.fail(path, named_mistake(error))

    # -- off and on --------------------------------------------------------------------------------------------------

    def turn_off(self, session: str | None = None) -> bool:
        """Stop capturing. The caller has just swept, so that what was said until now is kept."""
        return privacy.open_mark(self.store, session, "off", self.clock())

    def turn_on(self, session: str | None = None) -> bool:
        """Capture again from now on. The caller has just swept, so that what was said until now is marked private."""
        return privacy.close_mark(self.store, session, "off", self.clock())
