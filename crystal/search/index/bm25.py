"""Compute BM25 twice: of each document alone, and of each with its neighbours in the conversation.

    own[d]    += weight * tf * (K1 + 1) / (tf + K(d)),    K(d)  = K1 * (FLAT + max(0, L - FREE) / SPAN)
    padded[d] += weight * tp * (K1 + 1) / (tp + Kp(d)),   Kp(d) = K1 * (FLAT + max(0, Lp - FREE_PADDED) / SPAN_PADDED)

tf is the number of times that the document has the word, L its number of words; tp and Lp are the sums over the
document and its neighbours. All short documents count as equally long: brevity alone does not raise a score.

Rare words of a question are scored first. If many documents have some of them, frequent words are then counted only in
the best of these documents (docs/adr/0017-derived-index.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import cast

import numpy as np

from crystal.search.index.array_types import Array, Floats, Mask
from crystal.search.index.index_parts import IndexPart

Terms = Sequence[tuple[Sequence[bytes], float]]
"""Words, each with its alternatives, which are counted together, and its weight."""
Best = Callable[[Floats, Floats, float], "Array | None"]
"""Returns the documents in which the remaining words are counted (None: all), given the scores and their weight."""
Spots = Sequence[tuple[IndexPart, slice, Array]]
"""Documents by part: the part, the slice of its documents among all of them, and their indexes in the part."""

K1, FLAT = 0.8, 0.25
FREE, SPAN = 30, 100
FREE_PADDED, SPAN_PADDED = 60, 200

DENSE = 64
"""A word is frequent if more than one in this many documents has it."""
BLOCK = 32_768
"""Number of documents that are scored together, so that they fit into the processor's cache."""
SELECTIVE = 16
"""If a mask leaves fewer than one in this many documents, only those are scored."""


class Scorer:
    """Scores the documents of some parts; keeps data about them between questions."""

    def __init__(self, parts: Sequence[IndexPart]) -> None:
        self.parts = tuple(parts)
        self._starts = np.cumsum([0, *(part.size for part in parts)]).tolist()
        self.size: int = self._starts[-1]
        length = np.zeros(self.size + 2, np.float32)
        # One block of memory: the system maps large ones by pages of 2 MB, a thousand times fewer.
        self._joined, self._own, self._padded = np.zeros((3, self.size + 1), np.float32)  # joined: with the one before
        for part, start in zip(parts, self._starts, strict=False):
            length[start + 1 : start + 1 + part.size] = part.arrays["length"]
            self._joined[start + 1 : start + part.size] = part.joined
        for start in range(0, self.size, BLOCK):
            end = min(start + BLOCK, self.size)
            self._own[start:end] = _saturation(length[start + 1 : end + 1], FREE, SPAN)
            self._padded[start:end] = _saturation(self._with_neighbours(length, start, end), FREE_PADDED, SPAN_PADDED)

    def add(self, terms: Terms, mask: Mask | None, own: Floats, padded: Floats, best: Best | None) -> None:
        """Add the scores of words to those of the documents in a mask; others become 0.

        Args:
            terms: The words.
            mask: The documents; None for all.
            own: The scores of each document alone.
            padded: The scores of each document with its neighbours.
            best: Chooses the documents in which frequent words are counted; None for all.
        """
        only: Array | None = None
        if mask is not None:
            only = np.flatnonzero(mask)
            if not len(only):
                return
            if len(only) * SELECTIVE >= self.size:
                only = None
            else:
                mask = None  # no others get a score
        times = np.zeros(self.size + 2, np.float32)  # with a zero before the first and after the last document
        counted = sorted(self._counted(terms), key=lambda one: one[0])
        for at, (count, words, weight) in enumerate(counted):
            is_frequent = count * DENSE > self.size
            if is_frequent and only is None and best is not None:
                _hide(mask, own, padded)
                only = best(own, padded, sum(weight for *_, weight in counted[at:]))
            if only is not None:
                self._add_among(only, counted[at:], own, padded)
                break
            (self._add_all if is_frequent else self._add_near)(words, times, weight, own, padded)
        _hide(mask, own, padded)

    def own(self, places: Array, terms: Terms) -> Floats:
        """Return the scores of some documents, in ascending order, without their neighbours."""
        scores, saturation = np.zeros(len(places), np.float32), self._own[places]
        spots = self._spots(places)
        for words, weight in terms:
            scores += _gain(_times_among(spots, len(places), dict.fromkeys(words)), saturation, weight)
        return scores

    def _counted(self, terms: Terms) -> Iterator[tuple[int, Sequence[bytes], float]]:
        """Yield the words that occur, with the number of documents that have them."""
        for words, weight in terms:
            spans = {word: sum(end - start for start, end in self._spans(word)) for word in words}
            if total := sum(spans.values()):
                yield total, [word for word, count in spans.items() if count], weight

    def _spans(self, word: bytes) -> Iterator[tuple[int, int]]:
        return (part.words.find(word) for part in self.parts)

    def _add_all(self, words: Sequence[bytes], times: Floats, weight: float, own: Floats, padded: Floats) -> None:
        """Add the scores of a word to those of all documents; ``times`` is zero before and after."""
        self._scatter(words, times)
        for start in range(0, self.size, BLOCK):
            end = min(start + BLOCK, self.size)
            own[start:end] += _gain(times[start + 1 : end + 1], self._own[start:end], weight)
            both = self._with_neighbours(times, start, end)
            padded[start:end] += _gain(both, self._padded[start:end], weight)
        times.fill(0.0)

    def _add_near(self, words: Sequence[bytes], times: Floats, weight: float, own: Floats, padded: Floats) -> None:
        """Add the scores of a word to those of the documents that have it and their neighbours, some found twice."""
        found = np.concatenate(self._scatter(words, times))
        own[found] += _gain(times[found + 1], self._own[found], weight)
        after, before = found[self._joined[found + 1] > 0] + 1, found[self._joined[found] > 0] - 1
        places = np.concatenate([found, after, before])
        both = times[places] * self._joined[places] + times[places + 1] + times[places + 2] * self._joined[places + 1]
        padded[places] += _gain(both, self._padded[places], weight)
        times[found + 1] = 0.0

    def _add_among(
        self, only: Array, counted: Sequence[tuple[int, Sequence[bytes], float]], own: Floats, padded: Floats
    ) -> None:
        """Add the scores of words to those of some documents, in ascending order."""
        near = np.zeros(self.size + 2, np.bool_)
        near[only] = near[only + 1] = near[only + 2] = True
        some = np.flatnonzero(near[1:-1])
        spots, here = self._spots(some), np.searchsorted(some, only)
        before, after, saturation = self._joined[only], self._joined[only + 1], (self._own[only], self._padded[only])
        for _, words, weight in counted:
            times = _times_among(spots, len(some) + 1, words)  # the last one, 0, is beside the first and the last
            both = times[here - 1] * before + times[here] + times[here + 1] * after
            own[only] += _gain(times[here], saturation[0], weight)
            padded[only] += _gain(both, saturation[1], weight)

    def _with_neighbours(self, numbers: Floats, start: int, end: int) -> Floats:
        """Add the numbers of neighbours to those of some documents; ``numbers`` begins with an extra zero."""
        both = numbers[start:end] * self._joined[start:end]
        both += numbers[start + 1 : end + 1]
        both += numbers[start + 2 : end + 2] * self._joined[start + 1 : end + 1]
        return np.asarray(both)

    def _scatter(self, words: Sequence[bytes], times: Floats) -> list[Array]:
        """Count words in the documents that have them; return these documents."""
        found = []
        for number, word in enumerate(words):
            for part, start, (first, last) in zip(self.parts, self._starts, self._spans(word), strict=False):
                if first == last:
                    continue
                here, documents = times[start + 1 :], part.words.documents(first, last)
                counts = part.words.times(first, last)
                here[documents] = here[documents] + counts if number else counts
                found.append(np.add(documents, start, dtype=np.int64))
        return found

    def _spots(self, some: Array) -> Spots:
        """Group documents, in ascending order, by their parts."""
        cuts = pairwise(np.searchsorted(some, self._starts).tolist())
        places = zip(self.parts, self._starts, cuts, strict=False)
        return [(part, slice(*cut), some[slice(*cut)] - start) for part, start, cut in places if cut[0] < cut[1]]


def scorer_of(parts: Sequence[IndexPart]) -> Scorer:
    """Return the scorer of some parts, which is cached in the first one."""
    known = cast("Scorer | None", parts[0].scorer)
    if known is None or known.parts != tuple(parts):
        parts[0].scorer = known = Scorer(parts)
    return known


def _times_among(spots: Spots, count: int, words: Iterable[bytes]) -> Floats:
    """Return how often each document has any of the words."""
    times = np.zeros(count, np.float32)
    for word in words:
        for part, here, documents in spots:
            first, last = part.words.find(word)
            if first < last:
                times[here] += part.words.times_in(first, last, documents)
    return times


def _hide(mask: Mask | None, *scores: Floats) -> None:
    """Set the scores of the documents that a mask takes away to 0; choosing these takes two to four times as long."""
    if mask is not None:
        for one in scores:
            np.multiply(one, mask, out=one)


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
