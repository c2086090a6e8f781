"""Embed the question, and select candidates from the store if the index cannot be used.

No question raises an error here. If the embedder fails, the search continues without vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from crystal.errors import CrystalError
from crystal.model.quick_dataclass import dataclass, replace
from crystal.search.index.terms import normalised
from crystal.store import Store
from crystal.store.search import vectors
from crystal.store.search.candidates import has_more_than, newest_texts, stems
from crystal.store.search.index_source import ids_where
from crystal.store.search.scope import SearchScope
from crystal.text.query import Query, parse_query, unspaced_pairs

if TYPE_CHECKING:
    from crystal.embedding.embedder import Embedder

FLOORS = {"embedded": 0.25}
FLOOR = 0.15
"""Cosine below which two texts are unrelated, by provider; measured for the embedded model."""

FEW = 1_000
"""Number of chunks up to which all are ranked if there is no index."""

MAX_READ = 20_000
"""Maximum number of texts, the newest, that are searched for words if there is no index."""


# -------------------------------------------------------------------------------------------------- without an index


def propose_chunks(
    store: Store, asked: Query, wordings: Sequence[str], scope: SearchScope, vector: QuestionVector, limit: int
) -> list[int]:
    """Return the chunks to rank if there is no index: all if they are few, else those with most of the words.

    Args:
        store: The memory.
        asked: The question.
        wordings: Other wordings of it.
        scope: The filter.
        vector: The question's vector; if it has data, the chunks nearest to it are added.
        limit: Maximum number of chunks selected by words, and by vectors.
    """
    few = ids_where(store, scope.sql, scope.values, FEW + 1)
    if len(few) <= FEW:
        return few
    found = set(_with_most_words(store, _beginnings(store, asked, wordings), scope, limit))
    if vector.data:
        near = vectors.nearest(store, vector.generation, vector.data, limit, scope.sql, scope.values)
        found.update(ident for ident, _ in near)
    return sorted(found)


def note_of_unread(store: Store) -> tuple[str, ...]:
    """Return a note for the user if some texts are not searched for words without an index."""
    if not has_more_than(store, MAX_READ):
        return ()
    unread = f"only the newest {MAX_READ:,} texts were searched for words"
    return (f"the search index is not ready: {unread}; make it now: crystal sync",)


def _with_most_words(store: Store, beginnings: Sequence[str], scope: SearchScope, limit: int) -> list[int]:
    """Return the chunks that contain the most of some beginnings of words; of equal texts only the newest."""
    counts: dict[int, int] = {}
    seen: set[str] = set()
    for ident, text in newest_texts(store, scope, MAX_READ):
        lower = text.lower() if text.isascii() else f"{text.lower()}\n{normalised(text)}"
        count = sum(beginning in lower for beginning in beginnings)
        if count and text not in seen:
            seen.add(text)
            counts[ident] = count
    return sorted(counts, key=lambda ident: (-counts[ident], -ident))[:limit]


def _beginnings(store: Store, asked: Query, wordings: Sequence[str]) -> list[str]:
    """Return substrings of every text with the words of a question: phrases, pairs, and beginnings of words."""
    terms = [*asked.phrases, *asked.terms, *(word for wording in wordings for word in parse_query(wording).terms)]
    found = [stem for term in terms for _, _, stem in stems(store, normalised(term))]
    shared = [stem.removesuffix("i").removesuffix("e") for stem in found]  # Porter: happy, happi; hoping, hope
    whole = (*asked.phrases, *asked.compounds, *unspaced_pairs(asked.text))
    return [one for one in dict.fromkeys([*map(str.lower, whole), *shared]) if one]


# --------------------------------------------------------------------------------------------------------- vectors


@dataclass(frozen=True, slots=True)
class QuestionVector:
    """The question's vector for the serving generation; ``note`` says why it is empty, or which vectors are missing."""

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
            return cls(note=_no_vectors(vectors.count_pending(store, 0, MAX_COUNTED + 1)))
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
        waiting = vectors.count_pending(store, self.generation, MAX_COUNTED + 1)
        if not waiting:
            return self
        if not vectors.has_any(store, self.generation):
            return QuestionVector(note=_no_vectors(waiting))
        return replace(self, note=f"{_chunks(waiting)} {_WAITING}")


def _no_vectors(waiting: int) -> str:
    return _alone(f"no vectors yet, {_chunks(waiting)} to embed")


MAX_COUNTED = 1_000
"""Number up to which waiting chunks are counted for a note."""
_ALONE, _WAITING = "searched by keywords alone: ", "not embedded yet, found by keywords alone"


def by_meaning_alone(note: str) -> str:
    """Return a note of ``QuestionVector`` reworded for a search without keywords."""
    if note.startswith(_ALONE):
        return f"similarity needs vectors: {note.removeprefix(_ALONE)}"
    return note.replace(_WAITING, "not embedded yet, not found by similarity")


def _alone(reason: str) -> str:
    return f"{_ALONE}{reason}"


def _chunks(count: int) -> str:
    return f"more than {MAX_COUNTED:,} chunks" if count > MAX_COUNTED else f"{count:,} chunk{'' if count == 1 else 's'}"
