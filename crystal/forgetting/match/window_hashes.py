"""Find very many byte strings by their hashes: 32 bytes of memory for each instead of some hundreds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]

WORD = 8
MORE = 2
"""Words after the first ones whose hashes are compared, too, where a string is long enough."""
BATCH = 20_000
BLOCK = 1 << 18
"""Bytes that are searched at once: they stay in the processor's cache."""
MIN_BITS, MAX_BITS = 12, 26
"""Of the table that says which hashes may be known: a byte for each, and at least 16 for each hash up to 64 MB."""

_ODD = np.uint64(0x9E3779B97F4A7C15)
_FOLD = np.uint64(32)
_NONE = np.empty(0, np.uint64)


class WindowHashes:
    """The hashes of strings, found by those of some bytes of theirs; each has a number. The strings are not kept.

    Args:
        strings: Each string and its number; of equal strings the first one counts. None is shorter than the words, or
            with ``is_fast`` than seven bytes more.
        words: How many words of eight bytes are hashed first.
        is_fast: Hash each string from each of its first eight bytes on, so that a search compares only at every
            eighth byte. Takes an eighth of the time, and eight times the memory.
    """

    def __init__(self, strings: Iterable[tuple[bytes, int]], words: int = 2, *, is_fast: bool = False) -> None:
        self._words, self._steps = words, 1 if is_fast else WORD
        left, size = iter(strings), (words + MORE) * WORD
        columns = [(_NONE, np.empty((0, MORE), np.uint32), *(np.empty(0, np.int32),) * 3, np.empty(0, np.int64))]
        while batch := list(islice(left, BATCH)):
            hashed = [(hash(string), len(string)) for string, _ in batch]
            for shift in range(WORD // self._steps):
                stretches = [string[shift : shift + size] for string, _ in batch]
                lengths = np.array(list(map(len, stretches)))[:, None] // WORD
                starts = (one if len(one) == size else one.ljust(size, b"\0") for one in stretches)
                data = np.frombuffer(b"".join(starts), "<u8").reshape(len(batch), -1)
                columns.append(
                    (
                        _hashed(data[:, :words].T),
                        np.where(lengths > words + np.arange(MORE), _checks(data[:, words:]), np.uint32(0)),
                        np.array([number for _, number in batch], np.int32),
                        np.array([length for _, length in hashed], np.int32),
                        np.full(len(batch), shift, np.int32),
                        np.array([whole for whole, _ in hashed], np.int64),
                    )
                )
        firsts, checks, numbers, lengths, shifts, wholes = map(np.concatenate, zip(*columns, strict=True))
        order = np.lexsort((numbers, shifts, wholes, firsts))
        is_new = np.ones(len(order), np.bool_)
        is_new[1:] = np.any([np.diff(column[order]) != 0 for column in (firsts, wholes, shifts)], axis=0)
        order = order[is_new]
        self._hashes, self._checks, self._numbers = firsts[order], checks[order], numbers[order]
        self._wholes, self._lengths, self._shifts = wholes[order], lengths[order], shifts[order]
        bits = min(MAX_BITS, max(MIN_BITS, len(order).bit_length() + 4))
        self._shift = np.uint64(64 - bits)
        self._may_be = np.zeros(1 << bits, np.bool_)
        self._may_be[self._hashes >> self._shift] = True

    def find(self, data: bytes) -> Iterator[tuple[int, int, int]]:
        """Yield the start and the end of each string in ``data``, and its number."""
        size = (self._words + MORE) * WORD
        for start in range(0, len(data) if len(self._hashes) else 0, BLOCK):
            block = data[start : start + BLOCK + size].ljust(size + WORD, b"\0")
            found = [self._found(block, first) for first in range(self._steps)]
            places, known = (np.concatenate(one) for one in zip(*found, strict=True))
            order = np.argsort(places, kind="stable")
            last = min(BLOCK, len(data) - start - self._words * WORD + 1)
            places, known = places[order], known[order]
            places, known = places[places < last], known[places < last]
            places += start - self._shifts[known]
            values = (places, self._lengths[known], self._wholes[known], self._numbers[known])
            for at, length, whole, number in zip(*(one.tolist() for one in values), strict=True):
                if at >= 0 and hash(data[at : at + length]) == whole:
                    yield at, at + length, number

    def _found(self, block: bytes, first: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return places that are ``first`` bytes after a multiple of eight, each with a string that may begin there."""
        words = np.frombuffer(block, "<u8", (len(block) - first) // WORD, first)
        count = len(words) - self._words + 1
        hashes = _hashed([words[at : at + count] for at in range(self._words)])
        places = np.flatnonzero(self._may_be[hashes >> self._shift])
        starts = np.searchsorted(self._hashes, hashes[places], "left")
        counts = np.searchsorted(self._hashes, hashes[places], "right") - starts
        places = np.repeat(places, counts)
        at = np.arange(len(places)) + np.repeat(starts - np.cumsum(counts) + counts, counts)
        after = np.append(words, np.zeros(MORE, np.uint64))
        checks = _checks(after[places[:, None] + self._words + np.arange(MORE)])
        is_known = ((self._checks[at] == 0) | (self._checks[at] == checks)).all(axis=1)
        return places[is_known] * WORD + first, at[is_known]


def _checks(words: npt.NDArray[Any]) -> npt.NDArray[np.uint32]:
    """Return a short hash of each word: never 0, which stands for a string that does not reach so far."""
    return np.asarray(_hashed([words]) >> _FOLD | np.uint64(1), np.uint32)


def _hashed(words: Sequence[npt.NDArray[Any]] | npt.NDArray[Any]) -> Hashes:
    found = words[0] * _ODD
    for word in words[1:]:
        found ^= found >> _FOLD
        found += word
        found *= _ODD
    found ^= found >> _FOLD
    found *= _ODD
    return np.asarray(found, np.uint64)
