import contextlib
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.errors import UsageError
from crystal.timewords.parse import ago, clock, end_of, iso, local, parse_when
from tests.support.table import each_row

NOW = 1_795_219_200_000  # 2026-11-21T00:00:00Z
BERLIN = ZoneInfo("Europe/Berlin")
NEW_YORK = ZoneInfo("America/New_York")


@each_row(
    ("text", "expected"),
    [
        ("now", "2026-11-21T00:00:00.000Z"),
        ("90s", "2026-11-20T23:58:30.000Z"),
        ("30m", "2026-11-20T23:30:00.000Z"),
        ("30min", "2026-11-20T23:30:00.000Z"),
        ("24h", "2026-11-20T00:00:00.000Z"),
        ("7d", "2026-11-14T00:00:00.000Z"),
        (" 7D ", "2026-11-14T00:00:00.000Z"),
        ("2w", "2026-11-07T00:00:00.000Z"),
        ("2 weeks ago", "2026-11-07T00:00:00.000Z"),
        ("3mo", "2026-08-20T23:00:00.000Z"),  # 21 August, 01:00 in Berlin: the same local time, in summer
        ("1y", "2025-11-21T00:00:00.000Z"),
        ("today", "2026-11-20T23:00:00.000Z"),
        ("yesterday", "2026-11-19T23:00:00.000Z"),
        ("2026-11-20", "2026-11-19T23:00:00.000Z"),
        ("2026-7-1", "2026-06-30T22:00:00.000Z"),
        ("2026-11", "2026-10-31T23:00:00.000Z"),
        ("2026-11-20T14:30", "2026-11-20T13:30:00.000Z"),
        ("2026-11-20 14:30:05", "2026-11-20T13:30:05.000Z"),
        ("2026-11-20t14:30:05.123456z", "2026-11-20T14:30:05.123Z"),
        ("2026-11-20T14:30-05:00", "2026-11-20T19:30:00.000Z"),
        ("2026-11-20T14:30+0530", "2026-11-20T09:00:00.000Z"),
    ],
)
def test_every_accepted_form_in_a_zone_of_its_own(text, expected):
    assert iso(parse_when(text, now=NOW, tz=BERLIN)) == expected


@each_row(
    "text",
    ["", " ", "x", "24", "h", "-1d", "1.5h", "2026-13-01", "2026-02-30", "0000-01-01", "2026-11-20T25:00", "9999y",
     "99999999999d", "999999999d", "tomorrowish", "2026-11-20T14:30+99:00", "20261120", "1e5d", "\x00", "7d7d"],
)  # fmt: skip
def test_a_bad_value_is_named_with_the_accepted_forms(text):
    with pytest.raises(UsageError) as caught:
        parse_when(text, now=NOW, tz=BERLIN, name="--since")
    assert caught.value.exit_code == 2
    assert "--since" in caught.value.message
    assert repr(text) in caught.value.message
    assert "24h" in (caught.value.hint or "")
    assert "2026-11-20" in (caught.value.hint or "")


@given(st.text(max_size=30))
def test_any_text_is_a_time_or_a_usage_problem(text):
    with contextlib.suppress(UsageError):
        assert isinstance(parse_when(text, now=NOW, tz=NEW_YORK), int)


@given(st.datetimes(min_value=datetime(1970, 1, 2), max_value=datetime(2200, 1, 1)))
def test_what_iso_prints_is_read_back(moment):
    ms = int(moment.replace(tzinfo=timezone.utc, microsecond=0).timestamp()) * 1000 + moment.microsecond // 1000
    assert parse_when(iso(ms) or "", now=NOW, tz=NEW_YORK) == ms


@each_row(("text", "day"), [("3mo", 28), ("1mo", 30), ("12mo", 30)])
def test_months_back_end_at_the_last_day_of_a_shorter_month(text, day):
    now = int(datetime(2026, 5, 30, 12, tzinfo=BERLIN).timestamp() * 1000)
    assert local(parse_when(text, now=now, tz=BERLIN), BERLIN).day == day


@each_row(
    ("text", "expected"),
    [
        ("2026-11-20", "2026-11-20T23:00:00.000Z"),
        (" 2026-3-29 ", "2026-03-29T22:00:00.000Z"),  # a day of 23 hours
        ("2026-11", "2026-11-30T23:00:00.000Z"),
        ("2024-02", "2024-02-29T23:00:00.000Z"),
        ("2026-12", "2026-12-31T23:00:00.000Z"),
        ("Today", "2026-11-21T23:00:00.000Z"),
        ("yesterday", "2026-11-20T23:00:00.000Z"),
        ("now", "2026-11-21T00:00:00.000Z"),
        ("24h", "2026-11-20T00:00:00.000Z"),
        ("2026-11-20T14:30", "2026-11-20T13:30:00.000Z"),
    ],
)
def test_the_end_of_a_date_is_the_moment_after_it_and_a_moment_is_itself(text, expected):
    assert iso(end_of(text, now=NOW, tz=BERLIN)) == expected


@each_row("text", ["", "x", "2026-02-30", "9999-12-31", "9999-12", "tomorrow"])
def test_the_end_of_what_is_no_date_is_a_usage_problem(text):
    with pytest.raises(UsageError) as caught:
        end_of(text, now=NOW, tz=BERLIN, name="--as-of")
    assert "--as-of" in caught.value.message


@given(st.text(max_size=30))
def test_the_end_of_any_text_is_a_time_or_a_usage_problem(text):
    with contextlib.suppress(UsageError):
        assert end_of(text, now=NOW, tz=NEW_YORK) >= parse_when(text, now=NOW, tz=NEW_YORK)


def test_yesterday_begins_at_local_midnight_even_when_the_clocks_change():
    now = int(datetime(2026, 3, 30, 9, tzinfo=BERLIN).timestamp() * 1000)  # the day after the change to summer time
    start = local(parse_when("yesterday", now=now, tz=BERLIN), BERLIN)
    assert (start.day, start.hour, start.utcoffset()) == (29, 0, timedelta(hours=1))


def test_without_a_zone_the_machines_own_is_meant():
    expected = int(datetime(2026, 11, 20).astimezone().timestamp() * 1000)
    assert parse_when("2026-11-20", now=NOW) == expected


@each_row(("seconds", "words"), [(-3600, "in the future"), (-5, "just now"), (5, "just now"), (60, "1 minute ago"), (7200, "2 hours ago"),
     (86_400, "1 day ago"), (13 * 86_400, "13 days ago"), (21 * 86_400, "3 weeks ago"), (90 * 86_400, "2 months ago"),
     (800 * 86_400, "2 years ago")])  # fmt: skip
def test_age_in_words(seconds, words):
    assert ago(NOW - seconds * 1000, NOW) == words


def test_the_clock_names_the_year_only_where_it_is_another():
    assert clock(NOW, NOW, BERLIN) == "Sat 21 Nov 01:00"
    assert clock(NOW - 400 * 86_400_000, NOW, BERLIN) == "17 Oct 2025 02:00"


@each_row("ms", [-(2**62), 2**62, -1, 0])
def test_times_beyond_the_calendar_do_not_raise(ms):
    assert iso(ms) is None or len(iso(ms) or "") == 24
