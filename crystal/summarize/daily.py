"""Write the daily log: one line whenever a session starts, resumes after a pause, or continues on a new day.

The log is append-only. Each line ends with a comment that names its session and its first moment. Lines are appended
and recorded in one transaction; a line found in the file after a crash is not written again. So each line is written
once, however often a hook runs or is killed.

Source: docs/reference/session-summary.md, section 4.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, tzinfo
from pathlib import Path

from crystal.config.paths import append_durably, make_private_dir, refused, sync_folder
from crystal.errors import CrystalError
from crystal.store import Store
from crystal.store.problems import clear_problem, record_problem
from crystal.store.sessions.conversations import Session
from crystal.store.sessions.sessions import mark_logged, opening_of, times_around, unlogged_sessions
from crystal.summarize.markdown import file_stem
from crystal.summarize.simple import first_words
from crystal.summarize.wording import cut, escaped, one_line

PART = "daily log"
FOLDER = "daily"
WORDS_CHARACTERS = 80
PROJECT_CHARACTERS = 40
BATCH = 50

_MARK = re.compile(rb"<!-- ([a-z0-9_-]+) (\d+) -->[ \t\r]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class DailyStretch:
    """A part of a session without a pause, within one local day. Times in ms; ``first_id`` is its oldest row."""

    start: int
    stop: int
    first_id: int


@dataclass(frozen=True, slots=True)
class _Line:
    """A line to write: its file, its text, and the part of the session that it describes."""

    file: Path
    start: int
    stop: int
    stem: str
    text: str
    session: Session


def split_parts(times: Sequence[tuple[int, int]], *, idle_ms: int, tz: tzinfo | None) -> list[DailyStretch]:
    """Split (time, id) pairs, ordered by time, at pauses of ``idle_ms`` or more and where the day changes."""

    def day_of(at: int) -> date | None:
        moment = local_time(at, tz)
        return None if moment is None else moment.date()

    parts: list[DailyStretch] = []
    for at, ident in times:
        last = parts[-1] if parts else None
        if last is not None and at - last.stop < idle_ms and day_of(at) == day_of(last.stop):
            parts[-1] = DailyStretch(last.start, at, min(last.first_id, ident))
        else:
            parts.append(DailyStretch(at, at, ident))
    return parts


def local_time(at: int, tz: tzinfo | None) -> datetime | None:
    """Return the local time of a moment; None if it is outside the calendar."""
    try:
        return datetime.fromtimestamp(at / 1000, tz)
    except (OverflowError, ValueError, OSError):
        return None


@dataclass(slots=True)
class DailyLog:
    """Writes the daily log.

    Attributes:
        store: The store, open for writing, in no transaction.
        agent_folder: Returns an agent's folder by its id.
        now: The time, ms; used for sessions whose turns have no usable time.
        idle_ms: Minimum pause after which a session counts as resumed.
        tz: The time zone of the reader; None for this machine's.
        lines: The number of lines written.
        problems: What went wrong, in words.
    """

    store: Store
    agent_folder: Callable[[str], Path]
    now: int
    idle_ms: int
    tz: tzinfo | None = None
    lines: int = 0
    problems: list[str] = field(default_factory=list)

    def write_missing(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Write the missing log lines; ``should_stop`` is checked before every batch. Fast if there are none."""
        after = 0
        while not should_stop() and unlogged_sessions(self.store, after=after, limit=1):
            with self.store.transaction():
                sessions = unlogged_sessions(self.store, after=after, limit=BATCH)
                if not sessions:
                    break
                self._write(sessions)
            after = sessions[-1].id
        if self.problems:
            record_problem(self.store, PART, self.problems[0], self.now)
        else:
            clear_problem(self.store, PART)

    def _write(self, sessions: Sequence[Session]) -> None:
        """Write the lines of some sessions, and mark those as logged whose lines are all written."""
        files: dict[Path, list[_Line]] = {}
        failed: set[int] = set()
        for session in sessions:
            try:
                folder = self.agent_folder(session.agent) / FOLDER
            except CrystalError as error:
                self.problems.append(error.message)
                failed.add(session.id)
                continue
            for line in self._lines(session, folder):
                files.setdefault(line.file, []).append(line)
        for file, lines in sorted(files.items()):
            try:
                self.lines += _append(file, sorted(lines, key=lambda line: (line.start, line.session.id)))
            except CrystalError as error:
                self.problems.append(error.message)
                failed.update(line.session.id for line in lines)
        mark_logged(self.store, [session for session in sessions if session.id not in failed])

    def _lines(self, session: Session, folder: Path) -> Iterator[_Line]:
        times = times_around(self.store, session, reach=self.idle_ms)
        for part in split_parts(times, idle_ms=self.idle_ms, tz=self.tz):
            moment = local_time(part.start, self.tz)
            if part.first_id > session.logged_turn and moment is not None:
                said = opening_of(self.store, session.id, start=part.start, stop=part.stop)
                yield _line(session, folder, moment, part.start, part.stop, said)
        moment = local_time(self.now, self.tz)
        if not times and not session.logged_turn and moment is not None:
            # The session has no times: it is logged once, at the time of its capture.
            said = opening_of(self.store, session.id, start=None, stop=None)
            yield _line(session, folder, moment, 0, self.now, said)


def _line(session: Session, folder: Path, moment: datetime, start: int, stop: int, said: str) -> _Line:
    stem = file_stem(session.session_id)
    project = escaped(cut(one_line(session.project or "").translate(_NO_BRACKETS), PROJECT_CHARACTERS)) or "-"
    words = escaped(first_words(said, WORDS_CHARACTERS)) or "…"
    text = f"- {moment:%H:%M} [{project}] {words} ({stem[:8]}) <!-- {stem} {start} -->"
    return _Line(folder / f"{moment.year:04}-{moment:%m-%d}.md", start, stop, stem, text, session)


_NO_BRACKETS = str.maketrans("[]", "()")


def _append(file: Path, lines: Sequence[_Line]) -> int:
    """Append the lines that are not in the file yet, in one durable write. Return their number.

    Raises:
        CrystalError: The system refuses; the file is unchanged.
    """
    make_private_dir(file.parent)
    try:
        new = not file.exists()
        handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o600)
        try:
            with open(handle, "rb", closefd=False) as opened:
                before = opened.read()
            there = [(match[1].decode(), int(match[2])) for match in _MARK.finditer(before)]
            missing = [
                line
                for line in lines
                if not any(stem == line.stem and line.start <= at <= line.stop for stem, at in there)
            ]
            if not missing:
                return 0
            head = "" if before else f"# {file.stem}\n\n"
            gap = "\n" if before and not before.endswith(b"\n") else ""
            text = head + gap + "".join(f"{line.text}\n" for line in missing)
            append_durably(handle, text.encode("utf-8", "replace"), len(before))
        finally:
            os.close(handle)
        if new:
            with contextlib.suppress(OSError):  # not supported by some file systems
                sync_folder(file.parent)
    except OSError as error:
        raise refused(error, file) from error
    return len(missing)
