"""Times counted from now, in languages with spaces: yesterday, last week, three days ago, on Monday. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from crystal.timewords.calendar_spans import DAY, Stretch, days_from, hours_of, midnight, months_from, part_of, unit
from crystal.timewords.found import Found
from crystal.timewords.vocabulary import (
    DAY_PARTS,
    DAY_WORDS,
    FEW,
    FRENCH,
    GERMAN,
    MONTHS,
    NUMBERS,
    PART_OF,
    SHORT_WEEKDAYS,
    UNIT_OF,
    WEEKDAYS,
)

# A word may stand beside one of a script without spaces. Letters are without accents here, see ``shield``; only ASCII
# ones are named because sets of all letters take the compiler of expressions long.
BEGIN, END = r"(?<![A-Za-z0-9_./-])", r"(?![A-Za-z0-9_/]|-[A-Za-z0-9_])"


def any_of(words: Iterable[str]) -> str:
    """A group of alternatives, the longest first, with any space for each blank."""
    ordered = sorted(words, key=lambda word: (-len(word), word))
    return "(?:" + "|".join(re.escape(word).replace(r"\ ", r"\s{1,3}") for word in ordered) + ")"


def squeezed(words: str) -> str:
    """Lower case, single spaces: how the vocabulary spells it."""
    return " ".join(words.lower().split())


NIGHTS = {
    "last night": (-1, "night"), "letzte nacht": (-1, "night"), "anoche": (-1, "night"),
    "la nuit derniere": (-1, "night"),
    "last evening": (-1, "evening"), "this morning": (0, "morning"),
    "this afternoon": (0, "afternoon"),
    "this evening": (0, "evening"), "tonight": (0, "night"), "ce matin": (0, "morning"), "ce soir": (0, "evening"),
    "cet apres-midi": (0, "afternoon"), "esta manana": (0, "morning"), "esta tarde": (0, "afternoon"),
    "esta noche": (0, "night"),
}  # fmt: skip
THIS = "this current diese dieser diesem diesen dieses cette ce esta este".split()
LAST = (
    "last previous letzte letzten letzter letztem letztes vergangene vergangenen vergangener vergangenes vorige "
    "vorigen voriger voriges"
).split()
BEFORE_LAST = "vorletzte vorletzten vorletzter vorletztes".split()
AFTER_IT = "dernier derniere passe passee pasado pasada".split()
PLURAL_LAST = "last past previous letzten vergangenen derniers dernieres ultimos ultimas".split()
UNIT = any_of(UNIT_OF)
NUMBER = rf"(?P<number>[0-9]{{1,4}}|{any_of([*NUMBERS, *FEW])})"
_LETTERS = {"h": "hour", "d": "day", "w": "week", "mo": "month", "y": "year"}
_NOT_PAST = re.compile(
    r"\b(?:every|each|next|coming|upcoming|following|any|most|black|good|super|cyber|per|nachsten?|kommenden|jeden"
    r"|chaque|cada)\s+\Z",
    re.IGNORECASE,
)
_ROLLING = re.compile(r"\b(?:in|over|within|during|for|throughout)\s+(?:the|this)\s+\Z", re.IGNORECASE)
# "the last week of May", "the last days in 2023": a part of something else, not counted from now
_OF_ANOTHER = re.compile(
    rf"\s{{1,3}}(?:of\b|(?:in|im|de|des|du|en)\s{{1,3}}(?:{any_of(MONTHS)}\b|(?:19|20)[0-9]{{2}}(?![0-9])))",
    re.IGNORECASE,
)
_AGO_AFTER = r"(?:vor|il\s{1,3}y\s{1,3}a|hace)\s{1,3}(?:etwa\s|environ\s|unos\s)?"
_ON = re.compile(r"\b(?:on|since|until|till|before|after|last|this|past)\s+\Z", re.IGNORECASE)


def night(match: re.Match[str], now: datetime) -> Found:
    """A part of today or yesterday with a word of its own."""
    offset, part = NIGHTS[squeezed(match[0])]
    return Found(*match.span(), (hours_of(days_from(now, offset), part),), "hour")


def day_word(match: re.Match[str], now: datetime) -> Found | None:
    """Today and yesterday, or a part of them."""
    word, part = squeezed(match["word"]), match["part"]
    if word == "hier" and not part and not _is_french(match.string):
        return None
    stretch = days_from(now, DAY_WORDS[word])
    if part:
        return Found(*match.span(), (hours_of(stretch, DAY_PARTS[squeezed(part)]),), "hour")
    return Found(*match.span(), (stretch,), "day")


def this_or_last(match: re.Match[str], now: datetime) -> Found | None:
    """This week, last month, the past year, the week before last."""
    name = UNIT_OF[match["unit"].lower()]
    relation = squeezed(match["relation"])
    if name == "minute" or (name in ("day", "hour") and relation in THIS) or (name == "day" and relation != "past"):
        return None
    if relation not in THIS and _OF_ANOTHER.match(match.string, match.end()):
        return None
    rolling = (
        relation == "past" or name == "hour" or _ROLLING.search(match.string, max(0, match.start() - 32), match.start())
    )
    if rolling and name not in ("weekend", "quarter"):
        return Found(*match.span(), (span_back(1, name, now),), "hour" if name == "hour" else "week")
    offset = 0 if relation in THIS else -2 if relation in ("before last", *BEFORE_LAST) else -1
    stretch = unit(name, now, offset)
    if stretch[0] > now:  # the weekend to come
        return None
    return Found(
        *match.span(), (stretch,), "week" if name in ("week", "weekend") else "year" if name == "year" else "month"
    )


def part_of_this(match: re.Match[str], now: datetime) -> Found:
    """The beginning of the year; the end of the one before, as long as that of this one is to come."""
    name, part = match["unit"].lower(), PART_OF[match["part"].lower()]
    stretch = part_of(unit(name, now, 0), part)
    if stretch[0] > now:
        stretch = part_of(unit(name, now, -1), part)
    return Found(*match.span(), (stretch,), "week")


def last_some(match: re.Match[str], now: datetime) -> Found | None:
    """The last three weeks: up to now."""
    name = _unit_name(match)
    if name is None or name == "weekend" or _OF_ANOTHER.match(match.string, match.end()):
        return None
    count, few = _count(match["number"])
    return Found(*match.span(), (span_back(5 if few else count, name, now),), "week")


def half_a_year_ago(match: re.Match[str], now: datetime) -> Found:
    """Half a year ago: about six months."""
    return Found(*match.span(), (around(6, "month", now),), "week")


def ago(match: re.Match[str], now: datetime) -> Found | None:
    """Three weeks ago, a few days ago."""
    name = _unit_name(match)
    if name is None or name == "weekend":
        return None
    count, few = _count(match["number"])
    if not few:
        return some_ago(count, name, match.span(), now)
    return Found(*match.span(), ((around(5, name, now)[0], around(2, name, now)[1]),), "week")


def some_ago(count: int, name: str, at: tuple[int, int], now: datetime) -> Found:
    """So many units ago, as exactly as people count: a day is that day, a week the days around it."""
    grain = "hour" if name in ("minute", "hour") else "day" if name == "day" else "week"
    return Found(*at, (around(count, name, now),), grain)


def weekday(match: re.Match[str], now: datetime) -> Found | None:
    """The latest Monday; the one before today where it is called the last, or where today is one."""
    word = match["day"].lower()
    text = match.string
    if _NOT_PAST.search(text, max(0, match.start() - 32), match.start()):
        return None
    if word not in WEEKDAYS and not (
        match["day"][0].isupper() and (_ON.search(text, max(0, match.start() - 32), match.start()) or match["relation"])
    ):
        return None
    number = WEEKDAYS.get(word, SHORT_WEEKDAYS.get(word, 0))
    back = (now.weekday() - number) % 7
    last = squeezed(match["relation"] or "") in LAST or match["after"]
    offsets = [-7] if back == 0 and last else [-back]
    if match["week"]:
        offsets = [number - now.weekday() - 7]
    elif back == 0 and not last and squeezed(match["relation"] or "") not in THIS:
        offsets = [0, -7]
    part = DAY_PARTS[squeezed(match["part"])] if match["part"] else None
    days = [days_from(now, offset) for offset in offsets]
    readings = tuple(hours_of(one, part) if part else one for one in days)
    return Found(*match.span(), readings, "hour" if part else "day")


def span_back(count: int, name: str, now: datetime) -> Stretch:
    """The last so many units, up to now; days and more begin at midnight."""
    if name in ("minute", "hour"):
        return now - timedelta(**{f"{name}s": count}), now
    return _back(count, name, now), now


def _back(count: int, name: str, now: datetime) -> datetime:
    if name in ("day", "week"):
        return midnight(now) - count * (7 if name == "week" else 1) * DAY
    return months_from(now, -count * {"month": 1, "quarter": 3, "year": 12}[name])


def around(count: int, name: str, now: datetime) -> Stretch:
    """What is meant by so many units before a moment, or after it if the number is negative."""
    if name in ("minute", "hour"):
        size = timedelta(**{f"{name}s": 1})
        slack = size * max(1, abs(count) // 10)
        return now - count * size - slack, now - count * size + slack
    start = _back(count, name, now)
    if name == "day":
        return start, start + DAY
    if name == "week":
        return start - 3 * DAY, start + 4 * DAY
    if name == "month":
        return start - 15 * DAY, start + 16 * DAY
    return months_from(start, -6), months_from(start, 6)


def length(name: str) -> timedelta:
    """How long a unit is, about."""
    days = {"minute": 1 / 1440, "hour": 1 / 24, "day": 1, "weekend": 7, "week": 7, "month": 30, "quarter": 91}
    return timedelta(days=days.get(name, 365))


def counted(words: str) -> int:
    """The number that a word or digits say."""
    word = squeezed(words)
    return NUMBERS[word] if word in NUMBERS else int(word)


def _unit_name(match: re.Match[str]) -> str | None:
    word = match["unit"].lower()
    if word in _LETTERS:
        return _LETTERS[word] if match["number"].isdigit() else None
    return UNIT_OF[word]


def _count(words: str) -> tuple[int, bool]:
    word = squeezed(words)
    return (0, True) if word in FEW else (counted(word), False)


def _is_french(text: str) -> bool:
    words = set(re.findall(r"[^\W\d_]+(?:['-][^\W\d_]+)*", text.lower()))
    return len(words & FRENCH) > len(words & GERMAN)


_UNITS = rf"(?P<unit>{UNIT}|(?:h|d|w|mo|y)(?![\w]))"
_RELATIONS = any_of([*THIS, *LAST, *BEFORE_LAST, "past"])
_PARTS = any_of(DAY_PARTS)
_BEFORE_LAST = (
    rf"{BEGIN}(?P<unit>week|weekend|month|year)\s{{1,3}}(?P<relation>before\s{{1,3}}last)"
    rf"(?!\s{{1,3}}{any_of([*WEEKDAYS, *MONTHS])}){END}"
)
_LAST_WEEK = any_of(
    (
        "last week",
        "letzte woche",
        "letzter woche",
        "vergangene woche",
        "vergangener woche",
        "de la semaine derniere",
        "de la semana pasada",
    )
)
_WEEKDAY = (
    rf"{BEGIN}(?:(?P<relation>{any_of([*THIS, *LAST, 'past'])})\s{{1,3}})?"
    rf"(?P<day>{any_of([*WEEKDAYS, *SHORT_WEEKDAYS])})(?:\s{{1,3}}(?P<after>{any_of(AFTER_IT)}))?"
    rf"(?:\s{{1,3}}(?P<part>{_PARTS}))?(?P<week>,?\s{{1,3}}(?:(?:of|in|the)\s{{1,3}}){{0,2}}{_LAST_WEEK})?{END}"
)
RULES: tuple[tuple[str, Callable[[re.Match[str], datetime], Found | None]], ...] = (
    (rf"{BEGIN}{any_of(NIGHTS)}{END}", night),
    (
        rf"{BEGIN}(?P<word>{any_of(DAY_WORDS)})(?:\s{{1,3}}(?:dans\s{{1,3}}la\s{{1,3}})?(?P<part>{_PARTS}))?{END}",
        day_word,
    ),
    (
        rf"{BEGIN}(?P<relation>{_RELATIONS})\s{{1,3}}(?:past\s{{1,3}})?(?P<unit>{UNIT}){END}",
        this_or_last,
    ),
    (rf"{BEGIN}(?P<unit>{UNIT})\s{{1,3}}(?P<relation>{any_of(AFTER_IT)}){END}", this_or_last),
    (_BEFORE_LAST, this_or_last),
    (
        rf"{BEGIN}(?P<part>beginning|start|middle|end)\s{{1,3}}of\s{{1,3}}the\s{{1,3}}(?P<unit>week|month|quarter|year){END}",
        part_of_this,
    ),
    (
        rf"{BEGIN}(?:this\s{{1,3}})?{any_of(PLURAL_LAST)}\s{{1,3}}{NUMBER}\s{{0,3}}{_UNITS}{END}",
        last_some,
    ),
    (
        rf"{BEGIN}{NUMBER}\s{{1,3}}{any_of(['derniers', 'dernieres', 'ultimos', 'ultimas'])}\s{{1,3}}{_UNITS}{END}",
        last_some,
    ),
    (rf"{BEGIN}{NUMBER}\s{{0,3}}{_UNITS}\s{{1,3}}(?:ago|back){END}", ago),
    (rf"{BEGIN}{any_of(['half a year ago', 'vor einem halben jahr', 'hace medio ano'])}{END}", half_a_year_ago),
    (
        rf"{BEGIN}{_AGO_AFTER}{NUMBER}\s{{0,3}}{_UNITS}{END}",
        ago,
    ),
    (_WEEKDAY, weekday),
)
