"""Search by similarity alone: what is nearest to the question in meaning, each with its cosine.

No word, no session, no time and no late interaction changes the order, so a score means the same in every search:
1 for the very question, 0 for what has nothing to do with it. The index and the store's own vectors give the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from crystal.search.candidates import QuestionVector, Ranked
from crystal.search.index import folder_of
from crystal.search.index.files import IndexDamaged
from crystal.search.index.reader import Absent, open_index
from crystal.search.ranking.late import LateModel, is_near, looked_at, weights_of
from crystal.search.ranking.listing import collapsed
from crystal.search.results import MemorySource, Order, Proposal, Ref, Unit, unit_of
from crystal.search.rrf import Fused
from crystal.store.search.candidates import Candidate, candidates
from crystal.store.search.scope import Scope
from crystal.store.search.vectors import MAX_NEIGHBOURS

MIN_NUMBER = 64
"""How many of the nearest are looked at, at least."""


@dataclass(frozen=True, slots=True)
class Meant:
    """One memory that is asked by meaning: what may be returned of it, and the question as a vector of its model."""

    side: MemorySource
    scope: Scope
    narrowed: Scope
    vector: QuestionVector
    space: str


@dataclass(frozen=True, slots=True)
class _Answer:
    unit: Unit
    ref: Ref
    one: Candidate
    cosine: float
    tokens: frozenset[int]


def similar_order(places: Sequence[Meant], limit: int, late: Callable[[], LateModel] | None) -> Order:
    """Order the answers of one or two memories by their cosines; of nearly equal texts the nearest one is shown.

    Args:
        places: The memories that can be asked by meaning.
        limit: How many answers are wanted.
        late: What knows the tokens of texts, by which nearly equal ones are found; None for the equal ones only.
    """
    depth = max(MIN_NUMBER, 4 * limit)
    model = late() if late is not None else None
    compared = weights_of(model).most
    while True:
        found = [_nearest(place, depth) for place in places]
        answers = _answers(places, found, model)
        kept = collapsed(answers, lambda one: (one.one.role, one.one.text_sha256), _nearly_same, compared)
        if len(kept) >= limit or depth >= MAX_NEIGHBOURS or all(len(near) < depth for near in found):
            break
        depth = min(8 * depth, MAX_NEIGHBOURS)  # turns of many chunks, or copies of few texts, fill the list
    proposals = [
        Proposal(place.side, place.scope, Ranked({}), Ranked(near), place.space)
        for place, near in zip(places, found, strict=True)
    ]
    ranks = {one.unit: place for place, one in enumerate(answers, 1)}
    return Order(
        proposals,
        [Fused(one.unit, min(1.0, max(0.0, one.cosine)), {"vectors": ranks[one.unit]}) for one, _ in kept],
        {one.unit: one.ref for one, _ in kept},
        {one.ref: one.one for one, _ in kept},
        similar={one.unit: len(others) for one, others in kept},
    )


def _nearest(place: Meant, depth: int) -> dict[int, float]:
    """Return the chunks nearest to the question with their cosines, from the index if it has all vectors."""
    store, vector = place.side.store, place.vector
    try:
        index = open_index(store, folder_of(store.path))
        if not isinstance(index, Absent) and index.has_vectors(vector.generation):
            question = np.frombuffer(vector.data, "<f4")
            rows, cosines = index.nearest(vector.generation, question, depth, index.mask(place.narrowed))
            ids = np.asarray(index.take("id", rows), np.int64)
            return {
                ident: cosine
                for ident, cosine in zip(ids.tolist(), cosines.tolist(), strict=True)
                if cosine >= vector.floor
            }
    except IndexDamaged:  # the store has every vector, too
        pass
    return vector.nearest(store, place.narrowed, depth).scores


def _answers(places: Sequence[Meant], found: Sequence[dict[int, float]], model: LateModel | None) -> list[_Answer]:
    """Return one answer for each turn, by its nearest chunk; a turn in both memories is this machine's."""
    best: dict[Unit, tuple[Ref, Candidate, float]] = {}
    for at, (place, near) in enumerate(zip(places, found, strict=True)):
        for ident, one in candidates(place.side.store, list(near)).items():
            ref, cosine = (at, ident), near[ident]
            unit = unit_of(ref, one)
            known = best.get(unit)
            if known is None or (known[0][0] == at and (cosine, -ident) > (known[2], -known[0][1])):
                best[unit] = (ref, one, cosine)
    order = sorted(best.items(), key=lambda item: (-item[1][2], *_by_time(item[1][0], item[1][1])))
    seen = looked_at([len(one.text) for _, (_, one, _) in order], weights_of(model).most)
    tokens = model.tokens([one.text for _, (_, one, _) in order[:seen]]) if model is not None else []
    sets = [*map(frozenset[int], tokens), *([frozenset[int]()] * (len(order) - len(tokens)))]
    return [
        _Answer(unit, ref, one, cosine, words) for (unit, (ref, one, cosine)), words in zip(order, sets, strict=True)
    ]


def _nearly_same(one: _Answer, other: _Answer) -> bool:
    return one.one.role == other.one.role and is_near(one.tokens, other.tokens)


def _by_time(ref: Ref, one: Candidate) -> tuple[float, ...]:
    return (float("inf") if one.ts is None else -one.ts, -ref[1], ref[0])
