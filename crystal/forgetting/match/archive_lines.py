"""Find the lines of archives that are, or repeat, forgotten text.

The store holds only the conversation. An archive also has the client's own notes, copies in forks, and the middle of
long tool results. So every frame is searched; a frame that cannot match is not parsed.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from crystal import transcript
from crystal.errors import DamagedError
from crystal.forgetting.match.multi_pattern import MIN_LENGTH, MultiPatternMatcher
from crystal.forgetting.match.patterns import TextMatcher
from crystal.forgetting.match.terms import Terms, may_hold, readable
from crystal.forgetting.request import Because
from crystal.ingest import archive
from crystal.store.forget.forgotten_rows import KeptRow
from crystal.store.search.scope import is_within
from crystal.transcript.line import parse_line


@dataclass(frozen=True, slots=True)
class ArchiveScope:
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
class ArchivedMatch:
    """Archived line to delete: its place, its own id, those of its turns, and the reason."""

    row: KeptRow
    number: int
    because: Because
    uuid: str | None = None
    turns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LineMatcher:
    """Criteria that decide about a line.

    Attributes:
        lines: Forgotten ids of lines and turns.
        scopes: Forgotten sessions, folders and times.
        texts: Finds forgotten text; None to skip the text search.
        sessions: Sessions from which something is forgotten: a note of theirs goes for a word or stretch in common.
        terms: The words of a query, or None.
        stays: Returns True if the text with this id stays in the memory.
    """

    lines: Collection[str] = frozenset()
    scopes: tuple[ArchiveScope, ...] = ()
    texts: TextMatcher | None = None
    sessions: Collection[str] = frozenset()
    terms: Terms | None = None
    stays: Callable[[str], bool] = lambda _: False


class ArchivedLine(NamedTuple):
    """A line of a frame, with the ids of its turns, and when and where it was written as far as known."""

    line: bytes
    is_bookkeeping: bool
    uuid: str | None
    turns: tuple[str, ...]
    at: int | None
    cwd: str | None
    is_hit: bool


class Searcher:
    """Search through archives."""

    def __init__(self, matcher: LineMatcher) -> None:
        self._matcher = matcher
        self._lines = frozenset(matcher.lines)
        ids = [uuid.encode("utf-8", "surrogatepass") for uuid in self._lines]
        # An id that is too short to search for, or is in no line, requires reading every line.
        self._every = any(len(uuid) < MIN_LENGTH or uuid.startswith(b"line-") for uuid in ids)
        self._ids = MultiPatternMatcher([] if self._every else sorted(ids))
        self._unplaced: list[ArchivedMatch] = []

    def search(self, rows: Iterable[KeptRow], ldm_home: Path) -> Iterator[ArchivedMatch]:
        """Yield the matching lines of all rows. An unreadable frame has none.

        The client's notes repeat earlier text in another place or time: if a scope covers part of a session, all its
        notes are deleted.
        """
        touched: set[str] = set()
        for row in rows:
            with contextlib.suppress(DamagedError):
                text = archive.read_frame(ldm_home / row.archive, archive.Frame(row.offset, row.length))
                for found in self._look(row, text):
                    touched.add(row.session_id)
                    yield found
        yield from (found for found in self._unplaced if found.row.session_id in touched)

    def _look(self, row: KeptRow, text: bytes) -> Iterator[ArchivedMatch]:
        """Yield the matching lines of one frame; one that cannot match is not parsed."""
        hits = [] if self._matcher.texts is None else list(self._matcher.texts.find(text))
        if not hits and not self._is_worth_it(row, text):
            return
        for number, line in enumerate(self._parsed(row, text.split(b"\n")[:-1], hits)):
            if not line.line.strip() or transcript.is_forgotten(line.line):
                continue
            because = self._because(row, line)
            if because is not None:
                yield ArchivedMatch(row, number, because, line.uuid, line.turns)
            elif self._matcher.scopes and line.is_bookkeeping:
                self._unplaced.append(ArchivedMatch(row, number, "bookkeeping"))

    def _is_worth_it(self, row: KeptRow, text: bytes) -> bool:
        matcher = self._matcher
        return (
            (self._every and bool(self._lines))
            or any(scope.may_hold(row.session_id) for scope in matcher.scopes)
            or (matcher.terms is not None and may_hold(matcher.terms, text))
            or self._ids.is_in(text)
        )

    def _parsed(self, row: KeptRow, lines: list[bytes], hits: Sequence[int]) -> Iterator[ArchivedLine]:
        """Yield the lines of a frame. A note was written when and where the line before it was."""
        starts = list(accumulate((len(line) + 1 for line in lines), initial=0))
        hit = {bisect_right(starts, place) - 1 for place in hits}
        reader = transcript.reader_of(row.harness)
        facts = [reader.facts(line) for line in lines]
        at = next((one.timestamp_ms for one in facts if one.timestamp_ms is not None), None)
        cwd = next((one.cwd for one in facts if one.cwd is not None), None)
        turns: dict[int, dict[str, None]] = {}
        placed = [(row.start + start, line) for start, line in zip(starts, lines, strict=False)]
        for turn in reader.turns(placed, row.key, subagent=row.subagent is not None):
            turns.setdefault(turn.offset, {})[turn.uuid] = None
        for number, ((place, line), own) in enumerate(zip(placed, facts, strict=True)):
            at, cwd = own.timestamp_ms or at, own.cwd or cwd
            ids = tuple(turns.get(place, ()))
            when = (own.timestamp_ms, own.cwd) if ids else (at, cwd)  # the memory has turns with their own
            yield ArchivedLine(line, own.is_bookkeeping, own.uuid, ids, *when, number in hit)

    def _because(self, row: KeptRow, line: ArchivedLine) -> Because | None:
        matcher = self._matcher
        if line.uuid in self._lines or any(turn in self._lines for turn in line.turns):
            return "copy"
        if any(scope.holds(row.session_id, line.at, line.cwd) for scope in matcher.scopes):
            return "session"
        stays = any(matcher.stays(turn) for turn in line.turns)
        if matcher.terms is not None and _has_words(matcher.terms, line.line, row.harness, whole=not stays):
            return "asked"
        if not line.is_hit or matcher.texts is None:
            return None
        if not stays and row.session_id in matcher.sessions:
            return "bookkeeping"
        if not matcher.texts.is_quoted(line.line):  # a single line is often repeated by chance
            return None
        return "quote" if stays else "bookkeeping"


def began_at(rows: Iterable[KeptRow], ldm_home: Path) -> int | None:
    """Return the time of the first of the client's own notes, or None.

    A fork copies lines with their times and ids, but no notes: lines older than its first note come from another
    session.
    """
    times: list[int] = []
    for row in rows:
        with contextlib.suppress(DamagedError):
            text = archive.read_frame(ldm_home / row.archive, archive.Frame(row.offset, row.length))
            facts = map(transcript.reader_of(row.harness).facts, text.split(b"\n"))
            times += [one.timestamp_ms for one in facts if one.uuid is None and one.timestamp_ms is not None]
    return min(times, default=None)


def _has_words(terms: Terms, line: bytes, harness: str, *, whole: bool) -> bool:
    """Return True if a line has all the words, apart from its fields for place and time.

    If the turns of the line stay, one single text of it must have all words: that text is longer than the stored one.
    """
    if not may_hold(terms, line):
        return False
    fields, envelope = parse_line(line) or {}, transcript.reader_of(harness).envelope
    texts = list(_texts({name: value for name, value in fields.items() if name not in envelope}))
    if whole:
        texts = ["\n".join(texts) if fields else line.decode("utf-8", "replace")]
    return any(terms.are_in(readable(text.encode("utf-8", "replace"))) for text in texts)


def _texts(value: object, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list) and depth < 50:
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each, depth + 1)
