"""BM25 over documents, twice: of each document alone, and of each with its neighbours in the conversation.

    own[d]    += weight * tf * (K1 + 1) / (tf + K(d)),    K(d)  = K1 * (FLAT + max(0, L - FREE) / SPAN)
    padded[d] += weight * tp * (K1 + 1) / (tp + Kp(d)),   Kp(d) = K1 * (FLAT + max(0, Lp - FREE_PADDED) / SPAN_PADDED)

tf is how often the document has the word, L how many words it has; tp and Lp are the sums of those over the document
and its neighbours. Short documents are all alike: what is said in a few words is not better for it.

The rare words of a question come first. Where many documents have some, its frequent words are counted in the best of
these alone (docs/adr/0017-derived-index.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import cast

import numpy as np
import numpy.typing as npt

from crystal.search.index.index_files import Array
from crystal.search.index.index_parts import IndexPart
from crystal.search.index.words import MAX_TIMES

Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]
Terms = Sequence[tuple[Sequence[bytes], float]]
"""For each word its alternatives, counted together, and its weight."""
Best = Callable[[Floats, Floats, float], "Array | None"]
"""Given the scores so far, and what the other words weigh, returns the documents to count these in, None for all."""
K1, FLAT = 0.8, 0.25
FREE, SPAN = 30, 100
FREE_PADDED, SPAN_PADDED = 60, 200

DENSE = 64
"""A word is frequent if more than one in so many documents has it."""
BLOCK = 32_768
"""Documents that are scored at once: they stay in the processor's cache."""
KEPT_BYTES = 6 << 20
"""So much is kept of words that were asked for: a byte for each document, mostly."""
SELECTIVE = 16
"""A mask that leaves less than one document of so many: only those are looked at."""


class Scorer:
    """Scores the documents of some parts. Keeps from one question to the next what it needs of them."""

    def __init__(self, parts: Sequence[IndexPart]) -> None:
        self.parts = tuple(parts)
        self._starts = np.cumsum([0, *(part.size for part in parts)]).tolist()
        self.size: int = self._starts[-1]
        length = np.concatenate([part.arrays["length"] for part in parts]).astype(np.float32)
        goes_on = [np.append(part.joined, False) for part in parts]
        self._joined = np.concatenate([[False], *goes_on]).astype(np.float32)  # with the one before
        self._own = _saturation(length, FREE, SPAN)
        self._times = lru_cache(KEPT_BYTES // (self.size + 1))(self._count)
        self._padded = _saturation(self._with_neighbours(np.pad(length, 1), 0, self.size), FREE_PADDED, SPAN_PADDED)

    def add(self, terms: Terms, mask: Mask | None, own: Floats, padded: Floats, best: Best | None) -> None:
        """Add the scores of words to those of the documents that a mask leaves; others become 0.

        Args:
            terms: The words.
            mask: The documents, None for all.
            own: The scores of each document alone.
            padded: Those of each with its neighbours.
            best: Chooses the documents that frequent words are counted in; None for all.
        """
        only, hidden = None, None
        if mask is not None:
            only = np.flatnonzero(mask)
            if not len(only):
                return
            if len(only) * SELECTIVE >= self.size:
                only, hidden = None, ~mask
        counted = sorted(self._counted(terms), key=lambda one: one[0])
        for at, (count, words, weight) in enumerate(counted):
            is_frequent = count * DENSE > self.size
            if is_frequent and only is None and best is not None:
                if hidden is not None:
                    own[hidden], padded[hidden] = 0.0, 0.0
                only = best(own, padded, sum(weight for *_, weight in counted[at:]))
            if only is not None:
                self._add_among(only, counted[at:], own, padded)
                break
            (self._add_all if is_frequent else self._add_near)(self._times(words), weight, own, padded)
        if hidden is not None:
            own[hidden], padded[hidden] = 0.0, 0.0

    def own(self, places: Array, terms: Terms) -> Floats:
        """Return the scores of some documents, each alone."""
        scores, saturation = np.zeros(len(places), np.float32), self._own[places]
        for words, weight in terms:
            scores += _gain(self._times(tuple(dict.fromkeys(words)))[1:][places], saturation, weight)
        return scores

    def _counted(self, terms: Terms) -> Iterator[tuple[int, tuple[bytes, ...], float]]:
        """Yield the words that occur, with how many documents have them."""
        for words, weight in terms:
            spans = {word: sum(end - start for start, end in self._spans(word)) for word in words}
            if total := sum(spans.values()):
                yield total, tuple(word for word, count in spans.items() if count), weight

    def _spans(self, word: bytes) -> Iterator[tuple[int, int]]:
        return (part.words.find(word) for part in self.parts)

    def _add_all(self, times: Array, weight: float, own: Floats, padded: Floats) -> None:
        """Add the scores of a word to those of all documents."""
        for start in range(0, self.size, BLOCK):
            end = min(start + BLOCK, self.size)
            own[start:end] += _gain(times[start + 1 : end + 1], self._own[start:end], weight)
            both = self._with_neighbours(times, start, end)
            padded[start:end] += _gain(both, self._padded[start:end], weight)

    def _add_near(self, times: Array, weight: float, own: Floats, padded: Floats) -> None:
        """Add the scores of a word to those of the documents that have it and their neighbours."""
        found = np.flatnonzero(times[1:-1] > 0)
        own[found] += _gain(times[found + 1], self._own[found], weight)
        near = np.zeros(self.size + 2, np.bool_)
        near[found] = near[found + 1] = near[found + 2] = True
        self._add_padded(np.flatnonzero(near[1:-1]), times, weight, padded)

    def _add_among(
        self, only: Array, counted: Sequence[tuple[int, tuple[bytes, ...], float]], own: Floats, padded: Floats
    ) -> None:
        """Add the scores of words to those of some documents."""
        saturation = self._own[only]
        for _, words, weight in counted:
            times = self._times(words)
            own[only] += _gain(times[only + 1], saturation, weight)
            self._add_padded(only, times, weight, padded)

    def _add_padded(self, places: Array, times: Array, weight: float, padded: Floats) -> None:
        """Add the scores of a word in some documents and their neighbours."""
        both = times[places] * self._joined[places]
        both += times[places + 1]
        both += times[places + 2] * self._joined[places + 1]
        padded[places] += _gain(both, self._padded[places], weight)

    def _with_neighbours(self, numbers: Floats, start: int, end: int) -> Floats:
        """Return numbers of some documents with those of their neighbours; the first number is of none."""
        both = numbers[start:end] * self._joined[start:end]
        both += numbers[start + 1 : end + 1]
        both += numbers[start + 2 : end + 2] * self._joined[start + 1 : end + 1]
        return np.asarray(both)

    def _count(self, words: tuple[bytes, ...]) -> Array:
        """Return how often each document has words, with a zero before the first and after the last document."""
        times = np.zeros(self.size + 2, np.min_scalar_type(MAX_TIMES * len(words)))
        for word in words:
            for part, start, (first, last) in zip(self.parts, self._starts, self._spans(word), strict=False):
                if first < last:
                    times[start + 1 :][part.words.documents(first, last)] += part.words.times(first, last)
        return times


def scorer_of(parts: Sequence[IndexPart]) -> Scorer:
    """Return what scores some parts; the first one keeps it."""
    known = cast("Scorer | None", parts[0].scorer)
    if known is None or known.parts != tuple(parts):
        parts[0].scorer = known = Scorer(parts)
    return known


def _saturation(length: Floats, free: int, span: int) -> Floats:
    found: Floats = np.subtract(length, free)
    np.maximum(found, 0.0, out=found)  # in place: fresh memory takes as long as the calculation
    found /= span
    found += FLAT
    found *= K1
    return found


def _gain(times: Floats, saturation: Floats, weight: float) -> Floats:
    gain: Floats = times * np.float32(weight * (K1 + 1.0))
    gain /= times + saturation
    return gain
