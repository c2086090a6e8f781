"""Find the lines of archives that are, or repeat, forgotten text.

The store holds only the conversation. An archive also has the client's own notes, copies in forks, and the middle of
long tool results. So every frame is searched; a frame that cannot match is not parsed.
"""

from __future__ import annotations

import contextlib
import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from crystal import transcript
from crystal.errors import Damaged
from crystal.forgetting.match.multi_pattern import MIN_LENGTH, MultiPatternMatcher
from crystal.forgetting.match.needles import Needles
from crystal.forgetting.match.redacted_line import is_shell
from crystal.forgetting.match.terms import Terms, may_hold, readable
from crystal.forgetting.request import Because
from crystal.ingest import archive
from crystal.model.capture import Turn
from crystal.store.forget.forgotten_rows import KeptRow
from crystal.store.search.scope import is_within

_NEWLINE = re.compile(rb"\n")
_ENVELOPE = frozenset(
    "cwd gitBranch sessionId session_id uuid parentUuid logicalParentUuid timestamp version userType slug requestId"
    " entrypoint leafUuid promptId sourceToolAssistantUUID".split()
)


@dataclass(frozen=True, slots=True)
class Scope:
    """Everything said in a session or folder (None: any) before a given time."""

    session: str | None
    folder: str | None
    until: int

    def may_hold(self, session_id: str) -> bool:
        """Return True if a line of this session could be in scope."""
        return self.session in (None, session_id)

    def holds(self, session_id: str, at: int | None, cwd: str | None) -> bool:
        """Return True if a line is in scope. A line without a time is in scope with its session."""
        if not self.may_hold(session_id) or (at is None and self.session is None) or (at or 0) >= self.until:
            return False
        return self.folder is None or (cwd is not None and is_within(cwd, self.folder))


@dataclass(frozen=True, slots=True)
class Found:
    """Archived line to delete: its place, its own id, those of its turns, and the reason."""

    row: KeptRow
    number: int
    because: Because
    uuid: str | None
    turns: tuple[str, ...]
    line: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class LineMatcher:
    """Criteria that decide about a line.

    Attributes:
        lines: Forgotten ids of lines and turns.
        scopes: Forgotten sessions, folders and times.
        needles: Forgotten text that does not also occur in retained text; None to skip the text search.
        terms: The words of a query, or None.
        stays: Returns True if the text with this id stays in the memory.
    """

    lines: Collection[str] = frozenset()
    scopes: tuple[Scope, ...] = ()
    needles: Needles | None = None
    terms: Terms | None = None
    stays: Callable[[str], bool] = lambda _: False


class Searcher:
    """Search through archives."""

    def __init__(self, judge: LineMatcher) -> None:
        self._judge = judge
        self._lines = frozenset(judge.lines)
        ids = [uuid.encode("utf-8", "surrogatepass") for uuid in self._lines]
        # An id that is too short to search for, or is in no line, requires reading every line.
        self._every = any(len(uuid) < MIN_LENGTH or uuid.startswith(b"line-") for uuid in ids)
        self._ids = MultiPatternMatcher([] if self._every else sorted(ids))
        self._unplaced: list[Found] = []

    def search(self, rows: Iterable[KeptRow], ldm_home: Path) -> Iterator[Found]:
        """Yield the matching lines of all rows. An unreadable frame has none.

        The client's notes repeat earlier text in another place or time: if a scope covers part of a session, all its
        notes are deleted.
        """
        touched: set[str] = set()
        for row in rows:
            try:
                text = archive.read_frame(ldm_home / row.archive, archive.Frame(row.offset, row.length))
            except Damaged:
                continue
            if self._is_worth_it(row, text):
                for found in self.look(row, text):
                    touched.add(row.session_id)
                    yield found
        yield from (found for found in self._unplaced if found.row.session_id in touched)

    def _is_worth_it(self, row: KeptRow, text: bytes) -> bool:
        judge = self._judge
        return (
            (self._every and bool(self._lines))
            or any(scope.may_hold(row.session_id) for scope in judge.scopes)
            or (judge.terms is not None and may_hold(judge.terms, text))
            or next(self._ids.find(text), None) is not None
            or (judge.needles is not None and next(judge.needles.seeker.find(text), None) is not None)
        )

    def look(self, row: KeptRow, text: bytes) -> Iterator[Found]:
        """Yield the matching lines of one frame."""
        lines = text.split(b"\n")[:-1]
        parsed = [transcript.parse_line(line) or {} for line in lines]
        turns = _turns_of(row, lines)
        hits = self._hits(text)
        at, cwd = _first(parsed)
        for number, (line, fields) in enumerate(zip(lines, parsed, strict=True)):
            facts = transcript.facts_of(fields)
            at, cwd = facts.timestamp_ms or at, facts.cwd or cwd
            if is_shell(line):
                continue
            said = turns.get(number, [])
            ids = tuple(dict.fromkeys(turn.uuid for turn in said))
            because = self._because(row, line, fields, facts.uuid, ids, at, cwd, hits.get(number))
            if because is not None:
                yield Found(row, number, because, facts.uuid, ids, line)
            elif self._judge.scopes and facts.uuid is None and facts.type not in ("user", "assistant"):
                self._unplaced.append(Found(row, number, "bookkeeping", None, (), line))

    def _hits(self, text: bytes) -> dict[int, bool]:
        """Return the numbers of lines with a match, and whether it is more than a word."""
        needles = self._judge.needles
        found: dict[int, bool] = {}
        if needles is None:
            return found
        ends: list[int] = []
        for offset, number in needles.find_in_lines(text):
            ends = ends or [match.start() for match in _NEWLINE.finditer(text)]
            place = bisect_left(ends, offset)
            found[place] = found.get(place, False) or needles.is_text(number)
        return found

    def _quotes(self, line: bytes) -> bool:
        needles = self._judge.needles
        data = readable(line).encode("utf-8", "replace")
        return needles is not None and next(needles.whole.find(data), None) is not None

    def _because(
        self,
        row: KeptRow,
        line: bytes,
        fields: dict[str, Any],
        uuid: str | None,
        turns: tuple[str, ...],
        at: int | None,
        cwd: str | None,
        hit: bool | None,
    ) -> Because | None:
        judge = self._judge
        if uuid in self._lines or any(turn in self._lines for turn in turns):
            return "copy"
        if turns:  # the memory stores these with their own time and folder
            facts = transcript.facts_of(fields)
            at, cwd = facts.timestamp_ms, facts.cwd
        if any(scope.holds(row.session_id, at, cwd) for scope in judge.scopes):
            return "session"
        stays = any(judge.stays(turn) for turn in turns)
        if judge.terms is not None and _has_words(judge.terms, line, fields, whole=not stays):
            return "asked"
        if hit is None:
            return None
        if stays:  # legitimate, unless it holds a whole forgotten text: a single line is often repeated by chance
            return "quote" if hit and self._quotes(line) else None
        return "bookkeeping"


def began_at(rows: Iterable[KeptRow], ldm_home: Path) -> int | None:
    """Return the time of the first of the client's own notes, or None.

    A fork copies lines with their times and ids, but no notes: lines older than its first note come from another
    session.
    """
    times: list[int] = []
    for row in rows:
        with contextlib.suppress(Damaged):
            text = archive.read_frame(ldm_home / row.archive, archive.Frame(row.offset, row.length))
            facts = map(transcript.line_facts, text.split(b"\n"))
            times += [one.timestamp_ms for one in facts if one.uuid is None and one.timestamp_ms is not None]
    return min(times, default=None)


def _turns_of(row: KeptRow, lines: list[bytes]) -> dict[int, list[Turn]]:
    """Return the turns of lines by line number. Offsets are exact only if nothing was removed before."""
    numbers: dict[int, int] = {}
    placed = []
    at = row.start
    for number, line in enumerate(lines):
        numbers[at] = number
        placed.append((at, line))
        at += len(line) + 1
    found: dict[int, list[Turn]] = {}
    for turn in transcript.parse_turns(placed, row.key, subagent=row.subagent is not None):
        found.setdefault(numbers[turn.offset], []).append(turn)
    return found


def _first(parsed: list[dict[str, Any]]) -> tuple[int | None, str | None]:
    """Return the first time and folder found in some lines; earlier lines belong to them."""
    facts = [transcript.facts_of(fields) for fields in parsed]
    at = next((fact.timestamp_ms for fact in facts if fact.timestamp_ms is not None), None)
    return at, next((fact.cwd for fact in facts if fact.cwd is not None), None)


def _has_words(terms: Terms, line: bytes, fields: dict[str, Any], *, whole: bool) -> bool:
    """Return True if a line has all the words, apart from its fields for place and time.

    If the turns of the line stay, one single text of it must have all words: that text is longer than the stored one.
    """
    if not may_hold(terms, line):
        return False
    content = {name: value for name, value in fields.items() if name not in _ENVELOPE}
    if whole:
        try:
            return terms.are_in(readable(orjson.dumps(content) if fields else line))
        except (TypeError, ValueError):
            return terms.are_in(readable(line))
    return any(terms.are_in(readable(text.encode("utf-8", "replace"))) for text in _texts(content))


def _texts(value: object, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict) and depth < 50:
        for each in value.values():
            yield from _texts(each, depth + 1)
    elif isinstance(value, list) and depth < 50:
        for each in value:
            yield from _texts(each, depth + 1)
