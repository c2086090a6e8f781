"""Implement ``crystal_search``, and ``memory_search`` by similarity."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from crystal.app.context import Machine
from crystal.app.search import checked_role, prepare_search, unreadable_mirror_notes
from crystal.app.validity import with_validity
from crystal.errors import UsageError
from crystal.mcp.handlers import ClientContext
from crystal.mcp.items import ItemMaker, ShortIds, hit_item
from crystal.mcp.page import AnswerItem, ToolAnswer, answered, bounded, noted, one_page
from crystal.model.recall import Filters, Hit, Neighbour
from crystal.search.engine import search as ask
from crystal.search.request import MAX_LIMIT, SearchResult
from crystal.timewords.parse import parse_when

DEFAULT_SIMILAR = 10
SHORT = 200
"""Number of characters below which a hit is shown with its neighbours."""
SIMILAR_FIELDS = ("id", "text", "score", "origin", "by", "when", "characters_left")
FILTERS = ("project", "session", "role", "agent", "device", "branch", "source")
STEPS = (26, 120, MAX_LIMIT)
"""Numbers of hits to request, step by step. A larger number is chosen from more candidates, which may change the order:
hits of earlier steps come first, so that pages neither repeat nor leave out hits."""


@dataclass(frozen=True, slots=True)
class SearchOutcome:
    """Hits without those of the client's own session, and the number of those."""

    result: SearchResult
    hits: tuple[Hit, ...]
    own: int


def search(client: ClientContext, arguments: Mapping[str, Any]) -> ToolAnswer:
    """Return a page of search hits."""
    with client.reader() as machine:
        limit = arguments.get("limit") or min(machine.config.search_limit, 50)
        offset = arguments.get("offset") or 0
        if offset + limit >= MAX_LIMIT:
            raise UsageError(
                f"offset {offset} and limit {limit} reach beyond {MAX_LIMIT} hits", hint="ask more narrowly"
            )
        found = find(machine, client, arguments, offset + limit + 1)
        notes = [*found.result.notes, *unreadable_mirror_notes(machine)]
        ids, told = ShortIds(machine), {name for hit in found.hits[: offset + limit] for name in (hit.uuid, hit.text)}
        page = found.hits[offset : offset + limit] if client.is_reader else ()
        hits = [*found.hits[:offset], *with_validity(machine, page, client.folder), *found.hits[offset + len(page) :]]
        makers = [hit_item(hit, ids, said_around(hit, told, bool(arguments.get("around")))) for hit in hits]
    if found.own:
        notes.append(f"{found.own} of this session left out; include_current=true shows them")
    data = {"mode": found.result.mode, "offset": offset, "notes": noted(notes)}
    return one_page(makers, data, "hits", client.max_chars, "nothing found", lambda at: f"offset={at}", limit)


def said_around(hit: Hit, told: set[str], is_asked: bool = False) -> dict[str, Neighbour]:
    """Return the neighbours of a hit if requested; otherwise those of a short hit that are not in ``told``."""
    said = {where: one for where, one in (("before", hit.before), ("after", hit.after)) if one is not None}
    if is_asked:
        return said
    if len(hit.text) >= SHORT:
        return {}
    new = {where: one for where, one in said.items() if told.isdisjoint((one.uuid, one.text))}
    told.update(name for one in new.values() for name in (one.uuid, one.text))
    return new


def search_by_similarity(client: ClientContext, arguments: Mapping[str, Any]) -> ToolAnswer:
    """Return hits with their cosines."""
    with client.reader() as machine:
        found = find(machine, client, arguments, arguments.get("limit") or DEFAULT_SIMILAR)
        hits = [hit for hit in found.hits if hit.score >= (arguments.get("minScore") or 0.0)]
        makers = [_similar_item(hit, ShortIds(machine)) for hit in hits]

    def compose(items: Sequence[AnswerItem]) -> ToolAnswer:
        left = len(hits) - len(items)
        more = f"more: {left} hits do not fit; crystal_get with an id reads around a hit" if left else None
        head = f"{len(items)} hits by similarity, best first" if items else "nothing found"
        return answered(head, items, "results", {"notes": noted(found.result.notes)}, more)

    return bounded(makers, compose, client.max_chars)


def _similar_item(hit: Hit, ids: ShortIds) -> ItemMaker:
    make_hit = hit_item(hit, ids)

    def make(max_chars: int) -> AnswerItem:
        item = make_hit(max_chars)
        data = {name: item.data[name] for name in SIMILAR_FIELDS}
        return replace(item, head=f"{item.head} {hit.score:.2f}", data=data)

    return make


def find(machine: Machine, client: ClientContext, arguments: Mapping[str, Any], count: int) -> SearchOutcome:
    """Return the first ``count`` hits outside of the caller's own session."""
    checked_role(arguments.get("role"))
    query, *wordings = _wordings(arguments)
    sources, request = prepare_search(
        machine,
        query,
        1,
        _filters(arguments, machine.now),
        recency=arguments.get("recency"),
        fusion=arguments.get("fusion"),
        as_of=arguments.get("as_of"),
        deep=bool(arguments.get("deep")),
        wordings=wordings,
    )
    own = client.left_out(machine, arguments)
    # A model would put the hits of each step into another order.
    steps = [min(MAX_LIMIT, count + STEPS[1])] if arguments.get("deep") else sorted({min(count, STEPS[0]), *STEPS})
    results: list[SearchResult] = []
    told: dict[int, Hit] = {}
    for step in steps:
        results.append(ask(sources, replace(request, limit=step)))
        for hit in results[-1].hits:
            told.setdefault(hit.id, hit)
        hits = [hit for hit in told.values() if own is None or hit.session_id != own]
        if len(hits) >= count or len(results[-1].hits) < step:
            break
    return SearchOutcome(results[0], tuple(hits[:count]), len(told) - len(hits))


def _wordings(arguments: Mapping[str, Any]) -> list[str]:
    given = [arguments["query"]] if "query" in arguments else []
    wordings = list(dict.fromkeys((*given, *arguments.get("queries", ()))))
    if not wordings:
        raise UsageError("the argument query is missing", hint="query is a text; queries is a list of up to 5")
    return wordings


def _filters(arguments: Mapping[str, Any], now: Callable[[], int]) -> Filters:
    values: dict[str, Any] = {name: arguments.get(name) for name in FILTERS}
    start, end = moment(arguments, "since", now()), moment(arguments, "before", now())
    if start is not None and end is not None and start >= end:
        raise UsageError("since must be earlier than before", hint="swap them")
    return Filters(**values, since=start, before=end)


def moment(arguments: Mapping[str, Any], name: str, now: int) -> int | None:
    """Return the time that an argument names, in ms; None if it is not given."""
    value = arguments.get(name)
    return None if value is None else parse_when(value, now=now, name=name)
