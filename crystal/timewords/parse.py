"""Parse points in time as people write them (``24h``, ``yesterday``, ``2026-11-20``), and format times for people.

Pure: the present moment and the time zone are arguments. Times are ms since the epoch, UTC.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta, timezone, tzinfo

from crystal.errors import UsageError

FORMS = "24h, 7d, 2w, 3mo, 1y, today, yesterday, a date (2026-11-20) or a date and time (2026-11-20T14:30)"
UNKNOWN = "time unknown"

_AGO = re.compile(r"(\d{1,9})\s*([a-z]+)(?:\s+ago)?")
_SECONDS = {
    "s": 1, "sec": 1, "second": 1,
    "m": 60, "min": 60, "minute": 60,
    "h": 3600, "hr": 3600, "hour": 3600,
    "d": 86_400, "day": 86_400,
    "w": 604_800, "week": 604_800,
}  # fmt: skip
_MONTHS = {"mo": 1, "month": 1, "y": 12, "yr": 12, "year": 12}
_DATE = re.compile(r"(\d{4})-(\d{1,2})(?:-(\d{1,2}))?")
_MOMENT = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})[tT ]\s*(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,9}))?)?\s*([zZ]|[+-]\d{2}:?\d{2})?"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def parse_when(text: str, *, now: int, tz: tzinfo | None = None, name: str = "time") -> int:
    """Parse a point in time.

    ``24h`` and ``7d`` are that long before ``now`` (a day is 24 hours); ``3mo`` and ``1y`` go back on the calendar, to
    the same day or the last one of a shorter month. A date is its first moment, so ``before`` a date excludes that
    day. Times without a zone are local.

    Args:
        text: The user's text; case and surrounding space are ignored.
        now: The present moment.
        tz: The local zone; None for the machine's.
        name: The name of the value in the error, e.g. ``--since``.

    Raises:
        UsageError: It has none of the accepted forms, or no such time exists.
    """
    try:
        return _parse(text.strip().lower(), now, tz)
    except (ValueError, OverflowError, OSError) as error:
        raise UsageError(
            f"{name} is {text!r}, which is not a time that crystal understands", hint=f"use {FORMS}"
        ) from error


def end_of(text: str, *, now: int, tz: tzinfo | None = None, name: str = "time") -> int:
    """Parse the end of a period: for a date the first moment after it, for a point in time itself.

    ``2026-11-20`` is the midnight that follows it, ``2026-11`` the end of November, ``today`` and ``yesterday`` end
    too. ``24h`` and ``2026-11-20T14:30`` are parsed by ``parse_when``.

    Args:
        text: As for ``parse_when``, like the others.
        now: The present moment.
        tz: The local zone.
        name: The name of the value in the error, e.g. ``--as-of``.

    Raises:
        UsageError: It has none of the accepted forms, or no such time exists.
    """
    start = parse_when(text, now=now, tz=tz, name=name)
    plain = text.strip().lower()
    match = _DATE.fullmatch(plain)
    if match is None and plain not in ("today", "yesterday"):
        return start
    first = local(start, tz).replace(tzinfo=None, fold=0)
    days = days_of_month(first.year, first.month) if match and match[3] is None else 1
    try:
        return local_ms(first.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=days), tz)
    except (ValueError, OverflowError, OSError) as error:
        raise UsageError(f"{name} is {text!r}, the last day of the calendar", hint=f"use {FORMS}") from error


def days_of_month(year: int, month: int) -> int:
    """Return how many days a month has. The module ``calendar`` loads ``locale``: a hundredth of a search."""
    return 31 if month == 12 else (date(year, month + 1, 1) - date(year, month, 1)).days


def local(ms: int, tz: tzinfo | None = None) -> datetime:
    """Return the moment as local time."""
    moment = _EPOCH + timedelta(milliseconds=ms)
    try:
        return moment.astimezone(tz)
    except (OverflowError, OSError, ValueError):  # beyond the platform's calendar
        return moment


def local_ms(naive: datetime, tz: tzinfo | None = None) -> int:
    """Convert a local time to ms; a time skipped by a clock change is read as if the clocks had not changed yet.

    Raises:
        ValueError, OverflowError, OSError: It is beyond the platform's calendar.
    """
    return _ms(naive.astimezone() if tz is None else naive.replace(tzinfo=tz))


def iso(ms: int | None) -> str | None:
    """Format a time as ISO 8601 in UTC with milliseconds, as in JSON output: ``2026-11-20T23:51:53.936Z``."""
    if ms is None:
        return None
    try:
        moment = _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return None
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z".rjust(24, "0")


def ago(ms: int | None, now: int) -> str:
    """Format the time since ``ms`` roughly: ``5 minutes ago``, ``3 weeks ago``; ``time unknown`` for None."""
    if ms is None:
        return UNKNOWN
    seconds = (now - ms) // 1000
    if seconds < 0:
        return "in the future" if seconds < -60 else "just now"
    if seconds < 60:
        return "just now"
    for limit, size, unit in ((3600, 60, "minute"), (86_400, 3600, "hour"), (14 * 86_400, 86_400, "day"),
                              (60 * 86_400, 604_800, "week"), (730 * 86_400, 2_629_800, "month")):  # fmt: skip
        if seconds < limit:
            return _counted(seconds // size, unit)
    return _counted(seconds // 31_557_600, "year")


def clock(ms: int | None, now: int, tz: tzinfo | None = None) -> str:
    """Format the local date and time in the shortest clear form: ``Fri 20 Nov 14:03``, ``20 Nov 2025 14:03``.

    ``time unknown`` for None.
    """
    if ms is None:
        return UNKNOWN
    moment, present = local(ms, tz), local(now, tz)
    if abs((present - moment).days) < 180:
        return f"{moment:%a} {moment.day} {moment:%b %H:%M}"
    return f"{moment.day} {moment:%b} {moment.year:04d} {moment:%H:%M}"


def _counted(number: int, unit: str) -> str:
    return f"{number} {unit}{'' if number == 1 else 's'} ago"


def _parse(text: str, now: int, tz: tzinfo | None) -> int:
    present = local(now, tz)
    if text == "now":
        return now
    if text in ("today", "yesterday"):
        day = present.date() - timedelta(days=text == "yesterday")
        return local_ms(datetime(day.year, day.month, day.day), tz)  # noqa: DTZ001 (the zone is given beside it)
    if match := _AGO.fullmatch(text):
        return _back(int(match[1]), match[2], present, now, tz)
    if match := _DATE.fullmatch(text):
        day = datetime(int(match[1]), int(match[2]), int(match[3] or 1))  # noqa: DTZ001
        return local_ms(day, tz)
    if match := _MOMENT.fullmatch(text):
        return _moment(match, tz)
    raise ValueError(text)


def _back(count: int, unit: str, present: datetime, now: int, tz: tzinfo | None) -> int:
    unit = unit[:-1] if len(unit) > 2 and unit.endswith("s") else unit
    if unit in _SECONDS:
        then = now - count * _SECONDS[unit] * 1000
        _ = _EPOCH + timedelta(milliseconds=then)  # raises if the time is beyond the calendar
        return then
    months = present.year * 12 + present.month - 1 - count * _MONTHS.get(unit, 0)
    if unit not in _MONTHS or months < 12:
        raise ValueError(unit)
    year, month = divmod(months, 12)
    day = min(present.day, days_of_month(year, month + 1))
    return local_ms(present.replace(year=year, month=month + 1, day=day, tzinfo=None, fold=0), tz)


def _moment(match: re.Match[str], tz: tzinfo | None) -> int:
    year, month, day, hour, minute = (int(match[group]) for group in range(1, 6))
    micro = int((match[7] or "").ljust(6, "0")[:6])
    naive = datetime(year, month, day, hour, minute, int(match[6] or 0), micro)  # noqa: DTZ001
    zone = match[8]
    if zone is None:
        return local_ms(naive, tz)
    if zone in "zZ":
        return _ms(naive.replace(tzinfo=timezone.utc))
    offset = timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:]))
    return _ms(naive.replace(tzinfo=timezone(-offset if zone[0] == "-" else offset)))


def _ms(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(milliseconds=1)
