"""The words beside a time: early in, since, before, around, the week before, the first week of. Pure."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timedelta

from crystal.timewords.calendar_spans import DAY, PARTS_OF_DAY, Stretch, hours_of, part_of, unit
from crystal.timewords.found import Found
from crystal.timewords.relative import UNIT, any_of, around, counted, length
from crystal.timewords.vocabulary import NUMBERS, PART_OF, UNIT_OF

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  it gets its zone with the others
MOMENT = timedelta(milliseconds=1)
_REACH = 64
_SLACK = {"hour": DAY / 8, "day": 3 * DAY, "week": 7 * DAY, "month": 15 * DAY, "year": 91 * DAY}

_ARTICLE = r"(?:(?:the|den|dem|der|des|le|la|el|los|of|in|im|du|de|del|d'|l')\s{0,3}){0,3}"
_PART = re.compile(rf"\b(?:(?:the|at|by|a)\s{{1,3}}){{0,2}}({any_of(PART_OF)})\s{{1,3}}{_ARTICLE}\Z", re.IGNORECASE)
_SINCE = re.compile(
    rf"\b(?:ever\s{{1,3}})?(?:since|seit|ab|depuis|desde|starting|beginning)\s{{1,3}}{_ARTICLE}\Z|(?:自从|自)\Z",
    re.IGNORECASE,
)
_BEFORE = re.compile(
    rf"\b(?:before|prior\s{{1,3}}to|vor|avant|antes\s{{1,3}}del?|earlier\s{{1,3}}than|older\s{{1,3}}than)\s{{1,3}}{_ARTICLE}\Z",
    re.IGNORECASE,
)
_AFTER = re.compile(
    rf"\b(?:after|nach|apres|despues\s{{1,3}}del?|later\s{{1,3}}than|newer\s{{1,3}}than)\s{{1,3}}{_ARTICLE}\Z",
    re.IGNORECASE,
)
_UNTIL = re.compile(
    rf"\b(?:until|till|up\s{{1,3}}to|bis|hasta|jusqu'(?:a|en|au)?)\s{{0,3}}(?:zum\s{{1,3}}|en\s{{1,3}})?{_ARTICLE}\Z",
    re.IGNORECASE,
)
_AROUND = re.compile(
    rf"\b(?:around|circa|ca\.|c\.|approximately|approx\.?|roughly|near|vers|hacia|gegen|um|environ)\s{{1,3}}{_ARTICLE}\Z",
    re.IGNORECASE,
)
_ONWARDS = re.compile(r"\s{1,3}(?:on|onwards?|forward)\b", re.IGNORECASE)
_FROM = re.compile(r"\b(?:from|starting)\s{1,3}\Z", re.IGNORECASE)
_AFTERWORDS = (
    (re.compile(r"\s?(?:以来|以來|まで?から|から|부터)"), "since"),
    (re.compile(r"\s?(?:之前|以前|より前|の前|まで)"), "before"),
    (re.compile(r"\s?(?:之后|之後|以后|以後|以降|のあと)"), "after"),
)
_NTHS = {"first": 0, "second": 1, "third": 2, "fourth": 3, "last": -1, "1st": 0, "2nd": 1, "3rd": 2, "4th": 3,
         "ersten": 0, "zweiten": 1, "dritten": 2, "letzten": -1}  # fmt: skip
_NTH_WEEK = re.compile(
    rf"\b(?:(?:the|der|in)\s{{1,3}}){{0,2}}(?P<nth>{any_of(_NTHS)})\s{{1,3}}(?P<unit>weeks?|weekend|woche)\s{{1,3}}{_ARTICLE}\Z",
    re.IGNORECASE,
)
_NEAR = re.compile(
    rf"\b(?:the\s{{1,3}})?(?:(?P<near>shortly|just|right|soon|immediately|kurz)|(?P<number>[0-9]{{1,3}}|{any_of(NUMBERS)})"
    rf"\s{{1,3}}(?P<units>{UNIT})|(?P<unit>day|week|weekend|month|year|tag|woche|monat|jahr|semaine|semana|mois|mes))\s{{1,3}}(?P<side>before|after|vor|nach|of|du|de|del|vom|des)\s{{1,3}}{_ARTICLE}\Z",
    re.IGNORECASE,
)
_HOURS = re.compile(
    rf"\b(?:the\s{{1,3}})?(?P<part>{any_of(PARTS_OF_DAY)})\s{{1,3}}(?:of|on)\s{{1,3}}{_ARTICLE}\Z", re.IGNORECASE
)
_SIDES = {"before": -1, "vor": -1, "after": 1, "nach": 1}
_SHORTLY = 14 * DAY


def placed(text: str, one: Found, floor: int, now: datetime) -> Found:
    """Read the words beside a time: first which part of it is meant, then on which side of it.

    Args:
        text: The shielded text.
        one: The time.
        floor: Where the time before it ends.
        now: The present on the local clock.
    """
    if one.grain in ("week", "month", "year") and (
        match := _PART.search(text, max(floor, one.start - _REACH), one.start)
    ):
        readings = tuple(part_of(stretch, PART_OF[match[1].lower()]) for stretch in one.readings)
        one = replace(one, start=match.start(), readings=readings, grain="week")
    low = max(floor, one.start - _REACH)
    if one.grain == "day" and (match := _HOURS.search(text, low, one.start)):
        readings = tuple(hours_of(stretch, match["part"].lower()) for stretch in one.readings)
        return replace(one, start=match.start(), readings=readings, grain="hour")
    if match := _NTH_WEEK.search(text, low, one.start):
        one = _week_in(one, match)
    elif (match := _NEAR.search(text, low, one.start)) and (match["unit"] or match["side"].lower() in _SIDES):
        return replace(one, start=match.start(), readings=tuple(_near(stretch, match) for stretch in one.readings))
    for pattern, side in (
        (_SINCE, "since"),
        (_BEFORE, "before"),
        (_AFTER, "after"),
        (_UNTIL, "until"),
        (_AROUND, "around"),
    ):
        if match := pattern.search(text, low, one.start):
            return _sided(replace(one, start=match.start()), side, now)
    if (match := _FROM.search(text, low, one.start)) and (more := _ONWARDS.match(text, one.end)):
        return _sided(replace(one, start=match.start(), end=more.end()), "since", now)
    for pattern, side in _AFTERWORDS:
        if match := pattern.match(text, one.end):
            return _sided(replace(one, end=match.end()), side, now)
    return one


def _sided(one: Found, side: str, now: datetime) -> Found:
    slack = _SLACK[one.grain]
    readings: list[Stretch] = []
    for start, stop in one.readings:
        if side == "around":
            readings.append((start - slack, stop + slack))
        elif side in ("since", "after"):
            begin = start if side == "since" else stop
            readings.append((begin, now + MOMENT) if begin <= now else (start, stop))
        else:
            end = start if side == "before" else stop
            readings.append((_EPOCH, end) if end > _EPOCH else (start, stop))
    return replace(one, readings=tuple(readings))


def _week_in(one: Found, match: re.Match[str]) -> Found:
    """The first week of a month or a year is its first seven days, the last its last seven."""
    if one.grain not in ("month", "year"):
        return one
    nth, size = _NTHS[match["nth"].lower()], 7
    readings: list[Stretch] = []
    for start, stop in one.readings:
        begin = stop - size * DAY if nth < 0 else start + nth * size * DAY
        if match["unit"].lower() == "weekend":
            begin += (5 - begin.weekday()) % 7 * DAY
            readings.append((begin, begin + 2 * DAY))
        else:
            readings.append((begin, begin + size * DAY))
    return replace(one, start=match.start(), readings=tuple(readings), grain="week", yearly=None)


def _near(stretch: Stretch, match: re.Match[str]) -> Stretch:
    """Shortly before, the week after, three days before."""
    start, stop = stretch
    side = match["side"].lower()
    name = UNIT_OF[(match["units"] or match["unit"]).lower()] if match["units"] or match["unit"] else ""
    if side not in _SIDES:
        return unit(name, start, 0)
    before = _SIDES[side] < 0
    if match["number"]:
        count = counted(match["number"]) * (1 if before else -1)
        return around(count, name, start)
    size = length(name) if name else _SHORTLY
    return (start - size, start) if before else (stop, stop + size)
