"""Search: a question becomes hits. Keywords and vectors propose candidates, Reciprocal Rank Fusion orders them.

The room promises that no question and no filter raises, that nothing is returned which a filter excludes, that the
same store gives the same order twice, and that keywords answer whatever happens to the vectors. Why it is done this
way, with what was measured: docs/adr/0008-search.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Literal

from crystal.engines import QuestionVector, Ranked, keywords, with_phrases
from crystal.errors import UsageProblem
from crystal.fusion import Fused, fuse, sureness
from crystal.model import Filters, Hit
from crystal.query import Query, parse_query
from crystal.store import Store
from crystal.store.candidates import Candidate, candidates, count_copies
from crystal.store.scope import Scope, scope_of

if TYPE_CHECKING:
    from crystal.embedding import Embedder

Mode = Literal["hybrid", "keywords", "vectors"]

CANDIDATES = 200
"""How many answers each engine proposes at least."""

MAX_LIMIT = 1_000

MOST_CANDIDATES = 100_000
"""Where looking for more answers ends when a few turns of many chunks fill the list."""

NO_EMBEDDER = "no embedding model is configured"
DAY_MS = 86_400_000

Unit = tuple[str, int]
"""What counts as one answer: a turn, or a chunk that belongs to none."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The answer to a question.

    Attributes:
        query: The question, as valid Unicode.
        mode: Which engines answered. ``keywords`` while there are no vectors or no model to ask them with.
        hits: Best first.
        notes: What the reader should know: what is missing, what was relaxed, why nothing was found.
    """

    query: str
    mode: Mode
    hits: tuple[Hit, ...] = ()
    notes: tuple[str, ...] = ()


def search(
    store: Store,
    embedder: Embedder | None,
    query: str,
    *,
    filters: Filters | None = None,
    limit: int = 10,
    now: int,
    without_embedder: str = NO_EMBEDDER,
) -> SearchResult:
    """Find what was said.

    Args:
        store: The store, open for reading.
        embedder: Turns the question into a vector; None searches keywords alone.
        query: Any string. Words in quotation marks must stand together in an answer if anything has them.
        filters: What may be returned; they act inside the candidate search of both engines.
        limit: How many hits at most, 1 to 1,000.
        now: The present moment, for freshness.
        without_embedder: Why ``embedder`` is None, for the note that says so.

    Raises:
        UsageProblem: ``limit`` is out of range.
    """
    question = _Question.of(store, embedder, query, limit, now, without_embedder)
    return question.answer(store, filters or Filters())


def search_home_first(
    store: Store,
    embedder: Embedder | None,
    query: str,
    *,
    home: str,
    filters: Filters | None = None,
    limit: int = 10,
    now: int,
    without_embedder: str = NO_EMBEDDER,
) -> tuple[SearchResult, bool]:
    """Search one project, and everything if no word of the question is in it and a wider search does better.

    Args:
        store: As for ``search``, like the others.
        embedder: Asked once.
        query: Any string.
        home: The project to begin with: a name or a folder.
        filters: What may be returned in either case; its project is not looked at.
        limit: How many hits at most.
        now: The present moment.
        without_embedder: Why ``embedder`` is None.

    Returns:
        The answer, and whether it is that of the project alone.
    """
    question = _Question.of(store, embedder, query, limit, now, without_embedder)
    inside = question.answer(store, replace(filters or Filters(), project=home))
    if _has_words(inside):
        return inside, True
    everywhere = question.answer(store, replace(filters or Filters(), project=None))
    return (inside, True) if inside.hits and not _has_words(everywhere) else (everywhere, False)


def _has_words(result: SearchResult) -> bool:
    return any("keywords" in hit.ranks for hit in result.hits)


@dataclass(frozen=True, slots=True)
class _Question:
    """A question made ready: taken apart, and turned into a vector once, however often it is asked."""

    text: str
    asked: Query
    vector: QuestionVector
    limit: int
    now: int

    @classmethod
    def of(
        cls, store: Store, embedder: Embedder | None, query: str, limit: int, now: int, without_embedder: str
    ) -> _Question:
        if not 1 <= limit <= MAX_LIMIT:
            raise UsageProblem(f"the number of hits is {limit}", hint=f"use 1 to {MAX_LIMIT}")
        asked = parse_query(query)
        if embedder is None:
            vector = QuestionVector.none(without_embedder)
        else:
            vector = QuestionVector.of(store, embedder, asked.text)
        return cls(query.encode("utf-8", "replace").decode(), asked, vector, limit, now)

    def answer(self, store: Store, filters: Filters) -> SearchResult:
        """Search within filters, in one state of the store."""
        with store.reading():
            scope = scope_of(store, filters)
            if scope.is_empty or not self.asked.text:
                notes = scope.notes if self.asked.text else ("the question is empty",)
                return SearchResult(self.text, "keywords", (), notes)
            asked, narrowed, relaxed = with_phrases(store, self.asked, scope)
            depth = max(CANDIDATES, 4 * self.limit)
            by_meaning = self.vector.nearest(store, narrowed, depth)
            while True:
                by_words = keywords(store, asked, narrowed, depth)
                if not by_words.scores and not asked.has_meaning:
                    by_meaning = replace(by_meaning, scores={})
                order = _fuse(store, by_words, by_meaning)
                if len(order.fused) >= self.limit or len(by_words.scores) < depth or depth > MOST_CANDIDATES:
                    break
                depth *= 8
            hits = tuple(order.hit(store, one, scope, self.now) for one in order.fused[: self.limit])
        mode: Mode = "keywords" if not by_meaning.asked else "hybrid" if asked.has_words else "vectors"
        vague = mode == "hybrid" and bool(hits) and not by_words.scores
        only_meaning = ("no word of the question was found; these are near in meaning",) if vague else ()
        return SearchResult(self.text, mode, hits, (*relaxed, *by_words.notes, *by_meaning.notes, *only_meaning))


def freshness(ts: int | None, now: int) -> str:
    """How old: ``fresh`` under 3 days, ``recent`` under 7, ``aging`` under 14, else ``stale``, as is unknown age."""
    if ts is None:
        return "stale"
    days = (now - ts) / DAY_MS
    return "fresh" if days < 3 else "recent" if days < 7 else "aging" if days < 14 else "stale"


# ---------------------------------------------------------------------------------------------------------- fusion


@dataclass(frozen=True, slots=True)
class _Order:
    """The answers in order, the chunk that stands for each, and everything about the chunks."""

    fused: list[Fused[Unit]]
    shown: dict[Unit, int]
    details: dict[int, Candidate]
    engines: dict[str, Ranked]

    def hit(self, store: Store, fused: Fused[Unit], scope: Scope, now: int) -> Hit:
        """One answer as it is handed out."""
        chunk = self.details[self.shown[fused.key]]
        scores = {name: one.scores[chunk.id] for name, one in self.engines.items() if chunk.id in one.scores}
        copied = scope.session is not None and chunk.session != scope.session[0]
        return Hit(
            id=chunk.id,
            score=round(fused.score, 6),
            text=chunk.text,
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
            copies=count_copies(store, chunk.text_sha256, scope),
        )


def _fuse(store: Store, by_words: Ranked, by_meaning: Ranked) -> _Order:
    """Order the answers, and choose for each turn the chunk to show: the best one by words, else by meaning."""
    engines = {"keywords": by_words, "vectors": by_meaning}
    details = candidates(store, list(dict.fromkeys([*by_words.scores, *by_meaning.scores])))
    shown: dict[Unit, int] = {}
    lists: dict[str, list[tuple[Unit, float]]] = {}
    for engine, ranked in engines.items():
        best, repeated = _best_chunks(_newest_first(ranked.scores, details), details)
        sure = sureness([ranked.scores[ident] for ident in best.values()], ranked.best)
        least = min(sure, default=1.0)
        lists[engine] = [*zip(best, sure, strict=True), *((unit, least) for unit in repeated)]
        shown = {**best, **repeated, **shown}
    first = frozenset(unit for unit, ident in shown.items() if ident in by_words.exact)
    return _Order(fuse(lists, lambda unit: _by_time(details[shown[unit]]), first=first), shown, details, engines)


def _newest_first(scores: dict[int, float], details: dict[int, Candidate]) -> list[int]:
    """The ids in their order, neighbours of equal score by time."""
    there = [ident for ident in scores if ident in details]
    order: list[int] = []
    for _, equal in groupby(there, key=scores.__getitem__):
        order += sorted(equal, key=lambda ident: _by_time(details[ident]))
    return order


def _by_time(one: Candidate) -> tuple[float, ...]:
    """Newest first, then by id; what has no time comes last."""
    return (float("inf") if one.ts is None else -one.ts, one.id)


def _best_chunks(ids: Sequence[int], details: dict[int, Candidate]) -> tuple[dict[Unit, int], dict[Unit, int]]:
    """One chunk for each answer, in order; apart from them, the answers that repeat the text of a better one."""
    best: dict[Unit, int] = {}
    repeated: dict[Unit, int] = {}
    seen: set[tuple[bytes, str]] = set()
    for ident in ids:
        one = details[ident]
        unit = ("chunk", ident) if one.turn is None else ("turn", one.turn)
        if unit in best or unit in repeated:
            continue
        (repeated if (one.text_sha256, one.role) in seen else best)[unit] = ident
        seen.add((one.text_sha256, one.role))
    return best, repeated
