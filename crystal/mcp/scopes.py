"""Implement ``read_memory`` and ``write_memory``: memories of this project or, if allowed, for all projects."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from typing import Any

from crystal.app.context import this_config
from crystal.app.memory_queries import list_memories
from crystal.errors import UsageError
from crystal.mcp.changing import remember
from crystal.mcp.handlers import ClientContext
from crystal.mcp.items import ShortIds, memory_item
from crystal.mcp.page import AnswerItem, ToolAnswer, answered, bounded

MAX_READ, MAX_COUNTED = 1_000, 100_000


def read(client: ClientContext, arguments: Mapping[str, Any]) -> ToolAnswer:
    """Return the memories of a scope, the latest first."""
    folder = _folder(client, arguments)
    with client.reader() as machine:
        home = None if folder is None else client.project(machine)
        found = list_memories(machine, project=folder if home is None else home[0], limit=MAX_COUNTED)
        if folder is None:
            found = [one for one in found if one.project is None]
        ids = ShortIds(machine)

        def compose(items: Sequence[AnswerItem]) -> ToolAnswer:
            left = len(found) - len(items)
            more = f"{left} more are not shown; crystal_search finds them" if left else None
            where = "everywhere" if folder is None else "in this project"
            head = f"{len(found)} {'memory holds' if len(found) == 1 else 'memories hold'} {where}"
            return answered(head, items, "memories", {"memories_in_all": len(found)}, more)

        return bounded([memory_item(one, ids) for one in found[:MAX_READ]], compose, client.max_chars)


def write(client: ClientContext, arguments: Mapping[str, Any]) -> ToolAnswer:
    """Store a memory in a scope."""
    is_here = _folder(client, arguments) is not None
    return remember(client, {"text": arguments["content"], "this_project": is_here})


def _folder(client: ClientContext, arguments: Mapping[str, Any]) -> str | None:
    """Return the folder of the scope ``project``; None for the scope ``global``.

    Raises:
        UsageError: The settings do not allow this agent the scope ``global``, or the folder is not known.
    """
    if arguments.get("scope") == "global":
        allowed = this_config().mcp_global_scope
        if client.agent is None and allowed:
            hint = "the user names it in the settings of its client: crystal mcp --agent AGENT"
            raise UsageError(
                "the scope global is for agents that are known, and nothing says which one this is", hint=hint
            )
        if client.agent is None or not any(fnmatch.fnmatchcase(client.agent, one) for one in allowed):
            hint = "leave scope out; the user can allow it: crystal config set mcp.global_scope AGENT"
            raise UsageError("the scope global is not allowed for this agent", hint=hint)
        return None
    if client.folder is None:
        raise UsageError("the folder of this project is not known", hint="use crystal_remember and crystal_search")
    return client.folder
