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

from crystal.errors import CrystalError, UsageProblem
from crystal.fusion import Fused, fuse, sureness
from crystal.model import Filters, Hit
from crystal.query import Query, parse_query, unspaced_pairs, without_phrases
from crystal.store import Store, vectors
from crystal.store.candidates import (
    Candidate,
    all_of,
    any_of,
    candidates,
    count_copies,
    having,
    keyword_candidates,
    prefix,
    quoted,
    substring_candidates,
)
from crystal.store.scope import Scope, scope_of

if TYPE_CHECKING:
    from crystal.embedding import Embedder

Mode = Literal["hybrid", "keywords", "vectors"]

CANDIDATES = 200
"""How many answers each engine proposes at least."""

MAX_LIMIT = 1_000

FLOORS = {"embedded": 0.25}
FLOOR = 0.15
"""The cosine under which two texts have nothing to do with each other, by provider; measured for the embedded model."""

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


@dataclass(frozen=True, slots=True)
class _Ranked:
    """What one engine proposes: chunk ids with its own scores, best first, and the score that is as good as can be.

    ``exact`` ones have the identifier looked for. ``asked`` is False when the engine could not be asked.
    """

    scores: dict[int, float]
    notes: tuple[str, ...] = ()
    exact: frozenset[int] = frozenset()
    best: float = 1.0
    asked: bool = True


def search(
    store: Store,
    embedder: Embedder | None,
    query: str,
    *,
    filters: Filters | None = None,
    limit: int = 10,
    now: int,
    without_embedder: str = "no embedding model is configured",
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
    if not 1 <= limit <= MAX_LIMIT:
        raise UsageProblem(f"the number of hits is {limit}", hint=f"use 1 to {MAX_LIMIT}")
    asked = parse_query(query)
    question = query.encode("utf-8", "replace").decode()
    vector = _Vector(note=_alone(without_embedder)) if embedder is None else _Vector.of(store, embedder, asked.text)
    with store.reading():
        scope = scope_of(store, filters or Filters())
        if scope.is_empty or not asked.text:
            notes = scope.notes if asked.text else ("the question is empty",)
            return SearchResult(question, "keywords", (), notes)
        asked, narrowed, relaxed = _with_phrases(store, asked, scope)
        by_words = _keywords(store, asked, narrowed, max(CANDIDATES, 4 * limit))
        by_meaning = vector.nearest(store, narrowed, max(CANDIDATES, 4 * limit))
        if not by_words.scores and not asked.has_meaning:
            by_meaning = replace(by_meaning, scores={})
        fused, shown, details = _fuse(store, by_words, by_meaning)
        hits = [_hit(one, details[shown[one.key]], by_words, by_meaning, scope, now) for one in fused[:limit]]
        hits = [replace(hit, copies=count_copies(store, details[hit.id].text_sha256, scope)) for hit in hits]
    mode: Mode = "keywords" if not by_meaning.asked else "hybrid" if asked.has_words else "vectors"
    vague = ("no word of the question was found; these are near in meaning",)
    only_meaning = vague if mode == "hybrid" and hits and not by_words.scores else ()
    return SearchResult(question, mode, tuple(hits), (*relaxed, *by_words.notes, *by_meaning.notes, *only_meaning))


def freshness(ts: int | None, now: int) -> str:
    """How old: ``fresh`` under 3 days, ``recent`` under 7, ``aging`` under 14, else ``stale``, as is unknown age."""
    if ts is None:
        return "stale"
    days = (now - ts) / DAY_MS
    return "fresh" if days < 3 else "recent" if days < 7 else "aging" if days < 14 else "stale"


# -------------------------------------------------------------------------------------------------------- keywords


def _with_phrases(store: Store, asked: Query, scope: Scope) -> tuple[Query, Scope, tuple[str, ...]]:
    """Narrow to what has the quoted phrases; if nothing has them, ask for their words instead."""
    if not asked.phrases:
        return asked, scope, ()
    expression = all_of(map(quoted, asked.phrases))
    if keyword_candidates(store, expression, scope, 1):
        return asked, scope & having(expression), ()
    words = " and ".join(f'"{phrase}"' for phrase in asked.phrases)
    return without_phrases(asked), scope, (f"nothing has {words} word for word",)


def _keywords(store: Store, asked: Query, scope: Scope, limit: int) -> _Ranked:
    """Rank by words: what has the identifier looked for, then what has all words, then what has any, each by BM25."""
    if not asked.has_words:
        return _Ranked({})
    terms = [*map(quoted, asked.phrases), *map(quoted, asked.terms)]
    compounds = [*map(quoted, asked.compounds)]
    exact: dict[int, float] = {}
    if asked.is_literal:
        exact = _literal_first(store, asked.compounds[0], dict(keyword_candidates(store, compounds[0], scope, limit)))
    found = dict(exact)
    tiers = [any_of(compounds + terms)] if len(terms) == 1 else [all_of(terms), any_of(compounds + terms)]
    for expression in tiers:
        for ident, score in keyword_candidates(store, expression, scope, limit):
            found.setdefault(ident, score)
    for ident, score in substring_candidates(store, unspaced_pairs(asked.text), scope, limit):
        found.setdefault(ident, score)
    if found:
        parts = f"nothing has {asked.compounds[0]} itself; these have parts of it" if asked.is_literal else ""
        return _Ranked(found, () if exact or not parts else (parts,), frozenset(exact), max(found.values()))
    beginnings = any_of(prefix(term) for term in asked.terms if len(term) > 2)
    found = dict(keyword_candidates(store, beginnings, scope, limit)) if beginnings else {}
    notes = ("nothing has these words; some words begin with them",) if found else ()
    return _Ranked(found, notes, best=max(found.values(), default=1.0))


def _literal_first(store: Store, literal: str, found: dict[int, float]) -> dict[int, float]:
    """Put what has the very characters before what has the same words with other signs between them."""
    texts = {ident: one.text for ident, one in candidates(store, list(found)).items()}
    folded = literal.casefold()

    def distance(ident: int) -> int:
        text = texts.get(ident, "")
        return 0 if literal in text else 1 if folded in text.casefold() else 2

    return dict(sorted(found.items(), key=lambda item: distance(item[0])))


# --------------------------------------------------------------------------------------------------------- vectors


@dataclass(frozen=True, slots=True)
class _Vector:
    """The question as a vector of the generation that serves, or the reason why there is none."""

    generation: int = 0
    data: bytes = b""
    floor: float = FLOOR
    note: str | None = None

    @classmethod
    def of(cls, store: Store, embedder: Embedder, text: str) -> _Vector:
        serving = vectors.serving_generation(store)
        if serving is None:
            return cls(note=_no_vectors(vectors.count_pending(store, 0)))
        if (serving.provider, serving.model, serving.dimension) != _identity(embedder):
            theirs = f"{serving.provider} {serving.model}"
            return cls(note=_alone(f"the vectors come from {theirs}; crystal sync makes new ones"))
        try:
            floor = FLOORS.get(embedder.provider, FLOOR)
            return cls(serving.id, embedder.embed_query(text) if text else b"", floor)
        except CrystalError as error:
            return cls(note=_alone(error.message))

    def nearest(self, store: Store, scope: Scope, limit: int) -> _Ranked:
        """Rank by meaning."""
        if not self.data:
            return _Ranked({}, (self.note,) if self.note else (), asked=False)
        serving = vectors.serving_generation(store)
        if serving is None or serving.id != self.generation:  # another model took over since the question was embedded
            return _Ranked({}, (_alone("the embedding model has just changed"),), asked=False)
        waiting = vectors.count_pending(store, self.generation)
        found = dict(vectors.nearest(store, self.generation, self.data, limit, scope.sql, scope.values))
        if not found and waiting and not vectors.vector_counts(store, self.generation).stored:
            return _Ranked({}, (_no_vectors(waiting),), asked=False)
        notes = (f"{_chunks(waiting)} not embedded yet, found by keywords alone",) if waiting else ()
        return _Ranked({ident: cosine for ident, cosine in found.items() if cosine >= self.floor}, notes)


def _identity(embedder: Embedder) -> tuple[str, str, int]:
    return embedder.provider, embedder.model, embedder.dimension


def _no_vectors(waiting: int) -> str:
    return _alone(f"no vectors yet, {_chunks(waiting)} to embed")


def _alone(reason: str) -> str:
    return f"searched by keywords alone: {reason}"


def _chunks(count: int) -> str:
    return f"{count:,} chunk{'' if count == 1 else 's'}"


# ---------------------------------------------------------------------------------------------------------- fusion


def _fuse(
    store: Store, by_words: _Ranked, by_meaning: _Ranked
) -> tuple[list[Fused[Unit]], dict[Unit, int], dict[int, Candidate]]:
    """Order the answers, and choose for each turn the chunk to show: the best one by words, else by meaning."""
    details = candidates(store, list(dict.fromkeys([*by_words.scores, *by_meaning.scores])))
    shown: dict[Unit, int] = {}
    lists = {}
    for engine, ranked in (("keywords", by_words), ("vectors", by_meaning)):
        best, repeated = _best_chunks(_newest_first(ranked.scores, details), details)
        sure = sureness([ranked.scores[ident] for ident in best.values()], ranked.best)
        least = min(sure, default=1.0)
        lists[engine] = [*zip(best, sure, strict=True), *((unit, least) for unit in repeated)]
        shown = {**best, **repeated, **shown}
    first = frozenset(unit for unit, ident in shown.items() if ident in by_words.exact)

    return fuse(lists, lambda unit: _by_time(details[shown[unit]]), first=first), shown, details


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


def _best_chunks(
    ids: Sequence[int], details: dict[int, Candidate]
) -> tuple[dict[Unit, int], dict[Unit, int]]:
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


def _hit(
    fused: Fused[Unit], chunk: Candidate, by_words: _Ranked, by_meaning: _Ranked, scope: Scope, now: int
) -> Hit:
    engines = {"keywords": by_words.scores, "vectors": by_meaning.scores}
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
        scores={name: round(scores[chunk.id], 4) for name, scores in engines.items() if chunk.id in scores},
        subagent=chunk.subagent,
        tool=chunk.tool,
    )
