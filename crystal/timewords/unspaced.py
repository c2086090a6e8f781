"""Times in Chinese, Japanese and Korean. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from functools import partial

from crystal.timewords.calendar_spans import Stretch, day, days_from, hours_of, month, season, unit, year
from crystal.timewords.found import Found, latest
from crystal.timewords.relative import any_of, span_back
from crystal.timewords.relative import some_ago as some_ago_of
from crystal.timewords.vocabulary import CHINESE_NUMBERS

_DAYS = {
    "大前天": -3,
    "前天": -2, "昨天": -1, "昨日": -1, "今天": 0, "今日": 0, "一昨日": -2, "おととい": -2, "きのう": -1,
    "그저께": -2, "어제": -1, "오늘": 0,
}  # fmt: skip
_PARTS_OF_DAYS = {
    "今早": (0, "morning"), "今晨": (0, "morning"), "今朝": (0, "morning"), "昨晚": (-1, "night"),
    "昨夜": (-1, "night"), "昨晩": (-1, "night"), "ゆうべ": (-1, "night"), "今晚": (0, "night"),
    "今晩": (0, "night"), "今夜": (0, "night"),
    "어젯밤": (-1, "night"),
}  # fmt: skip
_PARTS = {
    "早上": "morning", "上午": "morning", "の朝": "morning", "午前": "morning", "の午前": "morning",
    "下午": "afternoon", "の午後": "afternoon", "晚上": "evening", "晚": "evening", "の夜": "evening",
}  # fmt: skip
_UNIT_WORDS = """
week -2 上上周 先々週
week -1 上周 上週 上星期 上个星期 上個星期 上个礼拜 上礼拜 上个周 先週 지난주 지난_주
week 0 这周 這週 本周 本週 这个星期 这星期 這個星期 今週 이번_주 이번주
weekend -1 上周末 上個週末 先週末
month -2 上上个月 先々月
month -1 上个月 上個月 上月 先月 지난달 지난_달
month 0 这个月 這個月 本月 今月 이번_달 이번달
quarter -1 上个季度 上季度
year -2 前年 一昨年
year -1 去年 昨年 작년
year 0 今年 올해
"""
_UNITS = {
    word.replace("_", " "): (name, int(offset))
    for name, offset, *words in (line.split() for line in _UNIT_WORDS.strip().split("\n"))
    for word in words
}
_COUNTED_WORDS = """
minute 分钟 分鐘 分
hour 小时 小時 个小时 時間
day 天 日 日間 일
week 周 週 週間 个星期 個星期 星期 个礼拜 주
month 个月 個月 ヶ月 か月 カ月 ケ月 ヵ月 ヶ月間 か月間 개월
year 年 年間 년
"""
_COUNTED = {word: line.split()[0] for line in _COUNTED_WORDS.strip().split("\n") for word in line.split()[1:]}
_SEASONS = {"春": "spring", "夏": "summer", "秋": "autumn", "冬": "winter"}
_RELATIVE_YEARS = {"前年": -2, "去年": -1, "昨年": -1, "今年": 0}
_WEEKDAYS = (
    {mark: at for at, mark in enumerate("一二三四五六日")}
    | {"天": 6}
    | {mark: at for at, mark in enumerate("月火水木金土日")}
)
_DIGITS = "[0-9]{1,4}|" + any_of(CHINESE_NUMBERS)
_NUMBER = f"(?P<number>{_DIGITS})"


def _unit(match: re.Match[str], now: datetime) -> Found:
    name, offset = _UNITS[match[0]]
    grain = "week" if name in ("week", "weekend") else "year" if name == "year" else "month"
    return Found(*match.span(), (unit(name, now, offset),), grain)


def _day(match: re.Match[str], now: datetime) -> Found:
    stretch = days_from(now, _DAYS[match["word"]])
    if match["part"]:
        return Found(*match.span(), (hours_of(stretch, _PARTS[match["part"]]),), "hour")
    return Found(*match.span(), (stretch,), "day")


def _part(match: re.Match[str], now: datetime) -> Found:
    offset, part = _PARTS_OF_DAYS[match[0]]
    return Found(*match.span(), (hours_of(days_from(now, offset), part),), "hour")


def _last_some(match: re.Match[str], now: datetime) -> Found:
    return Found(*match.span(), (span_back(_number(match["number"]), _COUNTED[match["unit"]], now),), "week")


def _some_ago(match: re.Match[str], now: datetime) -> Found:
    return some_ago_of(_number(match["number"]), _COUNTED[match["unit"]], match.span(), now)


def _date(match: re.Match[str], now: datetime) -> Found | None:
    of_year = int(match["year"]) if match["year"] else None
    if match["yrel"]:
        of_year = now.year + _RELATIVE_YEARS[match["yrel"]]
    of_month, number = _number(match["month"]), _number(match["day"]) if match["day"] else None
    if not 1 <= of_month <= 12:
        return None
    yearly = partial(_month_of, of_month) if number is None else partial(_day_of, of_month, number)
    grain = "month" if number is None else "day"
    if of_year is not None:
        return Found(*match.span(), (yearly(of_year),), grain)
    return Found(*match.span(), (latest(yearly, now),), grain, yearly)


def _month_of(number: int, of_year: int) -> tuple[datetime, datetime]:
    return month(of_year, number)


def _day_of(of_month: int, number: int, of_year: int) -> tuple[datetime, datetime]:
    return day(of_year, of_month, number)


def _year(match: re.Match[str], now: datetime) -> Found | None:
    number = int(match["year"]) if match["year"] else now.year + _RELATIVE_YEARS[match["yrel"]]
    if not 1950 <= number <= now.year + 10:
        return None
    if match["season"]:
        return Found(*match.span(), (season(_SEASONS[match["season"]], number),), "month")
    return Found(*match.span(), (year(number),), "year")


def _half_a_year_ago(match: re.Match[str], now: datetime) -> Found:
    return some_ago_of(6, "month", match.span(), now)


def _weekday(match: re.Match[str], now: datetime) -> Found | None:
    number = _WEEKDAYS[match["day"] or match["other"]]
    if match["week"]:
        offset = -now.weekday() + number + (-7 if match["week"][0] in "上先" else 0)
        return _part_of(match, (days_from(now, offset),))
    back = (now.weekday() - number) % 7
    readings = tuple(days_from(now, -one) for one in ((0, 7) if back == 0 else (back,)))
    return _part_of(match, readings)


def _part_of(match: re.Match[str], days: tuple[Stretch, ...]) -> Found:
    if not match["part"]:
        return Found(*match.span(), days, "day")
    return Found(*match.span(), tuple(hours_of(one, _PARTS[match["part"]]) for one in days), "hour")


def _weekend(match: re.Match[str], now: datetime) -> Found | None:
    offset = -1 if match[0][0] in "上先" or now.weekday() < 5 else 0
    return Found(*match.span(), (unit("weekend", now, offset),), "week")


def _number(word: str) -> int:
    return CHINESE_NUMBERS.get(word) or int(word)


_YEARS = "(?:(?P<year>(?:19|20)[0-9]{2})[年년]\\s?|(?P<yrel>" + any_of(_RELATIVE_YEARS) + ")(?:的|の)?)?"
_NOT_IN_NUMBER = "(?<![0-9A-Za-z_.一二三四五六七八九十-])"
_WEEKDAY = (
    "(?P<week>(?:上个?|上個|这个?|這個?|本)(?=星期|周|週|礼拜)|先週の?|今週の?)?(?:"
    "(?:星期|周|週|礼拜)(?P<day>[一二三四五六日天])(?![志程期常历歷直些起个個下样樣次种種])(?P<part>早上|上午|下午|晚上|晚)?"
    "|(?P<other>[月火水木金土日])曜日?)"
)
RULES: tuple[tuple[str, Callable[[re.Match[str], datetime], Found | None]], ...] = (
    (any_of(_UNITS), _unit),
    ("(?:上个?|先|这个?|這個?|本|今)?[周週]末", _weekend),
    (f"(?P<word>{any_of(_DAYS)})(?P<part>{any_of(_PARTS)})?", _day),
    (any_of(_PARTS_OF_DAYS), _part),
    (f"(?:最近|过去|過去|近|ここ|지난)\\s?(?:的|の)?{_NUMBER}\\s?(?P<unit>{any_of(_COUNTED)})(?:間|间)?", _last_some),
    (f"{_NOT_IN_NUMBER}{_NUMBER}\\s?(?P<unit>{any_of(_COUNTED)})(?:\\s전|之?前|以前)", _some_ago),
    (
        _NOT_IN_NUMBER + _YEARS + "(?P<month>1[0-2]|0?[1-9]|十[一二]?|[一二三四五六七八九])[月월](?:份)?"
        "(?:\\s?(?P<day>[0-9]{1,2})[日号號일])?",
        _date,
    ),
    (
        "(?:(?<![0-9A-Za-z_.-])(?P<year>(?:19|20)[0-9]{2})[年년]|(?P<yrel>" + any_of(_RELATIVE_YEARS) + "))"
        "(?:の|的)?(?:(?P<season>[春夏秋冬])(?:天|季)?)?",
        _year,
    ),
    ("半年之?前", _half_a_year_ago),
    (_WEEKDAY, _weekday),
)
