"""Act on the hook's notes: wait for the flush that a note announces, capture, and only then remove the note."""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterable
from pathlib import Path

from crystal import transcript
from crystal.capture import files, spool
from crystal.capture.asked import Remember, take_asked
from crystal.capture.engine import Capture, Tally
from crystal.capture.spool import ENVIRONMENT, Note
from crystal.errors import CrystalError
from crystal.store import privacy, problems, turns
from crystal.store.hooks import add_hook_runs

FLUSH_MS = 5_000
LATE_MS = 60_000
POLL_SECONDS = 0.02
LOOK_BACK_BYTES = 256 << 10


def drain(capture: Capture, folder: Path, *, flush_ms: float = FLUSH_MS, remember: Remember | None = None) -> Tally:
    """Act on every note in the spool until none is left that can be acted on.

    A note waits at most ``flush_ms`` for its answer to be written. Notes of one session are taken in order. A note
    that fails stays, is recorded as a problem of the room ``capture``, and is tried again by the next run.
    What a prompt asks to remember comes first, by ``remember``; without it those notes stay.
    """
    tally = Tally()
    failed: set[Path] = set()
    unstored: set[Path] = set()
    first_seen: dict[Path, float] = {}
    add_hook_runs(capture.store, spool.take_latencies(folder))
    spool.sweep_leftovers(folder, capture.clock())
    while True:
        if remember is not None:
            take_asked(capture, folder, remember, unstored)
        notes = [note for note in spool.read_notes(folder) if note.file not in failed and note.asked is None]
        if not notes:
            break
        capture.meet(frozenset(name for note in notes for name in (note.session_id, note.transcript_path) if name))
        waiting: set[str | None] = set()
        for at, note in enumerate(notes):
            patience = flush_ms - 1000 * (time.monotonic() - first_seen.setdefault(note.file, time.monotonic()))
            if note.session_id in waiting or not is_ready(capture, note, patience):
                waiting.add(note.session_id)
                continue
            later = [other for other in notes[at + 1 :] if other.session_id == note.session_id]
            try:
                act_on(capture, note, later, tally)
                spool.drop(note)
            except CrystalError as error:
                problems.record_problem(capture.store, "capture", error.message, now=capture.clock())
                failed.add(note.file)
        if waiting:
            time.sleep(POLL_SECONDS)
    if not failed:
        problems.clear_problem(capture.store, "capture")
    return tally


def is_ready(capture: Capture, note: Note, patience_ms: float) -> bool:
    """Whether what a note announces is in the file, or has been waited for long enough."""
    if note.session_id is None or patience_ms <= 0 or capture.clock() - note.at > LATE_MS:
        return True
    if note.event == "SessionStart":
        return True  # the file comes with the first prompt
    path = _main_file(capture, note)
    if path is None:
        return False
    if note.awaited is None:
        return True
    if note.event == "SubagentStop":
        # The client's own helpers (it compacts with one) name a file that is never written.
        agent = None if note.agent_transcript_path is None else Path(note.agent_transcript_path)
        return agent is None or files.look_at(agent) is None or _says(capture, agent, note)
    return _says(capture, path, note)


def act_on(capture: Capture, note: Note, later: list[Note], tally: Tally) -> None:
    """Capture what a note tells of: the session's transcript and its subagents', or everything for an empty hint."""
    if note.session_id is None:
        merge(tally, capture.sweep())
        return
    closed = _note_privacy(capture, note)
    changes = any(other.private != note.private for other in later)
    path = _main_file(capture, note)
    if path is not None:
        until = note.size if changes else None
        kept = spool.kept_name(note)
        if _was_replaced(path, kept):
            capture.capture_tail(path, tally, closed=closed, until=until, session=note.session_id, kept=kept)
        capture.capture_tail(path, tally, closed=closed, until=until, session=note.session_id)
    for agent_path in _agent_files(note, path):
        capture.capture_tail(agent_path, tally, closed=closed)
    if note.event == "SessionEnd":
        turns.end_session(capture.store, note.session_id, note.at)
        if closed is None:
            capture.ended(note.session_id, note.at)
    else:
        turns.reopen_session(capture.store, note.session_id)
    if note.event == "SessionStart":
        merge(tally, capture.sweep())


def _was_replaced(path: Path, kept: Path) -> bool:
    """Whether the transcript that the hook kept under a second name is no longer the one at its path."""
    before, now = files.look_at(kept), files.look_at(path)
    return before is not None and now is not None and (before.dev, before.inode) != (now.dev, now.inode)


def _note_privacy(capture: Capture, note: Note) -> str | None:
    """Open or close the session's private time as the hook's environment says; gives why these bytes are private."""
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


def _main_file(capture: Capture, note: Note) -> Path | None:
    """The session's transcript: where the hook says, else wherever the session's file is now."""
    if note.transcript_path is not None:
        path = Path(note.transcript_path)
        if files.look_at(path) is not None:
            return path
    return next(files.of_session(capture.roots, note.session_id or ""), None)


def _agent_files(note: Note, path: Path | None) -> Iterable[Path]:
    named = [Path(note.agent_transcript_path)] if note.agent_transcript_path else []
    beside = files.subagents_of(path) if path is not None else []
    return dict.fromkeys([*beside, *named])


def _says(capture: Capture, path: Path, note: Note) -> bool:
    """Whether an assistant line after the watermark, or a fresh one just before it, is the awaited text."""
    found = files.look_at(path)
    if found is None:
        return False
    state = capture.state_for(found)
    offset = state.mark.offset if state is not None and state.mark.offset <= found.size else 0
    start = max(0, offset - LOOK_BACK_BYTES)
    try:
        with path.open("rb") as file:
            file.seek(start)
            data = file.read()
    except OSError:
        return False
    at = start
    for line in data.split(b"\n")[:-1]:
        fresh_from = None if at >= offset else note.at - 2_000
        at += len(line) + 1
        if b'"assistant"' in line and _is_awaited(line, note, fresh_from):
            return True
    return False


def _is_awaited(line: bytes, note: Note, fresh_from: int | None) -> bool:
    if fresh_from is not None:
        said_at = transcript.line_facts(line).timestamp_ms
        if said_at is None or said_at < fresh_from:
            return False
    return any(fingerprint(text) == note.awaited for text in _assistant_texts(line))


def _assistant_texts(line: bytes) -> Iterable[str]:
    """The texts of an assistant line, as the client reports them to its hooks: untouched."""
    fields = transcript.parse_line(line) or {}
    message = fields.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if fields.get("type") != "assistant":
        return
    if isinstance(content, str):
        yield content
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and isinstance(block.get("text"), str):
            yield block["text"]


def fingerprint(text: str) -> tuple[int, int]:
    """What the hook notes of the assistant's last text instead of the text: CRC-32 and length, stripped."""
    stripped = text.strip()
    return zlib.crc32(stripped.encode("utf-8", "surrogatepass")), len(stripped)


def merge(tally: Tally, other: Tally) -> None:
    """Add what another run brought."""
    tally.files += other.files
    tally.bytes_captured += other.bytes_captured
    tally.bytes_private += other.bytes_private
    tally.turns += other.turns
    tally.chunks += other.chunks
    if other.problems:
        tally.problems = {**(tally.problems or {}), **other.problems}
