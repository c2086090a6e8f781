"""``crystal_recent`` and ``crystal_timeline``: what was said last, and what happened on which day."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from crystal.errors import UsageProblem
from crystal.mcp.asker import Asker, mirror_of, refuse_folder
from crystal.mcp.hits import Make, memory_item, message_item
from crystal.mcp.page import Answer, Item, answered, bounded, noted
from crystal.mcp.reading import session_data, title_of
from crystal.mcp.searching import moment
from crystal.model import Remembered
from crystal.reading import SessionSummary, sessions
from crystal.timeline import MOST_MESSAGES, Stretch, messages
from crystal.when import iso, local
from crystal.wiring import Machine, open_reader
from crystal.wiring.chronicle import days

MESSAGES = 20
SESSIONS = 10
DAYS = "7d"
MOST_ENTRIES = 500


def recent(asker: Asker, arguments: Mapping[str, Any]) -> Answer:
    """The last messages or sessions."""
    what = arguments.get("what") or "messages"
    with open_reader() as machine:
        project, scope, notes = _scope(asker, machine, arguments)
        offset = arguments.get("offset") or 0
        limit = arguments.get("limit") or (MESSAGES if what == "messages" else SESSIONS)
        if offset + limit >= MOST_MESSAGES:
            raise UsageProblem(f"offset {offset} and limit {limit} reach too far", hint="use crystal_timeline")
        makers, why = _recent(machine, asker, arguments, what, project, offset + limit + 1)
    data = {"what": what, "scope": scope, "offset": offset, "notes": noted([*notes, *why])}

    def compose(items: Sequence[Item]) -> Answer:
        at = offset + len(items)
        next_offset = at if at < len(makers) else None
        more = None if next_offset is None else f"more: crystal_recent with what={what} and offset={at}"
        where = f"of project {scope}" if scope else "of all projects"
        head = f"{what} {where}, the latest first" if items else f"no {what} {where}"
        return answered(head, items, "items", {**data, "next_offset": next_offset}, more)

    return bounded(makers[offset : offset + limit], compose, asker.room)


def _scope(asker: Asker, machine: Machine, arguments: Mapping[str, Any]) -> tuple[str | None, str | None, list[str]]:
    """The project as a filter, its name, and what to say about it."""
    wanted = arguments.get("project")
    refuse_folder(wanted)
    if wanted is not None:
        return wanted, wanted, []
    if arguments.get("all"):
        return None, None, []
    home = asker.project(machine)
    if home is None:
        return None, None, ["this folder is no project that crystal knows; these are from everywhere"]
    return home[0], home[1], []


def _recent(
    machine: Machine, asker: Asker, arguments: Mapping[str, Any], what: str, project: str | None, count: int
) -> tuple[list[Make], tuple[str, ...]]:
    own, mirror = asker.left_out(machine, arguments), mirror_of(machine)
    before = moment(arguments, "before", machine.now())
    if what == "messages":
        said, why = messages(machine.store, project=project, before=before, without=own, limit=count, mirror=mirror)
        return [message_item(one) for one in said], why
    found, why = sessions(machine.store, project=project, before=before, limit=count + 1, mirror=mirror)
    return [_session_item(one) for one in found if one.id != own][:count], why


def _session_item(session: SessionSummary) -> Make:
    def make(room: int) -> Item:
        turns = f"{session.turns} turn{'s' * (session.turns != 1)}"
        text = f"session {session.id} · {turns}\n{title_of(session, min(room, 200))}"
        return Item(text, session_data(session))

    return make


# -------------------------------------------------------------------------------------------------------- timeline


def tell(asker: Asker, arguments: Mapping[str, Any]) -> Answer:
    """What happened when, the latest first."""
    refuse_folder(arguments.get("project"))
    with open_reader() as machine:
        now = machine.now()
        since = moment({"since": arguments.get("since") or DAYS}, "since", now)
        before = moment(arguments, "before", now)
        assert since is not None
        end = now + 1 if before is None else before
        if since >= end:
            raise UsageProblem("since is not before before", hint="exchange them")
        project = arguments.get("project")
        found, why = days(machine, mirror_of(machine), since=since, before=end, project=project, limit=MOST_ENTRIES)
    makers = [maker for day in found for maker in _day(day.date, day.sessions, day.memories)]
    offset, limit = arguments.get("offset") or 0, arguments.get("limit") or 50
    data = {"since": iso(since), "before": iso(end), "offset": offset, "notes": noted(why)}

    def compose(items: Sequence[Item]) -> Answer:
        at = offset + len(items)
        next_offset = at if at < len(makers) else None
        more = None if next_offset is None else f"more: crystal_timeline with the same times and offset={at}"
        span = f"{local(since):%Y-%m-%d %H:%M} to {local(end):%Y-%m-%d %H:%M}"
        head = f"{span}, the latest day first" if items else f"nothing from {span}"
        return answered(head, items, "entries", {**data, "next_offset": next_offset}, more)

    return bounded(makers[offset : offset + limit], compose, asker.room)


def _day(date: str, stretches: Sequence[Stretch], memories: Sequence[Remembered]) -> list[Make]:
    return [*(_stretch_item(date, one) for one in stretches), *(_memory_item(date, one) for one in memories)]


def _stretch_item(date: str, stretch: Stretch) -> Make:
    def make(_: int) -> Item:
        session = stretch.session
        data = {
            "date": date, "kind": "session", "first_at": iso(stretch.first), "last_at": iso(stretch.last),
            "turns": stretch.turns, "session": session_data(session), "memory": None,
        }  # fmt: skip
        clock = f"{local(stretch.first):%H:%M} to {local(stretch.last):%H:%M}"
        turns = f"{stretch.turns} turn{'s' * (stretch.turns != 1)}"
        return Item(f"{date} · {clock} · session {session.id} · {turns}\n{title_of(session)}", data)

    return make


def _memory_item(date: str, memory: Remembered) -> Make:
    make_memory = memory_item(memory)

    def make(room: int) -> Item:
        item, when = make_memory(room), iso(memory.updated_at)
        data = {
            "date": date, "kind": "memory", "first_at": when, "last_at": when, "turns": 0, "session": None,
            "memory": item.data,
        }  # fmt: skip
        return Item(f"{date} · {item.text}", data)

    return make
