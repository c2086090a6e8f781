"""BM25 over one part, twice: of each document alone, and of each with its neighbours in the conversation.

    own[d]    += weight * tf * (K1 + 1) / (tf + K(d)),    K(d)  = K1 * (FLAT + max(0, L - FREE) / SPAN)
    padded[d] += weight * tp * (K1 + 1) / (tp + Kp(d)),   Kp(d) = K1 * (FLAT + max(0, Lp - FREE_PADDED) / SPAN_PADDED)

tf is how often the document has the word, L how many words it has; tp and Lp are the sums of those over the document
and its neighbours. Short documents are all alike: what is said in a few words is not better for it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from crystal.search.index.attributes import distinct
from crystal.search.index.index_files import Array
from crystal.search.index.index_parts import IndexPart

Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]

K1, FLAT = 0.8, 0.25
FREE, SPAN = 30, 100
FREE_PADDED, SPAN_PADDED = 60, 200

DENSE = 64
"""A word that more than one document of so many has is added up over all documents."""
SELECTIVE = 16
"""A mask that leaves less than one document of so many: only those are looked at."""


class Scorer:
    """What scoring a part needs of its documents, kept from one question to the next."""

    def __init__(self, part: IndexPart) -> None:
        length = part.arrays["length"].astype(np.float32)
        self._part = part
        self._joined = part.joined.astype(np.float32)
        self._has_before, self._has_after = np.pad(self._joined, (1, 0)), np.pad(self._joined, (0, 1))
        self._own = _saturation(length, FREE, SPAN)
        self._padded = _saturation(self._with_neighbours(length), FREE_PADDED, SPAN_PADDED)

    def add(
        self, terms: Sequence[tuple[Sequence[bytes], float]], mask: Mask | None, own: Floats, padded: Floats
    ) -> None:
        """Add the scores of words to those of the documents that a mask leaves; others become 0.

        Args:
            terms: For each word its alternatives, counted together, and its weight.
            mask: The documents, None for all.
            own: The scores of each document alone.
            padded: Those of each with its neighbours.
        """
        only = None
        if mask is not None:
            count = int(np.count_nonzero(mask))
            if not count:
                return
            only = np.flatnonzero(mask) if count * SELECTIVE < self._part.size else None
        times = np.zeros(self._part.size, np.float32)
        for words, weight in terms:
            spans = self._spans(words)
            total = sum(end - start for start, end in spans)
            if not total:
                continue
            if only is None and total * DENSE > self._part.size:
                self._add_all(spans, times, weight, own, padded)
            else:
                places = self._near(spans) if only is None else only
                self._add_at(places, self._scattered(places, spans, times), weight, own, padded)
        if mask is not None and only is None:
            np.copyto(own, 0.0, where=~mask)
            np.copyto(padded, 0.0, where=~mask)

    def own(self, places: Array, terms: Sequence[tuple[Sequence[bytes], float]]) -> Floats:
        """Return the scores of some documents, each alone."""
        scores, saturation = np.zeros(len(places), np.float32), self._own[places]
        times = np.zeros(self._part.size, np.float32)
        for words, weight in terms:
            self._scatter(self._spans(words), times)
            scores += _gain(times[places], saturation, weight)
            times.fill(0.0)
        return scores

    def _spans(self, words: Sequence[bytes]) -> list[tuple[int, int]]:
        return [span for span in map(self._part.words.find, dict.fromkeys(words)) if span[0] < span[1]]

    def _add_all(
        self, spans: Sequence[tuple[int, int]], times: Floats, weight: float, own: Floats, padded: Floats
    ) -> None:
        self._scatter(spans, times)
        both = self._with_neighbours(times)
        own += _gain(times, self._own, weight)
        padded += _gain(both, self._padded, weight)
        times.fill(0.0)

    def _add_at(self, places: Array, times: tuple[Floats, Floats], weight: float, own: Floats, padded: Floats) -> None:
        alone, both = times
        own[places] += _gain(alone, self._own[places], weight)
        padded[places] += _gain(both, self._padded[places], weight)

    def _with_neighbours(self, numbers: Floats) -> Floats:
        both = numbers.copy()
        both[1:] += numbers[:-1] * self._joined
        both[:-1] += numbers[1:] * self._joined
        return np.asarray(both)

    def _near(self, spans: Sequence[tuple[int, int]]) -> Array:
        """Return the documents that have a word, and their neighbours."""
        found = np.concatenate([self._part.words.documents(start, end) for start, end in spans]).astype(np.int64)
        after = found[found < self._part.size - 1]
        before = found[found > 0] - 1
        joined = self._part.joined
        return distinct(np.concatenate([found, after[joined[after]] + 1, before[joined[before]]]))

    def _scatter(self, spans: Sequence[tuple[int, int]], times: Floats) -> None:
        words = self._part.words
        for number, (start, end) in enumerate(spans):
            if number:
                times[words.documents(start, end)] += words.times(start, end)
            else:
                times[words.documents(start, end)] = words.times(start, end)

    def _scattered(self, places: Array, spans: Sequence[tuple[int, int]], times: Floats) -> tuple[Floats, Floats]:
        """Count a word in documents, alone and with their neighbours; ``times`` is all zeros before and after."""
        self._scatter(spans, times)
        alone = times[places]
        before, after = np.maximum(places - 1, 0), np.minimum(places + 1, self._part.size - 1)
        both = alone + times[before] * self._has_before[places] + times[after] * self._has_after[places]
        times.fill(0.0)
        return alone, both


def _saturation(length: Floats, free: int, span: int) -> Floats:
    return np.asarray(K1 * (FLAT + np.maximum(0.0, length - free) / span), np.float32)


def _gain(times: Floats, saturation: Floats, weight: float) -> Floats:
    gain: Floats = times * np.float32(weight * (K1 + 1.0))
    gain /= times + saturation
    return gain
