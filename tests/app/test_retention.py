"""Retention: what was said long ago goes by itself, after a preview and a day; never at once, never memories."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crystal.app import context as machines
from crystal.app.context import open_machine
from crystal.app.retention import DAY_MS, MAX_LEAP_MS, apply_retention
from tests.support.command import crystal
from tests.support.table import each_row

NOW = 1_795_000_000_000


@pytest.fixture
def clock(monkeypatch):
    """The time that crystal sees, to be set."""

    class Clock:
        ms = NOW

    monkeypatch.setattr(machines, "now_ms", lambda: Clock.ms)
    return Clock


@pytest.fixture
def ready(home: Path, clock) -> Path:
    """A memory of one session three years old and one of today, and a memory that was asked for."""
    (home / ".claude").mkdir()
    assert crystal("init", "--yes").code == 0
    folder = home / ".claude" / "projects" / "-x"
    folder.mkdir(parents=True)
    for name, when in (("old", "2023-01-01"), ("new", "2026-11-17")):
        line = {"type": "user", "uuid": f"u-{name}", "sessionId": f"s-{name}", "timestamp": f"{when}T10:00:00.000Z"}
        line |= {"cwd": "/x", "message": {"role": "user", "content": f"the {name} pear"}}
        (folder / f"s-{name}.jsonl").write_text(json.dumps(line) + "\n")
    assert crystal("sync").code == 0
    assert crystal("remember", "pears are fruit").code == 0
    return home


def found() -> list[str]:
    return sorted(hit["text"] for hit in json.loads(crystal("search", "pear", "--json", "--all").out)["hits"])


def applied() -> int:
    with open_machine() as machine:
        return apply_retention(machine)


@pytest.mark.slow
def test_nothing_goes_by_itself_until_it_is_set(ready, clock):
    clock.ms += 4000 * DAY_MS
    assert applied() == 0
    assert len(found()) == 3


@pytest.mark.slow
def test_setting_it_shows_what_would_go_and_how_to_take_it_back(ready):
    done = crystal("config", "set", "retention.days", "730")
    assert done.out.splitlines() == [
        "retention.days = 730",
        "1 message of 1 session would be forgotten now; memories stay",
        "deletion begins in a day, for good and on every machine",
        "to see them: crystal forget --before 730d --keep-memories --dry-run",
        "to undo it: crystal config unset retention.days",
    ]
    look = crystal("forget", "--before", "730d", "--keep-memories", "--dry-run")
    assert (look.code, "the old pear" in look.out, "pears are fruit" in look.out) == (0, True, False)
    assert len(found()) == 3


@pytest.mark.slow
def test_it_begins_after_a_day_and_leaves_what_is_new_and_what_was_asked_for(ready, clock):
    crystal("config", "set", "retention.days", "730")
    assert applied() == 0
    clock.ms += DAY_MS - 1
    assert applied() == 0
    clock.ms += 1
    assert applied() == 1
    assert found() == ["pears are fruit", "the new pear"]
    clock.ms += 1
    assert applied() == 0


@pytest.mark.slow
def test_a_change_of_the_setting_waits_another_day(ready, clock):
    crystal("config", "set", "retention.days", "730")
    applied()
    clock.ms += DAY_MS
    crystal("config", "set", "retention.days", "30")
    assert applied() == 0
    assert len(found()) == 3


@pytest.mark.slow
@pytest.mark.parametrize("leap", [MAX_LEAP_MS + 2 * DAY_MS, 20 * 365 * DAY_MS, -20 * 365 * DAY_MS])
def test_a_clock_that_leaps_costs_nothing_if_it_is_put_right_within_a_day(ready, clock, leap):
    crystal("config", "set", "retention.days", "2000")
    applied()
    clock.ms += leap
    assert applied() == 0
    clock.ms += DAY_MS // 2 - leap
    assert applied() == 0
    clock.ms += DAY_MS
    assert applied() == 0
    assert len(found()) == 3


@pytest.mark.slow
def test_on_a_device_home_decides(ready, clock, monkeypatch):
    crystal("config", "set", "retention.days", "730")
    monkeypatch.setenv("CRYSTAL_ROLE", "device")
    for _ in range(3):
        clock.ms += DAY_MS
        assert applied() == 0


@each_row("value", ["0", "-1", "many", "36501"])
def test_a_number_of_days_that_cannot_be_is_refused(home, value):
    done = crystal("config", "set", "retention.days", value)
    assert done.code == 2
    assert "retention.days" in done.err


@pytest.mark.slow
def test_it_runs_with_what_may_wait(ready, clock):
    crystal("config", "set", "retention.days", "730")
    crystal("sync")
    clock.ms += DAY_MS
    crystal("sync")
    assert found() == ["pears are fruit", "the new pear"]
