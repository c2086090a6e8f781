"""Resources: ``crystal://session/{id}`` and ``crystal://memory/{id}``."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote, unquote

from crystal.app.context import Machine, open_reader
from crystal.app.memory_queries import list_memories, memory_of
from crystal.errors import CrystalError
from crystal.mcp.asker import ClientContext
from crystal.mcp.messages import INTERNAL_ERROR, RESOURCE_NOT_FOUND, McpError
from crystal.mcp.page import ToolAnswer, hint_for_agent
from crystal.mcp.reading import of_memory, of_session
from crystal.mcp.said import label
from crystal.sessions.reading import find_target, read, sessions
from crystal.timewords.parse import iso

LISTED = 20
MARKDOWN = "text/markdown"
_ADDRESS = re.compile(r"crystal://(session|memory)/([^/?#]{1,600})", re.ASCII)


def templates() -> list[dict[str, Any]]:
    """Return the templates of the addresses."""
    return [
        {"uriTemplate": "crystal://session/{id}", "name": "session", "title": "A past session", "mimeType": MARKDOWN,
         "description": "The beginning of a past conversation, by its id; crystal_get reads on."},
        {"uriTemplate": "crystal://memory/{id}", "name": "memory", "title": "A memory", "mimeType": MARKDOWN,
         "description": "Something that was remembered, by its id."},
    ]  # fmt: skip


def listed() -> list[dict[str, Any]]:
    """Return the latest sessions and memories; none if there is no memory.

    Titles and keys are not listed: they are shown when the resource is read.
    """
    try:
        with open_reader() as machine:
            mirror = machine.mirror_store
            found, _ = sessions(machine.store, limit=LISTED, mirror=mirror)
            remembered = list_memories(machine, limit=LISTED)
    except CrystalError:
        return []
    rows = []
    facts: tuple[str | None, ...]
    for one in found:
        facts = (iso(one.last_at), label(one.project), f"{one.turns} turns")
        rows.append(_row("session", one.id, " · ".join(fact for fact in facts if fact)))
    for kept in remembered:
        facts = (kept.category, label(kept.project), iso(kept.updated_at))
        rows.append(_row("memory", kept.id, " · ".join(fact for fact in facts if fact)))
    return rows


def _row(kind: str, ident: str, description: str) -> dict[str, Any]:
    return {
        "uri": f"crystal://{kind}/{quote(ident, safe='')}", "name": f"{kind} {label(ident)}",
        "description": description, "mimeType": MARKDOWN,
    }  # fmt: skip


def contents(asker: ClientContext, uri: str, nonce: str) -> list[dict[str, Any]]:
    """Return the content of an address.

    Raises:
        McpError: There is nothing at the address, or the memory cannot be read.
    """
    match = _ADDRESS.fullmatch(uri)
    if match is None:
        raise McpError(RESOURCE_NOT_FOUND, "there is no such resource", {"uri": uri[:300]})
    kind, ident = match[1], unquote(match[2], errors="replace")
    try:
        with open_reader() as machine:
            answer = _read(machine, asker, kind, ident)
    except CrystalError as error:
        if error.exit_code <= 2:  # it is not there, or the id cannot be one
            raise McpError(RESOURCE_NOT_FOUND, error.message, {"uri": uri[:300]}) from error
        hint = f"; {hint_for_agent(error.hint)}" if error.hint else ""
        raise McpError(INTERNAL_ERROR, f"{error.message}{hint}", {"uri": uri[:300]}) from error
    return [{"uri": uri, "mimeType": MARKDOWN, "text": answer.markdown(nonce)}]


def _read(machine: Machine, asker: ClientContext, kind: str, ident: str) -> ToolAnswer:
    if kind == "memory":
        return of_memory(machine, memory_of(machine, ident), asker.room)
    target = find_target(machine.store, ident, mirror=machine.mirror_store)
    if target.chunk is not None:
        raise McpError(RESOURCE_NOT_FOUND, "this is the id of a hit, not of a session", {"hint": "use crystal_get"})
    return of_session(machine, read(machine.store, target, mirror=machine.mirror_store), asker.room, 0)
