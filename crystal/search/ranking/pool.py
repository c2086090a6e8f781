"""Select candidate chunks from one or two memories, with the scores of each engine.

Words have the same weight in both memories, so that scores are comparable. A chunk is a candidate if its words, its
neighbours' words or its vector score among the best, or its words score among the best within a requested time.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain

import numpy as np
import numpy.typing as npt

from crystal.model.named_tuple import NamedTuple
from crystal.model.quick_dataclass import dataclass
from crystal.search.index.array_types import Floats, Ints, Mask
from crystal.search.index.attributes import distinct
from crystal.search.index.open_index import Index
from crystal.text.query import UNSPACED

CANDIDATES = 1000
"""Minimum number of chunks that are selected by words."""
NEAREST = 64
"""Minimum number of chunks that are selected by vectors."""
MAX_GAIN = 1.6
"""Maximum that a word adds to a score for each unit of its weight: BM25 of a short chunk that has it twice."""
FEW_OF = 8
"""If at most one in this many chunks can still become a candidate, frequent words are counted in those only."""
EXACT_COSINES = 256
"""Number of candidates that get exact cosines; approximate ones suffice for the others."""
IN_SPAN = 200
"""Number of chunks that are selected within a requested time."""
PADDED = 0.5
"""Weight of the score with neighbours, relative to the chunk's own score."""
SHORTENED = 3
"""Maximum number of letters by which a word's beginning may exceed a stem: ``migratio`` finds ``migrat``."""
BEGINNINGS = 400
"""Maximum number of words that a beginning is completed to if no document has it as a word;"""
COMPOUNDS = 8
"""and if documents have it as a word."""
COMPOUND_WEIGHT = 0.3
"""Weight of a longer word, relative to the word itself: ``Datenbankzugriff`` for ``Datenbank``."""
COMPOUND_LETTERS = 5
SHORT_WEIGHT = 0.01
"""The same for a word of fewer letters than ``COMPOUND_LETTERS``."""
BEGUN_LETTERS = 3
FEW = 10
PAIRS = 1000
"""Maximum number of character pairs that a single character is completed to."""
_HASH = re.compile("(?=.*[0-9])[0-9a-f]{7,63}")
RARE = 0.01
"""Maximum share of documents with a word that is also searched as a part of longer words."""


@dataclass(frozen=True, slots=True)
class Field:
    """A memory prepared for ranking a question.

    Attributes:
        index: Its index, in the state of a snapshot.
        mask: The documents that the filters allow; None for all.
        generation: The generation of vectors to compare ``vector`` with.
        vector: The question as a unit vector; None to rank without vectors.
        floor: Cosine below which two texts are unrelated.
        exact: Ids of exactly matching chunks, each with its tier; 0 is the most exact.
        named: Ids of chunks with names of the question as written, each with the names' weight.
    """

    index: Index
    mask: Mask | None
    generation: int
    vector: Floats | None
    floor: float
    exact: dict[int, int]
    named: dict[int, float]


@dataclass(frozen=True, slots=True)
class Pool:
    """Candidates as columns: row i of each array is one chunk. ``best_own`` and ``best_padded``: of all chunks."""

    field: Ints
    ordinal: Ints
    id: Ints
    session: Ints
    turn: Ints
    ts: Ints
    is_user: Mask
    own: Floats
    padded: Floats
    cosine: Floats
    exact: Ints
    best_own: float
    best_padded: float

    def __len__(self) -> int:
        return len(self.id)


class WeightedTerm(NamedTuple):
    """A word of the question: the stems that match it, and its weight."""

    stems: tuple[str, ...]
    weight: float


def frequency(indexes: Sequence[Index], word: str) -> int:
    """Return the number of documents of all memories with a word; documents that changed since count twice."""
    return sum(index.frequency(word) for index in indexes)


def _that_occur(indexes: Sequence[Index], words: Sequence[str]) -> dict[str, int]:
    counts = {word: frequency(indexes, word) for word in words}
    return {word: count for word, count in counts.items() if count}


def sought_words(
    indexes: Sequence[Index], stems: Sequence[str], completed: Callable[[str], Sequence[str]] = lambda _: ()
) -> tuple[list[WeightedTerm], list[str]]:
    """Return the words of a question weighted by rarity, and the stems that only match beginnings of words.

    ``completed`` returns the stems that an incomplete word may have when it is complete.
    """
    documents = sum(index.documents for index in indexes)
    found: list[WeightedTerm] = []
    begun: list[str] = []
    for stem in dict.fromkeys(stems):
        count = frequency(indexes, stem)
        if count:
            found.append(WeightedTerm((stem,), rarity(count, documents)))
        longer = _longer(indexes, stem, count, documents)
        if not count:
            longer = longer | _that_occur(indexes, [word for word in completed(stem) if word not in longer])
        if longer and _is_character(stem):
            found = [one for one in found if one.stems != (stem,)]
            found.append(WeightedTerm((stem, *longer), rarity(count + sum(longer.values()), documents)))
        elif longer:
            times = min(documents, sum(longer.values()))
            share = 1.0 if not count else COMPOUND_WEIGHT if len(stem) >= COMPOUND_LETTERS else SHORT_WEIGHT
            found.append(WeightedTerm(tuple(longer), share * rarity(times, documents)))
            begun += [] if count else [stem]
    return found, begun


def rarity(count: int, documents: int) -> float:
    """Return the weight of a word that ``count`` documents have: the idf of BM25, never negative.

    The count may be too high, because documents that changed since count twice.
    """
    count = min(count, documents)
    return max(math.log((documents - count + 0.5) / (count + 0.5)), 1e-6)


def _is_character(stem: str) -> bool:
    return len(stem) == 1 and UNSPACED.fullmatch(stem) is not None


def _longer(indexes: Sequence[Index], stem: str, count: int, documents: int) -> dict[str, int]:
    """Return words that begin with a word that no document has, or with a rare one that may be part of a compound."""
    if _is_character(stem):  # of a script without spaces: pairs that begin with it contain it
        found = [index.beginning(stem, PAIRS) for index in indexes]
    elif count:
        if count > max(RARE * documents, FEW) or not _may_be_compound(stem):
            return {}
        found = [index.beginning(stem, COMPOUNDS) for index in indexes]
    elif len(stem) < (3 if stem.isascii() else 1):
        return {}
    else:
        found = [[*index.beginning(stem, BEGINNINGS), *_shortened(index, stem)] for index in indexes]
    longer: Counter[str] = Counter()
    for word, times in chain.from_iterable(found):
        longer[word] += times
    longer.pop(stem, None)
    return longer


def _may_be_compound(stem: str) -> bool:
    return len(stem) >= BEGUN_LETTERS and (stem.isalpha() or _HASH.fullmatch(stem) is not None)


def _shortened(index: Index, stem: str) -> list[tuple[str, int]]:
    """Return the longest beginning of a word that a document has, if only a few letters are missing."""
    for cut in range(1, SHORTENED + 1):
        short = stem[:-cut]
        if len(short) >= COMPOUND_LETTERS and (times := index.frequency(short)):
            return [(short, times)]
    return []


def pool_of(
    fields: Sequence[Field],
    words: Sequence[WeightedTerm],
    spans: Sequence[tuple[int, int]],
    depth: int,
    *,
    by_meaning: bool,
) -> Pool:
    """Collect the candidates.

    Args:
        fields: The memories.
        words: The words of the question.
        spans: The times that it names: start and end, ms.
        depth: Minimum number of candidates, if there are as many.
        by_meaning: True if texts without any of the words may be answers.
    """
    others = [_others(field, depth, by_meaning=by_meaning) for field in fields]
    scored = [
        field.index.scores(words, field.mask, partial(_worth_more, field, spans, depth, also))
        for field, also in zip(fields, others, strict=True)
    ]
    for (own, _), field in zip(scored, fields, strict=True):
        places = field.index.find(sorted(field.named))
        own[places[places >= 0]] += np.array([field.named[one] for one in sorted(field.named)], np.float32)[places >= 0]
    best_own = max((float(own.max(initial=0.0)) for own, _ in scored), default=0.0)
    best_padded = max((float(padded.max(initial=0.0)) for _, padded in scored), default=0.0)
    rows = []
    for at, (field, also, (own, padded)) in enumerate(zip(fields, others, scored, strict=True)):
        chosen = distinct(np.concatenate([also, _best(field, own, padded, (best_own, best_padded), spans, depth)]))
        rows.append(_columns(at, field, chosen, (own[chosen], padded[chosen]), (best_own, best_padded)))
    columns = {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
    return Pool(**columns, best_own=best_own, best_padded=best_padded)


def _others(field: Field, depth: int, *, by_meaning: bool) -> Ints:
    """Return the candidates that are not selected by words: the nearest by vectors, and exact matches."""
    found = [field.index.find(sorted(field.exact))]
    if field.vector is not None and by_meaning:
        near, cosines = field.index.nearest(field.generation, field.vector, max(NEAREST, depth), field.mask)
        found.append(near[cosines >= field.floor])
    together = np.concatenate(found)
    return together[together >= 0]


def _worth_more(
    field: Field, spans: Sequence[tuple[int, int]], depth: int, also: Ints, own: Floats, padded: Floats, left: float
) -> Ints | None:
    """Return the documents that words of the total weight ``left`` can still make candidates; None if very many.

    This is an estimate: scores are relative to the best one, which the remaining words raise too.
    """
    best = float(own.max(initial=0.0)), float(padded.max(initial=0.0))
    if min(best) <= 0:
        return None
    more = MAX_GAIN * left * (1 / best[0] + PADDED / best[1])
    if more >= 1 + PADDED:  # above the best
        return None
    together = _relative(own, padded, best)
    some = np.flatnonzero(together > more)
    above = together[some]
    if len(above) < max(CANDIDATES, depth):  # documents without any of these words may become candidates
        return None
    least = _last_of(above, max(CANDIDATES, depth)) - more
    likely = together >= least
    if spans:
        inside = field.index.within(spans)[: len(own)]
        in_span = _last_of(above[inside[some]], IN_SPAN) - more  # of these alone: NumPy is slow to sort very many zeros
        least = min(least, in_span)
        if least > 0:
            likely |= inside & (together >= in_span)
    if least <= 0 or np.count_nonzero(likely) * FEW_OF > len(own):
        return None
    chosen = distinct(np.concatenate([also, np.flatnonzero(likely), field.index.find(sorted(field.named))]))
    return chosen[(chosen >= 0) & (chosen < len(own))]


def _best(
    field: Field, own: Floats, padded: Floats, best: tuple[float, float], spans: Sequence[tuple[int, int]], depth: int
) -> Ints:
    """Return the best documents by words, and the best within the requested times."""
    if best[1] <= 0:
        return np.empty(0, np.int64)
    some = np.flatnonzero(padded > 0)
    together = _relative(own[some], padded[some], best)
    found = [some[_top(together, max(CANDIDATES, depth))]]
    if spans:
        inside = field.index.within(spans)[some]
        found.append(some[inside][_top(together[inside], IN_SPAN)])
    return np.concatenate(found)


def _relative(own: Floats, padded: Floats, best: tuple[float, float]) -> Floats:
    """Combine both scores of documents, each relative to the best one."""
    together = padded * np.float32(PADDED / best[1] if best[1] > 0 else 0.0)
    if best[0] > 0:
        together += own * np.float32(1 / best[0])
    return np.asarray(together, np.float32)


def _last_of(scores: Floats, count: int) -> float:
    """Return the ``count``-th best score; 0 if there are fewer."""
    return float(np.partition(scores, -count)[-count]) if len(scores) >= count else 0.0


def _top(scores: Floats, count: int) -> Ints:
    """Return the rows of the ``count`` best scores above zero; with ties of the last one, up to twice as many."""
    if len(scores) > count:
        least = max(float(np.partition(scores, -count)[-count]), np.finfo(np.float32).tiny)
        return np.flatnonzero(scores >= least)[: 2 * count]
    return np.flatnonzero(scores > 0)


def _columns(
    at: int, field: Field, chosen: Ints, scores: tuple[Floats, Floats], best: tuple[float, float]
) -> dict[str, npt.NDArray[np.generic]]:
    index, (own, padded) = field.index, scores
    found = index.columns(("id", "session", "turn", "ts", "is_user"), chosen)
    cosine = np.zeros(len(chosen), np.float32)
    if field.vector is not None and len(chosen):
        cosine = _cosines(field, field.vector, chosen, _relative(own, padded, best))
    exact = np.array([field.exact.get(ident, -1) for ident in found["id"].tolist()], np.int64)
    return {
        "field": np.full(len(chosen), at, np.int64),
        "ordinal": chosen,
        "id": found["id"],
        # Rows of two memories are unrelated.
        "session": found["session"] * 2 + at,
        "turn": found["turn"] * 2 + at,
        "ts": found["ts"],
        "is_user": found["is_user"].astype(np.bool_),
        "own": own,
        "padded": padded,
        "cosine": np.maximum(cosine, np.float32(0)),
        "exact": exact,
    }


def _cosines(field: Field, vector: Floats, chosen: Ints, by_words: Floats) -> Floats:
    """Return the cosines of candidates: exact for the best by words and meaning, 0 without a vector."""
    cosines = np.nan_to_num(field.index.cosines_nearly(field.generation, vector, chosen), nan=0.0)
    near = np.sort(np.argsort(-(by_words + cosines), kind="stable")[:EXACT_COSINES])
    cosines[near] = np.nan_to_num(field.index.cosines(field.generation, vector, chosen[near]), nan=0.0)
    return np.asarray(cosines, np.float32)
