"""All times of a question: what the rules find, without overlaps, and two of them joined to a range. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache

from crystal.timewords import dates, relative, unspaced
from crystal.timewords.beside import placed
from crystal.timewords.calendar_spans import DAY, Stretch, days_from
from crystal.timewords.folding import Folded
from crystal.timewords.found import Found, following, latest
from crystal.timewords.shield import shield

Rule = Callable[[re.Match[str], datetime], "Found | None"]

_REACH = 48
_OPENING = re.compile(
    r"(?:\b(?:between|from|zwischen|von|vom|entre|de|du|desde|del)\s{1,3}(?:(?:the|dem|den|le|el|la)\s{1,3})?|从|從)\Z",
    re.IGNORECASE,
)
_LINK = re.compile(
    r"\s{0,3}(?:,\s{0,3})?(?:and|to|until|till|through|bis|und|et|au|a|y|al|hasta|-|\u2013|\u2014|~|\u301c|\uff5e|至|到|から|和|と)"
    r"\s{0,3}(?:(?:the|zum|le|el|la|dem)\s{1,3})?",
    re.IGNORECASE,
)
_STRONG_LINK = re.compile(
    r"\s{0,3}(?:-|\u2010|\u2013|\u2014|~|\u301c|\uff5e|\bto\b|\bbis(?:\s{1,3}zum)?\b|\bthrough\b|\bau\b|\bal\b|至|到|から)\s{0,3}",
    re.IGNORECASE,
)
_UNTIL = re.compile("まで|까지|为止|為止|止")


def find(folded: Folded, now: datetime) -> list[Found]:
    """The times in a folded text, in its order, none overlapping another."""
    text = shield(folded.text)
    found = _ranges(text, _single(text, _rules_for(folded), now), now)
    return [placed(text, one, found[at - 1].end if at else 0, now) for at, one in enumerate(found)]


def _single(text: str, rules: Sequence[tuple[re.Pattern[str], Rule]], now: datetime) -> list[Found]:
    candidates: list[Found] = []
    for pattern, rule in rules:
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


def _rules_for(folded: Folded) -> list[tuple[re.Pattern[str], Rule]]:
    chosen: list[tuple[re.Pattern[str], Rule]] = []
    if folded.has_cue:
        chosen += _spaced_rules()
    if folded.has_unspaced:
        chosen += _unspaced_rules()
    return chosen


@cache
def _spaced_rules() -> tuple[tuple[re.Pattern[str], Rule], ...]:
    return tuple((re.compile(pattern, re.IGNORECASE), rule) for pattern, rule in (*relative.RULES, *dates.RULES))


@cache
def _unspaced_rules() -> tuple[tuple[re.Pattern[str], Rule], ...]:
    return tuple((re.compile(pattern), rule) for pattern, rule in unspaced.RULES)


def _dated_weekdays(text: str, found: Sequence[Found]) -> list[Found]:
    """A day of the week beside a date: ``Tuesday, 9 May 2023``, ``on Friday before 12 May``."""
    kept: list[Found] = []
    for one in found:
        before = kept[-1] if kept else None
        if before is not None and one.grain == "day" and _is_weekday(text, before) and one.start - before.end < 16:
            between = " ".join(text[before.end : one.start].strip(" ,.").lower().split()[:1])
            if between in ("", "the", "den", "dem", "le", "el"):
                kept[-1] = replace(one, start=before.start)
                continue
            if between in ("before", "after", "vor", "nach"):
                days = tuple(_weekday_beside(before, stretch, between) for stretch in one.readings)
                kept[-1] = replace(one, start=before.start, readings=days, yearly=None)
                continue
        kept.append(one)
    return kept


def _weekday_beside(named: Found, stretch: Stretch, side: str) -> Stretch:
    """The Friday before a day, or after it."""
    number, start = named.readings[0][0].weekday(), stretch[0]
    if side in ("before", "vor"):
        return days_from(start, -((start.weekday() - number - 1) % 7 + 1))
    return days_from(start, (number - start.weekday() - 1) % 7 + 1)


def _is_weekday(text: str, one: Found) -> bool:
    return one.grain == "day" and one.yearly is None and text[one.start : one.end].isalpha() and one.end - one.start > 2


def _ranges(text: str, found: Sequence[Found], now: datetime) -> list[Found]:
    """Join two times with ``from`` or ``between`` before them and a word of joining in the middle, or a dash alone."""
    joined: list[Found] = []
    for one in found:
        before = joined[-1] if joined else None
        if before is not None and one.start - before.end < _REACH:
            opening = _OPENING.search(text, max(0, before.start - _REACH), before.start)
            dashed = before.grain == one.grain and _STRONG_LINK.fullmatch(text, before.end, one.start)
            both = None
            if dashed or (opening and _LINK.fullmatch(text, before.end, one.start)):
                weekdays = _is_weekday(text, before) and _is_weekday(text, one)
                both = _range(before, one, weekdays=weekdays, now=now)
            if both is not None:
                start = opening.start() if opening else before.start
                grain = before.grain if before.grain == one.grain else "week"
                until = _UNTIL.match(text, one.end)
                joined[-1] = Found(start, until.end() if until else one.end, (both,), grain)
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
