"""Search as the user types: show the hits, why each was found, and filters that would narrow them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from crystal.app.context import Machine
from crystal.app.search import EMPTY_MEMORY, checked_role, is_memory_empty, prepare_search, unreadable_mirror_notes
from crystal.app.validity import with_validity
from crystal.config.harnesses import title_of
from crystal.model.recall import Filters, Hit
from crystal.search.engine import search
from crystal.search.highlight import match_spans, why_found
from crystal.text.excerpt import excerpt_span
from crystal.text.harmless import harmless
from crystal.timewords.parse import parse_when
from crystal.web.markup import marked
from crystal.web.responses import Page, RequestValues

LIMIT = 20
MAX_LIMIT = 300
EXCERPT = 420
NARROWING = ("project", "role", "agent", "device", "source", "since", "before", "session")
REASONS = {"exact": "word for word", "keywords": "words", "context": "words around it", "vectors": "meaning"}
TIMES = {"24h": "last 24 hours", "7d": "last 7 days", "30d": "last 30 days", "1y": "last year"}


@dataclass(frozen=True, slots=True)
class ShownHit:
    """A hit as it is shown.

    Attributes:
        hit: The hit.
        text: An excerpt around most of the matching words, which are marked.
        link: The address of its page.
        why: The engines that found it, each with its rank.
        details: The explanation that ``crystal search --explain`` prints.
    """

    hit: Hit
    text: Markup
    link: str
    why: str
    details: str


@dataclass(frozen=True, slots=True)
class Facet:
    """A value that would narrow the hits, the number of shown hits with it, and whether it is chosen."""

    value: str
    label: str
    count: int | None
    is_chosen: bool


def show(machine: Machine, params: RequestValues) -> Page:
    """Search, or show an empty form."""
    query = params.text("q")
    chosen = {name: params.text(name) for name in NARROWING}
    limit = min(params.number("limit") or LIMIT, MAX_LIMIT)
    values: dict[str, object] = {
        "query": query or "", "chosen": {name: value for name, value in chosen.items() if value}, "found": (),
        "notes": (), "facets": _facets((), chosen), "more": None,
    }  # fmt: skip
    if query is not None:
        sources, request = prepare_search(machine, query, limit, _filters(machine, params))
        result = search(sources, replace(request, surrounded=0))
        notes = (*result.notes, *unreadable_mirror_notes(machine))
        if not result.hits and is_memory_empty(machine):
            notes = (EMPTY_MEMORY,)
        values |= {
            "found": [_found(machine, query, hit) for hit in with_validity(machine, result.hits, None)],
            "notes": notes,
            "facets": _facets(result.hits, chosen),
            "more": min(MAX_LIMIT, limit * 3) if len(result.hits) == limit < MAX_LIMIT else None,
        }  # fmt: skip
    return Page("search.html", f"{query} · Search" if query else "Search", values)


def _filters(machine: Machine, params: RequestValues) -> Filters:
    def moment(name: str) -> int | None:
        words = params.text(name)
        return None if words is None else parse_when(words, now=machine.now(), name=name)

    return Filters(
        params.text("project"), params.text("session"), checked_role(params.text("role")), params.text("agent"),
        params.text("device"), None, params.text("source"), moment("since"), moment("before"),
    )  # fmt: skip


def _found(machine: Machine, query: str, hit: Hit) -> ShownHit:
    spans = match_spans(machine.store, query, hit.text)
    text = marked(harmless(hit.text), spans, *excerpt_span(hit.text, spans, EXCERPT))
    why = [REASONS[name] + ("" if name == "exact" else f" #{hit.ranks[name]}") for name in REASONS if name in hit.ranks]
    link = f"/memory/{hit.uuid}" if hit.category else f"/turn/{hit.id}"
    return ShownHit(hit, text, link, " · ".join(why) or "its time", why_found(hit))


def _facets(hits: Sequence[Hit], chosen: dict[str, str | None]) -> dict[str, list[Facet]]:
    """Return the values of the hits for each filter, most frequent first; a chosen value stays, to be removed."""

    def facet(name: str, value_of: Callable[[Hit], str | None], label_of: Callable[[str], str] = str) -> list[Facet]:
        counted = Counter(value for hit in hits if (value := value_of(hit)))
        picked = chosen[name]
        if picked and picked not in counted:
            counted[picked] = 0
        return [Facet(value, label_of(value), number, value == picked) for value, number in counted.most_common(8)]

    found = {
        name: [Facet(value, value, None, True)] for name in ("session", "source", "before") if (value := chosen[name])
    }
    found |= {
        "project": facet("project", lambda hit: hit.project),
        "role": facet("role", lambda hit: hit.role, lambda role: role.replace("_", " ")),
        "agent": facet("agent", lambda hit: hit.harness, title_of),
        "device": facet("device", lambda hit: hit.device),
        "since": [Facet(value, label, None, value == chosen["since"]) for value, label in TIMES.items()],
    }
    return {name: facets for name, facets in found.items() if len(facets) > 1 or chosen[name]}
