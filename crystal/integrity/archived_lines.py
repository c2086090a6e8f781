"""Recognize the lines of an archive in the transcript from which they were read."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from crystal.capture.privacy import BY_COPY
from crystal.capture.tail import Cleaner
from crystal.model.capture import BEFORE_CRYSTAL, RESTORED
from crystal.transcript.line_context import without_context
from crystal.transcript.reader import TranscriptReader, is_forgotten


@dataclass(slots=True)
class _Line:
    """A line of a transcript: its bytes from ``start`` to ``end``. The archive is searched for ``key``."""

    start: int
    end: int
    rule: str | None
    key: bytes


class ArchivedLines:
    """The lines of one archive.

    Args:
        lines: All of them, in order.
        reader: The reader of the transcript.
        cleaner: Removes secrets, as capture does.
        is_private: Returns whether a line with this id is known to be private.
    """

    def __init__(
        self, lines: Iterable[bytes], reader: TranscriptReader, cleaner: Cleaner, is_private: Callable[[str], bool]
    ) -> None:
        self._reader, self._cleaner, self._is_private = reader, cleaner, is_private
        self._names: set[str] = set()
        self._nameless: Counter[bytes] = Counter()
        """Number of copies in the archive of each line without an id."""
        self._may_be_forgotten = False
        """True if a line without an id was forgotten: the transcript still has it, and it must not be imported."""
        for line in lines:
            names = self._names_of(line)
            self._names.update(names)
            if line and not names:
                self._nameless[_key(line)] += 1
                self._may_be_forgotten |= is_forgotten(line)

    def stretches(self, file: Iterable[bytes], end: int) -> list[tuple[int, int, str]]:
        """Return the bytes of a transcript up to its last archived line, as (first, end, rule).

        The rule is ``RESTORED`` for archived lines, ``BY_COPY`` for private ones and ``BEFORE_CRYSTAL`` for others. Of
        equal lines without a name as many are archived as the archive has, first those among archived lines.
        """
        lines = list(self._read(file, end))
        before = _latest(line.rule for line in lines)
        after = _latest(line.rule for line in reversed(lines))[::-1]
        left = self._nameless.copy()
        nameless = [number for number, line in enumerate(lines) if line.rule is None]
        for number in sorted(nameless, key=lambda n: -(before[n], after[n]).count(RESTORED)):
            line = lines[number]
            if left[line.key] > 0:
                left[line.key] -= 1
                line.rule = RESTORED
            else:
                line.rule = self._rule_beside(before[number], after[number])
        count = max((number for number, line in enumerate(lines, 1) if line.rule == RESTORED), default=0)
        runs = [list(run) for _, run in groupby(lines[:count], key=lambda line: line.rule)]
        return [(run[0].start, run[-1].end, run[0].rule or RESTORED) for run in runs]

    def _read(self, file: Iterable[bytes], end: int) -> Iterator[_Line]:
        """Yield the lines up to a place."""
        at = 0
        for line in file:
            start, at = at, at + len(line) + (not line.endswith(b"\n"))
            if at > end:
                return
            text = line.rstrip(b"\n")
            rule, key = self._rule_of(text), _key(text)
            if rule is None and text and key not in self._nameless:
                key = _key(self._clean(text))
            yield _Line(start, at, rule, key)

    def _rule_beside(self, before: str | None, after: str | None) -> str:
        """Return the rule for a line without a name that the archive lacks, by the rules of its neighbours."""
        if RESTORED in (before, after) and (before == after or self._may_be_forgotten):
            return RESTORED
        return next((rule for rule in (before, after) if rule and rule != RESTORED), BEFORE_CRYSTAL)

    def _rule_of(self, line: bytes) -> str | None:
        """Return the rule for a line; None if it has no name."""
        names = self._names_of(line)
        if not names:
            return None
        if not self._names.isdisjoint(names):
            return RESTORED
        if self._is_private(names[0]):
            return BY_COPY
        is_archived = not self._names.isdisjoint(self._names_of(self._clean(line)))
        return RESTORED if is_archived else BEFORE_CRYSTAL

    def _clean(self, line: bytes) -> bytes:
        ((clean, _),) = self._cleaner.clean_lines(line + b"\n")
        return clean

    def _names_of(self, line: bytes) -> list[str]:
        """Return the names by which a line is recognized: its id, or the hash of its text if some lines lack ids."""
        uuid = self._reader.facts(line).uuid
        names = [] if uuid is None else [uuid]
        if not self._reader.lines_are_complete:
            names.append(hashlib.sha256(without_context(line).strip()).hexdigest())
        return names


def _latest(rules: Iterable[str | None]) -> list[str | None]:
    """Return for each place the last rule up to it."""
    latest = None
    return [latest := rule or latest for rule in rules]


def _key(line: bytes) -> bytes:
    return hashlib.sha256(line).digest()
