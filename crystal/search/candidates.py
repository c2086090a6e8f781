"""What the store says of a question: quoted phrases, exact names, its vector, and candidates without an index.

Nothing here raises for what a question says, and an embedder that fails costs vectors only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from crystal.errors import CrystalError
from crystal.store import Store
from crystal.store.search import vectors
from crystal.store.search.candidates import (
    all_of,
    any_of,
    contains_text,
    count_texts,
    has_any,
    keyword_candidates,
    literal_candidates,
    matches_fts,
    prefix,
    quoted,
    substring_candidates,
)
from crystal.store.search.index_source import ids_where
from crystal.store.search.scope import SearchScope
from crystal.text.query import UNSPACED, Query, completions, in_short, parse_query, unspaced_pairs, without_phrases

if TYPE_CHECKING:
    from crystal.embedding.embedder import Embedder

FLOORS = {"embedded": 0.25}
FLOOR = 0.15
"""The cosine under which two texts have nothing to do with each other, by provider; measured for the embedded model."""

FEW = 1_000
"""So many chunks are ranked whole where there is no index; of more, what FTS5 and sqlite-vec put first."""

MIN_PREFIX = 3

_VERSION = re.compile(r"[vV]?([0-9]+\.[0-9].*)")


# -------------------------------------------------------------------------------------------------- phrases and names


def with_phrases(
    asked: Query, places: Sequence[tuple[Store, SearchScope]]
) -> tuple[Query, list[SearchScope], tuple[str, ...]]:
    """Restrict to chunks with the quoted phrases; if no memory has them, search for their words instead."""
    scopes = [scope for _, scope in places]
    if not asked.phrases:
        return asked, scopes, ()
    condition = _phrased(asked.phrases)
    if any(has_any(store, scope & condition) for store, scope in places):
        return asked, [scope & condition for scope in scopes], ()
    words = " and ".join(f'"{in_short(phrase)}"' for phrase in asked.phrases[:3])
    return without_phrases(asked), scopes, (f"nothing has {words} word for word",)


def _phrased(phrases: Sequence[str]) -> SearchScope:
    """Return the condition for phrases; those of a script without spaces may stand inside a run of characters."""
    spaced = [phrase for phrase in phrases if not UNSPACED.search(phrase)]
    condition = matches_fts(all_of(map(quoted, spaced))) if spaced else SearchScope()
    for phrase in phrases:
        condition &= contains_text(phrase) if phrase not in spaced else SearchScope()
    return condition


def exact_chunks(store: Store, asked: Query, scope: SearchScope, limit: int) -> dict[int, int]:
    """Return the chunks with the identifier that is the question, by tier: 0 to the letter, 1 in any case, 2 nearly."""
    if not asked.is_literal:
        return {}
    name = asked.compounds[0]
    return {ident: tier for ident, _, tier in literal_candidates(store, _as_words(name), name, scope, limit)}


def naming_chunks(store: Store, name: str, scope: SearchScope, limit: int) -> list[int]:
    """Return the chunks that have a name of the question as it is written, in any case."""
    found = literal_candidates(store, _as_words(name), name, scope, limit)
    return [ident for ident, _, tier in found if tier < 2]


def _as_words(name: str) -> str:
    """Return the FTS query for a name; a version is looked up with and without the ``v`` before it."""
    version = _VERSION.match(name)
    return any_of([quoted(name), quoted(version[1]), quoted(f"v{version[1]}")]) if version else quoted(name)


# -------------------------------------------------------------------------------------------------- without an index


def propose_chunks(
    store: Store, asked: Query, wordings: Sequence[str], scope: SearchScope, vector: QuestionVector, limit: int
) -> list[int]:
    """Return the chunks to rank where there is no index: all if they are few, else what each engine puts first.

    Args:
        store: The memory.
        asked: The question.
        wordings: Other ways to put it.
        scope: What may answer.
        vector: The question's vector, if there is one.
        limit: How many each engine proposes.
    """
    few = ids_where(store, scope.sql, scope.values, FEW + 1)
    if len(few) <= FEW:
        return few
    found = set(exact_chunks(store, asked, scope, limit))
    for expression in _expressions(asked, wordings):
        if expression and len(found) < limit:
            found.update(_by_words(store, expression, scope, limit))
    found.update(ident for ident, _ in substring_candidates(store, unspaced_pairs(asked.text), scope, limit))
    if vector.data:
        near = vectors.nearest(store, vector.generation, vector.data, limit, scope.sql, scope.values)
        found.update(ident for ident, _ in near)
    return sorted(found)


def _by_words(store: Store, expression: str, scope: SearchScope, limit: int) -> list[int]:
    """Return the best matches; eight times as many where most of them are copies of a few texts."""
    best = [ident for ident, _ in keyword_candidates(store, expression, scope, limit)]
    if len(best) == limit and count_texts(store, best) < limit // 4:
        best = [ident for ident, _ in keyword_candidates(store, expression, scope, 8 * limit)]
    return best


def _expressions(asked: Query, wordings: Sequence[str]) -> list[str]:
    """Return the FTS queries for all words, for any of them, and for words that begin so; the strictest first."""
    words = [*asked.compounds, *asked.terms]
    words += [word for wording in wordings for word in parse_query(wording).terms]
    exact = list(map(quoted, [*asked.phrases, *words]))
    begun = [prefix(word) for word in words if len(word) >= MIN_PREFIX]
    begun += [quoted(whole) for word in words for whole in completions(word)]
    return [all_of(exact), any_of(exact), any_of(begun)]


# --------------------------------------------------------------------------------------------------------- vectors


@dataclass(frozen=True, slots=True)
class QuestionVector:
    """The question as a vector of the generation that serves; ``note`` says why there is none, or what is missing."""

    generation: int = 0
    data: bytes = field(default=b"", repr=False)
    floor: float = FLOOR
    note: str | None = None

    @classmethod
    def of(
        cls, store: Store, embedder: Embedder | None, why_none: str, text: str, known: dict[str, bytes]
    ) -> QuestionVector:
        """Embed the question if the serving vectors are the embedder's own and ``known`` does not have it already."""
        if embedder is None:
            return cls(note=_alone(why_none))
        serving = vectors.serving_generation(store)
        if serving is None:
            return cls(note=_no_vectors(vectors.count_pending(store, 0)))
        identity = embedder.provider, embedder.model, embedder.dimension
        if (serving.provider, serving.model, serving.dimension) != identity:
            theirs = f"{serving.provider} {serving.model}"
            return cls(note=_alone(f"the vectors come from {theirs}; crystal sync makes new ones"))
        try:
            if text and repr(identity) not in known:
                known[repr(identity)] = embedder.embed_query(text)
        except CrystalError as error:
            return cls(note=_alone(error.message))
        data = known.get(repr(identity), b"")
        if text and not data:
            return cls(note=_alone(f"{embedder.model} knows no word of the question"))
        return cls(serving.id, data, FLOORS.get(embedder.provider, FLOOR))

    def checked(self, store: Store) -> QuestionVector:
        """Return the vector if the store's present state allows its use, with a note for the reader."""
        if not self.data:
            return self
        serving = vectors.serving_generation(store)
        if serving is None or serving.id != self.generation:  # another model took over since the question was embedded
            return QuestionVector(note=_alone("the embedding model has just changed"))
        waiting = vectors.count_pending(store, self.generation)
        if not waiting:
            return self
        if not vectors.has_any(store, self.generation):
            return QuestionVector(note=_no_vectors(waiting))
        return replace(self, note=f"{_chunks(waiting)} {_WAITING}")


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
