"""Show days with their sessions and memories, and a map of the last year."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from crystal.app.context import Machine
from crystal.app.timeline import days
from crystal.model.recall import Remembered
from crystal.sessions.timeline import EVER, Day, TimelineEntry, sessions_per_day
from crystal.store.capture.projects import known_projects
from crystal.timewords.parse import end_of, local, local_ms, parse_when
from crystal.web.responses import Page, RequestValues

PER_PAGE = 60
WEEKS = 53
PROJECTS = 30
STEPS = (1, 3, 6, 12)
"""Numbers of sessions at which a day on the map gets the next colour."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A day of the year's map: its column and row, its sessions, and its colour (0 to 4)."""

    date: str
    column: int
    row: int
    sessions: int
    level: int


def show(machine: Machine, params: RequestValues) -> Page:
    """Show the latest days, those before a moment, or one day."""
    now, day, project = machine.now(), params.text("day"), params.text("project")
    since, before = 0, params.number("before")
    if day is not None:
        since, before = parse_when(day, now=now, name="day"), end_of(day, now=now, name="day")
    found, notes = days(machine, since=since, before=before, project=project, limit=PER_PAGE)
    shown, older = _whole_days(found)
    today = local(now).date()
    begin = today - timedelta(days=today.weekday() + 7 * (WEEKS - 1))
    counts = sessions_per_day(machine.stores, since=_start(begin), project=project)
    values = {
        "days": [(one.date, _in_order(one)) for one in shown],
        "older": None if day else older, "notes": notes, "day": day, "project": project,
        "before": before, "cells": _cells(begin, today, counts), "months": _months(begin),
        "year": sum(counts.values()), "active": len(counts),
        "projects": [*dict.fromkeys(one.name for one in known_projects(machine.store) if one.sessions)][:PROJECTS],
    }  # fmt: skip
    return Page("timeline.html", "Timeline", values)


def _in_order(day: Day) -> list[TimelineEntry | Remembered]:
    """Return the sessions and memories of a day, the latest first."""
    every: list[tuple[int, TimelineEntry | Remembered]] = [(one.first, one) for one in day.sessions]
    every += [(one.updated_at, one) for one in day.memories]
    return [one for _, one in sorted(every, key=lambda each: -each[0])]


def _whole_days(found: Sequence[Day]) -> tuple[Sequence[Day], int | None]:
    """Return the days to show, and the moment before which the next page begins.

    The oldest day is left to the next page if some of its sessions may be missing; memories are never cut.
    """
    with_sessions = [day for day in found if day.sessions]
    if sum(len(day.sessions) for day in with_sessions) < PER_PAGE:
        return found, None
    oldest = with_sessions[-1]
    if len(with_sessions) == 1:
        return found, min(one.first for one in oldest.sessions)
    shown = [day for day in found if day.date > oldest.date]
    return shown, _start(date.fromisoformat(oldest.date) + timedelta(days=1))


def _start(day: date) -> int:
    return min(EVER, local_ms(datetime.combine(day, datetime.min.time())))


def _cells(begin: date, today: date, counts: Mapping[str, int]) -> list[Cell]:
    names = [(begin + timedelta(days=number)).isoformat() for number in range((today - begin).days + 1)]
    found = enumerate((name, counts.get(name, 0)) for name in names)
    return [Cell(name, at // 7, at % 7, count, sum(count >= step for step in STEPS)) for at, (name, count) in found]


def _months(begin: date) -> list[tuple[int, str]]:
    """Return the columns in which months begin, with their names."""
    mondays = [begin + timedelta(weeks=week) for week in range(WEEKS)]
    return [(week, f"{day:%b}") for week, day in enumerate(mondays) if day.day <= 7]
