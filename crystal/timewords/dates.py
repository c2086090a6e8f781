"""Dates, months, quarters, seasons, feasts and years, in languages with spaces. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

from crystal.timewords.calendar_spans import Stretch, day, feast, month, months, part_of, quarter, season, year
from crystal.timewords.found import Found, following, latest
from crystal.timewords.relative import BEGIN, END, LAST, THIS, any_of, squeezed
from crystal.timewords.vocabulary import (
    AFTERWARDS,
    CERTAIN_MONTHS,
    CONTEXT,
    FEASTS,
    MONTHS,
    PART_OF,
    PICKY_MONTHS,
    SEASONS,
    SEASONS_WITH_YEAR,
    SHORT_MONTHS,
)

_MONTH = any_of([*MONTHS, *SHORT_MONTHS])
_LONG = any_of(MONTHS)
_YEAR = r"(?:19|20)[0-9]{2}(?![0-9])"
_RELATIVE_YEARS = {
    "this year": 0, "last year": -1, "dieses jahres": 0, "dieses jahr": 0, "letzten jahres": -1, "letztes jahr": -1,
    "vorigen jahres": -1, "cette annee": 0, "l'annee derniere": -1, "l'an dernier": -1, "este ano": 0, "ano pasado": -1,
}  # fmt: skip
_OF_YEAR = (
    rf"(?:(?:,?\s{{1,3}}(?:(?:of|de|del|des|in)\s{{1,3}})?|/)(?P<year>{_YEAR})"
    rf"|,?\s{{1,3}}(?:(?:of|de|del|el)\s{{1,3}})?(?P<yrel>{any_of(_RELATIVE_YEARS)}))?"
)
_DOT = r"(?:(?:(?<=\b[a-z]{3})|(?<=\bsept))\.(?=\s?,?\s?[0-9]))?"
_NTH = r"(?:st|nd|rd|th|er|\.)?"
_TO = r"\s{0,3}(?:-|\u2010|\u2013|\u2014|\b(?:to|and|until|till|through|bis(?:\s{1,3}zum)?|und|et|au|al|a|y)\b)\s{0,3}"
_STRONG_TO = re.compile(r"(?:-|/|\u2010|\u2013|\u2014|to|bis(?:\s+zum)?|until|till|through|au|al|a)\Z", re.IGNORECASE)
_BETWEEN = re.compile(r"\b(?:between|from|zwischen|von|vom|entre|de|du|desde|del)\s+\Z", re.IGNORECASE)
_WORD_BEFORE = re.compile(
    r"([^\W\d_]+)['.]?[\s-]{1,3}(?:(?:the|den|dem|der|des|le|la|el|los|all)\s{1,3}|(?:d|l)')?\Z", re.IGNORECASE
)
_DAY_BEFORE = re.compile(r"\b(?:on|am|vom|seit|bis|since|until|before|after|du|le|el|dem|den)\s+\Z", re.IGNORECASE)
_MONTH_BEFORE = re.compile(
    rf"\b(?:in|during|since|between|im|seit|en|depuis|desde)\s{{1,3}}{_LONG}(?:\s{{1,3}}{_YEAR})?,?\s{{1,3}}\w{{1,4}}\s{{1,3}}\Z",
    re.IGNORECASE,
)
_ENGLISH = frozenset("january february march april may june july august september october november december".split())
_NEXT_WORD = re.compile(r"[\s]*['\u2019s]{0,2}\s*([^\W\d_]*)")
_NAMES = {"noel": ("a", "avant", "apres", "depuis"), "pascua": ("en", "de", "antes", "desde")}
_ORDINALS = {"first": 1, "second": 2, "third": 3, "fourth": 4, "1st": 1, "2nd": 2, "3rd": 3, "4th": 4}


def numeric(match: re.Match[str], now: datetime) -> Found | None:  # noqa: ARG001  a rule's form
    """2023-05-08, 2023/5/8, 2023-05."""
    number = int(match["month"])
    if match["day"]:
        return Found(*match.span(), (day(int(match["year"]), number, int(match["day"])),), "day")
    return Found(*match.span(), (month(int(match["year"]), number),), "month")


def dotted(match: re.Match[str], now: datetime) -> Found | None:
    """8.5.2023 in the German order; 8.5.23 and 8.5. only where a word before it says that it is a day."""
    number, of_month, of_year = int(match["day"]), int(match["month"]), match["year"]
    if len(of_year or "") != 4 and not _DAY_BEFORE.search(match.string, max(0, match.start() - 32), match.start()):
        return None
    if of_year:
        full = int(of_year) + (2000 if len(of_year) == 2 else 0)
        return Found(*match.span(), (day(full, of_month, number),), "day")
    return _yearless(match.span(), partial(_day_of, of_month, number), "day", now)


def slashed(match: re.Match[str], now: datetime) -> Found | None:  # noqa: ARG001  a rule's form
    """05/08/2023: both ways, where both are days."""
    first, second, of_year = int(match["first"]), int(match["second"]), int(match["year"])
    of_year += 2000 if of_year < 100 else 0
    readings = []
    for of_month, number in ((first, second), (second, first)):
        if 1 <= of_month <= 12:
            readings.append(day(of_year, of_month, number))
    return Found(*match.span(), tuple(dict.fromkeys(readings)), "day") if readings else None


def slashed_month(match: re.Match[str], now: datetime) -> Found | None:  # noqa: ARG001  a rule's form
    """05/2023."""
    return Found(*match.span(), (month(int(match["year"]), int(match["month"])),), "month")


def day_and_month(match: re.Match[str], now: datetime) -> Found | None:
    """8 May 2023, May 8th, 8. Mai, le 8 mai."""
    name, of_year = match["name"].lower(), _year_in(match, now)
    groups = match.groupdict()
    number, last = int(match["day"]), int(groups.get("last") or match["day"])
    nth = match["nth"]
    if of_year is None and not nth and not _stands_as_date(match, name):
        return None
    of_month = MONTHS.get(name) or SHORT_MONTHS[name]
    yearly = partial(_days_of, of_month, number, last)
    if of_year is not None:
        return Found(*match.span(), (yearly(of_year),), "day")
    return _yearless(match.span(), yearly, "day", now)


def month_range(match: re.Match[str], now: datetime) -> Found | None:
    """From March to May, between November and February, March-May 2023."""
    first, last = (MONTHS[match[name].lower()] for name in ("first", "second"))
    strong = _STRONG_TO.search(match["to"].strip()) is not None
    between = _BETWEEN.search(match.string, max(0, match.start() - 32), match.start())
    capital = match["first"][0].isupper() or match["first"].lower() in CERTAIN_MONTHS
    until = _year_in(match, now)
    if not between and not (strong and (capital or until is not None)):
        return None
    end = month(until, last) if until is not None else latest(partial(_month_of, last), now)
    if match["since"]:
        start = month(int(match["since"]), first)[0]
        end = following(partial(_month_of, last), start) if until is None else end
    else:
        start = latest(partial(_month_of, first), end[0])[0]
    stop = end[1]
    at = between.start() if between else match.start()
    return Found(at, match.end(), ((start, stop),), "month") if start < stop else None


def one_month(match: re.Match[str], now: datetime) -> Found | None:
    """In March, March 2023, last March."""
    name, of_year = match["name"].lower(), _year_in(match, now)
    number = MONTHS.get(name) or SHORT_MONTHS[name]
    if of_year is not None:
        return Found(*match.span(), (month(of_year, number),), "month")
    relation = squeezed(match["relation"] or "")
    if not _is_month(match, name, relation):
        return None
    if relation in THIS:
        return Found(*match.span(), (month(now.year, number),), "month")
    if relation:
        ended = months(now.year, now.month, 1)[0] - timedelta(days=1)
        return Found(*match.span(), (latest(partial(_month_of, number), ended),), "month")
    return _yearless(match.span(), partial(_month_of, number), "month", now)


def one_quarter(match: re.Match[str], now: datetime) -> Found | None:
    """Q1 2024, the second quarter; without a year only where a word before it says that it is a time."""
    groups = match.groupdict()
    words = groups.get("words")
    number = _ORDINALS[words.lower()] if words else int(match["number"])
    if match["year"]:
        return Found(*match.span(), (quarter(int(match["year"]), number),), "month")
    if _word_before(match.string, match.start()) not in CONTEXT | {"last"}:
        return None
    return _yearless(match.span(), lambda of_year: quarter(of_year, number), "month", now)


def half_year(match: re.Match[str], now: datetime) -> Found | None:  # noqa: ARG001  a rule's form
    """H1 2024."""
    return Found(*match.span(), (months(int(match["year"]), int(match["number"]) * 6 - 5, 6),), "month")


def one_season(match: re.Match[str], now: datetime) -> Found | None:
    """Summer 2023, last summer, in the spring; a winter belongs to two years."""
    word = match["name"].lower()
    name, of_year = SEASONS_WITH_YEAR[word], _year_in(match, now)
    relation = squeezed(match["relation"] or "")
    if of_year is not None:
        if name == "winter" and match["next"] is None:
            return Found(*match.span(), (season(name, of_year), season(name, of_year - 1)), "month")
        return Found(*match.span(), (season(name, of_year),), "month")
    if word not in SEASONS or (word == "spring" and match["name"][0].isupper()):
        return None
    if relation in THIS:
        stretch = latest(partial(season, name), now)
        return Found(*match.span(), (stretch,), "month") if stretch[1] > months(now.year, 1, 1)[0] else None
    if relation:
        one = latest(partial(season, name), now)
        if one[1] > now:
            one = latest(partial(season, name), one[0] - timedelta(days=1))
        return Found(*match.span(), (one,), "month")
    before = match.string[max(0, match.start() - 32) : match.start()].lower().rstrip()
    if not before.endswith(
        ("in the", "during the", "since the", "over the", "in", "im", "since", "en", "seit", "last", "au", "en el")
    ):
        return None
    return _yearless(match.span(), partial(season, name), "month", now)


def one_feast(match: re.Match[str], now: datetime) -> Found | None:
    """Last Christmas, before Easter 2023."""
    name, of_year = FEASTS[squeezed(match["name"])], _year_in(match, now)
    if of_year is not None:
        return Found(*match.span(), (feast(name, of_year),), "day")
    if (
        squeezed(match["name"]) in _NAMES
        and _word_before(match.string, match.start()) not in _NAMES[squeezed(match["name"])]
    ):
        return None
    known = CONTEXT | {"at", "on", "over", "last", "this", "an", "zu", "uber", "letztes", "letzte", "a", "con", "por"}
    if not match["relation"] and _word_before(match.string, match.start()) not in known - {"of", "by", "a"}:
        return None
    return _yearless(match.span(), partial(feast, name), "day", now)


def one_year(match: re.Match[str], now: datetime) -> Found | None:
    """In 2023; but not in 2000 rows."""
    number, before = int(match["year"]), _word_before(match.string, match.start("year"))
    named = before in ("year", "jahr", "jahre", "annee", "ano")
    if not 1950 <= number <= now.year + 10 or (
        before not in CONTEXT - {"by", "um", "des", "circa"} and before not in PART_OF and not named
    ):
        return None
    if not named and not _ends(match):
        return None
    last = match["last"]
    if last is None:
        return Found(match.start("year"), match.end(), (year(number),), "year")
    until = int(last) if len(last) == 4 else number // 100 * 100 + int(last)
    if not number < until <= now.year + 10:
        return None
    return Found(match.start("year"), match.end(), ((year(number)[0], year(until)[1]),), "year")


def year_range(match: re.Match[str], now: datetime) -> Found | None:
    """Between 2021 and 2023."""
    first, last = int(match["first"]), int(match["last"])
    if not 1950 <= first < last <= now.year + 10 or not _ends(match):
        return None
    return Found(*match.span(), ((year(first)[0], year(last)[1]),), "year")


def part_of_year(match: re.Match[str], now: datetime) -> Found | None:
    """The first half of 2023, or of March."""
    stretch = month(int(match["year"]), MONTHS[match["name"].lower()]) if match["name"] and match["year"] else None
    if stretch is None and match["name"]:
        stretch = latest(partial(_month_of, MONTHS[match["name"].lower()]), now)
    stretch = stretch or year(int(match["year"]))
    return Found(*match.span(), (part_of(stretch, match["half"].lower()),), "month")


def day_of_month(match: re.Match[str], now: datetime) -> Found | None:
    """On the 8th: of this month, or of the last one that had begun it."""
    if not _ends(match):
        return None
    number = int(match["day"])
    for back in range(3):
        try:
            stretch = months(now.year, now.month - back, 1)[0].replace(day=number)
        except ValueError:
            continue
        if stretch <= now:
            return Found(*match.span(), ((stretch, stretch + timedelta(days=1)),), "day")
    return None


def _month_of(number: int, of_year: int) -> Stretch:
    return month(of_year, number)


def _day_of(of_month: int, number: int, of_year: int) -> Stretch:
    return day(of_year, of_month, number)


def _days_of(of_month: int, first: int, last: int, of_year: int) -> Stretch:
    start, stop = day(of_year, of_month, first)[0], day(of_year, of_month, last)[1]
    if start >= stop:
        raise ValueError(first)
    return start, stop


def _yearless(at: tuple[int, int], yearly: Callable[[int], Stretch], grain: str, now: datetime) -> Found:
    return Found(*at, (latest(yearly, now),), grain, yearly)


def _year_in(match: re.Match[str], now: datetime) -> int | None:
    groups = match.groupdict()
    if groups.get("year"):
        return int(groups["year"])
    if groups.get("yrel"):
        return now.year + _RELATIVE_YEARS[squeezed(groups["yrel"])]
    return None


def _word_before(text: str, at: int) -> str:
    found = _WORD_BEFORE.search(text, max(0, at - 40), at)
    return found[1].lower() if found else ""


def _ends(match: re.Match[str]) -> bool:
    """Whether what follows is the end, a sign, a name or a word of grammar, not a thing that was counted."""
    text, at = match.string, match.end()
    rest = _NEXT_WORD.match(text, at)
    word = rest[1] if rest else ""
    if not word:
        return not text[at:].lstrip()[:1].isdigit() and text[at:].lstrip()[:1] not in ("%", "\0")
    return word.lower() in AFTERWARDS or (word[0].isupper() and word[1:].islower())


def _stands_as_date(match: re.Match[str], name: str) -> bool:
    """Whether a day and a month without a year are a date: "May 8 processes run" and "dec 12" are none."""
    capital = match["name"][0].isupper()
    if name in ("may", "march", "mars"):
        said_on = _DAY_BEFORE.search(match.string, max(0, match.start() - 32), match.start())
        return bool(capital or said_on) and _ends(match)
    return capital or name in MONTHS


def _is_month(match: re.Match[str], name: str, relation: str) -> bool:
    """Whether a month's name without a year is a time here: not a verb, not a person."""
    before, capital = _word_before(match.string, match.start()), match["name"][0].isupper()
    if before in ("next", "every", "each", "nachsten", "jeden"):
        return False
    if name in PICKY_MONTHS:
        return before in PICKY_MONTHS[name]
    if name in SHORT_MONTHS:
        return capital and before in CONTEXT - {"by", "of", "from"} and _ends(match)
    if name in ("may", "march") and not capital:
        if before in ("in", "since", "until", "during") or before in PART_OF:
            return True
        return bool(relation) and relation not in THIS and _ends(match)
    text, at = match.string, match.start()
    if before == "de" and name not in _ENGLISH:
        return True
    if before in ("and", "or", "und", "oder", "et", "ou", "y", "o") and _MONTH_BEFORE.search(text, max(0, at - 40), at):
        return True
    return name in CERTAIN_MONTHS or bool(relation) or before in CONTEXT or before in PART_OF


_RELATION = rf"(?:(?P<relation>{any_of([*THIS, *LAST, 'past'])})\s{{1,3}})?"
RULES = (
    (
        rf"{BEGIN}(?P<year>{_YEAR})(?P<sep>[-/])(?P<month>[0-9]{{1,2}})(?:(?P=sep)(?P<day>[0-9]{{1,2}}))?(?:T[0-9:.]{{4,15}}(?:Z|[+-][0-9:]{{4,6}})?)?{END}",
        numeric,
    ),
    (r"(?<![\w.])(?P<day>[0-9]{1,2})\.(?P<month>[0-9]{1,2})\.(?P<year>(?:19|20)?[0-9]{2})?(?![\w])", dotted),
    (rf"{BEGIN}(?P<first>[0-9]{{1,2}})/(?P<second>[0-9]{{1,2}})/(?P<year>(?:19|20)?[0-9]{{2}}){END}", slashed),
    (rf"{BEGIN}(?P<month>0?[1-9]|1[0-2])/(?P<year>{_YEAR}){END}", slashed_month),
    (
        rf"{BEGIN}(?P<day>[0-9]{{1,2}})(?P<nth>{_NTH}){_TO}(?:the\s{{1,3}})?(?P<last>[0-9]{{1,2}}){_NTH}\s{{0,3}}(?:(?:of|de)\s{{1,3}})?(?P<name>{_MONTH}){_DOT}{_OF_YEAR}{END}",
        day_and_month,
    ),
    (
        rf"{BEGIN}(?P<name>{_MONTH}){_DOT}\s{{1,3}}(?P<day>[0-9]{{1,2}})(?P<nth>{_NTH}){_TO}(?P<last>[0-9]{{1,2}}){_NTH}(?![\w:.]){_OF_YEAR}{END}",
        day_and_month,
    ),
    (
        rf"{BEGIN}(?P<day>[0-9]{{1,2}})(?P<nth>{_NTH})\s{{0,3}}(?:(?:of|de)\s{{1,3}})?(?P<name>{_MONTH}){_DOT}{_OF_YEAR}{END}",
        day_and_month,
    ),
    (
        rf"{BEGIN}(?P<name>{_MONTH}){_DOT}\s{{1,3}}(?:the\s{{1,3}})?(?P<day>[0-9]{{1,2}})(?P<nth>{_NTH})(?![\w:]|\.[0-9]){_OF_YEAR}{END}",
        day_and_month,
    ),
    (
        rf"{BEGIN}(?P<first>{_LONG})(?:\s{{1,3}}(?:de\s{{1,3}})?(?P<since>{_YEAR}))?(?P<to>{_TO}|/)(?P<second>{_LONG}){_OF_YEAR}{END}",
        month_range,
    ),
    (rf"{BEGIN}{_RELATION}(?P<name>{_MONTH}){_DOT}{_OF_YEAR}{END}", one_month),
    (
        rf"{BEGIN}(?:q(?P<number>[1-4])|(?P<words>{any_of(_ORDINALS)})\s{{1,3}}quarter)(?:(?:\s{{0,3}}/|\s{{1,3}}of)?\s{{0,3}}(?P<year>{_YEAR}))?{END}",
        one_quarter,
    ),
    (rf"{BEGIN}(?P<year>{_YEAR})[\s/-]?q(?P<number>[1-4]){END}", one_quarter),
    (rf"{BEGIN}h(?P<number>[12])(?:\s{{0,3}}/|\s{{1,3}}of)?\s{{0,3}}(?P<year>{_YEAR}){END}", half_year),
    (
        rf"{BEGIN}{_RELATION}(?P<name>{any_of(SEASONS_WITH_YEAR)}){_OF_YEAR}(?P<next>\s{{0,3}}[/\u2013-]\s{{0,3}}(?:[0-9]{{4}}|[0-9]{{2}}))?{END}",
        one_season,
    ),
    (rf"{BEGIN}{_RELATION}(?P<name>{any_of(FEASTS)}){_OF_YEAR}{END}", one_feast),
    (
        rf"{BEGIN}(?P<half>first|second)\s{{1,3}}half\s{{1,3}}of\s{{1,3}}(?:(?P<name>{_LONG})(?:\s{{1,3}})?)?(?P<year>{_YEAR})?(?:(?<=\w)){END}",
        part_of_year,
    ),
    (rf"{BEGIN}(?P<year>{_YEAR})(?:\s{{0,3}}[-\u2010\u2013/]\s{{0,3}}(?P<last>[0-9]{{4}}|[0-9]{{2}}))?{END}", one_year),
    (
        rf"{BEGIN}(?:between|from|zwischen|von|entre|de|desde)\s{{1,3}}(?P<first>{_YEAR}){_TO}(?P<last>{_YEAR}){END}",
        year_range,
    ),
    (
        rf"{BEGIN}on\s{{1,3}}the\s{{1,3}}(?P<day>[0-9]{{1,2}})(?:st|nd|rd|th)(?!\s{{1,3}}(?:of\s{{1,3}})?{_MONTH}){END}",
        day_of_month,
    ),
)
