"""Limit the work that one text may cause, so that no input makes redaction slow.

The rules charge what they are about to do in units of roughly one nanosecond. A text may use an amount in proportion
to its size. When that is spent, ``TooDenseError`` is raised, and the caller removes the whole text instead of guessing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TypeVar

from crystal.redact.regex_engines import compiled

Found = TypeVar("Found")

UNITS_PER_BYTE = 28
"""Work allowed to each string, and as much again in reserve for its whole line. With more, texts of many findings would
be slower than 5 MB/s. No line of 108 MB of sessions needs half of it."""

MIN_UNITS = 24_000_000
"""Work allowed to one line beyond that: about 300 findings."""

CALL = 5_000
"""One call of a pattern from Python, with its result."""

PATTERN = 200_000
"""Compiling one pattern of a table, charged once for each line, whatever was compiled before."""

FINDING = 40_000
"""Everything that is done with one finding, from the span to the marker, in a process that has read nothing yet."""


class TooDenseError(Exception):
    """A text holds more possible secrets for its size than can be examined one by one."""


class RedactionWork:
    """Count the work for one text.

    Args:
        size: Bytes of the text.
        reserve: Where to take from when the share of this text is spent; usually that of the whole line.
    """

    __slots__ = ("_reserve", "left", "used")

    def __init__(self, size: int, reserve: RedactionWork | None = None) -> None:
        self.used: set[bytes] = reserve.used if reserve else set()
        self.left = size * UNITS_PER_BYTE + (0 if reserve else MIN_UNITS)
        self._reserve = reserve

    def spend(self, units: int) -> None:
        """Charge work.

        Raises:
            TooDenseError: The share of this text is spent.
        """
        self.left -= units
        if self.left >= 0:
            return
        if self._reserve is None:
            raise TooDenseError
        overdrawn, self.left = -self.left, 0
        self._reserve.spend(overdrawn)

    def compiled(self, pattern: bytes) -> re.Pattern[bytes]:
        """Compile a pattern of a table. Charged at its first use in the line."""
        if pattern not in self.used:
            self.used.add(pattern)
            self.spend(PATTERN)
        return compiled(pattern)

    def each(self, findings: Iterable[Found]) -> Iterator[Found]:
        """Yield findings, each charged."""
        for found in findings:
            self.spend(FINDING)
            yield found
