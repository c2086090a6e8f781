"""Index pairs of neighbouring words, to find the documents that may have some words in a row.

Each document has a Bloom filter with three bits for each of its pairs, and each pair sets two bits. One in four
documents without a pair seems to have it, and one in eighteen seems to have two; reading the text decides.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from crystal.search.index.array_types import Array, Keys, Mask
from crystal.search.index.attributes import MAX_WORDS

Filters = tuple[Array, Array]

BITS, HASHES = 3, 2
AT_ONCE = 1 << 18
"""Number of words whose pairs are processed together, which limits the memory."""
_MIX = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9))
_HALF, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)


@lru_cache(1 << 16)
def _hash(word: str) -> int:
    return zlib.crc32(word.encode("utf-8", "replace"))


class PairCollector:
    """Collects the pairs of documents, some thousand documents at once."""

    def __init__(self) -> None:
        self._words, self._ends, self._filters = array("I"), list[int](), list[Array]()

    def add(self, words: Sequence[str]) -> None:
        """Add the words of the next document, in order."""
        self._words.extend(map(_hash, words))
        self._ends.append(len(self._words))
        if len(self._words) > AT_ONCE:
            self._pack()

    def arrays(self, order: Array, lengths: Array) -> dict[str, Array]:
        """Return the filters of all documents.

        Args:
            order: The ordinal of each document.
            lengths: The number of words of each document, by ordinal.
        """
        self._pack()
        collected = {"length": lengths[order], "pairs": np.concatenate(self._filters)}
        return merge_pairs([collected], [order], lengths)

    def _pack(self) -> None:
        lengths = np.diff(np.array([0, *self._ends]))
        document = np.repeat(np.arange(len(lengths)), lengths)
        is_pair = document[1:] == document[:-1]
        document, pairs = document[1:][is_pair], _pairs(np.array(self._words, np.uint64))[is_pair]
        starts, sizes = filters_of(lengths)
        bits = np.zeros(8 * int(sizes.sum()), np.bool_)
        for number in range(HASHES):
            bits[8 * starts[document] + _place(pairs, number, sizes[document])] = True
        self._filters.append(np.packbits(bits, bitorder="little"))
        self._words, self._ends = array("I"), []


def merge_pairs(parts: Sequence[Mapping[str, Array]], orders: Sequence[Array], lengths: Array) -> dict[str, Array]:
    """Merge the filters of parts; ``orders`` has the new ordinal of each document, -1 to leave it out."""
    starts, sizes = filters_of(lengths)
    merged = np.empty(int(sizes.sum()), np.uint8)
    for part, order in zip(parts, orders, strict=True):
        kept, (before, _) = np.flatnonzero(order >= 0), filters_of(part["length"])
        new = order[kept]
        merged[_bytes(starts[new], sizes[new])] = part["pairs"][_bytes(before[kept], sizes[new])]
    return {"pairs": merged}


def having_in_a_row(part: Mapping[str, Array], filters: Filters, documents: Array, words: Sequence[str]) -> Mask:
    """Return a mask of the documents that may have the words in a row; ``filters`` is the result of ``filters_of``."""
    starts, sizes = filters
    left = np.flatnonzero(part["length"][documents] >= len(words))
    for pair in _pairs(np.array([*map(_hash, words)], np.uint64)):
        for number in range(HASHES):
            some = documents[left]
            place = _place(pair, number, sizes[some])
            left = left[part["pairs"][starts[some] + (place >> 3)] >> (place & 7) & 1 > 0]
    found = np.zeros(len(documents), np.bool_)
    found[left] = True
    return found


def _pairs(words: Keys) -> Keys:
    """Return a hash of each word with the next one."""
    pairs = (words[:-1] << _HALF | words[1:]) * _MIX[0]
    pairs ^= pairs >> _HALF
    return np.asarray(pairs * _MIX[1])


def _place(pairs: Keys | np.uint64, number: int, sizes: Array) -> Array:
    """Return the position of one bit of each pair, in filters of ``sizes`` bytes."""
    first, step = pairs >> _HALF, pairs & _LOW | np.uint64(1)
    place: Array = (first + np.uint64(number) * step) % (8 * sizes).astype(np.uint64)
    return place.astype(np.int64)


def filters_of(lengths: Array) -> Filters:
    """Return the offset and the size, in bytes, of each document's filter, given the numbers of words."""
    sizes = (np.clip(lengths.astype(np.int64) - 1, 0, MAX_WORDS - 1) * BITS + 7) // 8
    return np.cumsum(sizes) - sizes, sizes


def _bytes(starts: Array, sizes: Array) -> Array:
    """Return the offsets of all bytes of some filters, one filter after the other."""
    before = np.cumsum(sizes) - sizes
    return np.repeat(starts - before, sizes) + np.arange(int(sizes.sum()))
