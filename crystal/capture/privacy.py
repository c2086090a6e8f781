"""Decide from the facts of a line whether it may be stored, before any of it is written.

A line is private when it was said while capture was off (for all, for its session, by ``CRYSTAL_PRIVATE``), when its
folder or session is named private in the settings, when it was forgotten, or when it is a copy of a line that was
left out elsewhere.
Facts that a line lacks are taken from the lines before it, else from those after it: the client writes the prompt
a second time into lines that name neither folder nor time. It does so again later, and in forks: where something is
private, bookkeeping and summaries are private too, because nothing tells what they repeat.
"""

import fnmatch
from collections.abc import Callable, Sequence
from typing import TypeVar

from crystal.config.table import Config
from crystal.model.capture import ID_END, Origin
from crystal.model.named_tuple import NamedTuple
from crystal.store import Store
from crystal.store.capture.privacy import PrivatePeriod, marks
from crystal.text.folders import is_within, outermost
from crystal.transcript.reader import LineFacts

BY_PROJECT = "private-project"
BY_SESSION = "private-session"
BY_COPY = "private-copy"
BY_ECHO = "private-echo"

T = TypeVar("T")


class Policy(NamedTuple):
    """Privacy rules of this machine. ``is_private_line`` tells whether a line with this uuid was left out before."""

    marks: tuple[PrivatePeriod, ...] = ()
    projects: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    is_private_line: Callable[[str], bool] = lambda _: False
    has_private_lines: bool = False

    @property
    def is_off(self) -> bool:
        """Return True if capture is off for all sessions."""
        return any(mark.until_at is None and mark.session_id is None and mark.folder is None for mark in self.marks)

    def closed_now(self, session_id: str) -> str | None:
        """Return why everything that is added to this session just now is private, None if it is not."""
        for mark in self.marks:
            if mark.until_at is None and _is_of(mark, session_id):
                return f"private-{mark.reason}"
        return self._by_session(session_id)

    def why_private(self, session_id: str, at: int, cwd: str | None) -> str | None:
        """Return why a text that is in no transcript is private, by its time and folder; None if it is not."""
        if self.projects and cwd is None:
            return BY_PROJECT  # fail closed, as for lines
        facts = LineFacts(timestamp_ms=at, cwd=cwd, session_id=session_id)
        return self.closed_now(session_id) or self._reason(session_id, facts, at, cwd)

    def is_private_folder(self, cwd: str) -> bool:
        """Return whether the settings name a folder private, or one above it."""
        return outermost(self.projects, cwd) is not None

    def is_open(self, session_id: str) -> bool:
        """Return whether no line of this session can be private, so that lines need not be checked."""
        return not (
            self.projects
            or self.has_private_lines
            or self._by_session(session_id)
            or any(_is_of(mark, session_id) for mark in self.marks)
        )

    def reasons(
        self, origin: Origin, lines: Sequence[LineFacts], *, first: bool, inherited: str | None
    ) -> list[str | None]:
        """Return why each line is private, None for those that may be kept.

        Args:
            origin: Of the transcript.
            lines: The facts of the lines, in file order.
            first: Whether the file begins with them, so that nothing before them can tell the folder.
            inherited: Why the bytes before the first of them are private, None when they are not.
        """
        by_session = self._by_session(origin.session_id)
        if by_session is not None:
            return [by_session] * len(lines)
        times = _filled([line.timestamp_ms for line in lines])
        folders = _filled([line.cwd for line in lines])
        # Fail closed: while folders are named private, a beginning that names no folder is not kept.
        unknown = BY_PROJECT if first and self.projects else None
        own = [
            self._reason(origin.session_id, line, at, cwd) if cwd is not None or unknown is None else unknown
            for line, at, cwd in zip(lines, times, folders, strict=True)
        ]
        if inherited is not None and inherited != BY_COPY:
            # Lines without facts of their own go with what is before them, also across reads.
            for at, line in enumerate(lines):
                if line.timestamp_ms is not None or line.cwd is not None:
                    break
                own[at] = inherited
        return own

    def with_echoes(
        self, reasons: Sequence[str | None], lines: Sequence[LineFacts], *, first: bool, tainted: bool
    ) -> list[str | None]:
        """Return the reasons, with one added for each line that may repeat what was private.

        Args:
            reasons: Why each line is private of its own.
            lines: The facts of each.
            first: Whether the file begins with them.
            tainted: Whether something of the session was private before.
        """
        if tainted or any(reasons):
            return [
                reason or (BY_ECHO if line.is_summary or line.is_bookkeeping else None)
                for reason, line in zip(reasons, lines, strict=True)
            ]
        told = list(reasons)
        if first and self.has_private_lines:
            # Nothing yet tells that this is no fork.
            for at, line in enumerate(lines):
                if not line.is_bookkeeping:
                    break
                told[at] = BY_ECHO
        return told

    def _by_session(self, session_id: str) -> str | None:
        names = {session_id, session_id.partition(ID_END)[0]}
        is_private = any(fnmatch.fnmatchcase(name, glob) for name in names for glob in self.sessions)
        return BY_SESSION if is_private else None

    def _reason(self, session_id: str, line: LineFacts, at: int | None, cwd: str | None) -> str | None:
        for mark in self.marks:
            if not _is_of(mark, session_id) or at is None:
                continue
            if mark.from_at <= at and (mark.until_at is None or at < mark.until_at) and _is_in(mark.folder, cwd):
                return f"private-{mark.reason}"
        if self.projects and cwd is not None and self.is_private_folder(cwd):
            return BY_PROJECT
        if self.has_private_lines and line.uuid is not None and self.is_private_line(line.uuid):
            return BY_COPY
        return None


def policy_of(store: Store, config: Config) -> Policy:
    """Return what is private now, by the settings and by the marks that were set; copies of lines are not asked for."""
    return Policy(marks(store), config.private_projects, config.private_sessions)


def _is_of(mark: PrivatePeriod, session_id: str) -> bool:
    return mark.session_id in (None, session_id, session_id.partition(ID_END)[0])


def _is_in(folder: str | None, cwd: str | None) -> bool:
    return folder is None or (cwd is not None and is_within(cwd, folder))


def _filled(values: Sequence[T | None]) -> list[T | None]:
    """Fill each gap with the value before it, the gaps at the start with the first value."""
    last = next((value for value in values if value is not None), None)
    filled = []
    for value in values:
        last = value if value is not None else last
        filled.append(last)
    return filled
