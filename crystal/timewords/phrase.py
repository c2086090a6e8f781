"""Define times that were found, and the matches of patterns from which they are computed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from crystal.timewords.calendar_spans import Stretch
from crystal.timewords.time_tokens import TimeToken

_LEAP_YEARS_APART = 8
_NOTHING = TimeToken("", 0, 0, {})


@dataclass(frozen=True, slots=True)
class TimePhrase:
    """A time.

    Attributes:
        readings: Its possible meanings, likeliest first.
        grain: Its precision: ``hour``, ``day``, ``week``, ``month`` or ``year``.
        yearly: For a time without a year, a function from a year to its span.
        is_weekday: Whether it is only a day of the week.
    """

    readings: tuple[Stretch, ...]
    grain: str
    yearly: Callable[[int], Stretch] | None = None
    is_weekday: bool = False


@dataclass(frozen=True, slots=True)
class PhraseMatch:
    """Tokens that match a pattern, with their neighbours and the present on the local clock."""

    tokens: list[TimeToken]
    match: re.Match[str]
    names: Mapping[str, str]
    now: datetime

    def __contains__(self, name: str) -> bool:
        """Return whether a group of the pattern matched."""
        return name in self.names and self.match.start(name) >= 0

    def token(self, *names: str) -> TimeToken:
        """Return the token of the first of these groups that matched."""
        return next((self.tokens[self.match.start(name)] for name in names if name in self), _NOTHING)

    def __getitem__(self, name: str) -> Any:
        """Return the value of a group's token; None if the group did not match."""
        return self.token(name).tags[self.names[name]] if name in self else None

    @property
    def time(self) -> TimePhrase:
        """Return the time in the phrase."""
        found: TimePhrase = self["time"]
        return found

    @property
    def after(self) -> TimeToken:
        """Return the token after the phrase."""
        return self.beyond(0)

    def beyond(self, count: int) -> TimeToken:
        """Return the token ``count`` places after the one that follows the phrase."""
        at = self.match.end() + count
        return self.tokens[at] if at < len(self.tokens) else _NOTHING

    @property
    def before(self) -> TimeToken:
        """Return the token before the phrase; articles and hyphens are skipped."""
        at = self.match.start() - 1
        while at >= 0 and self.tokens[at].has("article dash"):
            at -= 1
        return self.tokens[at] if at >= 0 else _NOTHING

    @property
    def joins(self) -> bool:
        """Return True if a word before the phrase joins it to another time: ``in May and June``."""
        at = self.match.start() - 1
        return at > 0 and self.tokens[at].has("link strong_link") and self.tokens[at - 1].has("time")

    @property
    def ends(self) -> bool:
        """Return True if no counted noun follows, but the end, a sign, a word of grammar or a name."""
        if self.after.tags.keys() == {"word"}:
            return self.after.is_capital
        return not self.after.has("hidden number")


def latest(yearly: Callable[[int], Stretch], now: datetime) -> Stretch:
    """Return the latest span of a yearly time that has begun by ``now``.

    Raises:
        ValueError: There is none, such as the 30th of February.
    """
    return _first(yearly, range(now.year, now.year - _LEAP_YEARS_APART - 1, -1), lambda start: start <= now)


def following(yearly: Callable[[int], Stretch], start: datetime) -> Stretch:
    """Return the first span of a yearly time that begins at or after ``start``.

    Raises:
        ValueError: There is none.
    """
    return _first(yearly, range(start.year, start.year + _LEAP_YEARS_APART + 1), lambda begin: begin >= start)


def _first(yearly: Callable[[int], Stretch], years: range, fits: Callable[[datetime], bool]) -> Stretch:
    for year in years:
        try:
            stretch = yearly(year)
        except ValueError:
            continue
        if fits(stretch[0]):
            return stretch
    raise ValueError(years)
