"""Other names for the tools, with the arguments that the neighbours' users know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from crystal.app.context import open_reader
from crystal.mcp.asker import ClientContext
from crystal.mcp.days import recent
from crystal.mcp.hits import Make, ShortIds, hit_item
from crystal.mcp.keeping import remember
from crystal.mcp.page import AnswerItem, ToolAnswer, answered, bounded, noted
from crystal.mcp.searching import find, search
from crystal.model.recall import Hit

RESULTS = 10
KEPT = ("id", "text", "score", "origin", "by", "when", "characters_left")


def search_memory(asker: ClientContext, arguments: Mapping[str, Any]) -> ToolAnswer:
    """Answer like ``crystal_search``."""
    return search(asker, arguments)


def get_recent_conversations(asker: ClientContext, arguments: Mapping[str, Any]) -> ToolAnswer:
    """Return the last sessions of all projects."""
    return recent(asker, {"what": "sessions", "limit": arguments.get("n"), "all": True})


def save_memory(asker: ClientContext, arguments: Mapping[str, Any]) -> ToolAnswer:
    """Answer like ``crystal_remember``."""
    return remember(asker, {"text": arguments["content"]}, source=arguments.get("source") or "mcp")


def memory_search(asker: ClientContext, arguments: Mapping[str, Any]) -> ToolAnswer:
    """Return hits by similarity alone, with their cosines."""
    count, least = arguments.get("maxResults") or RESULTS, arguments.get("minScore") or 0.0
    with open_reader() as machine:
        found = find(machine, asker, {"query": arguments["query"], "fusion": "similarity"}, count)
        hits = [hit for hit in found.hits if hit.score >= least]
        makers = [_result(hit, ShortIds(machine)) for hit in hits]

    def compose(items: Sequence[AnswerItem]) -> ToolAnswer:
        left = len(hits) - len(items)
        more = f"more: {left} hits do not fit; crystal_get with an id reads around a hit" if left else None
        head = f"{len(items)} hits by similarity, best first" if items else "nothing found"
        return answered(head, items, "results", {"notes": noted(found.result.notes)}, more)

    return bounded(makers, compose, asker.room)


def _result(hit: Hit, ids: ShortIds) -> Make:
    make_hit = hit_item(hit, ids)

    def make(room: int) -> AnswerItem:
        item = make_hit(room)
        return replace(item, head=f"{item.head} {hit.score:.2f}", data={name: item.data[name] for name in KEPT})

    return make
