"""BM25 over documents, twice: of each document alone, and of each with its neighbours in the conversation.

    own[d]    += weight * tf * (K1 + 1) / (tf + K(d)),    K(d)  = K1 * (FLAT + max(0, L - FREE) / SPAN)
    padded[d] += weight * tp * (K1 + 1) / (tp + Kp(d)),   Kp(d) = K1 * (FLAT + max(0, Lp - FREE_PADDED) / SPAN_PADDED)

tf is how often the document has the word, L how many words it has; tp and Lp are the sums of those over the document
and its neighbours. Short documents are all alike: what is said in a few words is not better for it.

The rare words of a question come first. Where many documents have some, its frequent words are counted in the best of
these alone (docs/adr/0017-derived-index.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from crystal.search.index.index_files import Array
from crystal.search.index.index_parts import IndexPart

Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]
Terms = Sequence[tuple[Sequence[bytes], float]]
"""For each word its alternatives, counted together, and its weight."""
Best = Callable[[Floats, Floats, float], "Array | None"]
"""Given the scores so far, and what the other words weigh, returns the documents to count these in, None for all."""
Spots = tuple[IndexPart, int, "Array | None"]
"""A part, its first ordinal, and those of its documents that are counted, None for all."""

K1, FLAT = 0.8, 0.25
FREE, SPAN = 30, 100
FREE_PADDED, SPAN_PADDED = 60, 200

DENSE = 64
"""A word is frequent if more than one in so many documents has it."""
BLOCK = 32_768
"""Documents that are scored at once: they stay in the processor's cache."""
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
        times = np.zeros(self.size + 2, np.float32)  # with a zero before the first and after the last document
        spots = self._spots(only)
        counted = sorted(self._counted(terms), key=lambda one: one[0])
        for at, (count, words, weight) in enumerate(counted):
            is_frequent = count * DENSE > self.size
            if is_frequent and only is None and best is not None:
                if hidden is not None:
                    own[hidden], padded[hidden] = 0.0, 0.0
                only = best(own, padded, sum(weight for *_, weight in counted[at:]))
                spots = self._spots(only)
            self._scatter(words, times[1:-1], spots)
            if only is None and is_frequent:
                self._add_all(times, weight, own, padded)
            else:
                self._add_at(self._near(words) if only is None else only, times, weight, own, padded)
            times.fill(0.0)
        if hidden is not None:
            own[hidden], padded[hidden] = 0.0, 0.0

    def own(self, places: Array, terms: Terms) -> Floats:
        """Return the scores of some documents, each alone."""
        scores, saturation = np.zeros(len(places), np.float32), self._own[places]
        times, spots = np.zeros(self.size, np.float32), self._spots(places)
        for words, weight in terms:
            self._scatter(dict.fromkeys(words), times, spots)
            scores += _gain(times[places], saturation, weight)
            times.fill(0.0)
        return scores

    def _counted(self, terms: Terms) -> Iterator[tuple[int, Sequence[bytes], float]]:
        """Yield the words that occur, with how many documents have them."""
        for words, weight in terms:
            spans = {word: sum(end - start for start, end in self._spans(word)) for word in words}
            if total := sum(spans.values()):
                yield total, [word for word, count in spans.items() if count], weight

    def _spans(self, word: bytes) -> Iterator[tuple[int, int]]:
        return (part.words.find(word) for part in self.parts)

    def _add_all(self, times: Floats, weight: float, own: Floats, padded: Floats) -> None:
        for start in range(0, self.size, BLOCK):
            end = min(start + BLOCK, self.size)
            own[start:end] += _gain(times[start + 1 : end + 1], self._own[start:end], weight)
            both = self._with_neighbours(times, start, end)
            padded[start:end] += _gain(both, self._padded[start:end], weight)

    def _add_at(self, places: Array, times: Floats, weight: float, own: Floats, padded: Floats) -> None:
        alone = times[places + 1]
        both = alone + times[places] * self._joined[places] + times[places + 2] * self._joined[places + 1]
        own[places] += _gain(alone, self._own[places], weight)
        padded[places] += _gain(both, self._padded[places], weight)

    def _with_neighbours(self, numbers: Floats, start: int, end: int) -> Floats:
        """Return numbers of some documents with those of their neighbours; the first number is of none."""
        both = numbers[start:end] * self._joined[start:end]
        both += numbers[start + 1 : end + 1]
        both += numbers[start + 2 : end + 2] * self._joined[start + 1 : end + 1]
        return np.asarray(both)

    def _near(self, words: Sequence[bytes]) -> Array:
        """Return the documents that have a word, and their neighbours; some of them twice."""
        found = np.concatenate([self._documents(word) for word in words])
        after, before = found[self._joined[found + 1] > 0] + 1, found[self._joined[found] > 0] - 1
        return np.concatenate([found, after, before])

    def _documents(self, word: bytes) -> Array:
        """Return the documents that have a word, ascending."""
        found = [np.empty(0, np.int64)]
        for part, start, (first, last) in zip(self.parts, self._starts, self._spans(word), strict=False):
            found.append(np.add(part.words.documents(first, last), start, dtype=np.int64))
        return np.concatenate(found)

    def _spots(self, only: Array | None) -> Sequence[Spots]:
        """Return some documents and their neighbours by the parts that hold them, None for all of each part."""
        if only is None:
            return [(part, start, None) for part, start in zip(self.parts, self._starts, strict=False)]
        near = np.zeros(self.size + 2, np.bool_)
        near[only] = near[only + 1] = near[only + 2] = True
        some = np.flatnonzero(near[1:-1])
        cuts = pairwise(np.searchsorted(some, self._starts).tolist())
        places = zip(self.parts, self._starts, cuts, strict=False)
        return [(part, start, some[first:last] - start) for part, start, (first, last) in places if first < last]

    def _scatter(self, words: Iterable[bytes], times: Floats, spots: Sequence[Spots]) -> None:
        """Write how often some documents have words; others may get a number, too."""
        for number, word in enumerate(words):
            for part, start, some in spots:
                first, last = part.words.find(word)
                if first == last:
                    continue
                here = times[start : start + part.size]
                if some is not None and len(some) < last - first:
                    here[some] += part.words.times_in(first, last, some)
                elif number:
                    here[part.words.documents(first, last)] += part.words.times(first, last)
                else:
                    here[part.words.documents(first, last)] = part.words.times(first, last)


def _saturation(length: Floats, free: int, span: int) -> Floats:
    return np.asarray(K1 * (FLAT + np.maximum(0.0, length - free) / span), np.float32)


def _gain(times: Floats, saturation: Floats, weight: float) -> Floats:
    gain: Floats = times * np.float32(weight * (K1 + 1.0))
    gain /= times + saturation
    return gain
