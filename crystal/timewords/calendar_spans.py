"""Compute spans of the calendar: pairs of local times without a zone, the beginning and the first moment after it."""

# ruff: noqa: DTZ001  the zone is added to a span at the end, see the package's __init__

from __future__ import annotations

from datetime import datetime, timedelta

from crystal.timewords.parse import days_of_month

Stretch = tuple[datetime, datetime]

DAY = timedelta(days=1)
_MONTHS = {"month": 1, "quarter": 3, "year": 12}


def days(month: int, first: int, last: int, year: int) -> Stretch:
    """Return the days of a month from the first to the last.

    Raises:
        ValueError: The month has no such days, or the last is before the first.
    """
    if last < first:
        raise ValueError(last)
    return datetime(year, month, first), datetime(year, month, last) + DAY


def months(first: int, count: int, year: int) -> Stretch:
    """Return ``count`` months from month ``first``, where 1 is January of ``year`` and 0 or less is before it."""
    start = year * 12 + first - 1
    return _first_of(start), _first_of(start + count)


def back(count: int, name: str, moment: datetime) -> datetime:
    """Return the moment ``count`` units earlier; from days on a midnight, in a shorter month its last day."""
    if name in ("minute", "hour"):
        return moment - timedelta(**{f"{name}s": count})
    midnight = datetime(moment.year, moment.month, moment.day)
    if name in ("day", "week", "weekend"):
        return midnight - count * (1 if name == "day" else 7) * DAY
    first = _first_of(moment.year * 12 + moment.month - 1 - count * _MONTHS[name])
    return first.replace(day=min(moment.day, days_of_month(first.year, first.month)))


def unit(name: str, moment: datetime, offset: int) -> Stretch:
    """Return the day, week, weekend, month, quarter or year of ``moment``, or the one ``offset`` units away."""
    if name in _MONTHS:
        size = _MONTHS[name]
        return months((moment.month - 1) // size * size + 1 + offset * size, size, moment.year)
    start = back(-offset, "day" if name == "day" else "week", moment)
    if name == "day":
        return start, start + DAY
    start -= start.weekday() * DAY
    return (start, start + 7 * DAY) if name == "week" else (start + 5 * DAY, start + 7 * DAY)


def hours_of(stretch: Stretch, hours: str) -> Stretch:
    """Return a part of a day by its first and last hour, such as ``18 30`` for a night."""
    first, last = hours.split()
    return stretch[0] + timedelta(hours=int(first)), stretch[0] + timedelta(hours=int(last))


def part_of(stretch: Stretch, part: str) -> Stretch:
    """Return a part of a span, given as its number and the count, such as ``1 3`` for early: whole days or months."""
    start, stop = stretch
    number, count = map(int, part.split())
    is_year = stretch == months(1, 12, start.year)
    size = 12 if is_year else (stop - start).days
    first, last = (_cut(size, at, count) for at in (number - 1, number))
    return months(first + 1, last - first, start.year) if is_year else (start + first * DAY, start + last * DAY)


def _cut(size: int, at: int, count: int) -> int:
    """Return the boundary ``at`` of ``count`` parts; first and last part have the same length."""
    return size * at // count if 2 * at <= count else size - size * (count - at) // count


def _first_of(index: int) -> datetime:
    return datetime(index // 12, index % 12 + 1, 1)
