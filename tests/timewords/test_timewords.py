from __future__ import annotations

import time
import unicodedata
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.timewords import LOOKED_AT, MAX_SPANS, find_times, meanings
from crystal.timewords.lexicon import lexicon, may_name_time, patterns
from crystal.timewords.parse import local
from tests.support.examples import examples
from tests.support.table import each_row
from tests.timewords.known_times import DATES, RELATIVE

KNOWN = [*RELATIVE, *DATES]

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


@each_row(("text", "expected"), KNOWN)
def test_a_time_is_one_span(text, expected):
    assert spans(text) == [expected]


@each_row(
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


@each_row("text", ["", " ", "last", "\0", *NO_TIMES])
def test_what_is_no_time_is_left_alone(text):
    assert spans(text) == []


def test_the_words_are_those_of_the_question_and_stand_where_it_says():
    for text, _ in KNOWN:
        for span in find_times(f"¿qué? {text} – ok", now=NOW, tz=BERLIN):
            assert f"¿qué? {text} – ok"[slice(*span.at)] == span.words
            assert span.words == span.words.strip()


def test_the_way_accents_are_written_does_not_matter():
    for text, expected in KNOWN:
        assert spans(unicodedata.normalize("NFD", text)) == [expected]
        assert spans(unicodedata.normalize("NFC", text)) == [expected]


@each_row("case", [str.upper, str.lower])
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


@pytest.mark.slow
@examples(60)
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


@each_row("unit", ["1.1. ", "May 8 ", "a ", "from 3 to ", "„", "'", "3月", "since the ", "last ", "2023-", "\0 1."])
def test_a_hostile_text_costs_little(unit):
    started = time.process_time()
    find_times(unit * 100_000, now=NOW, tz=BERLIN)
    assert time.process_time() - started < 2


def test_every_pattern_has_a_meaning_and_every_tag_of_it_a_word():
    for pattern, _, meaning in patterns():
        assert callable(getattr(meanings, meaning))
        assert "[]" not in pattern.pattern
    assert {frozenset(tags) for tags in lexicon().phrases.values()} <= lexicon().symbols.keys()


@each_row("text", ["how does the parser read lines", "wie liest der Übersetzer Zeilen", "Сегодня"])
def test_a_question_without_a_time_loads_no_grammar(text):
    assert not may_name_time(text)
