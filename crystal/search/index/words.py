"""Store the postings of one part of the index: the documents of each word, and how often each has it.

Words are sorted by their UTF-8 bytes and found by binary search in the mapped file. A posting is the ordinal of a
document and one bit, which is set if the document has the word more than once. Only then its count is stored, in four
bits: even ones in the lower half of a byte, odd ones in the upper half. The ordinals of a frequent word are stored as
differences: bytes to be added up, where a byte of 255 continues in the next one. If that is shorter, one bit for each
document is stored instead. While a part is built, a posting is one number, word << 32 | document << 8 | count, so that
sorting numbers sorts the postings.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import count, pairwise
from typing import Any

import numpy as np

from crystal.search.index.array_types import Array, Keys

MAX_TIMES = 64
TIMES = np.array([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16, 24, 32, 48, 64], np.uint8)
"""Counts of a word in a document that four bits represent; others are rounded down to the next."""
RANKED = 4096
"""Interval of postings at which the number of set bits before them is stored."""
PART_OF_STEP = 255
FREQUENT = 200
"""A word is frequent if, on average, at least one in this many documents has it."""
MIN_STEPS = 32
BLOCK = 1 << 20
KNOWN_WORDS = 1024
APART = 256
_WORD, _DOCUMENT = np.uint64(32), np.uint64(8)
_COUNT, _ORDINAL = np.uint64(0xFF), np.uint64(0xFFFFFF)


class WordCollector:
    """Collects the words of documents, some thousand documents at once."""

    def __init__(self) -> None:
        self._vocabulary = defaultdict[str, int](count().__next__)  # numbered as they come
        self._blocks: list[Keys] = []
        self._numbers: list[int] = []
        self._ends: list[int] = []
        self._done = 0

    def add(self, words: Iterable[str]) -> None:
        """Add the words of the next document."""
        self._numbers.extend(map(self._vocabulary.__getitem__, words))
        self._ends.append(len(self._numbers))
        if len(self._numbers) > 1_000_000:
            self._pack()

    def arrays(self, order: Array) -> dict[str, Array]:
        """Return the words of all documents; ``order`` has the ordinal of each document."""
        self._pack()
        words = sorted(self._vocabulary)
        rank = np.empty(len(words), np.uint64)
        numbers = np.fromiter((self._vocabulary[word] for word in words), np.int64, len(words))
        rank[numbers] = np.arange(len(words), dtype=np.uint64)
        return arrays_of([word.encode() for word in words], _taken(self._blocks, rank, order.astype(np.uint64)))

    def _pack(self) -> None:
        ends = np.array([0, *self._ends])
        documents = np.repeat(np.arange(self._done, self._done + len(self._ends)), np.diff(ends)).astype(np.uint64)
        keys = np.array(self._numbers, np.uint64) << _WORD | documents << _DOCUMENT
        keys.sort()
        starts = np.flatnonzero(np.diff(keys, prepend=keys[:1] + np.uint64(1)))
        counts = np.diff(starts, append=len(keys))
        self._blocks.append(keys[starts] | np.minimum(counts, MAX_TIMES).astype(np.uint64))
        self._done += len(self._ends)
        self._numbers, self._ends = [], []


def _taken(blocks: list[Keys], rank: Keys, order: Keys) -> Keys:
    """Join blocks of postings with new numbers of words and documents; empties ``blocks``."""
    keys = np.empty(sum(map(len, blocks)), np.uint64)
    at = len(keys)
    while blocks:
        block = blocks.pop()
        at -= len(block)
        keys[at : at + len(block)] = (
            rank[block >> _WORD] << _WORD | order[block >> _DOCUMENT & _ORDINAL] << _DOCUMENT | block & _COUNT
        )
    return keys


def merge_words(parts: Sequence[PartWords], orders: Sequence[Array]) -> dict[str, Array]:
    """Merge the words of parts; ``orders`` has the new ordinal of each document, -1 to leave it out."""
    lists = [part.all() for part in parts]
    words = sorted(set().union(*lists))
    number = {word: at for at, word in enumerate(words)}
    ranks = [np.fromiter((number[word] for word in known), np.uint64, len(known)) for known in lists]
    keys = [_renumbered(*one) for one in zip(parts, ranks, orders, strict=True)]
    return arrays_of(words, keys[0] if len(keys) == 1 else np.concatenate(keys))


def _renumbered(part: PartWords, rank: Keys, order: Array) -> Keys:
    """Return the postings of a part with new numbers of words and documents; in blocks, to save memory."""
    document = order.astype(np.int32)[part.all_documents()]
    keys = np.repeat(rank << _WORD, _lengths(part.start))
    for start in range(0, len(keys), BLOCK):
        block, times = slice(start, start + BLOCK), part.times(start, min(start + BLOCK, len(keys)))
        keys[block] |= document[block].astype(np.uint64) << _DOCUMENT | times
    there = document >= 0
    return keys if there.all() else keys[there]


def arrays_of(words: Sequence[bytes], keys: Keys) -> dict[str, Array]:
    """Return the arrays of postings, which are sorted in place; a word without postings is left out."""
    keys.sort()
    frequencies = _lengths(np.searchsorted(keys, np.arange(len(words) + 1, dtype=np.uint64) << _WORD))
    blocks = [slice(start, start + BLOCK) for start in range(0, len(keys), BLOCK)]
    newest = max((int((keys[block] >> _DOCUMENT & _ORDINAL).max()) for block in blocks), default=0)
    document = np.empty(len(keys), "<u2" if newest < 1 << 16 else "<u4")
    level = np.zeros(len(keys), "|u1")
    for block in blocks:
        document[block] = keys[block] >> _DOCUMENT & _ORDINAL
        level[block] = np.searchsorted(TIMES, (keys[block] & _COUNT).astype(np.uint8), "right") - 1
    used = [word for word, frequency in zip(words, frequencies.tolist(), strict=True) if frequency]
    ends = np.cumsum(np.fromiter(map(len, used), np.int64, len(used)))
    frequencies = frequencies[frequencies > 0]
    is_frequent = (frequencies >= MIN_STEPS) & (frequencies * FREQUENT > newest)
    has_steps = np.repeat(is_frequent, frequencies)
    steps, step_at = _packed(document[has_steps], frequencies[is_frequent])
    return {
        "words": np.frombuffer(b"".join(used), np.uint8),
        "word_at": np.concatenate([[0], ends]).astype("<u4" if not len(ends) or ends[-1] < 2**32 else "<u8"),
        "posting_at": np.concatenate([[0], np.cumsum(frequencies)]).astype("<u4"),
        "document": document[~has_steps],
        "frequent": np.flatnonzero(is_frequent).astype("<u4"),
        "steps": steps,
        "step_at": step_at.astype("<u4"),
        **_times(level),
    }


def _times(level: Array) -> dict[str, Array]:
    """Return the arrays of counts, given as indexes in ``TIMES``."""
    has_more = level > 0
    counts = np.add.reduceat(has_more, np.arange(0, len(level), RANKED), dtype=np.uint32) if len(level) else level
    exact = level[has_more]
    exact = np.append(exact, np.zeros(len(exact) % 2, np.uint8))
    return {
        "more": np.packbits(has_more, bitorder="little"),
        "more_before": np.concatenate([[0], np.cumsum(counts)]).astype("<u4"),
        "times": exact[::2] | exact[1::2] << 4,
    }


def _packed(documents: Array, frequencies: Array) -> tuple[Array, Array]:
    """Return the ordinals of some words as differences or bits, whichever is shorter, and the offset of each word."""
    ends = np.cumsum(frequencies)
    step: Array = np.diff(documents.astype(np.int32), prepend=np.int32(0))
    step[ends[:-1]] = documents[ends[:-1]]
    last = np.cumsum(step // PART_OF_STEP + 1, dtype=np.int32)
    steps = np.full(int(last[-1]) if len(last) else 0, PART_OF_STEP, np.uint8)
    steps[last - 1] = step % PART_OF_STEP
    lists, begin, at = [np.empty(0, np.uint8)], 0, 0
    for end, after in zip(ends.tolist(), last[ends - 1].tolist(), strict=True):
        newest = int(documents[end - 1])
        if newest // 8 + 1 < end - begin:
            bits = np.zeros(newest + 1, np.bool_)
            bits[documents[begin:end]] = True
            lists.append(np.packbits(bits, bitorder="little"))
        else:
            lists.append(steps[at:after])
        begin, at = end, after
    return np.concatenate(lists), np.cumsum([0, *map(len, lists[1:])])


class PartWords:
    """The words of one part, over its arrays."""

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        self._words: memoryview = memoryview(arrays["words"])
        self._at: Array = arrays["word_at"]
        self.start: Array = arrays["posting_at"]
        self._document: Array = arrays["document"]
        self._frequent: Array = arrays["frequent"].astype(np.int64)
        self._steps: Array = arrays["steps"]
        self._step_at: Array = arrays["step_at"]
        lengths = self.start[self._frequent + 1].astype(np.int64) - self.start[self._frequent]
        self._before = np.concatenate([[0], np.cumsum(lengths)])
        self._more: Array = arrays["more"]
        self._more_before: Array = arrays["more_before"]
        self._times: Array = arrays["times"]
        self.size = len(self._at) - 1
        self._spans: dict[bytes, tuple[int, int]] = {}

    def times(self, start: int, end: int) -> Array:
        """Return the counts of a range of postings."""
        bits = np.unpackbits(self._more[start // 8 : (end + 7) // 8], bitorder="little")
        has_more = bits[start % 8 : start % 8 + end - start].view(np.bool_)
        found = np.ones(end - start, np.uint8)
        if count := int(np.count_nonzero(has_more)):
            ahead = self._more[start // RANKED * RANKED // 8 : start // 8 + 1].tobytes()
            ones = int.from_bytes(ahead, "little") & ((1 << start % RANKED) - 1)
            before = int(self._more_before[start // RANKED]) + ones.bit_count()
            found[has_more] = self._exact(before, before + count)
        return found

    def _exact(self, start: int, end: int) -> Array:
        """Return the counts of a range of the postings with a count above one."""
        packed = self._times[start // 2 : (end + 1) // 2]
        levels = np.empty(2 * len(packed), np.uint8)
        levels[::2], levels[1::2] = packed & 15, packed >> 4
        return np.asarray(TIMES.take(levels[start % 2 :][: end - start]))

    def documents(self, start: int, end: int) -> Array:
        """Return the documents of all postings of a word, in ascending order; empty if the range is."""
        if start == end:
            return self._document[:0]
        at, is_frequent = self._place(start)
        if is_frequent:
            return self._unpacked(at)
        before = int(self._before[at])
        return np.asarray(self._document[start - before : end - before])

    def _place(self, start: int) -> tuple[int, bool]:
        """Return the number of frequent words before a word, and True if it is frequent."""
        word = int(self.start.searchsorted(self.start.dtype.type(start), "right")) - 1  # of another type it is copied
        at = int(self._frequent.searchsorted(word))
        return at, at < len(self._frequent) and self._frequent[at] == word

    def _packed(self, at: int) -> tuple[Array, bool]:
        """Return the documents of a frequent word as stored, and True if they are stored as bits."""
        packed = self._steps[self._step_at[at] : self._step_at[at + 1]]
        return packed, len(packed) < self._before[at + 1] - self._before[at]

    def _unpacked(self, at: int) -> Array:
        """Return the documents of a frequent word."""
        packed, is_bits = self._packed(at)
        if is_bits:
            return np.flatnonzero(np.unpackbits(packed, bitorder="little").view(np.bool_)).astype(np.uint32)
        return np.asarray(np.cumsum(packed, dtype=np.uint32)[packed != PART_OF_STEP])

    def among(self, start: int, end: int, documents: Array) -> tuple[Array, Array]:
        """Return which of some ascending documents are in a range of postings, and their indexes in it."""
        at, is_frequent = self._place(start) if start < end else (0, False)
        packed, is_bits = self._packed(at) if is_frequent else (self._steps, False)
        if is_bits:
            return _ranked(packed, documents[: np.searchsorted(documents, 8 * len(packed))])
        listed = self.documents(start, end)
        places = np.searchsorted(listed, documents.astype(listed.dtype))
        some = np.flatnonzero(places < len(listed))
        some = some[listed[places[some]] == documents[some]]
        return some, places[some]

    def times_in(self, start: int, end: int, documents: Array) -> Array:
        """Return how often each of some ascending documents has a word; 0 if it does not."""
        found, (some, places) = np.zeros(len(documents), np.uint8), self.among(start, end, documents)
        first = start // RANKED * RANKED
        has_more, before = _ranked(self._more[first // 8 : (end + 7) // 8], places + (start - first))
        found[some] = 1
        at = before + int(self._more_before[start // RANKED])
        found[some[has_more]] = TIMES.take(self._times[at >> 1] >> ((at & 1) << 2).astype(np.uint8) & 15)
        return found

    def all_documents(self) -> Array:
        """Return the documents of all postings."""
        lengths = _lengths(self.start)
        is_frequent = np.zeros(self.size, np.bool_)
        is_frequent[self._frequent] = True
        has_steps = np.repeat(is_frequent, lengths)
        found = np.empty(len(has_steps), np.uint32)
        found[~has_steps] = self._document
        if len(self._frequent):
            found[has_steps] = np.concatenate([self._unpacked(at) for at in range(len(self._frequent))])
        return found

    def all(self) -> list[bytes]:
        """Return every word, in order."""
        data, at = bytes(self._words), self._at.tolist()
        return [data[start:end] for start, end in pairwise(at)]

    def at(self, word: bytes) -> int:
        """Return the number of the first word that is not less than this one; numbers follow their sort order."""
        first = max(0, bisect_left(self._some_words, word) - 1) * APART
        return bisect_left(range(self.size), word, first, min(first + APART, self.size), key=self._word)

    @cached_property
    def _some_words(self) -> list[bytes]:
        """Return words at equal distances, which are searched faster than the mapped file."""
        return [*map(self._word, range(0, self.size, APART))]

    def _word(self, number: int) -> bytes:
        return bytes(self._words[self._at.item(number) : self._at.item(number + 1)])

    def find(self, word: bytes) -> tuple[int, int]:
        """Return the range of a word's postings, ``(start, end)``; empty if the word is missing."""
        span = self._spans.get(word)
        if span is None:  # a question looks for each of its words several times
            number = self.at(word)
            is_here = number < self.size and self._word(number) == word
            span = (self.start.item(number), self.start.item(number + 1)) if is_here else (0, 0)
            self.remember({word: span})
        return span

    def remember(self, spans: Mapping[bytes, tuple[int, int]]) -> None:
        """Cache the ranges of some words for ``find``."""
        if len(self._spans) >= KNOWN_WORDS:
            self._spans.clear()
        self._spans.update(spans)

    def with_all(self, words: Sequence[bytes]) -> Array:
        """Return the documents that have all of some words, in ascending order."""
        spans = sorted(map(self.find, words), key=lambda span: span[1] - span[0])
        found = self.documents(*spans[0]).astype(np.int64)
        for start, end in spans[1:]:
            found = found[self.among(start, end, found)[0]]
        return found

    def containing(self, part: bytes) -> list[tuple[int, int]]:
        """Return the ranges of the postings of every word that contains some bytes."""
        data, found = bytes(self._words), []
        at = data.find(part)
        while at >= 0:
            number = int(self._at.searchsorted(self._at.dtype.type(at), "right")) - 1
            if at + len(part) <= int(self._at[number + 1]):
                found.append((int(self.start[number]), int(self.start[number + 1])))
            at = data.find(part, int(self._at[number + 1]))
        return found

    def beginning(self, prefix: bytes, most: int) -> tuple[dict[bytes, tuple[int, int]], bool]:
        """Return the words with a prefix, each with the range of its postings, and True if these are all.

        If there are more than ``most``, return the most frequent ones.
        """
        first, after = self.at(prefix), _after(prefix)
        last = self.size if after is None else self.at(after)
        ends = self.start[first : last + 1].tolist()
        at = self._at[first : last + 1].tolist()
        numbers: Iterable[int] = range(last - first)
        if last - first > most:
            numbers = _lengths(self.start[first : last + 1]).argsort(kind="stable")[::-1][:most].tolist()
        data = bytes(self._words[at[0] : at[-1]])
        spans = {data[at[n] - at[0] : at[n + 1] - at[0]]: (ends[n], ends[n + 1]) for n in numbers}
        return spans, last - first <= most


def _lengths(ends: Array) -> Array:
    ends = ends.astype(np.int64)
    return np.asarray(ends[1:] - ends[:-1])


def _ranked(bits: Array, places: Array) -> tuple[Array, Array]:
    """Return which of some bits are set, and the number of set bits before each."""
    words = np.frombuffer(bits.tobytes() + bytes(-len(bits) % 8), "<u8")
    word = places >> 6
    ahead = words[word] >> (places & 63).astype(np.uint64)
    is_set = np.flatnonzero(ahead & np.uint64(1))
    before = np.cumsum(np.bitwise_count(words), dtype=np.int64)[word[is_set]]
    return is_set, before - np.bitwise_count(ahead[is_set])


def _after(prefix: bytes) -> bytes | None:
    """Return the smallest byte string that is greater than all strings with this prefix; None if none is."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
