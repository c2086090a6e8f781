"""Search: a question becomes hits.

This package promises that no question and no filter raises, that nothing is returned which a filter excludes, that
the same store gives the same order twice, and that keyword search works without the vectors and the index.

The derived index ranks (docs/adr/0018-ranking.md). Where it is missing, stale or damaged, the store's own engines
answer: keywords and vectors propose candidates, Reciprocal Rank Fusion orders them (docs/adr/0008-search.md). Where
there is a mirror of home's memory, both are searched as one (docs/adr/0014-mirror.md).
"""

from __future__ import annotations

import contextlib
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from crystal.errors import UsageProblem
from crystal.model.recall import Filters, Hit
from crystal.search.candidates import QuestionVector, by_meaning_alone, keywords, with_phrases
from crystal.search.context import surrounded_hits
from crystal.search.index import folder_of
from crystal.search.ranking.how import How
from crystal.search.ranking.latest import is_time_alone, listed_latest, showing_order
from crystal.search.results import MemorySource, Order, Proposal, freshness, order_of
from crystal.store import Store
from crystal.store.memories.memories import superseded
from crystal.store.search.scope import Scope, scope_of, without_memories
from crystal.text.query import Query, parse_query
from crystal.timewords import TimeSpan, find_times
from crystal.timewords.parse import clock

if TYPE_CHECKING:
    from crystal.embedding import Embedder
    from crystal.search.index.reader import Index

__all__ = ["How", "MemorySource", "SearchResult", "freshness", "search", "search_home_first"]

Mode = Literal["hybrid", "keywords", "vectors"]

CANDIDATES = 200
"""How many answers each engine proposes at least, where there is no index."""

MAX_LIMIT = 1_000

MAX_CANDIDATES = 100_000
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
        explained: How the answer came about, for ``--explain``.
    """

    query: str
    mode: Mode
    hits: tuple[Hit, ...] = ()
    notes: tuple[str, ...] = ()
    explained: tuple[str, ...] = ()


def search(  # noqa: PLR0913 - what a question needs, by name
    store: Store,
    embedder: Embedder | None,
    query: str,
    *,
    filters: Filters | None = None,
    limit: int = 10,
    now: int,
    without_embedder: str = NO_EMBEDDER,
    mirror: MemorySource | None = None,
    how: How | None = None,
) -> SearchResult:
    """Find what was said.

    Args:
        store: The store, open for reading.
        embedder: Turns the question into a vector; None searches keywords alone.
        query: Any string. Words in quotation marks must stand together in an answer if anything has them.
        filters: What may be returned; they act inside the candidate search of both engines.
        limit: How many hits at most, 1 to 1,000.
        now: The moment from which the question is asked, for time words, freshness and recency.
        without_embedder: Why ``embedder`` is None, for the note that says so.
        mirror: The mirror of home's memory, to be searched as one with the store.
        how: The user's choices; None for the usual ones.

    Raises:
        UsageProblem: ``limit`` is out of range.
    """
    question = _Question.of(_sides(store, embedder, without_embedder, mirror), query, limit, now, how)
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
    mirror: MemorySource | None = None,
    how: How | None = None,
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
        how: The user's choices.

    Returns:
        The answer, and whether it is that of the project alone.
    """
    question = _Question.of(_sides(store, embedder, without_embedder, mirror), query, limit, now, how)
    inside = question.answer(replace(filters or Filters(), project=home, general=True))
    if any("keywords" in hit.ranks for hit in inside.hits if hit.source != "memory" or hit.project is not None):
        return inside, True
    everywhere = question.answer(replace(filters or Filters(), project=None, general=False))
    return (inside, True) if inside.hits and not _has_words(everywhere) else (everywhere, False)


def _sides(
    store: Store, embedder: Embedder | None, without_embedder: str, mirror: MemorySource | None
) -> tuple[MemorySource, ...]:
    own = MemorySource(store, "local", embedder, without_embedder)
    return (own,) if mirror is None else (own, mirror)


def _has_words(result: SearchResult) -> bool:
    return any("keywords" in hit.ranks for hit in result.hits)


@dataclass(frozen=True, slots=True)
class _Asked:
    """One memory with the question as a vector of its model, or the reason why there is none."""

    side: MemorySource
    vector: QuestionVector
    space: str


@dataclass(slots=True)
class _Found:
    """Where may be searched, and what came of it."""

    order: Order
    notes: tuple[str, ...] = ()
    explained: tuple[str, ...] = ()
    mode: Mode | None = None
    meant: Sequence[tuple[str, ...]] = field(default_factory=tuple)


@dataclass(frozen=True, slots=True)
class _Question:
    """A prepared question: parsed, and embedded only once, however often it is searched."""

    text: str
    asked: Query
    places: tuple[_Asked, ...]
    limit: int
    now: int
    how: How
    times: tuple[TimeSpan, ...]
    wordings: tuple[str, ...]

    @classmethod
    def of(cls, sides: Sequence[MemorySource], query: str, limit: int, now: int, how: How | None) -> _Question:
        if not 1 <= limit <= MAX_LIMIT:
            raise UsageProblem(f"the number of hits is {limit}", hint=f"use 1 to {MAX_LIMIT}")
        how = how or How()
        asked = parse_query(query)
        wordings = how.deep.expand(asked.text)[1:] if how.deep is not None and asked.text else ()
        places: list[_Asked] = []
        vectors: dict[str, bytes] = {}
        for side in sides:
            if side.embedder is None:
                places.append(_Asked(side, QuestionVector.none(side.without_embedder), ""))
                continue
            vector = QuestionVector.of(side.store, side.embedder, asked.text, vectors)
            places.append(_Asked(side, vector, side.embedder.identity))
        text = query.encode("utf-8", "replace").decode()
        times = find_times(asked.text, now=now, tz=how.tz)
        return cls(text, asked, tuple(places), limit, now, how, times, wordings)

    def answer(self, filters: Filters) -> SearchResult:
        """Search within filters, in one state of each memory."""
        with contextlib.ExitStack() as states:
            for place in self.places:
                states.enter_context(place.side.store.reading())
            scopes = [self._scope(place.side.store, filters) for place in self.places]
            found = [(place, scope) for place, scope in zip(self.places, scopes, strict=True) if not scope.is_empty]
            notes = tuple(note for place in self.places for note in place.side.notes)
            is_empty = not any(map(_means_something, self.asked.text))
            if not found or is_empty:
                what = "has no words" if self.asked.text else "is empty"
                why = (f"the question {what}",) if is_empty else _joined([scope.notes for scope in scopes])
                return SearchResult(self.text, "keywords", (), (*why, *notes))
            if self.how.fusion == "similarity":
                result = self._similar(found)
            elif is_time_alone(self.asked, self.times):
                result = self._latest(found)
            else:
                result = self._showing(found) or self._search(found)
            hits = surrounded_hits(result.order.with_look_ups_last(), self.limit, self.now, filters)
        if self.how.deep is not None and self.how.deep.asker is None:  # similarity was requested: say what it needs
            notes = (*notes, *self.how.deep.reasons)
        explained = (*dict.fromkeys(self._explained_time(span) for span in self.times), *result.explained)
        return SearchResult(self.text, result.mode or "keywords", hits, (*result.notes, *notes), explained)

    # ------------------------------------------------------------------------------------------------ how it is found

    def _search(self, found: Sequence[tuple[_Asked, Scope]]) -> _Found:
        asked, narrowed, relaxed = with_phrases([(place.side.store, scope) for place, scope in found], self.asked)
        ranked, why_not = self._ranked(asked, found, [scope for _, scope in narrowed])
        if ranked is None:
            ranked = self._by_engines(asked, found, [scope for _, scope in narrowed])
            ranked.explained = (f"the index did not rank this: {why_not}",) if why_not else ()
        is_mirror_alone = found[0][0].side.memory == "mirror"
        meant = _joined([*([()] if is_mirror_alone else []), *ranked.meant])
        vague = ranked.mode == "hybrid" and bool(ranked.order.fused) and not _has_own_words(ranked.order)
        only_meaning = ("no word of the question was found; these are near in meaning",) if vague else ()
        nothing = () if ranked.order.fused else (_nothing(ranked.mode, asked),)
        ranked.notes = (*relaxed, *ranked.notes, *meant, *only_meaning, *nothing)
        return ranked

    def _showing(self, found: Sequence[tuple[_Asked, Scope]]) -> _Found | None:
        """Return what has all pictures of the question, latest first; None if it has words, or nothing has them."""
        if self.asked.has_words:
            return None
        order = showing_order([(place.side, scope) for place, scope in found], self.asked.text, self.limit)
        return _Found(order, ("the latest that have it",), (), "keywords") if order.fused else None

    def _similar(self, found: Sequence[tuple[_Asked, Scope]]) -> _Found:
        """Return what is nearest in meaning, in the memories that have vectors."""
        from crystal.search.ranking.similar import Meant, similar_order

        _, narrowed, relaxed = with_phrases([(place.side.store, scope) for place, scope in found], self.asked)
        places, said = [], []
        for (place, scope), (store, narrow) in zip(found, narrowed, strict=True):
            vector, notes = place.vector.checked(store)
            said.append(tuple(map(by_meaning_alone, notes)))
            if vector.data:
                places.append(Meant(place.side, scope, narrow, vector, place.space))
        order = similar_order(places, self.limit, self.how.late)
        nothing = () if order.fused or not places else ("nothing is near to it in meaning",)
        meant = _joined([*([()] if found[0][0].side.memory == "mirror" else []), *said])
        return _Found(order, (*relaxed, *meant, *nothing), (), "vectors")

    def _ranked(
        self, asked: Query, found: Sequence[tuple[_Asked, Scope]], narrowed: Sequence[Scope]
    ) -> tuple[_Found | None, str]:
        """Let the index rank; None and the reason when it cannot."""
        from crystal.search.index.files import IndexDamaged
        from crystal.search.index.reader import Absent, open_index
        from crystal.search.ranking.order import Place, Wanted, ranked_order
        from crystal.search.ranking.scoring import Preferences

        places, meant = [], []
        try:
            for (place, scope), narrow in zip(found, narrowed, strict=True):
                index = open_index(place.side.store, folder_of(place.side.store.path))
                if isinstance(index, Absent):
                    return None, index.reason
                vector, said = self._checked(place, index)
                if vector is None:
                    return None, "its vectors are being made"
                places.append(Place(place.side, scope, narrow, index, vector, place.space))
                meant.append(said)
            spans = tuple((span.start, span.end) for span in self.times)
            preferences = Preferences(self.now, spans, self.how.recency, self.how.fusion)
            reorder = None if self.how.deep is None else self.how.deep.rerank
            wanted = Wanted(self.text, asked, self.limit, preferences, self.wordings, reorder)
            order, notes = ranked_order(places, wanted, None if self.how.late is None else self.how.late())
        except IndexDamaged as error:
            return None, str(error)
        is_meant = any(place.vector.data for place in places)
        explained = [f"other words: {', '.join(self.wordings)}"] if self.wordings else []
        explained += self._deep_reasons(order)
        explained += [] if self.how.recency == "light" else [f"recency: {self.how.recency}"]
        return _Found(order, notes, tuple(explained), _mode(asked, is_meant=is_meant), meant), ""

    def _deep_reasons(self, order: Order) -> list[str]:
        if self.how.deep is None or self.how.deep.asker is None:
            return []
        by_model = sum("model" in scores for scores in order.scores.values())
        return [*self.how.deep.reasons, *([f"the first {by_model} in the order of the model"] if by_model else [])]

    def _scope(self, store: Store, filters: Filters) -> Scope:
        """Return what may be found in a store; in the mirror no memory of which this machine knows a newer version."""
        own = self.places[0].side.store
        hidden = () if store is own else superseded(own, store)
        return scope_of(store, filters) & without_memories(hidden)

    @staticmethod
    def _checked(place: _Asked, index: Index) -> tuple[QuestionVector | None, tuple[str, ...]]:
        """Return the question's vector if it can be used now, and notes; None while the index lacks the vectors."""
        vector, notes = place.vector.checked(place.side.store)
        if vector.data and not index.has_vectors(vector.generation):
            return None, ()
        return vector, notes

    def _by_engines(self, asked: Query, found: Sequence[tuple[_Asked, Scope]], narrowed: Sequence[Scope]) -> _Found:
        """Let the store's own engines answer."""
        depth = max(CANDIDATES, 4 * self.limit)
        places = [place for place, _ in found]
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
            if len(order.fused) >= self.limit or has_all or depth > MAX_CANDIDATES:
                break
            depth *= 8
        is_meant = any(one.asked for one in near)
        mode, notes = _mode(asked, is_meant=is_meant), _shared([one.notes for one in said if one.scores])
        return _Found(order, notes, (), mode, [one.notes for one in near])

    # ------------------------------------------------------------------------------------------------------ time words

    def _latest(self, found: Sequence[tuple[_Asked, Scope]]) -> _Found:
        """Return the latest turns in the times asked for; if there are none, within twice that span on either side."""
        words = ", ".join(dict.fromkeys(f'"{span.words}"' for span in self.times))
        spans = [(span.start, span.end) for span in self.times]
        wider = [(3 * start - 2 * end, 3 * end - 2 * start) for start, end in spans]
        places = [(place.side, scope) for place, scope in found]
        order = listed_latest(places, spans, self.limit)
        if order.fused:
            return _Found(order, (f"only a time is asked for: the latest of {words}",), (), "keywords")
        order = listed_latest(places, wider, self.limit)
        notes = (f"nothing is from {words}", *(("these are the latest from around it",) if order.fused else ()))
        return _Found(order, notes, (), "keywords")

    def _explained_time(self, span: TimeSpan) -> str:
        start, end = (clock(moment, self.now, self.how.tz) for moment in (span.start, span.end))
        return f'preferred, for "{span.words}": {start} to {end}'


def _means_something(character: str) -> bool:
    """Return True for a letter, a digit, or a picture that a model may know."""
    return character.isalnum() or unicodedata.category(character) == "So"


def _mode(asked: Query, *, is_meant: bool) -> Mode:
    """Return which engines answer; ``is_meant`` says whether any memory was searched by meaning."""
    return "keywords" if not is_meant else "hybrid" if asked.has_words else "vectors"


def _nothing(mode: Mode | None, asked: Query) -> str:
    """Return why an answer is empty."""
    what = ["has a word of the question"] if asked.has_words else []
    what += ["is near to it in meaning"] if mode != "keywords" and asked.has_meaning else []
    return f"nothing {' or '.join(what) or 'has this'}"


def _has_own_words(order: Order) -> bool:
    return any(one.by_words.scores for one in order.proposals)


def _shared(notes: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the notes that every memory gives: a word that one memory lacks may be in the other."""
    return tuple(
        note for note in dict.fromkeys(one for each in notes for one in each) if all(note in one for one in notes)
    )


def _joined(notes: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the notes of each memory, this machine's first; those of the mirror alone are marked ``mirror:``."""
    own = notes[0] if notes else ()
    return (*own, *(f"mirror: {note}" for each in notes[1:] for note in each if note not in own))
