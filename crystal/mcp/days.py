"""Implement ``crystal_recent`` and ``crystal_timeline``: the last messages or sessions, and each day's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from crystal.app.context import Machine
from crystal.app.timeline import days
from crystal.errors import UsageError
from crystal.mcp.handlers import ClientContext
from crystal.mcp.items import ItemMaker, ShortIds, label, memory_item, message_item, place_of
from crystal.mcp.page import AnswerItem, ToolAnswer, noted, one_page
from crystal.mcp.reading import session_data, title_of
from crystal.mcp.searching import moment
from crystal.model.recall import Remembered
from crystal.sessions.reading import SessionSummary, sessions
from crystal.sessions.timeline import MAX_MESSAGES, TimelineEntry, messages
from crystal.timewords.parse import iso, local

MESSAGES = 20
SESSIONS = 10
DAYS = "7d"
MAX_ENTRIES = 500


def recent(client: ClientContext, arguments: Mapping[str, Any]) -> ToolAnswer:
    """Return the last messages or sessions."""
    what = arguments.get("what") or "messages"
    offset = arguments.get("offset") or 0
    limit = arguments.get("limit") or (MESSAGES if what == "messages" else SESSIONS)
    with client.reader() as machine:
        project, scope, notes = _scope(client, machine, arguments)
        if offset + limit >= MAX_MESSAGES:
            raise UsageError(f"offset {offset} and limit {limit} reach too far", hint="use crystal_timeline")
        agent: str | None = arguments.get("agent")
        own, ids = client.left_out(machine, arguments), ShortIds(machine)
        before, count = moment(arguments, "before", machine.now()), offset + limit + 1
        if what == "messages":
            said, why = messages(machine.stores, project=project, agent=agent, before=before, without=own, limit=count)
            makers = [message_item(one, ids) for one in said]
        else:
            found, why = sessions(machine.stores, project=project, agent=agent, before=before, limit=count + 1)
            makers = [_session_item(one, ids) for one in found if one.id != own][:count]
    data = {"what": what, "scope": scope, "offset": offset, "notes": noted([*notes, *why])}
    none = f"no {what} of {label(scope) if scope else 'all projects'}"
    return one_page(makers, data, "items", client.max_chars, none, lambda at: f"offset={at}", limit)


def _scope(
    client: ClientContext, machine: Machine, arguments: Mapping[str, Any]
) -> tuple[str | None, str | None, list[str]]:
    """Return the project as a filter, its name, and notes about it."""
    wanted = arguments.get("project")
    if wanted is not None or arguments.get("all"):
        return wanted, wanted, []
    home = client.project(machine)
    if home is None:
        return None, None, ["crystal does not know this folder's project; these are from everywhere"]
    return home[0], home[1], []


def _session_item(session: SessionSummary, ids: ShortIds) -> ItemMaker:
    place = place_of(session.last_at, session.project, session.device, ids.device)
    item = AnswerItem(f"{ids.session(session.id)} {session.turns}", place, title_of(session), session_data(session))
    return lambda _: item


def timeline(client: ClientContext, arguments: Mapping[str, Any]) -> ToolAnswer:
    """Return the sessions and memories of each day, the latest first."""
    project = arguments.get("project")
    with client.reader() as machine:
        now = machine.now()
        since = moment({"since": arguments.get("since") or DAYS}, "since", now)
        before = moment(arguments, "before", now)
        assert since is not None
        end = now + 1 if before is None else before
        if since >= end:
            raise UsageError("since must be earlier than before", hint="swap them")
        found, why = days(machine, since=since, before=end, project=project, limit=MAX_ENTRIES)
        offset, limit = arguments.get("offset") or 0, arguments.get("limit") or 50
        ids, makers, told = ShortIds(machine), list[ItemMaker](), set[str]()
        for day in found:
            for one in day.sessions:
                title = "" if one.session.id in told else title_of(one.session)
                told |= {one.session.id} if len(makers) >= offset else set()  # a page tells each title again
                makers.append(_stretch_item(day.date, one, ids, title))
            makers += [_memory_item(day.date, one, ids) for one in day.memories]
    data = {"since": iso(since), "before": iso(end), "offset": offset, "notes": noted(why)}
    span = f"{local(since):%Y-%m-%d %H:%M} to {local(end):%Y-%m-%d %H:%M}"
    return one_page(makers, data, "entries", client.max_chars, f"nothing from {span}", lambda at: f"offset={at}", limit)


def _stretch_item(date: str, stretch: TimelineEntry, ids: ShortIds, title: str) -> ItemMaker:
    session = stretch.session
    data = {
        "date": date, "kind": "session", "first_at": iso(stretch.first), "last_at": iso(stretch.last),
        "turns": stretch.turns, "session": session_data(session), "memory": None,
    }  # fmt: skip
    place = place_of(stretch.first, session.project, session.device, ids.device)
    head = f"{ids.session(session.id)} {stretch.turns} {local(stretch.first):%H:%M}"
    item = AnswerItem(head, place, title, data)
    return lambda _: item


def _memory_item(date: str, memory: Remembered, ids: ShortIds) -> ItemMaker:
    make_memory, when = memory_item(memory, ids), iso(memory.updated_at)
    data = {"date": date, "kind": "memory", "first_at": when, "last_at": when, "turns": 0, "session": None}

    def make(max_chars: int) -> AnswerItem:
        item = make_memory(max_chars)
        return replace(item, data={**data, "memory": item.data})

    return make
