"""Time in search: what is new, time words in a question, and the memory as it was."""

import json
from datetime import datetime, timezone

import pytest

from crystal import Crystal
from crystal.app.context import Machine
from crystal.model.recall import Filters
from crystal.search.request import SearchOptions
from tests.support.command import crystal as run
from tests.support.ranked_by import each_way, prepare, search  # noqa: F401 - a fixture
from tests.support.store_factory import DAY, HOUR, NOW, add_turn
from tests.support.table import each_row

pytestmark = pytest.mark.usefixtures("ranked_by")
ALL = ("off", "light", "strong")


def ask(store, query, recency="light", limit=10, **filters):
    how = SearchOptions(recency=recency, tz=timezone.utc)
    return search(store, None, query, now=NOW, how=how, limit=limit, filters=Filters(**filters))


def found(result):
    return [hit.uuid for hit in result.hits]


def fill(store, count=40, text="talk about the server and its disks"):
    return [
        add_turn(store, f"{text} {number}", session=f"s{number % 7}", ts=NOW - number * HOUR) for number in range(count)
    ]


# --------------------------------------------------------------------------------------------------------- recency


@pytest.mark.slow
@each_row("recency", ALL)
@each_row("query", ["ERR_DISK_4711", "zanzibar", '"copper kettle"', "the zanzibar copper kettle"])
def test_no_age_buries_an_exact_old_hit(store, recency, query):
    text = "in zanzibar the copper kettle failed with ERR_DISK_4711, " + "and then more happened " * 30
    exact = add_turn(store, text, session="old", ts=NOW - 3000 * DAY)
    fill(store, text="the kettle of copper, disk ERR 4711 again")
    assert found(ask(store, query, recency))[0] == exact


def test_of_equals_the_newer_comes_first_unless_it_is_off_and_then_too_as_the_tie_is_broken_so(store):
    old = add_turn(store, "the lighthouse keeper sleeps", session="a", ts=NOW - 400 * DAY)
    new = add_turn(store, "the lighthouse keeper wakes", session="b", ts=NOW - HOUR)
    for recency in ALL:
        assert found(ask(store, "lighthouse keeper", recency)) == [new, old]


def test_strong_recency_moves_what_is_nearly_as_good_and_off_does_not(store, ranked_by):
    old = add_turn(store, "lighthouse lighthouse keeper", session="a", ts=NOW - 400 * DAY)
    new = add_turn(store, "lighthouse keeper sleeps", session="b", ts=NOW)
    fill(store)
    if ranked_by != "late":
        assert found(ask(store, "lighthouse", "off"))[:2] == [old, new]
    scores = {recency: {hit.uuid: hit.score for hit in ask(store, "lighthouse", recency).hits} for recency in ALL}
    gap = {recency: scores[recency][new] - scores[recency][old] for recency in ALL}
    assert gap["off"] <= gap["light"] <= gap["strong"]
    assert gap["off"] < gap["strong"]


# ------------------------------------------------------------------------------------------------------ time words


def test_a_time_in_the_question_prefers_what_was_said_then_and_says_so(store):
    times = {day: add_turn(store, f"the deploy of the shop, {day}", session=f"d{day}", ts=NOW - day * DAY - HOUR)
             for day in (1, 30, 5)}  # fmt: skip
    fill(store)
    result = ask(store, "the deploy of the shop yesterday")
    assert set(times.values()) <= set(found(result))
    assert any('"yesterday"' in line and " to " in line for line in result.explained)
    assert found(result)[0] == times[1]


def test_a_better_hit_outside_of_the_time_still_comes_first(store):
    exact = add_turn(store, "the zanzibar migration of the kettle failed", session="old", ts=NOW - 90 * DAY)
    for number in range(20):
        add_turn(store, f"some migration number {number}", session=f"n{number}", ts=NOW - DAY)
    assert found(ask(store, "zanzibar kettle migration yesterday"))[0] == exact


@pytest.mark.parametrize("date", ["{:%Y-%m-%d}", "{:%d.%m.%Y}"])
def test_a_date_in_digits_means_a_time_more_than_the_same_digits_in_a_text(store, date):
    then = datetime.fromtimestamp((NOW - 30 * DAY) / 1000, timezone.utc)
    day = date.format(then)
    meant = add_turn(store, "the migration of orders stopped", session="a", ts=NOW - 30 * DAY)
    printed = [add_turn(store, f"{day} lock {day} {n}", session=f"l{n}", ts=NOW - n * DAY) for n in range(2)]
    fill(store)
    assert found(ask(store, f"the lock at migration {day}"))[0] == meant
    assert found(ask(store, f'lock "{day}"'))[0] in printed


@pytest.mark.parametrize(
    "query", ["what did we do yesterday", "yesterday?", "what happened on 2026-11-20", "gestern", "昨天"]
)
def test_a_question_of_a_time_alone_is_answered_by_what_was_said_last_then(store, query):
    add_turn(store, "long ago", ts=NOW - 30 * DAY)
    inside = [add_turn(store, f"word {number}", ts=NOW - DAY + number * HOUR) for number in range(3)]
    add_turn(store, "noise", role="tool_result", ts=NOW - DAY + 5 * HOUR)
    add_turn(store, "today", ts=NOW + HOUR)
    result = ask(store, query)
    assert found(result) == inside[::-1]
    assert any("you asked only for a time" in note for note in result.notes)
    assert all(hit.before or hit.after for hit in result.hits)
    assert found(ask(store, query, project="nowhere")) == []
    assert found(ask(store, query, limit=1)) == inside[-1:]


def test_a_long_turn_does_not_crowd_out_a_question_of_time_alone(store):
    early = [add_turn(store, f"word {number}", ts=NOW - DAY + number) for number in range(9)]
    last = add_turn(store, "\n\n".join("paragraph " * 150 for _ in range(90)), ts=NOW - DAY + HOUR)
    assert found(ask(store, "what did we do yesterday")) == [last, *early[::-1]]


def test_a_time_in_which_nothing_was_said_is_named(store):
    add_turn(store, "long ago", ts=NOW - 30 * DAY)
    result = ask(store, "what did we do yesterday")
    assert result.hits == ()
    assert any("yesterday" in note for note in result.notes)


# ---------------------------------------------------------------------------------------------------- as it was then


@pytest.fixture
def memory(store, home, monkeypatch):
    """A memory with ten days of talk about a needle, one turn a day at noon, all in one session."""
    monkeypatch.setattr(Machine, "now", lambda _: NOW)
    monkeypatch.setenv("CRYSTAL_EMBEDDING_PROVIDER", "none")
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.chdir(home)
    for day in range(10, 0, -1):
        add_turn(store, f"needle of day {day} d{day}x", uuid=f"d{day}", ts=NOW - day * DAY + DAY // 2)
    add_turn(store, "needle of day 5 d5x", uuid="copy", session="later", ts=NOW - HOUR)
    add_turn(store, "a needle without a time", uuid="timeless", ts=None)
    prepare(store)


def test_as_of_hides_everything_later_and_tells_ages_from_then(memory):
    with Crystal() as crystal:
        then = NOW - 5 * DAY + DAY // 2
        for as_of in (then + 1, "2026-11-16"):
            result = crystal.search("needle", as_of=as_of, limit=100)
            assert {hit.uuid for hit in result.hits} == {"d5", "d6", "d7", "d8", "d9", "d10"}
            for hit in result.hits:
                assert hit.timestamp <= then
                assert all(said.timestamp <= then for said in (hit.before, hit.after) if said)
                assert hit.copies == 1
                assert hit.similar == 0
            by = {hit.uuid: hit for hit in result.hits}
            assert by["d5"].after is None
            assert by["d5"].before.uuid == "d6"
            assert (by["d5"].freshness, by["d10"].freshness) == ("fresh", "recent")
        assert {hit.uuid for hit in crystal.search("needle", as_of=then, limit=100).hits} == {
            "d6",
            "d7",
            "d8",
            "d9",
            "d10",
        }
        assert {hit.uuid for hit in crystal.search("needle", as_of=then + 1, since=NOW - 6 * DAY).hits} == {"d5", "d6"}
        assert crystal.search("needle", as_of="2001-01-01").hits == ()


def test_time_words_are_understood_from_then(memory):
    with Crystal() as crystal:
        hits = crystal.search("what did we do yesterday", as_of="2026-11-16").hits
        assert [hit.uuid for hit in hits] == ["d6"]


def test_as_of_of_the_command_line_says_the_same(memory):
    done = run("search", "needle", "--as-of", "2026-11-16", "--json", "--explain", "-n", "50")
    hits = json.loads(done.out)["hits"]
    assert {hit["uuid"] for hit in hits} == {"d5", "d6", "d7", "d8", "d9", "d10"}
    assert {hit["freshness"] for hit in hits if hit["uuid"] == "d5"} == {"fresh"}
    assert "day ago" not in run("search", "d5x", "--as-of", "2026-11-16").out.splitlines()[0]
    assert run("search", "needle", "--as-of", "soonish").code == 2
    assert run("search", "needle", "--recency", "never").code == 2
