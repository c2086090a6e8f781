"""Find which edit wrote each line of a file: by the line's hash, and by the neighbouring lines of the same edit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from crystal.model.named_tuple import NamedTuple

MIN_RUN = 4
"""Minimum consecutive lines from an edit of a file with another name: the file was renamed, or lines were moved."""
MAX_SESSIONS = 3
"""Maximum number of sessions that wrote the same single line; if there are more, its author is unknown."""
SLACK_MS = 120_000
"""Maximum time by which an edit may be later than its commit, because the clocks of two machines differ."""
WINDOW_MS = 21 * 86_400_000
"""Maximum time by which an edit may be older than its commit; older lines were usually written again since."""


class FileEdit(NamedTuple):
    """An edit of one file by a tool call: ``turn`` and ``part`` name it, ``name`` is the file's own name."""

    turn: int
    part: int
    session: int
    at: int
    name: str


class Line(NamedTuple):
    """A line of a file.

    Attributes:
        hash: Its hash; None if it is too short to count.
        committed_at: The time of its commit, ms; None if it is not committed.
        name: The file's name in that commit.
    """

    hash: int | None
    committed_at: int | None
    name: str


def attribute(
    lines: Sequence[Line], edits: Iterable[FileEdit], wrote: Mapping[int, Collection[int]]
) -> list[FileEdit | None]:
    """Return the edit that wrote each line; None if it is unknown.

    Args:
        lines: Consecutive lines of a file.
        edits: The edits that wrote any of these lines.
        wrote: By the hash of a line, the indexes in ``edits`` of those that wrote it.
    """
    known = list(edits)
    runs: dict[int, dict[int, int]] = {}
    for at, places in _places(lines, wrote).items():
        runs[at] = _runs(lines, places)
    found: list[FileEdit | None] = []
    for number, line in enumerate(lines):
        able = [
            (one.name == line.name, runs[at][number], one.at, one)
            for at in wrote.get(line.hash or -1, ())
            if _may_be(one := known[at], line)
        ]
        best = max(able, default=None)
        found.append(best[3] if best and _is_sure(best[0], best[1], {one[3].session for one in able}) else None)
    return _filled(lines, found)


def _places(lines: Sequence[Line], wrote: Mapping[int, Collection[int]]) -> dict[int, list[int]]:
    """Return the numbers of the lines that each edit wrote."""
    found: dict[int, list[int]] = defaultdict(list)
    for number, line in enumerate(lines):
        for at in wrote.get(line.hash or -1, ()):
            found[at].append(number)
    return found


def _runs(lines: Sequence[Line], places: Sequence[int]) -> dict[int, int]:
    """Return the length of the run that each line number is in; lines that do not count do not end a run."""
    found: dict[int, int] = {}
    run: list[int] = []
    for number in places:
        if run and any(line.hash is not None for line in lines[run[-1] + 1 : number]):
            found.update(dict.fromkeys(run, len(run)))
            run = []
        run.append(number)
    return {**found, **dict.fromkeys(run, len(run))}


def _may_be(edit: FileEdit, line: Line) -> bool:
    return line.committed_at is None or (line.committed_at - WINDOW_MS <= edit.at <= line.committed_at + SLACK_MS)


def _is_sure(is_same_file: bool, run: int, sessions: Collection[int]) -> bool:
    if run >= MIN_RUN:
        return True
    return is_same_file and (run > 1 or len(sessions) <= MAX_SESSIONS)


def _filled(lines: Sequence[Line], found: list[FileEdit | None]) -> list[FileEdit | None]:
    """Give lines that do not count, such as braces, to the edit that wrote the lines before and after them."""
    last: int | None = None
    for number, line in enumerate(lines):
        if line.hash is None:
            continue
        edit = found[number]
        if edit is not None and last is not None and found[last] == edit:
            found[last + 1 : number] = [edit] * (number - last - 1)
        last = number
    return found
