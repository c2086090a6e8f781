"""What was said last and what happened when: one store, and a store with the mirror of home's."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from crystal import Crystal
from crystal.errors import CrystalError, UsageError
from crystal.model.capture import MIRROR_IDS
from crystal.sessions.timeline import messages, timeline
from crystal.store import Store
from tests.support.store_factory import DAY, HOUR, NOW, SESSION, add_turn, open_store

OTHER = "22222222-bbbb-4000-8000-000000000002"


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[Store]:
    (tmp_path / "mirror").mkdir()
    with open_store(tmp_path / "mirror") as store:
        yield store


def texts(store: Store, **how: object) -> list[str]:
    return [one.text for one in messages([store], **how)[0]]  # type: ignore[arg-type]


def test_messages_are_what_people_and_the_assistant_said_the_last_one_first(store: Store) -> None:
    add_turn(store, "first", ts=NOW - 3 * HOUR)
    add_turn(store, "second " * 900, ts=NOW - 2 * HOUR, role="assistant")
    for role, subagent in (("tool_result", None), ("thinking", None), ("assistant", "a1"), ("subagent", "a1")):
        add_turn(store, f"not {role}", ts=NOW - HOUR, role=role, subagent=subagent)
    add_turn(store, "without a time", ts=None)
    add_turn(store, "elsewhere", ts=NOW - HOUR, session=OTHER, project="/code/api")
    assert texts(store) == ["elsewhere", "second " * 900, "first"]
    assert texts(store, limit=1) == ["elsewhere"]
    assert texts(store, without=OTHER, limit=1) == ["second " * 900]
    assert texts(store, project="API") == texts(store, project="/code/api") == ["elsewhere"]
    assert texts(store, before=NOW - 2 * HOUR) == ["first"]


def test_an_unknown_project_is_explained_and_a_wild_number_refused(store: Store) -> None:
    add_turn(store, "first")
    found, notes = messages([store], project="shopp")
    assert (found, "did you mean shop" in notes[0]) == ([], True)
    for limit in (0, -1, 1_001):
        with pytest.raises(UsageError):
            messages([store], limit=limit)


def test_the_mirror_is_told_with_the_own_memory_as_one(store: Store, mirror: Store) -> None:
    add_turn(store, "said here", uuid="one", ts=NOW - HOUR)
    add_turn(mirror, "said here", uuid="one", ts=NOW - HOUR)
    add_turn(mirror, "said at home", uuid="two", ts=NOW - 2 * HOUR, session=OTHER, device="desktop")
    found, _ = messages([store, mirror])
    assert [(one.text, one.memory, one.hit > MIRROR_IDS) for one in found] == [
        ("said here", "local", False),
        ("said at home", "mirror", True),
    ]
    days, _ = timeline([store, mirror], since=NOW - DAY, before=NOW, tz=timezone.utc)
    assert [(day.date, [one.session.id for one in day.sessions]) for day in days] == [("2026-11-20", [SESSION, OTHER])]


def test_a_session_over_midnight_is_told_on_both_days_and_cut_by_the_span(store: Store) -> None:
    for hours in (-2, -1, 1):
        add_turn(store, f"{hours}", ts=NOW + hours * HOUR)
    days, _ = timeline([store], since=NOW - DAY, before=NOW + DAY, tz=timezone.utc)
    assert [(day.date, day.sessions[0].turns) for day in days] == [("2026-11-21", 1), ("2026-11-20", 2)]
    days, _ = timeline([store], since=NOW - HOUR, before=NOW, tz=timezone.utc)
    assert [(day.date, day.sessions[0].turns) for day in days] == [("2026-11-20", 1)]


@pytest.mark.parametrize("minutes", [0, 345, -210, 630, -720, 840])  # Nepal, Newfoundland, Lord Howe among them
def test_a_day_begins_at_local_midnight_in_every_zone(store: Store, minutes: int) -> None:
    tz = timezone(timedelta(minutes=minutes))
    midnight = int(datetime(2026, 11, 20, tzinfo=tz).timestamp() * 1000)
    for ms in (-2, -1, 0):
        add_turn(store, f"{ms}", ts=midnight + ms)
    days, _ = timeline([store], since=0, before=midnight + DAY, tz=tz)
    assert [(day.date, day.sessions[0].turns) for day in days] == [("2026-11-20", 1), ("2026-11-19", 2)]


def test_a_reader_tells_and_changes_nothing(home: Path) -> None:
    folder = home / ".ldm/memory"
    folder.mkdir(parents=True)
    with open_store(folder) as store:
        add_turn(store, "first", ts=NOW - HOUR)
    with Crystal.reader() as memory:
        assert [one.text for one in memory.recent()] == ["first"]
        assert memory.timeline(since=NOW - DAY, before=NOW)[0].sessions[0].turns == 1
        with pytest.raises(CrystalError):
            memory.off()
    with pytest.raises(CrystalError), Crystal.reader(home / "nowhere"):
        pass
    assert not (home / "nowhere").exists()
