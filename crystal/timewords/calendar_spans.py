"""Stretches of the calendar: days, ISO weeks, months, quarters, seasons, years and parts of them. Pure.

A stretch is a pair of local times without a zone, its beginning and the first moment after it.
"""

# ruff: noqa: DTZ001  the zone is given to a stretch once, at its end, see the package's __init__

from __future__ import annotations

import calendar
from datetime import date, datetime, timedelta

Stretch = tuple[datetime, datetime]

DAY = timedelta(days=1)
PARTS_OF_DAY = {"morning": (0, 12), "afternoon": (12, 18), "evening": (17, 24), "night": (18, 30)}
"""Hours from midnight; a night ends in the next morning."""

FEASTS = ("christmas", "new year", "new year's eve", "halloween", "valentine", "easter", "thanksgiving")


def midnight(moment: datetime) -> datetime:
    """The first moment of its day."""
    return datetime(moment.year, moment.month, moment.day)


def day(year: int, month: int, number: int) -> Stretch:
    """One day."""
    start = datetime(year, month, number)
    return start, start + DAY


def days_from(moment: datetime, offset: int, count: int = 1) -> Stretch:
    """``count`` days, the first one ``offset`` days from the day of ``moment``."""
    start = midnight(moment) + timedelta(days=offset)
    return start, start + count * DAY


def month(year: int, number: int) -> Stretch:
    """One month."""
    return datetime(year, number, 1), _first_of(year * 12 + number)


def months(year: int, first: int, count: int) -> Stretch:
    """``count`` months, counted from January of ``year`` as 1; 0 and less lie before it."""
    return _first_of(year * 12 + first - 1), _first_of(year * 12 + first - 1 + count)


def year(number: int) -> Stretch:
    """One year."""
    return datetime(number, 1, 1), datetime(number + 1, 1, 1)


def months_from(moment: datetime, offset: int) -> datetime:
    """Midnight of the same day some months on or back, or of the last day of a shorter month."""
    index = moment.year * 12 + moment.month - 1 + offset
    first = _first_of(index)
    return first.replace(day=min(moment.day, calendar.monthrange(first.year, first.month)[1]))


def unit(name: str, moment: datetime, offset: int) -> Stretch:
    """The week, weekend, month, quarter or year that ``moment`` lies in, or the one ``offset`` of them on or back."""
    if name == "day":
        return days_from(moment, offset)
    if name == "week":
        return days_from(moment, -moment.weekday() + 7 * offset, 7)
    if name == "weekend":
        return days_from(moment, -moment.weekday() + 5 + 7 * offset, 2)
    if name == "month":
        return months(moment.year, moment.month + offset, 1)
    if name == "quarter":
        return months(moment.year, (moment.month - 1) // 3 * 3 + 1 + 3 * offset, 3)
    return year(moment.year + offset)


def quarter(of_year: int, number: int) -> Stretch:
    """A quarter of a year, 1 to 4."""
    return months(of_year, number * 3 - 2, 3)


def season(name: str, of_year: int) -> Stretch:
    """A season as meteorologists of the northern half count it; winter begins in December of ``of_year``."""
    return months(of_year, {"spring": 3, "summer": 6, "autumn": 9, "winter": 12}[name], 3)


def feast(name: str, of_year: int) -> Stretch:
    """A feast that people date things by."""
    if name == "christmas":
        return datetime(of_year, 12, 24), datetime(of_year, 12, 27)
    if name == "easter":
        sunday = _easter(of_year)
        return days_from(datetime(sunday.year, sunday.month, sunday.day), -2, 4)
    if name == "thanksgiving":
        first = date(of_year, 11, 1).weekday()
        return day(of_year, 11, 22 + (3 - first) % 7)
    fixed = {"new year": (1, 1), "new year's eve": (12, 31), "halloween": (10, 31), "valentine": (2, 14)}[name]
    return day(of_year, *fixed)


def hours_of(stretch: Stretch, part: str) -> Stretch:
    """The morning, afternoon, evening or night of a day."""
    first, last = PARTS_OF_DAY[part]
    return stretch[0] + timedelta(hours=first), stretch[0] + timedelta(hours=last)


def part_of(stretch: Stretch, part: str) -> Stretch:
    """The early, mid or late third of a stretch, or its first or second half; whole days, of a year whole months."""
    start, stop = stretch
    is_year = start.month == start.day == 1 and stop == datetime(start.year + 1, 1, 1)
    size = 12 if is_year else (stop - start).days
    cuts = {
        "early": (0, size // 3),
        "mid": (size // 3, size - size // 3),
        "late": (size - size // 3, size),
        "first": (0, size // 2),
        "second": (size // 2, size),
    }
    first, last = cuts[part]
    if is_year:
        return months(start.year, first + 1, last - first)
    return start + first * DAY, start + last * DAY


def _first_of(index: int) -> datetime:
    return datetime(index // 12, index % 12 + 1, 1)


def _easter(of_year: int) -> date:
    """Easter Sunday in the Gregorian calendar.

    Source: the anonymous Gregorian computus (Meeus, Jones, Butcher).
    """
    golden, century, rest = of_year % 19, of_year // 100, of_year % 100
    moon = (19 * golden + century - century // 4 - (century - (century + 8) // 25 + 1) // 3 + 15) % 30
    week = (32 + 2 * (century % 4) + 2 * (rest // 4) - moon - rest % 4) % 7
    late = (golden + 11 * moon + 22 * week) // 451
    number = moon + week - 7 * late + 114
    return date(of_year, number // 31, number % 31 + 1)
