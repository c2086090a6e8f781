"""Compute the meanings of the patterns of ``grammar.json``, by the name of the function there.

A function returns the time; None if the words are no time, so that a later pattern may match them; a time without
readings if they are certainly none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from crystal.timewords.calendar_spans import DAY, Stretch, back, days, hours_of, months, part_of
from crystal.timewords.calendar_spans import unit as one_unit
from crystal.timewords.phrase import PhraseMatch, TimePhrase, following, latest

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  it gets its zone with the others
_MOMENT = timedelta(milliseconds=1)
_A_FEW = 5
_GRAINS = {"minute": "hour", "hour": "hour", "day": "day", "week": "week", "weekend": "week", "year": "year"}
_SLACK = {"hour": DAY / 24, "minute": DAY / 1440}


def hide(_phrase: PhraseMatch) -> TimePhrase:
    """Read a number that counts something as no time: ``version 2.5.2023``."""
    return TimePhrase((), "")


def date(phrase: PhraseMatch) -> TimePhrase | None:
    """Read 2023-05-08, 8.5.2023 and 05/08/2023; 8.5. and 8.5.23 only after a word like ``on``."""
    if "short_date" in phrase and not phrase.before.has("on"):
        return None
    fields = phrase["date"] or phrase["short_date"]
    if None in fields[0]:
        year, month, number = fields[0]
        yearly = partial(months, month, 1) if number is None else partial(days, month, number, number)
        return _in_year(phrase, yearly, "month" if number is None else "day", year)
    return TimePhrase(tuple(days(month, number, number, year) for year, month, number in fields), "day")


def day_and_month(phrase: PhraseMatch) -> TimePhrase | None:
    """Read 8 May 2023, May 8th and 3 to 7 June; ``May 8 processes`` and ``dec 12`` are none."""
    token, number, year = phrase.token("month", "short_month"), int(phrase["day"]), _year(phrase)
    if year is None and not phrase.token("day").has("nth"):
        if token.has("verb") and not ((token.is_capital or phrase.before.has("on")) and phrase.ends):
            return None
        if not (token.is_capital or token.has("month")):
            return None
    return _in_year(phrase, partial(days, _month(phrase), number, int(phrase["last_day"] or number)), "day", year)


def month(phrase: PhraseMatch) -> TimePhrase | None:
    """Read in March, March 2023 and last March."""
    year, yearly = _year(phrase), partial(months, _month(phrase), 1)
    if year is None and not _is_month(phrase):
        return None
    if "last" in phrase and year is None:
        return TimePhrase((latest(yearly, one_unit("month", phrase.now, 0)[0] - DAY),), "month")
    return _in_year(phrase, yearly, "month", phrase.now.year if "this" in phrase else year)


def unspaced_date(phrase: PhraseMatch) -> TimePhrase | None:
    """Read 2023年5月8日, 5月8日 and 3月."""
    number, day = int(phrase["its_month"]), phrase["its_day"]
    if not 1 <= number <= 12:
        return None
    if day is None:
        return _in_year(phrase, partial(months, number, 1), "month", _year(phrase))
    return _in_year(phrase, partial(days, number, int(day), int(day)), "day", _year(phrase))


def quarter(phrase: PhraseMatch) -> TimePhrase | None:
    """Read Q1 2024; without a year only after a word that marks a time."""
    year = _year(phrase)
    if year is None and not phrase.before.has("in of by last"):
        return None
    return _in_year(phrase, partial(months, int(phrase["quarter"]), 3), "month", year)


def season(phrase: PhraseMatch) -> TimePhrase | None:
    """Read summer 2023, last summer and in the summer. A winter begins in the year before, or in its year."""
    first, year, yearly = int(phrase["season"]), _year(phrase), partial(months, int(phrase["season"]), 3)
    if year is not None:
        return TimePhrase(tuple(map(yearly, (year, year - 1) if first == 12 else (year,))), "month")
    token, found = phrase.token("season"), latest(yearly, phrase.now)
    if token.text == "ete" or not token.text.isascii() or (token.text == "spring" and token.is_capital):
        return None  # French "été" is also "been"
    if "last" in phrase:
        return TimePhrase((found if found[1] <= phrase.now else latest(yearly, found[0] - DAY),), "month")
    is_time = "this" in phrase or (phrase.before.has("in") and phrase.ends)
    return TimePhrase((found,), "month", yearly) if is_time else None


def year(phrase: PhraseMatch) -> TimePhrase | None:
    """Read in 2023; but not in 2000 rows."""
    number, is_named = int(phrase["year"]), phrase.before.tags.get("unit") == "year"
    is_time = is_named or (phrase.ends and (phrase.joins or phrase.before.has("in of opening part")))
    return TimePhrase((months(1, 12, number),), "year") if is_time and number <= phrase.now.year + 10 else None


def marked_year(phrase: PhraseMatch) -> TimePhrase:
    """Read 2023年."""
    return TimePhrase((months(1, 12, int(phrase["year"])),), "year")


def day_of_month(phrase: PhraseMatch) -> TimePhrase | None:
    """Read on the 8th: of this month, or of the last month whose 8th has begun."""
    for offset in (0, -1, -2) if phrase.ends else ():
        first, stop = one_unit("month", phrase.now, offset)
        start = first + (int(phrase["nth"]) - 1) * DAY
        if first <= start < stop and start <= phrase.now:
            return TimePhrase(((start, start + DAY),), "day")
    return None


def night(phrase: PhraseMatch) -> TimePhrase:
    """Read a part of today or yesterday with its own word: ``last night``."""
    offset, hours = phrase["night"].split(" ", 1)
    return TimePhrase((hours_of(one_unit("day", phrase.now, int(offset)), hours),), "hour")


def day_word(phrase: PhraseMatch) -> TimePhrase | None:
    """Read today and yesterday, or a part of them. ``hier`` is German unless more of the question is French."""
    if phrase["day_word"] == "-1" and phrase.token("day_word").text == "hier" and "hours" not in phrase:
        french, german = (sum(token.has(tag) for token in phrase.tokens) for tag in ("fr", "de"))
        if french <= german:
            return None
    return _days((one_unit("day", phrase.now, int(phrase["day_word"])),), phrase)


def unit(phrase: PhraseMatch) -> TimePhrase | None:
    """Read this week, last month, the past year and the week before last."""
    name, offset = phrase["unit"] or "year", _offset(phrase)
    is_past = phrase["last"] == "past"
    if name == "minute" or (name == "hour" and offset == 0) or (name == "day" and not is_past):
        return None
    if offset and _is_of_another(phrase):
        return None
    if name == "hour" or (is_past and name not in ("weekend", "quarter")):
        return TimePhrase(((back(1, name, phrase.now), phrase.now),), "hour" if name == "hour" else "week")
    return TimePhrase((one_unit(name, phrase.now, offset),), _GRAINS.get(name, "month"))


def last_some(phrase: PhraseMatch) -> TimePhrase | None:
    """Read the last three weeks: up to now."""
    name = phrase["unit"] or phrase["unit_letter"]
    if name == "weekend" or _is_of_another(phrase):
        return None
    count = _A_FEW if phrase["number"] == "few" else int(phrase["number"])
    return TimePhrase(((back(count, name, phrase.now), phrase.now),), "week")


def ago(phrase: PhraseMatch) -> TimePhrase | None:
    """Read three weeks ago, a few days ago and half a year ago, as exactly as people count."""
    name, number = phrase["unit"] or phrase["unit_letter"] or "month", phrase["number"] or "6"
    if name == "weekend":
        return None
    if number == "few":
        return TimePhrase(((_around(5, name, phrase.now)[0], _around(2, name, phrase.now)[1]),), "week")
    return TimePhrase((_around(int(number), name, phrase.now),), "day" if name == "day" else "week")


def weekday(phrase: PhraseMatch) -> TimePhrase | None:
    """Read on Monday: the latest one, but the one before today if it is called last or today is a Monday."""
    relation, short = phrase.token("last", "this"), phrase.token("short_weekday")
    is_said = relation.tags or phrase.before.has("in on side")
    if phrase.before.has("not_past") or ("short_weekday" in phrase and not (short.is_capital and is_said)):
        return None
    number, now = int(phrase["weekday"] or phrase["short_weekday"]) - 1, phrase.now
    ago = (now.weekday() - number) % 7
    offsets = [-ago]
    if not relation.text.isascii():  # 上周一: Monday of last week
        offsets = [number - now.weekday() + 7 * _offset(phrase)]
    elif ago == 0 and "this" not in phrase:
        offsets = [-7] if "last" in phrase or "last_after" in phrase else [0, -7]
    return replace(_days(tuple(one_unit("day", now, offset) for offset in offsets), phrase), is_weekday=True)


def weekday_of_week(phrase: PhraseMatch) -> TimePhrase | None:
    """Read Tuesday of last week."""
    start, stop = phrase.time.readings[0]
    if stop - start != 7 * DAY or start.weekday():
        return None
    day = start + (int(phrase["weekday"]) - 1) * DAY
    return _days(((day, day + DAY),), phrase)


def dated_weekday(phrase: PhraseMatch) -> TimePhrase | None:
    """Read Tuesday, 9 May 2023."""
    return phrase.time if phrase.time.grain == "day" and not phrase.time.is_weekday else None


def time_range(phrase: PhraseMatch) -> TimePhrase | None:
    """Join two times, from the beginning of one to the end of the other; a year of one of them counts for both."""
    first, second = phrase["first"], phrase["second"]
    if "opening" not in phrase and first.grain != second.grain:
        return None
    (start, _), (begin, stop) = first.readings[0], second.readings[0]
    try:
        if first.yearly is not None:
            start = latest(first.yearly, begin)[0]
        elif second.yearly is not None:
            stop = following(second.yearly, start)[1]
    except ValueError:
        return None
    if first.is_weekday and second.is_weekday and start >= stop:
        start -= 7 * DAY
    return TimePhrase(((start, stop),), "week") if start < stop and start <= phrase.now else None


def part(phrase: PhraseMatch) -> TimePhrase | None:
    """Read early in March, the end of 2023 and late last year."""
    if phrase.time.grain not in ("week", "month", "year"):
        return None
    return TimePhrase(tuple(part_of(one, phrase["part"]) for one in phrase.time.readings), "week")


def beside(phrase: PhraseMatch) -> TimePhrase | None:
    """Read the week before a time and three days after it, as the whole span."""
    (start, stop), side, count = phrase.time.readings[0], phrase["side"], int(phrase["number"] or 1)
    if side not in ("before", "after"):
        return None
    begin = back(count, phrase["unit"], start) if side == "before" else stop
    return TimePhrase(((begin, start if side == "before" else back(-count, phrase["unit"], stop)),), "week")


def sided(phrase: PhraseMatch) -> TimePhrase:
    """Read since, before, after and until a time."""
    found, now, side, readings = phrase.time, phrase.now, phrase["side"], []
    if side is None:
        side = next((name for name in ("before", "after") if f"{name}_after" in phrase), "since")
    for start, stop in found.readings:
        begin, end = (start if side == "since" else stop), (start if side == "before" else stop)
        if side in ("since", "after"):
            readings.append((begin, now + _MOMENT) if begin <= now else (start, stop))
        else:
            readings.append((_EPOCH, end) if end > _EPOCH else (start, stop))
    return replace(found, readings=tuple(readings))


def _in_year(
    phrase: PhraseMatch, yearly: Callable[[int], Stretch], grain: str, of_year: int | None = None
) -> TimePhrase:
    """Return a span in a year; if no year is named, the latest."""
    if of_year is not None:
        return TimePhrase((yearly(of_year),), grain)
    return TimePhrase((latest(yearly, phrase.now),), grain, yearly)


def _days(readings: tuple[Stretch, ...], phrase: PhraseMatch) -> TimePhrase:
    """Return days, or the named hours of them."""
    if "hours" in phrase:
        return TimePhrase(tuple(hours_of(one, phrase["hours"]) for one in readings), "hour")
    return TimePhrase(readings, "day")


def _around(count: int, name: str, moment: datetime) -> Stretch:
    """Return the span a number of units before a moment."""
    start = back(count, name, moment)
    if name in ("quarter", "year"):
        return back(6, "month", start), back(-6, "month", start)
    if name in _SLACK:
        size = _SLACK[name] * max(1, count // 10)
        return start - size, start + size
    before, after = {"day": (0, 1), "month": (15, 16)}.get(name, (3, 4))
    return start - before * DAY, start + after * DAY


def _month(phrase: PhraseMatch) -> int:
    return int(phrase["month"] or phrase["short_month"])


def _year(phrase: PhraseMatch) -> int | None:
    if "relative_year" in phrase:
        return phrase.now.year + int(phrase["relative_year"])
    return int(phrase["year"]) if "year" in phrase else None


def _offset(phrase: PhraseMatch) -> int:
    if "relative_year" in phrase:
        return int(phrase["relative_year"])
    if "this" in phrase:
        return 0
    return -2 if "before_last" in phrase or phrase["last"] == "-2" else -1


def _is_first_of_two_months(phrase: PhraseMatch, *, is_capital: bool) -> bool:
    is_written = is_capital or phrase.beyond(2).has("year comma")
    return is_written and phrase.after.has("strong_link slash") and phrase.beyond(1).has("month")


def _is_month(phrase: PhraseMatch) -> bool:
    """Return whether a month's name without a year is a time here, and not a verb or a person."""
    token, before = phrase.token("month", "short_month"), phrase.before
    if token.has("only_after"):
        return before.text.split(" ")[0] in token.tags["only_after"].split()
    if not token.has("month"):
        return token.is_capital and before.has("in") and phrase.ends
    if before.has("not_past"):
        return False
    if phrase.joins or _is_first_of_two_months(phrase, is_capital=token.is_capital):
        return True
    if token.has("verb") and not token.is_capital:
        return before.has("in part") or ("last" in phrase and phrase.ends)
    is_said = "last" in phrase or "this" in phrase or before.has("in of by part side opening")
    return is_said or not token.has("unsure")


def _is_of_another(phrase: PhraseMatch) -> bool:
    """Return whether "the last week" is followed by what it belongs to, such as a month or a year."""
    is_part = phrase.after.has("of") or phrase.after.text in ("in", "im", "en")
    return is_part and (phrase.after.text == "of" or phrase.beyond(1).has("time"))
