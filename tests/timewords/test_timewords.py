from __future__ import annotations

import time
import unicodedata
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crystal.timewords import LOOKED_AT, MAX_SPANS, find_times, meanings
from crystal.timewords.lexicon import lexicon, may_name_time, patterns
from crystal.timewords.parse import local

BERLIN = ZoneInfo("Europe/Berlin")


def ms(*parts: int) -> int:
    return int(datetime(*parts, tzinfo=BERLIN).timestamp() * 1000)


NOW = ms(2026, 11, 21, 10, 30)  # a Saturday


def spans(text, now=NOW):
    """What is found, as "first day..day after the last", with the hour where it is not midnight."""

    def shown(moment):
        at = local(moment, BERLIN)
        return f"{at:%Y-%m-%d}" + (f" {at:%H:%M}" if (at.hour, at.minute) != (0, 0) else "")

    return [f"{shown(span.start)}..{shown(span.end)}" for span in find_times(text, now=now, tz=BERLIN)]


NOW_WORDS = "2026-11-21 10:30"

RELATIVE = [
    ("what did we do today?", "2026-11-21..2026-11-22"),
    ("Yesterday's standup", "2026-11-20..2026-11-21"),
    ("the day before yesterday", "2026-11-19..2026-11-20"),
    ("yesterday evening", "2026-11-20 17:00..2026-11-21"),
    ("what failed this morning", "2026-11-21..2026-11-21 12:00"),
    ("the build last night", "2026-11-20 18:00..2026-11-21 06:00"),
    ("this week", "2026-11-16..2026-11-23"),
    ("last week", "2026-11-09..2026-11-16"),
    ("last week's outage", "2026-11-09..2026-11-16"),
    ("the week before last", "2026-11-02..2026-11-09"),
    ("last weekend", "2026-11-14..2026-11-16"),
    ("this month", "2026-11-01..2026-12-01"),
    ("last month", "2026-10-01..2026-11-01"),
    ("last quarter", "2026-07-01..2026-10-01"),
    ("this year", "2026-01-01..2027-01-01"),
    ("LAST YEAR", "2025-01-01..2026-01-01"),
    ("the last 3 days", f"2026-11-18..{NOW_WORDS}"),
    ("in the past two weeks", f"2026-11-07..{NOW_WORDS}"),
    ("over the last month", f"2026-10-21..{NOW_WORDS}"),
    ("the last 24h", f"2026-11-20 10:30..{NOW_WORDS}"),
    ("the past 2 hours", f"2026-11-21 08:30..{NOW_WORDS}"),
    ("the last few days", f"2026-11-16..{NOW_WORDS}"),
    ("3 days ago", "2026-11-18..2026-11-19"),
    ("two weeks ago", "2026-11-04..2026-11-11"),
    ("a month ago", "2026-10-06..2026-11-06"),
    ("2 years ago", "2024-05-21..2025-05-21"),
    ("an hour ago", "2026-11-21 08:30..2026-11-21 10:30"),
    ("a few weeks ago", "2026-10-14..2026-11-11"),
    ("what did she say on Monday", "2026-11-16..2026-11-17"),
    ("on Mon we met", "2026-11-16..2026-11-17"),
    ("last Tuesday", "2026-11-17..2026-11-18"),
    ("last Saturday", "2026-11-14..2026-11-15"),
    ("Friday morning", "2026-11-20..2026-11-20 12:00"),
    ("Tuesday of last week", "2026-11-10..2026-11-11"),
    ("heute", "2026-11-21..2026-11-22"),
    ("was haben wir gestern gemacht", "2026-11-20..2026-11-21"),
    ("heute morgen", "2026-11-21..2026-11-21 12:00"),
    ("letzte Woche", "2026-11-09..2026-11-16"),
    ("in der letzten Woche", "2026-11-09..2026-11-16"),
    ("letzten Monat", "2026-10-01..2026-11-01"),
    ("letztes Jahr", "2025-01-01..2026-01-01"),
    ("vor 3 Tagen", "2026-11-18..2026-11-19"),
    ("vor zwei Wochen", "2026-11-04..2026-11-11"),
    ("in den letzten 3 Tagen", f"2026-11-18..{NOW_WORDS}"),
    ("am Montag", "2026-11-16..2026-11-17"),
    ("letzten Dienstag", "2026-11-17..2026-11-18"),
    ("qu'est-ce que j'ai fait hier", "2026-11-20..2026-11-21"),
    ("hier soir", "2026-11-20 17:00..2026-11-21"),
    ("aujourd’hui", "2026-11-21..2026-11-22"),
    ("la semaine dernière", "2026-11-09..2026-11-16"),
    ("le mois dernier", "2026-10-01..2026-11-01"),
    ("il y a 3 jours", "2026-11-18..2026-11-19"),
    ("les 3 derniers jours", f"2026-11-18..{NOW_WORDS}"),
    ("ayer", "2026-11-20..2026-11-21"),
    ("la semana pasada", "2026-11-09..2026-11-16"),
    ("el mes pasado", "2026-10-01..2026-11-01"),
    ("hace 3 días", "2026-11-18..2026-11-19"),
    ("hace unos días", "2026-11-16..2026-11-20"),
    ("los últimos 3 días", f"2026-11-18..{NOW_WORDS}"),
    ("昨天做了什么", "2026-11-20..2026-11-21"),
    ("昨天下午", "2026-11-20 12:00..2026-11-20 18:00"),
    ("上周的错误", "2026-11-09..2026-11-16"),
    ("上周日志", "2026-11-09..2026-11-16"),
    ("上周一", "2026-11-09..2026-11-10"),
    ("上个月", "2026-10-01..2026-11-01"),
    ("去年", "2025-01-01..2026-01-01"),
    ("三天前", "2026-11-18..2026-11-19"),
    ("最近3天", f"2026-11-18..{NOW_WORDS}"),
    ("昨日のバグ", "2026-11-20..2026-11-21"),
    ("先週のバグ", "2026-11-09..2026-11-16"),
    ("先週の月曜日", "2026-11-09..2026-11-10"),
    ("3日前", "2026-11-18..2026-11-19"),
    ("어제", "2026-11-20..2026-11-21"),
    ("지난주", "2026-11-09..2026-11-16"),
    ("3시간 전", "2026-11-21 06:30..2026-11-21 08:30"),
]

DATES = [
    ("in March", "2026-03-01..2026-04-01"),
    ("in march", "2026-03-01..2026-04-01"),
    ("in March 2023", "2023-03-01..2023-04-01"),
    ("march 2023", "2023-03-01..2023-04-01"),
    ("last March", "2026-03-01..2026-04-01"),
    ("last November", "2025-11-01..2025-12-01"),
    ("in November", "2026-11-01..2026-12-01"),
    ("in December", "2025-12-01..2026-01-01"),
    ("in March last year", "2025-03-01..2025-04-01"),
    ("January meeting", "2026-01-01..2026-02-01"),
    ("in Dec. 2022", "2022-12-01..2023-01-01"),
    ("sept 2023", "2023-09-01..2023-10-01"),
    ("early March", "2026-03-01..2026-03-11"),
    ("mid-March", "2026-03-11..2026-03-22"),
    ("late March 2023", "2023-03-22..2023-04-01"),
    ("the end of May", "2026-05-22..2026-06-01"),
    ("early 2023", "2023-01-01..2023-05-01"),
    ("the first half of 2023", "2023-01-01..2023-07-01"),
    ("spring 2023", "2023-03-01..2023-06-01"),
    ("the summer of 2023", "2023-06-01..2023-09-01"),
    ("last summer", "2026-06-01..2026-09-01"),
    ("winter 2022/23", "2022-12-01..2023-03-01"),
    ("Q1 2024", "2024-01-01..2024-04-01"),
    ("2024-Q1", "2024-01-01..2024-04-01"),
    ("in Q3", "2026-07-01..2026-10-01"),
    ("third quarter of 2024", "2024-07-01..2024-10-01"),
    ("H1 2024", "2024-01-01..2024-07-01"),
    ("in 2023", "2023-01-01..2024-01-01"),
    ("in 2023 what did we use", "2023-01-01..2024-01-01"),
    ("8 May 2023", "2023-05-08..2023-05-09"),
    ("8-May-2023", "2023-05-08..2023-05-09"),
    ("on the 8th of May, 2023", "2023-05-08..2023-05-09"),
    ("Tuesday, 9 May 2023", "2023-05-09..2023-05-10"),
    ("May 8", "2026-05-08..2026-05-09"),
    ("May 8th", "2026-05-08..2026-05-09"),
    ("May 8th, 2023", "2023-05-08..2023-05-09"),
    ("may 8, 2023", "2023-05-08..2023-05-09"),
    ("Dec 12", "2025-12-12..2025-12-13"),
    ("8.5.2023", "2023-05-08..2023-05-09"),
    ("am 8.5.", "2026-05-08..2026-05-09"),
    ("2023-05-08", "2023-05-08..2023-05-09"),
    ("2023-05-08T12:30:00Z", "2023-05-08..2023-05-09"),
    ("what ran at 2023-05-08 12:30?", "2023-05-08..2023-05-09"),
    ("2023/05/08", "2023-05-08..2023-05-09"),
    ("2023-05", "2023-05-01..2023-06-01"),
    ("05/2023", "2023-05-01..2023-06-01"),
    ("13/08/2023", "2023-08-13..2023-08-14"),
    ("08/13/2023", "2023-08-13..2023-08-14"),
    ("05/05/2023", "2023-05-05..2023-05-06"),
    ("on the 8th", "2026-11-08..2026-11-09"),
    ("29 February", "2024-02-29..2024-03-01"),
    ("since June", f"2026-06-01..{NOW_WORDS}"),
    ("since yesterday", f"2026-11-20..{NOW_WORDS}"),
    ("from March onwards", f"2026-03-01..{NOW_WORDS}"),
    ("before Christmas", "1970-01-01..2025-12-24"),
    ("after Christmas 2022", f"2022-12-27..{NOW_WORDS}"),
    ("before Easter 2024", "1970-01-01..2024-03-29"),
    ("before 2023-05-08", "1970-01-01..2023-05-08"),
    ("until Friday", "1970-01-01..2026-11-21"),
    ("around 8 May 2023", "2023-05-05..2023-05-12"),
    ("around May 2023", "2023-04-16..2023-06-16"),
    ("between March and May", "2026-03-01..2026-06-01"),
    ("between November and February", "2025-11-01..2026-03-01"),
    ("between march 2022 and may", "2022-03-01..2022-06-01"),
    ("March to May 2023", "2023-03-01..2023-06-01"),
    ("in May/June 2023", "2023-05-01..2023-07-01"),
    ("from 3 to 7 June", "2026-06-03..2026-06-08"),
    ("between 3 and 7 June 2022", "2022-06-03..2022-06-08"),
    ("June 3-7", "2026-06-03..2026-06-08"),
    ("from 3 June to 7 July 2023", "2023-06-03..2023-07-08"),
    ("from 2023-05-08 to 2023-05-10", "2023-05-08..2023-05-11"),
    ("from Monday to Wednesday", "2026-11-16..2026-11-19"),
    ("between yesterday and today", "2026-11-20..2026-11-22"),
    ("between 2021 and 2023", "2021-01-01..2024-01-01"),
    ("as of 27 March, 2022", "2022-03-27..2022-03-28"),
    ("the week before 16 November 2023", "2023-11-09..2023-11-16"),
    ("the day after 8 May 2023", "2023-05-09..2023-05-10"),
    ("shortly before 7 Jan 2024", "2023-12-24..2024-01-07"),
    ("three days after 8 May 2023", "2023-05-11..2023-05-12"),
    ("a week before 8 May 2023", "2023-04-28..2023-05-05"),
    ("one weekend before 8 May 2023", "2023-04-28..2023-05-05"),
    ("March 15 - March 31", "2026-03-15..2026-04-01"),
    ("by June 10: the draft", "2026-06-10..2026-06-11"),
    ("on Friday before 10.01.2024", "2024-01-05..2024-01-06"),
    ("the Friday after 10 January 2024", "2024-01-12..2024-01-13"),
    ("the week of 10 May 2023", "2023-05-08..2023-05-15"),
    ("the month of May 2023", "2023-05-01..2023-06-01"),
    ("the first week of 2024", "2024-01-01..2024-01-08"),
    ("the last week of May", "2026-05-25..2026-06-01"),
    ("the first weekend in June 2023", "2023-06-03..2023-06-05"),
    ("the morning of 8 May 2023", "2023-05-08..2023-05-08 12:00"),
    ("since the beginning of the year", f"2026-01-01..{NOW_WORDS}"),
    ("winter 2021 - 2022", "2021-12-01..2022-03-01"),
    ("10 May – 12 May 2023", "2023-05-10..2023-05-13"),
    ("June 1st - June 5th", "2026-06-01..2026-06-06"),
    ("7 Juni bis 9 Juni 2023", "2023-06-07..2023-06-10"),
    ("2023-05-08 - 2023-05-10", "2023-05-08..2023-05-11"),
    ("2023年5月8日から2023年5月10日まで", "2023-05-08..2023-05-11"),
    ("last-week", "2026-11-09..2026-11-16"),
    ("half a year ago", "2026-05-06..2026-06-06"),
    ("半年前", "2026-05-06..2026-06-06"),
    ("上周五晚上", "2026-11-13 17:00..2026-11-14"),
    ("去年夏天", "2025-06-01..2025-09-01"),
    ("a principios de marzo", "2026-03-01..2026-03-11"),
    ("la semaine du 8 mai 2023", "2023-05-08..2023-05-15"),
    ("im März", "2026-03-01..2026-04-01"),
    ("am 8. Mai 2023", "2023-05-08..2023-05-09"),
    ("Ende Mai 2023", "2023-05-22..2023-06-01"),
    ("seit Juni", f"2026-06-01..{NOW_WORDS}"),
    ("vor Weihnachten", "1970-01-01..2025-12-24"),
    ("zwischen März und Mai", "2026-03-01..2026-06-01"),
    ("vom 3. bis 7. Juni", "2026-06-03..2026-06-08"),
    ("im letzten Sommer", "2026-06-01..2026-09-01"),
    ("en mars 2023", "2023-03-01..2023-04-01"),
    ("le 8 mai 2023", "2023-05-08..2023-05-09"),
    ("en août", "2026-08-01..2026-09-01"),
    ("depuis juin", f"2026-06-01..{NOW_WORDS}"),
    ("du 3 au 7 juin", "2026-06-03..2026-06-08"),
    ("el 8 de mayo de 2023", "2023-05-08..2023-05-09"),
    ("en marzo", "2026-03-01..2026-04-01"),
    ("3月", "2026-03-01..2026-04-01"),
    ("２０２３年５月８日", "2023-05-08..2023-05-09"),
    ("2023年5月8日", "2023-05-08..2023-05-09"),
    ("2023年5月", "2023-05-01..2023-06-01"),
    ("在2023-05-08做了什么", "2023-05-08..2023-05-09"),
    ("2023年の夏", "2023-06-01..2023-09-01"),
    ("从3月到5月", "2026-03-01..2026-06-01"),
    ("6月以来", f"2026-06-01..{NOW_WORDS}"),
]


@pytest.mark.parametrize(("text", "expected"), [*RELATIVE, *DATES])
def test_a_time_is_one_span(text, expected):
    assert spans(text) == [expected]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("05/08/2023", ["2023-05-08..2023-05-09", "2023-08-05..2023-08-06"]),
        ("winter 2023", ["2023-12-01..2024-03-01", "2022-12-01..2023-03-01"]),
        ("on Saturday", ["2026-11-21..2026-11-22", "2026-11-14..2026-11-15"]),
    ],
)
def test_words_with_two_meanings_give_both_for_the_same_words(text, expected):
    found = find_times(text, now=NOW, tz=BERLIN)
    assert spans(text) == expected
    assert len({(span.words, span.at) for span in found}) == 1


def test_several_times_come_in_the_order_of_their_words():
    assert spans("what changed between 8 May 2023 the day, last week and in Q1 2024?") == [
        "2023-05-08..2023-05-09",
        "2026-11-09..2026-11-16",
        "2024-01-01..2024-04-01",
    ]
    assert spans("during May and June") == ["2026-05-01..2026-06-01", "2026-06-01..2026-07-01"]


NO_TIMES = """
May I ask something
it may be that this fails
what may 8 processes do
step 8 may fail
the last may fail
the march of progress
they march on
gcc -march native
gcc -march=native
April said hi
April and June went out
the last commit
the last 5 commits
the second time
a second ago in the sun
last minute change
last week of the sprint
my last year of school
sat down with Sun
version 2.5.2023
release 2023-05
v 2.5.2023
12:30
at 12:30 the server
foo-2023-05-08.log
backup_2023-05-08
2023-05-08.log
logs/2023-05-08/app
/var/log/2023-05-08/x
C:\\2023\\05
https://example.org/2023/05/08/post
CVE-2023-0512
ERR-2023
yt-dlp 2023.05.08
in 2000 rows
in 2048 bytes
from 2023 items
port 2023
in 1920 by 1080
between 3 and 7 items
from 10 to 12
in Spring Boot
Spring 6
fall back to the default
date.today()
today()
yesterday_value
every Monday
next Monday
next week
next March
tomorrow
in 3 days
on the 2nd attempt
Q1: what is this
the year
dec 12
mon ami
was steht hier
hier ist der Fehler
en este momento
"last week"
what does "in March 2023" mean
`yesterday` is a function
'last month' in single quotes
„gestern“ und “today”
«hier soir»
「昨日」
30 February 2023
31.02.2023
2023-13-01
99/99/2023
三个文件
13月
2023%
#2023
since v2023
""".strip().split("\n")


@pytest.mark.parametrize("text", ["", " ", "last", "\0", *NO_TIMES])
def test_what_is_no_time_is_left_alone(text):
    assert spans(text) == []


def test_the_words_are_those_of_the_question_and_stand_where_it_says():
    for text, _ in [*RELATIVE, *DATES]:
        for span in find_times(f"¿qué? {text} – ok", now=NOW, tz=BERLIN):
            assert f"¿qué? {text} – ok"[slice(*span.at)] == span.words
            assert span.words == span.words.strip()


def test_the_way_accents_are_written_does_not_matter():
    for text, expected in [*RELATIVE, *DATES]:
        assert spans(unicodedata.normalize("NFD", text)) == [expected]
        assert spans(unicodedata.normalize("NFC", text)) == [expected]


@pytest.mark.parametrize("case", [str.upper, str.lower])
def test_dates_with_a_year_do_not_depend_on_case(case):
    for text, expected in DATES:
        if text.isascii() and "20" in text and "T12" not in text:
            assert spans(case(text)) == [expected]


def test_a_month_without_a_year_is_the_latest_that_has_begun():
    for month in range(1, 13):
        now = ms(2026, month, 1, 12)
        assert spans("in March", now) == [f"{2026 if month >= 3 else 2025}-03-01..{2026 if month >= 3 else 2025}-04-01"]
    assert spans("last March", ms(2026, 3, 20)) == ["2025-03-01..2025-04-01"]


def test_days_begin_at_local_midnight_when_the_clocks_change():
    (span,) = find_times("yesterday", now=ms(2026, 3, 30, 9), tz=BERLIN)
    assert span.end - span.start == 23 * 3_600_000


def test_the_zone_decides_what_today_is():
    now = int(datetime(2026, 11, 21, 2, tzinfo=timezone.utc).timestamp() * 1000)
    (here,) = find_times("today", now=now, tz=timezone.utc)
    (there,) = find_times("today", now=now, tz=timezone(timedelta(hours=-8)))
    assert there.end - here.start == 8 * 3_600_000
    assert find_times("today", now=now)


def test_only_the_beginning_of_a_long_text_is_looked_at():
    assert spans("x" * LOOKED_AT + " yesterday") == []
    assert len(find_times("2023-05-08 2023-05-09 yesterday " * 10_000, now=NOW, tz=BERLIN)) <= MAX_SPANS


TEXTS = st.one_of(
    st.text(max_size=60),
    st.lists(
        st.sampled_from(
            "last this since before around between and from to in on early mid-May May march 8 8th 8. 99 2023 0000 9999 "
            "2023-02-30 9999-12-31 0001-01-01 1.1.0000 12/31/9999 week weeks ago years 9999 days a few vor Tagen il y a "
            "ans Monday winter Christmas Easter first half of Q1 , - – / ' \" „ 昨天 上周 9999年前 月 13月 2月30日 前 今年 日 から".split()
        ),
        max_size=14,
    ).map(" ".join),
    st.lists(st.sampled_from("12 03 年 月 日 前 上 周 to May / . - 9".split()), max_size=14).map("".join),
)


@settings(max_examples=400)
@given(TEXTS, st.integers(-(2**53), 2**53))
def test_any_string_at_any_moment_gives_spans_in_order_and_raises_nothing(text, now):
    for moment in (now, NOW):
        found = find_times(text, now=moment, tz=BERLIN)
        for span in found:
            assert span.start < span.end
            assert 0 <= span.at[0] < span.at[1] <= len(text)
            assert text[slice(*span.at)] == span.words
        assert list(found) == sorted(found, key=lambda span: span.at)
        assert len(set(found)) == len(found)


@pytest.mark.parametrize(
    "unit", ["1.1. ", "May 8 ", "a ", "from 3 to ", "„", "'", "3月", "since the ", "last ", "2023-", "\0 1."]
)
def test_a_hostile_text_costs_little(unit):
    started = time.process_time()
    find_times(unit * 100_000, now=NOW, tz=BERLIN)
    assert time.process_time() - started < 2


def test_every_pattern_has_a_meaning_and_every_tag_of_it_a_word():
    for pattern, _, meaning in patterns():
        assert callable(getattr(meanings, meaning))
        assert "[]" not in pattern.pattern
    assert {frozenset(tags) for tags in lexicon().phrases.values()} <= lexicon().symbols.keys()


@pytest.mark.parametrize("text", ["how does the parser read lines", "wie liest der Übersetzer Zeilen", "Сегодня"])
def test_a_question_without_a_time_loads_no_grammar(text):
    assert not may_name_time(text)
