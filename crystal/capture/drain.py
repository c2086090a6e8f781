"""Process the hook's notes: wait until the agent has written its answer, capture it, then delete the note."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from crystal.capture import finder, spool
from crystal.capture.engine import Capture, Tally
from crystal.capture.safe_open import REFUSED, Folders, TranscriptBlockedError, TranscriptRefusedError
from crystal.capture.spool import ENVIRONMENT, Note
from crystal.config.harnesses import Root
from crystal.errors import CrystalError, UsageError
from crystal.model.named_tuple import NamedTuple
from crystal.store import problems
from crystal.store.capture import privacy, turns
from crystal.store.capture.hook_runs import add_hook_runs
from crystal.transcript.reader import reader_of

FLUSH_MS = 5_000
LATE_MS = 60_000
SETTLE_MS = 400
"""Time in which another agent may still write after its hook, if the hook does not name the line to wait for."""
FRESH_MS = 2_000
"""An answer that was captured already is the awaited one if it was written at most so long before the note."""
POLL_SECONDS = 0.02
MAX_POLL_SECONDS = 0.25
LOOK_BACK_BYTES = 256 << 10
MAX_LOOK_BYTES = 64 << 20
"""Number of bytes at a transcript's end that are searched for the awaited line, which is among the last."""

BLOCKED = "transcripts that do not answer"
REMEMBER = "remember"
"""The row in ``problems`` that says why words of a prompt were not remembered."""
PIECES_A_ROUND = 1
"""Segments of one transcript that are captured before the notes of other sessions have their turn."""


Remember = Callable[[Note], object]
"""Stores the words of a note. It may be called twice for one note."""


class _Run(NamedTuple):
    """State of one run of ``drain``.

    Attributes:
        flush_ms: Maximum time that a note waits for its answer to be written.
        tally: What was captured so far.
        failed: Notes that raised an error; this run does not try them again.
        first_seen: When each note was first seen, by the monotonic clock, in seconds.
    """

    flush_ms: float
    tally: Tally
    failed: set[Path]
    first_seen: dict[Path, float]

    def patience(self, note: Note) -> float:
        """Return how many milliseconds a note may still wait; zero or less if its time is over."""
        now = time.monotonic()
        return self.flush_ms - 1000 * (now - self.first_seen.setdefault(note.file, now))


def drain(capture: Capture, folder: Path, *, flush_ms: float = FLUSH_MS, remember: Remember | None = None) -> Tally:
    """Process the notes in the spool until none is left that can be processed.

    A note waits at most ``flush_ms`` for its answer to be written. Notes of one session are taken in order. A note
    that fails stays, is recorded as the problem ``capture``, and is tried again by the next run.
    What a prompt asks to remember comes first, by ``remember``; without it those notes stay. A transcript with much to
    read is captured segment by segment, and other sessions go in between: the watermark knows how far it got.
    """
    run = _Run(flush_ms, Tally(), set(), {})
    unstored: set[Path] = set()
    pause = POLL_SECONDS
    add_hook_runs(capture.store, spool.take_latencies(folder))
    spool.sweep_leftovers(folder, capture.clock())
    spool.take_back(folder, capture.clock())
    while True:
        if remember is not None:
            _take_asked(capture, folder, remember, unstored)
        notes = [note for note in spool.read_notes(folder) if note.file not in run.failed and note.asked is None]
        if not notes:
            break
        capture.meet(spool.named_in(notes))
        waiting, unfinished = _act_on_all(capture, notes, run)
        if waiting and not unfinished:
            time.sleep(pause)
        pause = min(MAX_POLL_SECONDS, pause * 1.3) if len(waiting) == len(notes) else POLL_SECONDS
    if not run.failed:
        problems.clear_problem(capture.store, "capture")
    if not spool.is_any_aside(folder):
        problems.clear_problem(capture.store, BLOCKED)
    return run.tally


def _take_asked(capture: Capture, folder: Path, remember: Remember, failed: set[Path]) -> None:
    """Store what every such note asks for, then remove the note; what is private is removed only.

    Words that can never be stored (too many, or secrets alone) are recorded as a problem, without them. A note whose
    words cannot be stored just now stays; its file is added to ``failed``.
    """
    for note in spool.read_notes(folder):
        if note.asked is None or note.file in failed:
            continue
        try:
            if capture.policy().why_private(note.session_id or "", note.at, note.cwd) is None:
                _remember(capture, note, remember)
            spool.drop(note)
        except CrystalError as error:
            problems.record_problem(capture.store, REMEMBER, error.message, now=capture.clock())
            failed.add(note.file)


def _remember(capture: Capture, note: Note, remember: Remember) -> None:
    try:
        if note.asked is not None and note.asked.words is None:
            raise UsageError(
                f"a prompt asked to remember {note.asked.length:,} characters, a memory has at most 8,000",
                hint="shorten it",
            )
        remember(note)
    except UsageError as error:
        problems.record_problem(capture.store, REMEMBER, error.message, now=capture.clock())
    else:
        problems.clear_problem(capture.store, REMEMBER)


def _act_on_all(capture: Capture, notes: Sequence[Note], run: _Run) -> tuple[set[str | None], set[str | None]]:
    """Act once on each note that is ready.

    Returns:
        The sessions that wait for a flush, and those with segments left to capture. Later notes of both are skipped.
    """
    waiting: set[str | None] = set()
    unfinished: set[str | None] = set()
    for at, note in enumerate(notes):
        patience = run.patience(note)
        if note.session_id in unfinished:
            continue
        if note.session_id in waiting or not is_ready(capture, note, patience):
            waiting.add(note.session_id)
            continue
        if not note.file.exists():
            continue  # another process acted on it while the lock was released
        later = [other for other in notes[at + 1 :] if other.session_id == note.session_id]
        if not _act_or_record(capture, note, later, run):
            unfinished.add(note.session_id)
    return waiting, unfinished


def _act_or_record(capture: Capture, note: Note, later: list[Note], run: _Run) -> bool:
    """Act on a note and remove it, or record why that failed. Return False if segments of it are left."""
    try:
        if not act_on(capture, note, later, run.tally):
            return False
        spool.drop(note)
    except TranscriptBlockedError as error:
        problems.record_problem(capture.store, BLOCKED, error.message, now=capture.clock())
        spool.set_aside(note)
    except CrystalError as error:
        problems.record_problem(capture.store, "capture", error.message, now=capture.clock())
        run.failed.add(note.file)
    return True


def is_ready(capture: Capture, note: Note, patience_ms: float) -> bool:
    """Return whether the answer that a note announces is in the file, or the wait for it is over."""
    if note.session_id is None or patience_ms <= 0 or capture.clock() - note.at > LATE_MS:
        return True
    if note.event == "SessionStart":
        return True  # the file comes with the first prompt
    if note.harness is not None and note.awaited is None:
        return capture.clock() - note.at > SETTLE_MS
    try:
        path = _main_file(capture, note)
        if path is None or note.awaited is None:
            return path is not None
        if note.event == "SubagentStop":
            # The client's own helpers (it compacts with one) name a file that is never written.
            agent = None if note.agent_transcript_path is None else Path(note.agent_transcript_path)
            return agent is None or finder.look_at(agent, capture.folders) is None or _says(capture, agent, note)
        return _says(capture, path, note)
    except CrystalError:
        return True  # acting on it fails the same way, and says so


def act_on(capture: Capture, note: Note, later: list[Note], tally: Tally) -> bool:
    """Capture the transcripts that a note names: the session's and its subagents', or all for an empty hint.

    Returns:
        Whether that is done. False: segments are left; the note is to be acted on again, after those of others.
    """
    if note.session_id is None:
        tally.join(capture.sweep())
        return True
    closed = _note_privacy(capture, note)
    if note.harness is not None and not _is_of_lines(capture, note.transcript_path):
        tally.join(capture.sweep(note.harness))
        _update_session(capture, note, note.session_id, closed)
        return True
    changes = any(other.private != note.private for other in later)
    refusals: list[TranscriptRefusedError] = []
    path = _main_file(capture, note, refusals)
    for refusal in refusals:
        _refuse(capture, refusal)
    until = note.size if changes else None
    done = path is None or _capture_main(capture, note, path, tally, closed=closed, until=until)
    if not (_capture_agents(capture, note, path, tally, closed=closed) and done):
        return False
    _update_session(capture, note, note.session_id, closed)
    if note.event == "SessionStart":
        tally.join(capture.sweep())
    return True


def _is_of_lines(capture: Capture, path: str | None) -> bool:
    return path is not None and finder.root_of(Path(path), capture.folders).place.form == "lines"


def _capture_main(
    capture: Capture, note: Note, path: Path, tally: Tally, *, closed: str | None, until: int | None
) -> bool:
    """Capture the session's own transcript. Return False if segments are left."""
    kept = spool.kept_name(note)
    pieces: int | None = PIECES_A_ROUND
    if _was_replaced(path, kept):
        capture.capture_tail(path, tally, closed=closed, until=until, session=note.session_id, kept=kept)
        pieces = None  # what replaced it is read from its beginning: both in one go
    return capture.capture_tail(path, tally, closed=closed, until=until, session=note.session_id, pieces=pieces)


def _capture_agents(capture: Capture, note: Note, main: Path | None, tally: Tally, *, closed: str | None) -> bool:
    """Capture the transcripts of the session's subagents. Return False if segments of one are left."""
    done = True
    for path in _agent_files(capture, note, main):
        try:
            done = capture.capture_tail(path, tally, closed=closed, pieces=PIECES_A_ROUND) and done
        except TranscriptRefusedError as error:
            _refuse(capture, error)
    return done


def _update_session(capture: Capture, note: Note, session: str, closed: str | None) -> None:
    """Mark the session as ended or open; the end of a private session is not announced."""
    if note.event != "SessionEnd":
        turns.reopen_session(capture.store, session)
        return
    turns.end_session(capture.store, session, note.at)
    if closed is None:
        capture.ended(session, note.at)


def _was_replaced(path: Path, kept: Path) -> bool:
    """Return whether the transcript that the hook kept under a second name is no longer the one at its path."""
    before, now = finder.look_at(kept, Folders((Root(kept.parent),))), finder.look_at(path)
    return before is not None and now is not None and (before.dev, before.inode) != (now.dev, now.inode)


def _note_privacy(capture: Capture, note: Note) -> str | None:
    """Open or close the session's private time by the hook's environment. Return why these bytes are private."""
    session = note.session_id or ""
    if note.private:
        privacy.open_mark(capture.store, session, ENVIRONMENT, note.at)
        return f"private-{ENVIRONMENT}"
    if note.event == "SessionStart":
        privacy.close_mark(capture.store, session, ENVIRONMENT, note.at)
    else:
        # No start was seen since: what came after the last private note belongs to the open session.
        privacy.close_mark_as_seen(capture.store, session, ENVIRONMENT)
    return None


def _main_file(capture: Capture, note: Note, refusals: list[TranscriptRefusedError] | None = None) -> Path | None:
    """Return the session's transcript: the path that the hook named, else where the session's file is now."""
    if note.transcript_path is not None:
        path = Path(note.transcript_path)
        try:
            if finder.examine(path, capture.folders) is not None:
                return path
        except TranscriptRefusedError as error:
            if refusals is not None:
                refusals.append(error)
    return next(finder.of_session(capture.folders, note.session_id or ""), None)


def _agent_files(capture: Capture, note: Note, path: Path | None) -> Iterable[Path]:
    named = [Path(note.agent_transcript_path)] if note.agent_transcript_path else []
    if path is None:
        return named
    beside = finder.subagents_of(path, capture.folders, finder.root_of(path, capture.folders))
    return dict.fromkeys([*(one.path for one in beside), *named])


def _refuse(capture: Capture, error: TranscriptRefusedError) -> None:
    """Count and report a path that a hook named and crystal refused. It was not opened."""
    before = problems.find_problem(capture.store, REFUSED)
    count = f"{before.tries + 1} paths were refused, the last: " if before else ""
    problems.record_problem(capture.store, REFUSED, f"{count}{error.message}", now=capture.clock())


def _says(capture: Capture, path: Path, note: Note) -> bool:
    """Return whether an assistant line after the watermark, or a fresh one just before it, is the awaited text."""
    found = finder.examine(path, capture.folders)
    if found is None:
        return False
    state = capture.state_for(found)
    offset = state.mark.offset if state is not None and state.mark.offset <= found.size + 1 else 0
    start = max(0, offset - LOOK_BACK_BYTES, found.size - MAX_LOOK_BYTES)
    try:
        with finder.opened(path, capture.folders) as file:
            file.seek(start)
            data = file.read(found.size - start)
    except OSError:
        return False
    reader = reader_of(finder.root_of(path, capture.folders).harness)
    at = found.size + 1
    for line in reversed(data.split(b"\n")):  # it is among the last
        at -= len(line) + 1
        if any(fingerprint(text) == note.awaited for text in reader.answers(line)):
            said_at = reader.facts(line).timestamp_ms
            if at >= offset or (said_at is not None and said_at >= note.at - FRESH_MS):
                return True
    return False


def fingerprint(text: str) -> tuple[int, int]:
    """Return CRC-32 and length of the stripped text: the hook notes these instead of the assistant's last text."""
    stripped = text.strip()
    return zlib.crc32(stripped.encode("utf-8", "surrogatepass")), len(stripped)
