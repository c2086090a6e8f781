"""The two engines of search: keywords, and vectors.

Each proposes chunks with its own scores, inside the same filter, and says what the reader should know. Neither raises
for what a question says, and an embedder that fails costs vectors only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from crystal.errors import CrystalError
from crystal.store import Store
from crystal.store.search import vectors
from crystal.store.search.candidates import (
    all_of,
    any_of,
    contains_text,
    has_any,
    keyword_candidates,
    literal_candidates,
    matches_fts,
    prefix,
    quoted,
    substring_candidates,
)
from crystal.store.search.scope import Scope
from crystal.text.query import UNSPACED, Query, completions, in_short, unspaced_pairs, without_phrases

if TYPE_CHECKING:
    from crystal.embedding import Embedder

FLOORS = {"embedded": 0.25}
FLOOR = 0.15
"""The cosine under which two texts have nothing to do with each other, by provider; measured for the embedded model."""


_VERSION = re.compile(r"[vV]?([0-9]+\.[0-9].*)")


@dataclass(frozen=True, slots=True)
class Ranked:
    """What one engine proposes: chunk ids with its own scores, best first, and the best possible score.

    ``exact`` ones have the identifier looked for. ``asked`` is False when the engine could not be asked. ``tiers`` says
    which come before others whatever their scores, the lowest first; it is empty where the scores alone decide.
    """

    scores: dict[int, float]
    notes: tuple[str, ...] = ()
    exact: frozenset[int] = frozenset()
    best: float = 1.0
    asked: bool = True
    tiers: dict[int, int] = field(default_factory=dict)


# -------------------------------------------------------------------------------------------------------- keywords


def with_phrases(
    places: Sequence[tuple[Store, Scope]], asked: Query
) -> tuple[Query, list[tuple[Store, Scope]], tuple[str, ...]]:
    """Restrict to chunks with the quoted phrases; if no memory has them, search for their words instead."""
    if not asked.phrases:
        return asked, list(places), ()
    condition = _phrased(asked.phrases)
    if any(has_any(store, scope & condition) for store, scope in places):
        return asked, [(store, scope & condition) for store, scope in places], ()
    words = " and ".join(f'"{in_short(phrase)}"' for phrase in asked.phrases[:3])
    return without_phrases(asked), list(places), (f"nothing has {words} word for word",)


def _phrased(phrases: Sequence[str]) -> Scope:
    """Return the condition for phrases; those of a script without spaces may stand inside a run of characters."""
    spaced = [phrase for phrase in phrases if not UNSPACED.search(phrase)]
    condition = matches_fts(all_of(map(quoted, spaced))) if spaced else Scope()
    for phrase in phrases:
        condition &= contains_text(phrase) if phrase not in spaced else Scope()
    return condition


def keywords(store: Store, asked: Query, scope: Scope, limit: int) -> Ranked:
    """Rank by words: what has the identifier looked for, then what has all words, then what has any, each by BM25."""
    if not asked.has_words:
        return Ranked({})
    terms = [*map(quoted, asked.phrases), *map(quoted, asked.terms)]
    compounds = [*map(quoted, asked.compounds)]
    exact: dict[int, float] = {}
    tiers: dict[int, int] = {}
    if asked.is_literal:
        exact, tiers = _literal(store, asked, scope, limit)
    named = [ident for name in asked.names for ident in naming_chunks(store, name, scope, limit)]
    tiers.update(dict.fromkeys(named, 2))
    exact_scores = exact | dict.fromkeys(named, 1.0)
    found = {ident: exact_scores[ident] for ident in tiers}
    wider = [any_of(compounds + terms)] if len(terms) == 1 else [all_of(terms), any_of(compounds + terms)]
    for tier, expression in enumerate(wider, 3):
        for ident, score in keyword_candidates(store, expression, scope, limit):
            found.setdefault(ident, score)
            tiers.setdefault(ident, tier)
    for ident, score in substring_candidates(store, unspaced_pairs(asked.text), scope, limit):
        found.setdefault(ident, score)
        tiers.setdefault(ident, 5)
    if found:
        parts = f"nothing has {in_short(asked.compounds[0])} itself; these have parts of it" if asked.is_literal else ""
        notes = () if exact or not parts else (parts,)
        return Ranked(found, notes, frozenset(exact), max(found.values()), tiers=tiers)
    typed = [term for term in asked.terms if len(term) > 2]
    beginnings = any_of([*map(prefix, typed), *(quoted(word) for term in typed for word in completions(term))])
    found = dict(keyword_candidates(store, beginnings, scope, limit)) if beginnings else {}
    notes = ("nothing has these words; some words begin with them",) if found else ()
    return Ranked(found, notes, best=max(found.values(), default=1.0), tiers=dict.fromkeys(found, 6))


def exact_chunks(store: Store, asked: Query, scope: Scope, limit: int) -> dict[int, int]:
    """Return the chunks with the exact identifier of the question, by tier: 0 exact, 1 in any case, 2 nearly."""
    return _literal(store, asked, scope, limit)[1] if asked.is_literal else {}


def naming_chunks(store: Store, name: str, scope: Scope, limit: int) -> list[int]:
    """Return the chunks that have a name of the question as it is written, in any case."""
    found = literal_candidates(store, _as_words(name), name, scope, limit)
    return [ident for ident, _, tier in found if tier < 2]


def _literal(store: Store, asked: Query, scope: Scope, limit: int) -> tuple[dict[int, float], dict[int, int]]:
    """Return scores and tiers: exact characters come before the same words with other signs between them."""
    found = literal_candidates(store, _as_words(asked.compounds[0]), asked.compounds[0], scope, limit)
    return {ident: score for ident, score, _ in found}, {ident: tier for ident, _, tier in found}


def _as_words(name: str) -> str:
    """Return the FTS query for a name; a version is looked up with and without the ``v`` before it."""
    version = _VERSION.match(name)
    return any_of([quoted(name), quoted(version[1]), quoted(f"v{version[1]}")]) if version else quoted(name)


# --------------------------------------------------------------------------------------------------------- vectors


@dataclass(frozen=True, slots=True)
class QuestionVector:
    """The question as a vector of the generation that serves, or the reason why there is none."""

    generation: int = 0
    data: bytes = field(default=b"", repr=False)
    floor: float = FLOOR
    note: str | None = None

    @classmethod
    def none(cls, reason: str) -> QuestionVector:
        """Return the value for no embedder."""
        return cls(note=_alone(reason))

    @classmethod
    def of(cls, store: Store, embedder: Embedder, text: str, known: dict[str, bytes] | None = None) -> QuestionVector:
        """Embed the question if the serving vectors are the embedder's own and ``known`` does not have it already."""
        known = {} if known is None else known
        serving = vectors.serving_generation(store)
        if serving is None:
            return cls(note=_no_vectors(vectors.count_pending(store, 0)))
        if (serving.provider, serving.model, serving.dimension) != _identity(embedder):
            theirs = f"{serving.provider} {serving.model}"
            return cls(note=_alone(f"the vectors come from {theirs}; crystal sync makes new ones"))
        try:
            floor = FLOORS.get(embedder.provider, FLOOR)
            name = repr(_identity(embedder))
            if text and name not in known:
                known[name] = embedder.embed_query(text)
            if text and not known[name]:
                return cls(note=_alone(f"{embedder.model} knows no word of the question"))
            return cls(serving.id, known.get(name, b""), floor)
        except CrystalError as error:
            return cls(note=_alone(error.message))

    def checked(self, store: Store) -> tuple[QuestionVector, tuple[str, ...]]:
        """Return the vector if the store's present state allows its use, and notes for the reader."""
        if not self.data:
            return self, (self.note,) if self.note else ()
        serving = vectors.serving_generation(store)
        if serving is None or serving.id != self.generation:  # another model took over since the question was embedded
            changed = _alone("the embedding model has just changed")
            return QuestionVector(note=changed), (changed,)
        waiting = vectors.count_pending(store, self.generation)
        if waiting and not vectors.has_any(store, self.generation):
            return QuestionVector(note=_no_vectors(waiting)), (_no_vectors(waiting),)
        return self, (f"{_chunks(waiting)} {_WAITING}",) if waiting else ()

    def nearest(self, store: Store, scope: Scope, limit: int) -> Ranked:
        """Rank by meaning."""
        usable, notes = self.checked(store)
        if not usable.data:
            return Ranked({}, notes, asked=False)
        found = dict(vectors.nearest(store, self.generation, self.data, limit, scope.sql, scope.values))
        return Ranked({ident: cosine for ident, cosine in found.items() if cosine >= self.floor}, notes)


def _identity(embedder: Embedder) -> tuple[str, str, int]:
    return embedder.provider, embedder.model, embedder.dimension


def _no_vectors(waiting: int) -> str:
    return _alone(f"no vectors yet, {_chunks(waiting)} to embed")


_ALONE, _WAITING = "searched by keywords alone: ", "not embedded yet, found by keywords alone"


def by_meaning_alone(note: str) -> str:
    """Return a note of ``QuestionVector`` reworded for a search without keywords."""
    if note.startswith(_ALONE):
        return f"similarity needs vectors: {note.removeprefix(_ALONE)}"
    return note.replace(_WAITING, "not embedded yet, not found by similarity")


def _alone(reason: str) -> str:
    return f"{_ALONE}{reason}"


def _chunks(count: int) -> str:
    return f"{count:,} chunk{'' if count == 1 else 's'}"
