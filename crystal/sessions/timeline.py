"""Read the latest messages, and a timeline of sessions and memories by day.

A mirror of home's memory is merged in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from itertools import chain, groupby

from crystal.errors import UsageError
from crystal.model.capture import MIRROR_IDS
from crystal.model.recall import Filters, Remembered
from crystal.sessions.reading import MEMORIES, SessionSummary, sessions, store_of
from crystal.store import Store
from crystal.store.search.scope import agents_named, project_ids, scope_of
from crystal.store.sessions.conversations import Message, latest_messages, moments, session_days
from crystal.timewords.parse import local

MAX_MESSAGES = 1_000
EVER = 1 << 62
QUARTER_HOUR_MS = 900_000
"""Local days begin at a multiple of it in every time zone: it saves a conversion for each message."""


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """A part of a session on one day: its first and last moment, and its number of turns."""

    session: SessionSummary
    first: int
    last: int
    turns: int


@dataclass(slots=True)
class Day:
    """A day of the local calendar (``2026-11-20``), with its sessions and memories, newest first."""

    date: str
    sessions: list[TimelineEntry] = field(default_factory=list)
    memories: list[Remembered] = field(default_factory=list)


def messages(
    stores: Sequence[Store],
    *,
    project: str | None = None,
    agent: str | None = None,
    before: int | None = None,
    without: str | None = None,
    limit: int = 20,
) -> tuple[list[Message], tuple[str, ...]]:
    """Return the latest messages, newest first; also explain why there are none for an unknown project or agent.

    Args:
        stores: This machine's own store, and the mirror's if there is one.
        project: Only this project: a name, or a folder and all below it.
        agent: Only this agent: the name of an agent program, or crystal's id.
        before: Only messages before this time.
        without: A session to exclude.
        limit: Maximum number of messages.

    Raises:
        UsageError: ``limit`` is out of range.
    """
    if not 1 <= limit <= MAX_MESSAGES:
        raise UsageError(f"the number of messages is {limit}", hint=f"use 1 to {MAX_MESSAGES}")
    found: dict[tuple[str, int], Message] = {}
    notes: list[tuple[str, ...]] = []
    for memory, place in zip(MEMORIES, stores, strict=False):
        ids = None if project is None else project_ids(place, project)
        agents = None if agent is None else agents_named(place, agent)
        is_unknown = ids == [] or (agents is not None and not agents[1])
        notes.append(scope_of(place, Filters(project=project, agent=agent)).notes if is_unknown else ())
        end = min(EVER, EVER if before is None else before)
        latest = latest_messages(place, projects=ids, agents=agents, before=end, without=without, limit=limit)
        for part, one in latest:
            theirs = replace(one, hit=one.hit + MIRROR_IDS, memory=memory)
            found.setdefault((one.uuid, part), one if memory == "local" else theirs)
    both = sorted(found.values(), key=lambda one: one.timestamp, reverse=True)[:limit]
    return both, notes[0] if all(notes) else ()


def timeline(
    stores: Sequence[Store],
    *,
    since: int,
    before: int,
    project: str | None = None,
    memories: Iterable[Remembered] = (),
    limit: int = 100,
    tz: tzinfo | None = None,
) -> tuple[list[Day], tuple[str, ...]]:
    """Return the sessions and new memories by day, newest first.

    Args:
        stores: This machine's own store, and the mirror's if there is one.
        since: Start of the span, inclusive.
        before: End of the span, exclusive.
        project: Only this project: a name, or a folder and all below it.
        memories: The memories, in any order; only those last changed in the span are returned.
        limit: Maximum number of sessions, the newest.
        tz: The time zone of the days; None for the machine's.

    Returns:
        The days with entries, and why there are none for an unknown project.
    """
    found, notes = sessions(stores, project=project, since=since, before=before, limit=limit)
    days: dict[str, Day] = {}

    def day_of(moment: int) -> Day:
        date = f"{local(moment, tz):%Y-%m-%d}".rjust(10, "0")
        return days.setdefault(date, Day(date))

    for session in found:
        for stretch in _stretches(store_of(stores, session.memory), session, since, before, tz):
            day_of(stretch.first).sessions.append(stretch)
    for memory in memories:
        if since <= memory.updated_at < before:
            day_of(memory.updated_at).memories.append(memory)
    for day in days.values():
        day.sessions.sort(key=lambda one: one.last, reverse=True)
        day.memories.sort(key=lambda one: one.updated_at, reverse=True)
    return sorted(days.values(), key=lambda day: day.date, reverse=True), notes


def _stretches(
    store: Store, session: SessionSummary, since: int, before: int, tz: tzinfo | None
) -> Sequence[TimelineEntry]:
    """Return a session's days within the span."""
    first, last = session.started_at, session.last_at
    if first is None or last is None:
        return ()
    is_within = since <= first and last < before
    if is_within and local(first, tz).date() == local(last, tz).date():
        return (TimelineEntry(session, first, last, session.turns),)
    by_day: dict[object, list[int]] = {}
    for quarter, same in groupby(moments(store, session.id, since, before), lambda moment: moment // QUARTER_HOUR_MS):
        by_day.setdefault(local(quarter * QUARTER_HOUR_MS, tz).date(), []).extend(same)
    return tuple(TimelineEntry(session, many[0], many[-1], len(many)) for many in by_day.values())


def sessions_per_day(stores: Sequence[Store], *, since: int, project: str | None = None) -> dict[str, int]:
    """Return the number of sessions that began on each day (``2026-11-20``) since then; empty days are left out.

    ``project`` is a name, or a folder with all below it; None means all.
    """
    among = [(store, None if project is None else project_ids(store, project)) for store in stores]
    days = dict(chain.from_iterable(session_days(store, since, ids) for store, ids in among))
    return dict(Counter(days.values()))
