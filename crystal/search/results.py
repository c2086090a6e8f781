"""Merge what the engines propose into one order, in one memory or in two: this machine's own and the mirror of home's.

A turn that stands in both is one answer, shown as the machine's own. Scores of two keyword indexes do not compare: a
word that is rare in one may be common in the other. So neighbours of one tier stand in the order of how near each is
to the best of its own index. Cosines compare, if both memories have vectors of one model.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING

from crystal.model.capture import MIRROR_IDS, Memory
from crystal.model.recall import Hit
from crystal.search.candidates import Ranked
from crystal.search.rrf import Fused, fuse, sureness
from crystal.store import Store
from crystal.store.memories.memories import key_prefix
from crystal.store.search.candidates import (
    Candidate,
    candidates,
    chunk_of_memory,
    chunk_of_turn,
    count_copies,
    latest_chunks,
    places_of_text,
)
from crystal.store.search.scope import Scope

if TYPE_CHECKING:
    from crystal.embedding import Embedder

DAY_MS = 86_400_000
EXACT = 3
"""What an answer gets on top that has the very thing looked for to the letter; less for each tier below."""

_OWN_TOOL = re.compile(
    r"mcp__.*__crystal_(?:search|get|recent|timeline|status|remember|forget)"
    r"|mcp__.*crystal.*__(?:search_memory|get_recent_conversations|save_memory|memory_search)"
)
"""The tools of ``crystal mcp``, as clients name them."""

Ref = tuple[int, int]
"""A chunk: in which memory (their order in the search), and its id there."""

Standing = tuple[int, float]
"""The tier in which an engine puts a chunk, and how good it is there, 1 being as good as can be."""

Unit = tuple[str, str]
"""What counts as one answer: a turn or a memory, by what it is called everywhere, or a chunk that belongs to none."""


@dataclass(frozen=True, slots=True)
class MemorySource:
    """One memory that is searched.

    Attributes:
        store: Open for reading.
        memory: Which one it is.
        embedder: Turns questions into vectors of the store's model; None searches keywords alone.
        without_embedder: Why ``embedder`` is None.
        notes: What the reader should know of this memory, whatever is found.
    """

    store: Store
    memory: Memory
    embedder: Embedder | None
    without_embedder: str
    notes: tuple[str, ...] = ()

    def handed_out(self, chunk: int) -> int:
        """Return a chunk's id as the user sees it."""
        return chunk + MIRROR_IDS if self.memory == "mirror" else chunk


@dataclass(frozen=True, slots=True)
class Proposal:
    """What both engines propose in one memory, and within which filter."""

    side: MemorySource
    scope: Scope
    by_words: Ranked
    by_meaning: Ranked
    space: str = ""
    """Names the model of the vectors: cosines of one model compare."""


@dataclass(frozen=True, slots=True)
class Order:
    """The answers in order, the chunk that stands for each, and everything about the chunks.

    ``scores`` holds what else an answer was given, by name; ``similar`` how many answers nearly like it stand behind
    it.
    """

    proposals: Sequence[Proposal]
    fused: list[Fused[Unit]] = field(default_factory=list)
    shown: dict[Unit, Ref] = field(default_factory=dict)
    details: dict[Ref, Candidate] = field(default_factory=dict)
    scores: dict[Unit, dict[str, float]] = field(default_factory=dict)
    similar: dict[Unit, int] = field(default_factory=dict)

    def with_look_ups_last(self) -> Order:
        """Move calls of this memory's own tools, and their results, behind all other answers.

        Such a call repeats a question, often to the letter, and says nothing of its own.
        """
        look_ups = {one.key for one in self.fused if is_look_up(self.details[self.shown[one.key]])}
        if not look_ups:
            return self
        return replace(self, fused=sorted(self.fused, key=lambda one: one.key in look_ups))

    def hit(self, fused: Fused[Unit], now: int) -> Hit:
        """Return one answer as a hit."""
        ref = self._own(self.shown[fused.key])
        proposal, chunk = self.proposals[ref[0]], self.details[self.shown[fused.key]]
        shown_by = self.proposals[self.shown[fused.key][0]]
        scope = proposal.scope
        engines = {"keywords": shown_by.by_words, "vectors": shown_by.by_meaning}
        scores = {name: one.scores[chunk.id] for name, one in engines.items() if chunk.id in one.scores}
        scores |= self.scores.get(fused.key, {})
        copied = scope.session is not None and chunk.session_id != scope.session[1]
        return Hit(
            id=proposal.side.handed_out(ref[1]),
            score=round(fused.score, 6),
            text=_words_of(chunk),
            role=chunk.role,
            session_id=scope.session[1] if copied and scope.session else chunk.session_id or "",
            uuid=chunk.uuid or "",
            project=chunk.project,
            cwd=chunk.cwd,
            branch=chunk.branch,
            agent=chunk.agent,
            device=chunk.device,
            timestamp=chunk.ts,
            freshness=freshness(chunk.ts, now),
            source=chunk.source,
            ranks=fused.ranks,
            scores={name: round(score, 4) for name, score in scores.items()},
            subagent=chunk.subagent,
            tool=chunk.tool,
            copies=self._copies(chunk.text_sha256),
            similar=self.similar.get(fused.key, 0),
            memory=proposal.side.memory,
            category=chunk.category,
            key=chunk.key,
        )

    def _own(self, ref: Ref) -> Ref:
        """Return this machine's copy of a chunk, if it has one and only the mirror's was proposed; else the chunk."""
        chunk = self.details[ref]
        own = self.proposals[0]
        if ref[0] == 0 or chunk.uuid is None:
            return ref
        if chunk.memory is not None:
            same = chunk_of_memory(own.side.store, chunk.memory, chunk.text_sha256, own.scope)
        elif chunk.part is not None:
            same = chunk_of_turn(own.side.store, chunk.uuid, chunk.part, chunk.text_sha256, own.scope)
        else:
            return ref
        return ref if same is None else (0, same)

    def _copies(self, text_sha256: bytes) -> int:
        """Return how many places have exactly this text; a place in both memories is one."""
        counts = [count_copies(one.side.store, text_sha256, one.scope) for one in self.proposals]
        if sum(count > 0 for count in counts) < 2:
            return sum(counts)
        places = [places_of_text(one.side.store, text_sha256, one.scope) for one in self.proposals]
        return sum(counts) - sum(map(len, places)) + len(set[tuple[str, int]]().union(*places))


def is_look_up(chunk: Candidate) -> bool:
    """Return True if a chunk is a call of one of this memory's own tools, or its result."""
    return chunk.role in ("tool_call", "tool_result") and _OWN_TOOL.fullmatch(chunk.tool or "") is not None


def _words_of(chunk: Candidate) -> str:
    """Return a chunk's text without the memory key that precedes it for the engines alone."""
    if chunk.memory is not None and chunk.key is not None and chunk.start == 0:
        return chunk.text.removeprefix(key_prefix(chunk.key)) or chunk.text
    return chunk.text


def freshness(ts: int | None, now: int) -> str:
    """Name an age: ``fresh`` under 3 days, ``recent`` under 7, ``aging`` under 14, else ``stale``, also if unknown."""
    if ts is None:
        return "stale"
    days = (now - ts) / DAY_MS
    return "fresh" if days < 3 else "recent" if days < 7 else "aging" if days < 14 else "stale"


def order_of(proposals: Sequence[Proposal]) -> Order:
    """Order the answers, and choose for each turn the chunk to show: the best one by words, else by meaning."""
    details: dict[Ref, Candidate] = {}
    for at, one in enumerate(proposals):
        ids = list(dict.fromkeys([*one.by_words.scores, *one.by_meaning.scores]))
        details.update(((at, ident), found) for ident, found in candidates(one.side.store, ids).items())
    shown: dict[Unit, Ref] = {}
    lists: dict[str, list[tuple[Unit, float]]] = {}
    for engine in ("keywords", "vectors"):
        ranked = _words(proposals) if engine == "keywords" else _meanings(proposals)
        best, repeated = _best_chunks(_newest_first(ranked, details), details)
        sure = sureness([ranked[ref][1] for ref in best.values()], 1.0)
        least = min(sure, default=1.0)
        lists[engine] = [*zip(best, sure, strict=True), *((unit, least) for unit in repeated)]
        for unit, ref in {**best, **repeated}.items():
            if unit not in shown or shown[unit][0] > ref[0]:
                shown[unit] = ref
    exact = {(at, ident): one.by_words.tiers.get(ident, 0)
             for at, one in enumerate(proposals) for ident in one.by_words.exact}  # fmt: skip
    first = {unit: EXACT - min(exact[ref], EXACT - 1) for unit, ref in shown.items() if ref in exact}
    fused = fuse(lists, lambda unit: _by_time(shown[unit], details), first=first)
    for answer in fused:
        if answer.key in first:
            answer.ranks["exact"] = EXACT + 1 - first[answer.key]
    return Order(proposals, fused, shown, details)


def latest_order(places: Sequence[tuple[MemorySource, Scope]], spans: Sequence[tuple[int, int]], limit: int) -> Order:
    """Return the latest turns of users and assistants within spans of time, latest first, without engine ranks."""
    depth = 4 * limit
    while True:
        latest = [latest_chunks(side.store, scope, spans, depth) for side, scope in places]
        details: dict[Ref, Candidate] = {}
        for at, (side, _) in enumerate(places):
            details.update(((at, ident), one) for ident, one in candidates(side.store, latest[at]).items())
        shown: dict[Unit, Ref] = {}
        for ref in sorted(details, key=lambda ref: _by_time(ref, details)):
            shown.setdefault(unit_of(ref, details[ref]), ref)
        if len(shown) >= limit or all(len(ids) < depth for ids in latest):
            break
        depth *= 8  # turns of many chunks fill the list
    fused = [Fused(unit, 1.0 / place, {}) for place, unit in enumerate(list(shown)[:limit], 1)]
    return Order([Proposal(side, scope, Ranked({}), Ranked({})) for side, scope in places], fused, shown, details)


def _words(proposals: Sequence[Proposal]) -> dict[Ref, Standing]:
    """Return the keyword engine's answers, best first, with scores relative to the best of their index."""
    found: dict[Ref, Standing] = {}
    for at, one in enumerate(proposals):
        ranked = one.by_words
        for ident, score in ranked.scores.items():
            found[at, ident] = (ranked.tiers.get(ident, 0), score / ranked.best if ranked.best > 0 else 1.0)
    if len(proposals) == 1:
        return found
    return dict(sorted(found.items(), key=lambda item: (item[1][0], -item[1][1])))


def _meanings(proposals: Sequence[Proposal]) -> dict[Ref, Standing]:
    """Return the vector engine's answers, best first; those of two models alternate."""
    found = {(at, ident): score for at, one in enumerate(proposals) for ident, score in one.by_meaning.scores.items()}
    if len({one.space for one in proposals if one.by_meaning.scores}) < 2:
        order = list(found) if len(proposals) == 1 else sorted(found, key=lambda ref: -found[ref])
        return {ref: (0, found[ref]) for ref in order}
    places = {(at, ident): place for at, one in enumerate(proposals)
              for place, ident in enumerate(one.by_meaning.scores)}  # fmt: skip
    order = sorted(found, key=lambda ref: (places[ref], ref[0]))
    return {ref: (places[ref], found[ref]) for ref in order}


def unit_of(ref: Ref, one: Candidate) -> Unit:
    """Return the answer that a chunk belongs to."""
    if one.memory is not None:
        return ("memory", one.memory)
    return ("chunk", f"{ref[0]} {ref[1]}") if one.turn is None else ("turn", f"{one.uuid} {one.part}")


def _newest_first(ranked: dict[Ref, Standing], details: dict[Ref, Candidate]) -> list[Ref]:
    """Return the chunks in their order, neighbours that rank equal by time."""
    there = [ref for ref in ranked if ref in details]
    order: list[Ref] = []
    for _, equal in groupby(there, key=ranked.__getitem__):
        order += sorted(equal, key=lambda ref: _by_time(ref, details))
    return order


def _by_time(ref: Ref, details: dict[Ref, Candidate]) -> tuple[float, ...]:
    """Return a sort key: newest first, then by id; rows without a time come last."""
    ts = details[ref].ts
    return (float("inf") if ts is None else -ts, ref[1], ref[0])


def _best_chunks(refs: Sequence[Ref], details: dict[Ref, Candidate]) -> tuple[dict[Unit, Ref], dict[Unit, Ref]]:
    """Return one chunk for each answer, in order; and separately the answers that repeat the text of a better one."""
    best: dict[Unit, Ref] = {}
    repeated: dict[Unit, Ref] = {}
    seen: set[tuple[bytes, str]] = set()
    for ref in refs:
        one = details[ref]
        unit = unit_of(ref, one)
        known = best if unit in best else repeated if unit in repeated else None
        if known is None:
            (repeated if (one.text_sha256, one.role) in seen else best)[unit] = ref
            seen.add((one.text_sha256, one.role))
        elif known[unit][0] > ref[0]:
            known[unit] = ref  # the machine's own wins
    return best, repeated
