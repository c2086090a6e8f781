"""``crystal_get``: a hit with what stands around it, a session page by page, a memory by its id or its key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from crystal.app.context import Machine, open_reader
from crystal.app.memory_queries import by_key, memory_of
from crystal.errors import NotFoundError, UsageError
from crystal.mcp.asker import ClientContext
from crystal.mcp.hits import Make, ShortIds, memory_item, turn_item
from crystal.mcp.page import MAX_LENGTH, AnswerItem, Json, ToolAnswer, answered, bounded
from crystal.mcp.said import Attribution, kind_of, label
from crystal.model.recall import Remembered
from crystal.sessions.reading import Conversation, SessionSummary, ShownTurn, find_target, read
from crystal.text.quoting import quote, quote_line
from crystal.timewords.parse import iso

CONTEXT = 2
BRIEF = 1_500
BRIEF_ROLES = ("tool_call", "tool_result", "thinking")
TITLE = 200
SHORT_TITLE = 60
NOTHING: Json = {"kind": "", "session": None, "memory": None, "turns": [], "next_offset": None}


def get(asker: ClientContext, arguments: Mapping[str, Any]) -> ToolAnswer:
    """Read what an id or a key names."""
    ident, key = arguments.get("id"), arguments.get("key")
    if (ident is None) == (key is None):
        raise UsageError("give either an id or a key", hint="ids are in the hits of crystal_search")
    with open_reader() as machine:
        start = arguments.get("start") or 0
        if key is not None:
            found = by_key(machine, key)
            if found is None:
                raise NotFoundError(f"nothing is remembered under the key {key!r}", hint="look with crystal_search")
            return of_memory(machine, found, asker.room, start)
        assert ident is not None
        if ident.strip().lower().startswith("mem-"):
            return of_memory(machine, memory_of(machine, ident), asker.room, start)
        return _of_conversation(machine, asker, ident, arguments)


def of_memory(machine: Machine, memory: Remembered, room: int, start: int = 0) -> ToolAnswer:
    """Return a memory as an answer."""
    ids = ShortIds(machine)

    def compose(items: Sequence[AnswerItem]) -> ToolAnswer:
        left = items[0].data["characters_left"] if items else 0
        further = len(quote(memory.text)) - left
        more = f"more: crystal_get with id {ids.memory(memory.id)} and start {further}" if left else None
        data = {**NOTHING, "kind": "memory", "memory": items[0].data if items else None}
        answer = answered("a memory", items, "turns", data, more)
        return ToolAnswer(answer.text, {**answer.data, "turns": []})

    return bounded([memory_item(memory, ids, start)], compose, room, longest=room)


def _of_conversation(machine: Machine, asker: ClientContext, ident: str, arguments: Mapping[str, Any]) -> ToolAnswer:
    mirror = machine.mirror_store
    target = find_target(machine.store, ident, mirror=mirror)
    if target.chunk is None:
        for name in ("context", "start"):
            if arguments.get(name):
                raise UsageError(f"{name} goes with a hit, not with a session", hint="leave it out, or use offset")
        offset = arguments.get("offset") or 0
        return of_session(machine, read(machine.store, target, mirror=mirror), asker.room, offset)
    if arguments.get("offset"):
        raise UsageError("offset goes with a session, not with a hit", hint="leave it out, or use start")
    context = CONTEXT if arguments.get("context") is None else int(arguments["context"])
    conversation = read(machine.store, target, context=context, mirror=mirror)
    return _of_hit(machine, conversation, asker.room, arguments.get("start") or 0)


def of_session(machine: Machine, conversation: Conversation, room: int, offset: int) -> ToolAnswer:
    """Return a page of a session."""
    session, turns = conversation.session, conversation.turns
    name, about = _head(session, ShortIds(machine))
    if offset and offset >= len(turns):
        raise UsageError(f"offset is {offset}, but there are {len(turns)} turns", hint="use a smaller offset")
    makers: list[Make] = []
    for number, turn in enumerate(turns[offset:], offset + 1):
        most = BRIEF if turn.role in BRIEF_ROLES else MAX_LENGTH
        makers.append(turn_item(turn, _origin(turn, session), number, most=most))

    def compose(items: Sequence[AnswerItem]) -> ToolAnswer:
        at = offset + len(items)
        next_offset = at if at < len(turns) else None
        more = None if next_offset is None else f"more: crystal_get with id {name} and offset {at}"
        data = {**NOTHING, "kind": "session", "session": _session(session), "next_offset": next_offset}
        head = f"{about}\nturns {offset + 1}-{at} of {len(turns)}" if items else about
        if any(item.data["characters_left"] for item in items):
            head += "; the whole of a turn: crystal_get with its id"
        return answered(head, items, "turns", data, more)

    return bounded(makers, compose, room)


def _of_hit(machine: Machine, conversation: Conversation, room: int, start: int) -> ToolAnswer:
    session, turns = conversation.session, conversation.turns
    name, about = _head(session, ShortIds(machine))
    at = next((at for at, turn in enumerate(turns) if turn.focus), 0)
    around = max(200, room // (3 * len(turns)))
    chosen = [
        turn_item(turn, _origin(turn, session), start=start if turn.focus else 0, most=None if turn.focus else around)
        for turn in turns
    ]
    # The requested turn is rendered first, because it gets the most characters. It is shown in its place.
    first = [chosen[at], *chosen[:at][::-1], *chosen[at + 1 :]] if chosen else []
    order = [at, *range(at - 1, -1, -1), *range(at + 1, len(turns))]

    def compose(items: Sequence[AnswerItem]) -> ToolAnswer:
        shown = [item for _, item in sorted(zip(order, items, strict=False), key=lambda pair: pair[0])]
        more = f"more: crystal_get with id {name}" if session is not None else None
        data = {**NOTHING, "kind": "hit", "session": _session(session)}
        return answered(about, shown, "turns", data, more)

    return bounded(first, compose, room, longest=max(200, room // 2))


def _origin(turn: ShownTurn, session: SessionSummary | None) -> Attribution:
    kind, by = kind_of(turn.role, turn.tool, turn.subagent)
    if session is None:
        return Attribution(kind, by, turn.timestamp)
    return Attribution(kind, by, turn.timestamp, session.project, session.device, session.id)


def title_of(session: SessionSummary, most: int = TITLE) -> str:
    """Return the title of a session: given by the user or the client, else the first words of the user."""
    return quote_line(session.title, most) or "(without words)"


def place_of(session: SessionSummary, timestamp: int | None, ids: ShortIds) -> str:
    """Describe in a few words when and where a session went on."""
    return Attribution("user", "user", timestamp, session.project, session.device).place(ids.device)


def session_data(session: SessionSummary) -> Json:
    """Return what is known of a session."""
    return {
        "id": session.id, "title": title_of(session), "project": label(session.project),
        "branch": label(session.branch), "device": label(session.device), "started_at": iso(session.started_at),
        "last_at": iso(session.last_at), "turns": session.turns,
    }  # fmt: skip


def _session(session: SessionSummary | None) -> Json | None:
    return None if session is None else session_data(session)


def _head(session: SessionSummary | None, ids: ShortIds) -> tuple[str, str]:
    """Return the id under which a session is read, and a line about it."""
    if session is None:
        return "", "this belongs to no session"
    name = ids.session(session.id)
    branch = f" branch {label(session.branch)}" if session.branch not in (None, "", "HEAD", "main", "master") else ""
    about = f"session {name}, {session.turns} turn{'s' * (session.turns != 1)}"
    return name, f"{about}, {place_of(session, session.last_at, ids)}{branch}: {title_of(session, SHORT_TITLE)}"
