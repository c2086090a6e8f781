"""Search: a question becomes hits. Keywords and vectors propose candidates, Reciprocal Rank Fusion orders them.

The room promises that no question and no filter raises, that nothing is returned which a filter excludes, that the
same store gives the same order twice, and that keywords answer whatever happens to the vectors. Why it is done this
way, with what was measured: docs/adr/0008-search.md. Where there is a mirror of home's memory, both are searched as
one: docs/adr/0014-mirror.md.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from crystal.engines import QuestionVector, keywords, with_phrases
from crystal.errors import UsageProblem
from crystal.model import Filters, Hit
from crystal.ordering import Order, Proposal, Side, freshness, order_of
from crystal.query import Query, parse_query
from crystal.store import Store
from crystal.store.scope import Scope, scope_of

if TYPE_CHECKING:
    from crystal.embedding import Embedder

__all__ = ["SearchResult", "Side", "freshness", "search", "search_home_first"]

Mode = Literal["hybrid", "keywords", "vectors"]

CANDIDATES = 200
"""How many answers each engine proposes at least."""

MAX_LIMIT = 1_000

MOST_CANDIDATES = 100_000
"""Where looking for more answers ends when a few turns of many chunks fill the list."""

NO_EMBEDDER = "no embedding model is configured"


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
    mirror: Side | None = None,
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
        mirror: The mirror of home's memory, to be searched as one with the store.

    Raises:
        UsageProblem: ``limit`` is out of range.
    """
    question = _Question.of(_sides(store, embedder, without_embedder, mirror), query, limit, now)
    return question.answer(filters or Filters())


def search_home_first(  # noqa: PLR0913 - as search, and the project
    store: Store,
    embedder: Embedder | None,
    query: str,
    *,
    home: str,
    filters: Filters | None = None,
    limit: int = 10,
    now: int,
    without_embedder: str = NO_EMBEDDER,
    mirror: Side | None = None,
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
        mirror: The mirror of home's memory.

    Returns:
        The answer, and whether it is that of the project alone.
    """
    question = _Question.of(_sides(store, embedder, without_embedder, mirror), query, limit, now)
    inside = question.answer(replace(filters or Filters(), project=home))
    if _has_words(inside):
        return inside, True
    everywhere = question.answer(replace(filters or Filters(), project=None))
    return (inside, True) if inside.hits and not _has_words(everywhere) else (everywhere, False)


def _sides(store: Store, embedder: Embedder | None, without_embedder: str, mirror: Side | None) -> tuple[Side, ...]:
    own = Side(store, "local", embedder, without_embedder)
    return (own,) if mirror is None else (own, mirror)


def _has_words(result: SearchResult) -> bool:
    return any("keywords" in hit.ranks for hit in result.hits)


@dataclass(frozen=True, slots=True)
class _Asked:
    """One memory with the question as a vector of its model, or the reason why there is none."""

    side: Side
    vector: QuestionVector
    space: str


@dataclass(frozen=True, slots=True)
class _Question:
    """A question made ready: taken apart, and turned into a vector once, however often it is asked."""

    text: str
    asked: Query
    places: tuple[_Asked, ...]
    limit: int
    now: int

    @classmethod
    def of(cls, sides: Sequence[Side], query: str, limit: int, now: int) -> _Question:
        if not 1 <= limit <= MAX_LIMIT:
            raise UsageProblem(f"the number of hits is {limit}", hint=f"use 1 to {MAX_LIMIT}")
        asked = parse_query(query)
        places: list[_Asked] = []
        vectors: dict[str, bytes] = {}
        for side in sides:
            if side.embedder is None:
                places.append(_Asked(side, QuestionVector.none(side.without_embedder), ""))
                continue
            vector = QuestionVector.of(side.store, side.embedder, asked.text, vectors)
            places.append(_Asked(side, vector, side.embedder.identity))
        return cls(query.encode("utf-8", "replace").decode(), asked, tuple(places), limit, now)

    def answer(self, filters: Filters) -> SearchResult:
        """Search within filters, in one state of each memory."""
        with contextlib.ExitStack() as states:
            for place in self.places:
                states.enter_context(place.side.store.reading())
            scopes = [scope_of(place.side.store, filters) for place in self.places]
            found = [(place, scope) for place, scope in zip(self.places, scopes, strict=True) if not scope.is_empty]
            notes = tuple(note for place in self.places for note in place.side.notes)
            if not found or not self.asked.text:
                why = _joined([scope.notes for scope in scopes]) if self.asked.text else ("the question is empty",)
                return SearchResult(self.text, "keywords", (), (*why, *notes))
            asked, narrowed, relaxed = with_phrases([(place.side.store, scope) for place, scope in found], self.asked)
            order = self._order(asked, [place for place, _ in found], [scope for _, scope in narrowed], found)
            hits = tuple(order.hit(one, self.now) for one in order.fused[: self.limit])
        by_words = [one.by_words for one in order.proposals]
        by_meaning = [one.by_meaning for one in order.proposals]
        is_meant = any(one.asked for one in by_meaning)
        mode: Mode = "keywords" if not is_meant else "hybrid" if asked.has_words else "vectors"
        vague = mode == "hybrid" and bool(hits) and not any(one.scores for one in by_words)
        only_meaning = ("no word of the question was found; these are near in meaning",) if vague else ()
        said = _shared([one.notes for one in by_words if one.scores])
        is_mirror_alone = order.proposals[0].side.memory == "mirror"
        meant = _joined([*([()] if is_mirror_alone else []), *(one.notes for one in by_meaning)])
        return SearchResult(self.text, mode, hits, (*relaxed, *said, *meant, *only_meaning, *notes))

    def _order(
        self, asked: Query, places: Sequence[_Asked], narrowed: Sequence[Scope], found: Sequence[tuple[_Asked, Scope]]
    ) -> Order:
        depth = max(CANDIDATES, 4 * self.limit)
        near = [
            place.vector.nearest(place.side.store, scope, depth) for place, scope in zip(places, narrowed, strict=True)
        ]
        while True:
            said = [
                keywords(place.side.store, asked, scope, depth) for place, scope in zip(places, narrowed, strict=True)
            ]
            if not any(one.scores for one in said) and not asked.has_meaning:
                near = [replace(one, scores={}) for one in near]
            order = order_of([
                Proposal(place.side, scope, by_words, by_meaning, place.space)
                for (place, scope), by_words, by_meaning in zip(found, said, near, strict=True)
            ])  # fmt: skip
            has_all = all(len(one.scores) < depth for one in said)
            if len(order.fused) >= self.limit or has_all or depth > MOST_CANDIDATES:
                return order
            depth *= 8


def _shared(notes: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """What all say: a word that one memory lacks may be in the other."""
    return tuple(
        note for note in dict.fromkeys(one for each in notes for one in each) if all(note in one for one in notes)
    )


def _joined(notes: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """What each memory says, this machine's first; what only the mirror says is said of the mirror."""
    own = notes[0]
    return (*own, *(f"mirror: {note}" for each in notes[1:] for note in each if note not in own))
