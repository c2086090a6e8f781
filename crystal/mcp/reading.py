"""Implement ``crystal_get`` and the resources: a hit with the turns around it, a session by pages, a memory."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote as quote_url
from urllib.parse import unquote

from crystal.app.context import Machine, damage_explained
from crystal.app.memory_queries import by_key, list_memories, memory_of
from crystal.app.validity import memory_validity, turns_with_validity
from crystal.errors import CrystalError, NotFoundError, UsageError
from crystal.mcp.handlers import ClientContext
from crystal.mcp.items import ShortIds, label, memory_item, place_of, turn_item
from crystal.mcp.page import MAX_LENGTH, AnswerItem, Json, ToolAnswer, answered, bounded, hint_for_agent
from crystal.mcp.protocol import INTERNAL_ERROR, RESOURCE_NOT_FOUND, McpError
from crystal.model.capture import parse_hit_name
from crystal.model.recall import Remembered
from crystal.sessions.reading import Conversation, SessionSummary, find_target, read, sessions
from crystal.text.quoting import quote, quote_line
from crystal.timewords.parse import iso

CONTEXT = 2
SHORT = 1_000
"""Number of characters of the turns around a hit below which more turns are shown."""
BRIEF = 1_500
BRIEF_ROLES = ("tool_call", "tool_result", "thinking")
TITLE = 200
SHORT_TITLE = 60
NOTHING: Json = {"kind": "", "session": None, "memory": None, "turns": [], "next_offset": None}

LISTED = 20
MARKDOWN = "text/markdown"
TEMPLATES: list[Json] = [
    {"uriTemplate": "crystal://session/{id}", "name": "session", "title": "A past session", "mimeType": MARKDOWN,
     "description": "The beginning of a past conversation, by its id; crystal_get reads on."},
    {"uriTemplate": "crystal://memory/{id}", "name": "memory", "title": "A memory", "mimeType": MARKDOWN,
     "description": "Something that was remembered, by its id."},
]  # fmt: skip
"""The templates of the resources' addresses."""
_ADDRESS = re.compile(r"crystal://(session|memory)/([^/?#]{1,600})", re.ASCII)


def get(client: ClientContext, arguments: Mapping[str, Any]) -> ToolAnswer:
    """Return the hit, session or memory with an id, or the memory with a key."""
    ident, key, start = arguments.get("id"), arguments.get("key"), arguments.get("start") or 0
    if (ident is None) == (key is None):
        raise UsageError("give either an id or a key", hint="ids are in the hits of crystal_search")
    with client.reader() as machine:
        if key is not None:
            found = by_key(machine, key)
            if found is None:
                raise NotFoundError(f"nothing is remembered under the key {key!r}", hint="look with crystal_search")
            return _of_memory(machine, found, client.max_chars, start, client.folder)
        assert ident is not None
        if ident.strip().lower().startswith("mem-"):
            return _of_memory(machine, memory_of(machine, ident), client.max_chars, start, client.folder)
        return _of_conversation(machine, client, ident, arguments)


def _of_memory(
    machine: Machine, memory: Remembered, max_chars: int, start: int = 0, folder: str | None = None
) -> ToolAnswer:
    """Return a memory as an answer."""
    ids, validity = ShortIds(machine), memory_validity(machine, memory, folder)

    def compose(items: Sequence[AnswerItem]) -> ToolAnswer:
        left = items[0].data["characters_left"] if items else 0
        further = len(quote(memory.text)) - left
        more = f"more: crystal_get id={ids.memory(memory.id)} start={further}" if left else None
        data = {**NOTHING, "kind": "memory", "memory": items[0].data if items else None}
        answer = answered("", items, "turns", data, more)
        return ToolAnswer(answer.text, {**answer.data, "turns": []})

    return bounded([memory_item(memory, ids, start, validity)], compose, max_chars, longest=max_chars)


def _of_conversation(machine: Machine, client: ClientContext, ident: str, arguments: Mapping[str, Any]) -> ToolAnswer:
    target = find_target(machine.stores, ident)
    if target.chunk is None:
        for name in ("context", "start"):
            if arguments.get(name):
                raise UsageError(f"{name} goes with a hit, not with a session", hint="leave it out, or use offset")
        offset = arguments.get("offset") or 0
        return _of_session(machine, read(machine.stores, target), client.max_chars, offset)
    if arguments.get("offset"):
        raise UsageError("offset goes with a session, not with a hit", hint="leave it out, or use start")
    conversation = read(machine.stores, target, context=int(arguments.get("context", CONTEXT)))
    if "context" not in arguments and sum(len(turn.text) for turn in conversation.turns) < SHORT:
        conversation = read(machine.stores, target, context=3 * CONTEXT)
    conversation = turns_with_validity(machine, conversation, client.folder)
    return _of_hit(machine, conversation, client.max_chars, arguments.get("start") or 0)


def _of_session(machine: Machine, conversation: Conversation, max_chars: int, offset: int) -> ToolAnswer:
    """Return a page of a session."""
    turns = conversation.turns
    name, about, data = _head(conversation, ShortIds(machine), "session")
    if offset and offset >= len(turns):
        raise UsageError(f"offset is {offset}, but there are {len(turns)} turns", hint="use a smaller offset")
    makers = [
        turn_item(turn, number, most=BRIEF if turn.role in BRIEF_ROLES else MAX_LENGTH)
        for number, turn in enumerate(turns[offset:], offset + 1)
    ]

    def compose(items: Sequence[AnswerItem]) -> ToolAnswer:
        at = offset + len(items)
        next_offset = at if at < len(turns) else None
        more = None if next_offset is None else f"more: crystal_get id={name} offset={at}"
        head = f"{about}\nturns {offset + 1}-{at} of {len(turns)}" if items else about
        if any(item.data["characters_left"] for item in items):
            head += "; the whole of a turn: crystal_get with its id"
        return answered(head, _counted(items), "turns", {**data, "next_offset": next_offset}, more)

    return bounded(makers, compose, max_chars)


def _of_hit(machine: Machine, conversation: Conversation, max_chars: int, start: int) -> ToolAnswer:
    turns = conversation.turns
    _, about, data = _head(conversation, ShortIds(machine), "hit")
    around = max(200, max_chars // (3 * max(1, len(turns))))
    # The requested turn is rendered first, because it gets the most characters. It is shown in its place.
    at = next((at for at, turn in enumerate(turns) if turn.focus), 0)
    order = [at, *range(at - 1, -1, -1), *range(at + 1, len(turns))]
    makers = [
        turn_item(turns[place], start=start if turns[place].focus else 0, most=None if turns[place].focus else around)
        for place in order[: len(turns)]
    ]

    def compose(items: Sequence[AnswerItem]) -> ToolAnswer:
        shown = [item for _, item in sorted(zip(order, items, strict=False), key=lambda pair: pair[0])]
        return answered(about, _counted(shown), "turns", data, None)

    return bounded(makers, compose, max_chars, longest=max(200, max_chars // 2))


def _counted(turns: Sequence[AnswerItem]) -> list[AnswerItem]:
    """Return turns without redundant parts of their heads.

    These are an id that follows the one before, unless it is needed to read more, and the tool of a result if the call
    above has it.
    """
    shown, last, called = list[AnswerItem](), None, None
    for turn in turns:
        number = parse_hit_name(turn.data["id"])
        counts_on = number is not None and last == number - 1
        is_asked = turn.data["focus"] or turn.data["characters_left"]
        head, by = turn.head, turn.data["by"]
        if by == f"tool {called}":
            head = head.replace(f" {by}", " tool", 1)
        shown.append(replace(turn, head=head.partition(" ")[2] if counts_on and not is_asked else head))
        last = number
        called = by.removeprefix("call ") if by.startswith("call ") else called
    return shown


def title_of(session: SessionSummary) -> str:
    """Return the first words of the user in a session, after its title if that differs."""
    is_same = session.opening.startswith(session.title.rstrip("…"))
    told = session.opening if is_same else f"{session.title}: {session.opening}".removesuffix(": ")
    return quote_line(told, TITLE) or "(without words)"


def session_data(session: SessionSummary) -> Json:
    """Return the JSON fields of a session."""
    return {
        "id": session.id, "title": title_of(session), "project": label(session.project),
        "branch": label(session.branch), "device": label(session.device), "started_at": iso(session.started_at),
        "last_at": iso(session.last_at), "turns": session.turns,
    }  # fmt: skip


def _head(conversation: Conversation, ids: ShortIds, kind: str) -> tuple[str, str, Json]:
    """Return the id under which a session is read, a line about it, and its JSON."""
    session = conversation.session
    if session is None:
        return "", "this belongs to no session", {**NOTHING, "kind": kind}
    name = ids.session(session.id)
    branch = f" branch {label(session.branch)}" if session.branch not in (None, "", "HEAD", "main", "master") else ""
    place = " ".join(place_of(session.last_at, session.project, session.device, ids.device))
    title, told = (
        quote_line(session.title, SHORT_TITLE),
        " ".join(turn.text[:SHORT_TITLE] for turn in conversation.turns[:1]),
    )
    named = "" if told.startswith(title.rstrip("…")) else f": {title}"
    words = f"session {name} {place}{branch}{named}"
    return name, words, {**NOTHING, "kind": kind, "session": session_data(session)}


# ------------------------------------------------------------------------------------------------------- resources


def listed(client: ClientContext) -> list[Json]:
    """Return the latest sessions and memories as resources; empty if the memory cannot be read.

    Titles and keys are not listed: they are shown when the resource is read.
    """
    try:
        with damage_explained(), client.reader() as machine:
            found, _ = sessions(machine.stores, limit=LISTED)
            remembered = list_memories(machine, limit=LISTED)
    except CrystalError:
        return []
    rows = [_row("session", one.id, iso(one.last_at), label(one.project), f"{one.turns} turns") for one in found]
    return rows + [_row("memory", one.id, one.category, label(one.project), iso(one.updated_at)) for one in remembered]


def _row(kind: str, ident: str, *facts: str | None) -> Json:
    return {
        "uri": f"crystal://{kind}/{quote_url(ident, safe='')}", "name": f"{kind} {label(ident)}",
        "description": " · ".join(fact for fact in facts if fact), "mimeType": MARKDOWN,
    }  # fmt: skip


def contents(client: ClientContext, uri: str, nonce: str) -> list[Json]:
    """Return the content of an address.

    Raises:
        McpError: The resource does not exist, or the memory cannot be read.
    """
    match = _ADDRESS.fullmatch(uri)
    if match is None:
        raise McpError(RESOURCE_NOT_FOUND, "there is no such resource", {"uri": uri[:300]})
    kind, ident = match[1], unquote(match[2], errors="replace")
    try:
        with damage_explained(), client.reader() as machine:
            answer = _read_resource(machine, kind, ident, client.max_chars)
    except CrystalError as error:
        if error.exit_code <= 2:  # it is not there, or the id cannot be one
            raise McpError(RESOURCE_NOT_FOUND, error.message, {"uri": uri[:300]}) from error
        hint = f"; {hint_for_agent(error.hint)}" if error.hint else ""
        raise McpError(INTERNAL_ERROR, f"{error.message}{hint}", {"uri": uri[:300]}) from error
    return [{"uri": uri, "mimeType": MARKDOWN, "text": answer.markdown(nonce)}]


def _read_resource(machine: Machine, kind: str, ident: str, max_chars: int) -> ToolAnswer:
    if kind == "memory":
        return _of_memory(machine, memory_of(machine, ident), max_chars)
    target = find_target(machine.stores, ident)
    if target.chunk is not None:
        raise McpError(RESOURCE_NOT_FOUND, "this is the id of a hit, not of a session", {"hint": "use crystal_get"})
    return _of_session(machine, read(machine.stores, target), max_chars, 0)
