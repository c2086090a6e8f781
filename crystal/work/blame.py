"""Find which edit wrote each line of a file: by the lines' hashes, and by the lines around it that it wrote too."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from crystal.model.named_tuple import NamedTuple

MIN_RUN = 4
"""Lines together that an edit of a file with another name must have written: the file was renamed, or lines moved."""
MAX_SESSIONS = 3
"""A line alone that more sessions wrote says nothing about who wrote this one."""
SLACK_MS = 120_000
"""Time by which an edit may be later than its commit: clocks of two machines differ."""
WINDOW_MS = 21 * 86_400_000
"""Time by which an edit may be older than its commit: what waits longer was usually written anew."""


class FileEdit(NamedTuple):
    """An edit of one file by a tool call: ``turn`` and ``part`` name it, ``name`` is the file's own name."""

    turn: int
    part: int
    session: int
    at: int
    name: str


class Line(NamedTuple):
    """A line of the file: its hash, None if it does not count; the commit that it is from, ms, None if there is none.

    ``name`` is what the file was called in that commit.
    """

    hash: int | None
    committed_at: int | None
    name: str


def attribute(
    lines: Sequence[Line], edits: Iterable[FileEdit], wrote: Mapping[int, Collection[int]]
) -> list[FileEdit | None]:
    """Return which edit wrote each line, None if no edit is known.

    Args:
        lines: Consecutive lines of a file.
        edits: Those that wrote any of them.
        wrote: The places in ``edits`` of those that wrote a line, by its hash.
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
    """Return for each place how many places are in its run; lines that do not count do not end a run."""
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
