"""One time found in a question, before it has a zone. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from crystal.timewords.calendar_spans import Stretch

_LEAP_YEARS_APART = 8


@dataclass(frozen=True, slots=True)
class Found:
    """A time word.

    Attributes:
        start: Where it begins in the text.
        end: Where it ends.
        readings: What it may mean, the likeliest first.
        grain: How exact it is: ``hour``, ``day``, ``week``, ``month`` or ``year``.
        yearly: For one without a year: what it means in a given year.
    """

    start: int
    end: int
    readings: tuple[Stretch, ...]
    grain: str
    yearly: Callable[[int], Stretch] | None = None


def latest(yearly: Callable[[int], Stretch], now: datetime) -> Stretch:
    """The latest of something that comes every year which has begun by ``now``.

    Raises:
        ValueError: There is none, such as the 30th of February.
    """
    for back in range(_LEAP_YEARS_APART + 1):
        try:
            stretch = yearly(now.year - back)
        except ValueError:
            continue
        if stretch[0] <= now:
            return stretch
    raise ValueError(now)


def following(yearly: Callable[[int], Stretch], start: datetime) -> Stretch:
    """The first of something that comes every year which begins at or after ``start``.

    Raises:
        ValueError: There is none.
    """
    for on in range(_LEAP_YEARS_APART + 1):
        try:
            stretch = yearly(start.year + on)
        except ValueError:
            continue
        if stretch[0] >= start:
            return stretch
    raise ValueError(start)
