"""Find the lines of archives that are, or repeat, forgotten text.

The store holds only the conversation. An archive also has the client's own notes, copies in forks, and the middle of
long tool results. So every frame is searched; a frame that cannot match is not parsed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path

from crystal.config.harnesses import CLAUDE_CODE
from crystal.forgetting.match.multi_pattern import MIN_LENGTH, MultiPatternMatcher
from crystal.forgetting.match.patterns import TextMatcher
from crystal.forgetting.match.query_terms import Terms, folded, may_hold, readable
from crystal.forgetting.request import ArchivedMatch, Because
from crystal.ingest import archive
from crystal.store.forget.forgetting import ForgottenScope
from crystal.store.forget.forgotten_rows import KeptRow
from crystal.transcript.line import parse_line
from crystal.transcript.reader import LineFacts, is_forgotten, reader_of

_When = tuple[int | None, str | None]

READ_ALONE = frozenset({CLAUDE_CODE})
"""Programs whose transcript lines name themselves and their turns without the lines before them."""


class ArchiveSearch:
    """Search through archives.

    Args:
        lines: Forgotten ids of lines and turns.
        texts: Finds forgotten text; None to skip the text search.
        sessions: Sessions from which something is forgotten: a note of theirs goes for a word or stretch in common.
        terms: The words of a query, or None.
        stays: Returns True if the text with this id stays in the memory.
        scopes: Forgotten sessions, folders and times.
        repeating: The rows of other sessions whose lines may quote a text or have the words; None for all.
    """

    def __init__(
        self,
        lines: frozenset[str],
        texts: TextMatcher | None,
        sessions: Collection[str],
        terms: Terms | None,
        stays: Callable[[str], bool],
        scopes: Sequence[ForgottenScope] = (),
        repeating: Collection[KeptRow] | None = None,
    ) -> None:
        self._lines, self._texts, self._sessions = lines, texts, sessions
        self._terms, self._stays, self._scopes, self._repeating = terms, stays, scopes, repeating
        ids = [uuid.encode("utf-8", "surrogatepass") for uuid in lines]
        # An id that is too short to search for, or is in no line, requires reading every line.
        self._every = any(len(uuid) < MIN_LENGTH or uuid.startswith(b"line-") for uuid in ids)
        self._ids = MultiPatternMatcher([] if self._every else sorted(ids))
        self._notes: list[ArchivedMatch] = []

    def run(self, rows: Iterable[KeptRow], ldm_home: Path) -> Iterator[ArchivedMatch]:
        """Yield the matching lines of all rows. An unreadable frame has none; one that cannot match is not parsed.

        The client's notes repeat earlier text in another place or time: if a scope covers part of a session, all its
        notes are deleted.
        """
        touched: set[str] = set()
        for row in rows:
            text = text_of_row(row, ldm_home) or b""
            may_repeat = self._repeating is None or row.session_id in self._sessions or row in self._repeating
            hits = list(self._texts.find(text)) if self._texts is not None and may_repeat else []
            if not hits and not self._is_worth_it(row, text, may_repeat=may_repeat):
                continue
            for found in self._matches(row, text, hits):
                touched.add(row.session_id)
                yield found
        yield from (found for found in self._notes if found.row.session_id in touched)

    def _is_worth_it(self, row: KeptRow, text: bytes, *, may_repeat: bool) -> bool:
        return (
            self._every
            or any(scope.session in (None, row.session_id) for scope in self._scopes)
            or (self._terms is not None and may_repeat and may_hold(self._terms, text))
            or self._ids.is_in(text)
        )

    def _matches(self, row: KeptRow, text: bytes, hits: Sequence[int]) -> Iterator[ArchivedMatch]:
        """Yield the matching lines of one frame. A note was written when and where the line before it was."""
        lines = text.split(b"\n")[:-1]
        starts = list(accumulate((len(line) + 1 for line in lines), initial=0))
        hit = {bisect_right(starts, place) - 1 for place in hits}
        named = {bisect_right(starts, place) - 1 for place, _ in self._ids.find(text)}
        chosen = self._chosen(row, lines, hit | named)
        facts = [reader_of(row.harness).facts(lines[number]) for number in chosen]
        placed = [(row.start + starts[number], lines[number]) for number in chosen]
        turns = _turns_by_offset(row, placed)
        for number, (place, line), own, around in zip(chosen, placed, facts, _times_and_folders(facts), strict=True):
            if not line.strip() or is_forgotten(line):
                continue
            ids = tuple(turns.get(place, ()))
            when = (own.timestamp_ms, own.cwd) if ids else around  # the memory has turns with their own
            because = self._names(row, own, ids, when) or self._repeats(row, line, ids, is_hit=number in hit)
            if because is not None:
                yield ArchivedMatch(row, number, because, own.uuid, ids)
            elif self._scopes and own.is_bookkeeping:
                self._notes.append(ArchivedMatch(row, number, "bookkeeping"))

    def _names(self, row: KeptRow, own: LineFacts, turns: tuple[str, ...], when: _When) -> Because | None:
        """Return why a line goes because of its id, or its time and folder, or None."""
        if own.uuid in self._lines or not self._lines.isdisjoint(turns):
            return "copy"
        return "session" if any(scope.holds(row.session_id, *when) for scope in self._scopes) else None

    def _chosen(self, row: KeptRow, lines: Sequence[bytes], found: set[int]) -> Sequence[int]:
        """Return the numbers of the lines that may match, or of all; an escape may hide an id."""
        if self._scopes or self._every or row.harness not in READ_ALONE:
            return range(len(lines))
        terms, has_ids = self._terms, bool(self._lines)
        worth = [(has_ids and b"\\u" in line) or (terms is not None and may_hold(terms, line)) for line in lines]
        return [number for number, is_worth_it in enumerate(worth) if is_worth_it or number in found]

    def _repeats(self, row: KeptRow, line: bytes, turns: tuple[str, ...], *, is_hit: bool) -> Because | None:
        """Return why a line goes because of its text, or None."""
        stays = any(map(self._stays, turns))
        if self._terms is not None and _has_words(self._terms, line, row.harness, whole=not stays):
            return "asked"
        if not is_hit or self._texts is None:
            return None
        if not stays and row.session_id in self._sessions:
            return "bookkeeping"
        if not self._texts.is_quoted(readable_texts(line, row.harness)):  # a single line is often repeated by chance
            return None
        return "quote" if stays else "bookkeeping"


def _times_and_folders(facts: Sequence[LineFacts]) -> list[_When]:
    """Return time and folder of each line, its own or else those of the line before it; of the first, the next ones."""
    at = next((one.timestamp_ms for one in facts if one.timestamp_ms is not None), None)
    cwd = next((one.cwd for one in facts if one.cwd is not None), None)
    found: list[_When] = []
    for one in facts:
        at, cwd = one.timestamp_ms or at, one.cwd or cwd
        found.append((at, cwd))
    return found


def _turns_by_offset(row: KeptRow, lines: Sequence[tuple[int, bytes]]) -> dict[int, dict[str, None]]:
    found: dict[int, dict[str, None]] = {}
    for turn in reader_of(row.harness).turns(lines, row.key, subagent=row.subagent is not None):
        found.setdefault(turn.offset, {})[turn.uuid] = None
    return found


def text_of_row(row: KeptRow, ldm_home: Path) -> bytes | None:
    """Return the archived lines of a row; None if they cannot be read."""
    return archive.text_of(ldm_home / row.archive, archive.Frame(row.offset, row.length))


def began_at(rows: Iterable[KeptRow], ldm_home: Path) -> int | None:
    """Return the time of the first of the client's own notes, or None.

    A fork copies lines with their times and ids, but no notes: lines older than its first note come from another
    session.
    """
    facts = (
        reader_of(row.harness).facts(line) for row in rows for line in (text_of_row(row, ldm_home) or b"").split(b"\n")
    )
    return min((one.timestamp_ms for one in facts if one.uuid is None and one.timestamp_ms is not None), default=None)


def _has_words(terms: Terms, line: bytes, harness: str, *, whole: bool) -> bool:
    """Return True if a line has all the words, apart from its fields for place and time.

    If the turns of the line stay, one single text of it must have all words: that text is longer than the stored one.
    """
    if not may_hold(terms, line):
        return False
    texts = readable_texts(line, harness)
    return any(map(terms.are_in, [" ".join(texts)] if whole else texts))


def readable_texts(line: bytes, harness: str) -> list[str]:
    """Return the texts of a line apart from its fields for place and time, folded; a line without fields as it is."""
    fields, envelope = parse_line(line) or {}, reader_of(harness).envelope
    texts = _texts({name: value for name, value in fields.items() if name not in envelope})
    said = texts if fields else [line.decode("utf-8", "replace")]
    return [_folded_levels(text) if "\\" in text or "\x1b" in text else folded(text) for text in said]


def _folded_levels(text: str) -> str:
    """Return a text as it is and with its escapes undone: it may be JSON, or a Windows path, which has none."""
    return f"{folded(text)} {readable(text.encode('utf-8', 'replace'))}"


def _texts(value: object, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list) and depth < 50:
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each, depth + 1)
