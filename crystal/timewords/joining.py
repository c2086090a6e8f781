"""Times that are found are joined with the words beside them: since, before, around, early in, from … to. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache

from crystal.timewords import dates, relative, unspaced
from crystal.timewords.calendar_spans import DAY, Stretch, part_of
from crystal.timewords.found import Found, following, latest
from crystal.timewords.relative import any_of
from crystal.timewords.vocabulary import CUES, PART_OF

Rule = Callable[[re.Match[str], datetime], "Found | None"]

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  it gets its zone with the others
_MOMENT = timedelta(milliseconds=1)
_REACH = 48
_SLACK = {"hour": DAY / 8, "day": 3 * DAY, "week": 7 * DAY, "month": 15 * DAY, "year": 91 * DAY}

_ARTICLE = r"(?:(?:the|den|dem|der|des|le|la|el|los|of|in|im|du|de|del|d'|l')\s{0,3}){0,3}"
_PART = re.compile(rf"\b(?:(?:the|at|by|a)\s{{1,3}}){{0,2}}({any_of(PART_OF)})\s{{1,3}}{_ARTICLE}\Z", re.IGNORECASE)
_SINCE = re.compile(
    rf"\b(?:ever\s{{1,3}})?(?:since|seit|ab|depuis|desde|starting|beginning|as\s{{1,3}}of)\s{{1,3}}{_ARTICLE}\Z|(?:自从|自)\Z",
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
_OPENING = re.compile(
    r"(?:\b(?:between|from|zwischen|von|vom|entre|de|du|desde|del)\s{1,3}(?:(?:the|dem|den|le|el|la)\s{1,3})?|从|從)\Z",
    re.IGNORECASE,
)
_LINK = re.compile(
    r"\s{0,3}(?:,\s{0,3})?(?:and|to|until|till|through|bis|und|et|au|a|y|al|hasta|-|\u2013|\u2014|~|\u301c|\uff5e|至|到|から|和|と)"
    r"\s{0,3}(?:(?:the|zum|le|el|la|dem)\s{1,3})?",
    re.IGNORECASE,
)
_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]")
_WORD = re.compile(r"[^\W\d_]+")


def find(text: str, now: datetime) -> list[Found]:
    """The times in a shielded text, in its order, none overlapping another."""
    found = _single(text, now)
    found = _ranges(text, found, now)
    return [_placed(text, one, found[at - 1].end if at else 0, now) for at, one in enumerate(found)]


def _single(text: str, now: datetime) -> list[Found]:
    candidates: list[Found] = []
    for pattern, rule in _rules_for(text):
        for match in pattern.finditer(text):
            try:
                one = rule(match, now)
            except (ValueError, OverflowError):  # no such day, or no such year: nothing in these words is a time
                one = Found(*match.span(), (), "day")
            if one is not None:
                candidates.append(one)
    candidates.sort(key=lambda one: (one.start, -one.end))
    kept: list[Found] = []
    for one in candidates:
        if not kept or one.start >= kept[-1].end:
            kept.append(one)
    return _dated_weekdays(text, [one for one in kept if one.readings])


def _rules_for(text: str) -> list[tuple[re.Pattern[str], Rule]]:
    """The rules that may find something, so that most questions cost next to nothing."""
    digits = any("0" <= character <= "9" for character in text)
    chosen: list[tuple[re.Pattern[str], Rule]] = []
    if digits or any(word.lower() in CUES for word in _WORD.findall(text)):
        chosen += _spaced_rules()
    if not text.isascii() and _UNSPACED.search(text):
        chosen += _unspaced_rules()
    return chosen


@cache
def _spaced_rules() -> tuple[tuple[re.Pattern[str], Rule], ...]:
    return tuple((re.compile(pattern, re.IGNORECASE), rule) for pattern, rule in (*relative.RULES, *dates.RULES))


@cache
def _unspaced_rules() -> tuple[tuple[re.Pattern[str], Rule], ...]:
    return tuple((re.compile(pattern), rule) for pattern, rule in unspaced.RULES)


def _dated_weekdays(text: str, found: Sequence[Found]) -> list[Found]:
    """A day of the week beside a date says nothing of its own: ``Tuesday, 9 May 2023``."""
    kept: list[Found] = []
    for one in found:
        before = kept[-1] if kept else None
        if before is not None and one.grain == "day" and _is_weekday(text, before):
            between = text[before.end : one.start].strip(" ,.").lower()
            if len(text[before.end : one.start]) < 8 and between in ("", "the", "den", "dem", "le", "el"):
                kept[-1] = replace(one, start=before.start)
                continue
        kept.append(one)
    return kept


def _is_weekday(text: str, one: Found) -> bool:
    return one.grain == "day" and one.yearly is None and text[one.start : one.end].isalpha() and one.end - one.start > 2


def _ranges(text: str, found: Sequence[Found], now: datetime) -> list[Found]:
    """Join two times with ``from`` or ``between`` before them and a word of joining in the middle."""
    joined: list[Found] = []
    for one in found:
        before = joined[-1] if joined else None
        opening = before and _OPENING.search(text, max(0, before.start - _REACH), before.start)
        if before is not None and opening and _LINK.fullmatch(text, before.end, one.start):
            both = _range(before, one, weekdays=_is_weekday(text, before) and _is_weekday(text, one), now=now)
            if both is not None:
                grain = before.grain if before.grain == one.grain else "week"
                joined[-1] = Found(opening.start(), one.end, (both,), grain)
                continue
        joined.append(one)
    return joined


def _range(first: Found, last: Found, *, weekdays: bool, now: datetime) -> Stretch | None:
    """From the beginning of one to the end of the other; a year that only one of them has counts for both."""
    start, end = first.readings[0][0], last.readings[0]
    try:
        if first.yearly is not None:
            start = latest(first.yearly, end[0])[0]
        elif last.yearly is not None:
            end = following(last.yearly, start)
    except ValueError:
        return None
    if weekdays and start >= end[1]:
        start -= 7 * DAY
    return (start, end[1]) if start < end[1] and start <= now else None


def _placed(text: str, one: Found, floor: int, now: datetime) -> Found:
    """Read the words beside a time: first which part of it is meant, then on which side of it."""
    if one.grain in ("week", "month", "year") and (
        match := _PART.search(text, max(floor, one.start - _REACH), one.start)
    ):
        readings = tuple(part_of(stretch, PART_OF[match[1].lower()]) for stretch in one.readings)
        one = replace(one, start=match.start(), readings=readings, grain="week")
    low = max(floor, one.start - _REACH)
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
            readings.append((begin, now + _MOMENT) if begin <= now else (start, stop))
        else:
            end = start if side == "before" else stop
            readings.append((_EPOCH, end) if end > _EPOCH else (start, stop))
    return replace(one, readings=tuple(readings))
