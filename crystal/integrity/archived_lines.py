"""Recognize the lines of an archive in the transcript from which they were read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from itertools import groupby

from crystal.capture.privacy import BY_COPY
from crystal.capture.tail import Cleaner
from crystal.model.capture import BEFORE_CRYSTAL, RESTORED
from crystal.transcript.line_context import without_context
from crystal.transcript.reader import TranscriptReader


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
        self._last: list[bytes] = []
        """Lines without a name at the end of the archive."""
        for line in lines:
            names = self._names_of(line)
            self._names.update(names)
            if names:
                self._last.clear()
            elif line:
                self._last.append(line)

    def stretches(self, file: Iterable[bytes], end: int) -> list[tuple[int, int, str]]:
        """Return the bytes of a transcript up to its last archived line, as (first, end, rule).

        The rule is ``RESTORED`` for archived lines, ``BY_COPY`` for private ones and ``BEFORE_CRYSTAL`` for others; a
        line without a name gets the rule of its neighbour.
        """
        lines: list[tuple[int, int, str | None]] = []
        at, count, rule, rest = 0, 0, None, list(self._last)
        for line in file:
            start, at = at, at + len(line) + (not line.endswith(b"\n"))
            if at > end:
                break
            text = line.rstrip(b"\n")
            own = self._rule_of(text)
            if own == RESTORED:
                rest = list(self._last)
            elif own is None and rest and count == len(lines) and self._clean(text) == rest[0]:
                own = RESTORED
                del rest[0]
            rule = own or rule
            lines.append((start, at, rule))
            if own == RESTORED:
                count = len(lines)
        first = next((rule for *_, rule in lines if rule), RESTORED)
        runs = [list(run) for _, run in groupby(lines[:count], key=lambda line: line[2] or first)]
        return [(run[0][0], run[-1][1], run[0][2] or first) for run in runs]

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
