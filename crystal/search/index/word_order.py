"""The order of the words of documents, one byte for each word: which documents may have some words in a row.

A byte is a hash of a word, so a match may be wrong: the text tells.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from crystal.search.index.index_files import Array

Mask = npt.NDArray[np.bool_]

AT_ONCE = 1 << 17
"""Words that are compared at once: bounds the memory."""


class _Bytes(dict[str, int]):
    """The byte of each word."""

    def __missing__(self, word: str) -> int:
        self[word] = byte = zlib.crc32(word.encode("utf-8", "replace")) & 0xFF
        return byte


class OrderCollector:
    """Collects the words of documents as they come."""

    def __init__(self) -> None:
        self._bytes, self._documents = _Bytes(), list[bytes]()

    def add(self, words: Iterable[str]) -> None:
        """Take the words of the next document, in order."""
        self._documents.append(bytes(map(self._bytes.__getitem__, words)))

    def arrays(self, order: Array) -> dict[str, Array]:
        """Return the bytes of all documents; ``order`` gives the ordinal of each document."""
        places = np.argsort(order)
        ordered = [self._documents[at] for at in places.tolist()]
        return _arrays(np.frombuffer(b"".join(ordered), np.uint8), np.array([*map(len, ordered)], np.int64))


def merge_orders(parts: Sequence[Mapping[str, Array]], orders: Sequence[Array]) -> dict[str, Array]:
    """Merge the words of parts; ``orders`` gives each document its new ordinal, -1 leaves it out."""
    lengths = np.zeros(sum(int(np.count_nonzero(order >= 0)) for order in orders), np.int64)
    for part, order in zip(parts, orders, strict=True):
        lengths[order[order >= 0]] = np.diff(part["order_at"].astype(np.int64))[order >= 0]
    starts = np.cumsum(lengths) - lengths
    merged = np.empty(int(lengths.sum()), np.uint8)
    for part, order in zip(parts, orders, strict=True):
        for at in range(0, len(order), 4096):
            kept = np.flatnonzero(order[at : at + 4096] >= 0) + at
            new = order[kept]
            merged[_places(starts[new], lengths[new])] = part["order"][_places(part["order_at"][kept], lengths[new])]
    return _arrays(merged, lengths)


def having_in_a_row(part: Mapping[str, Array], documents: Array, words: Sequence[str]) -> Mask:
    """Return for each of some documents whether it may have some words in a row."""
    row = [*map(_Bytes().__getitem__, words)]
    lengths = part["order_at"][documents + 1].astype(np.int64) - part["order_at"][documents]
    found = np.zeros(len(documents), np.bool_)
    blocks = np.cumsum(lengths) // AT_ONCE
    for block in range(int(blocks[-1]) + 1 if len(blocks) else 0):
        some = np.flatnonzero((blocks == block) & (lengths >= len(row)))
        read = part["order"][_places(part["order_at"][documents[some]], lengths[some])]
        is_row = np.ones(max(0, len(read) - len(row) + 1), np.bool_)
        for at, byte in enumerate(row):
            is_row &= read[at : at + len(is_row)] == byte
        first, ends = np.flatnonzero(is_row), np.cumsum(lengths[some])
        which = np.searchsorted(ends, first, "right")
        found[some[which[first + len(row) <= ends[which]]]] = True  # and not into the next document
    return found


def _places(starts: Array, lengths: Array) -> Array:
    """Return the places of all words of some documents, one document after the other."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts.astype(np.int64) - before, lengths) + np.arange(int(lengths.sum()))


def _arrays(words: Array, lengths: Array) -> dict[str, Array]:
    return {"order": words, "order_at": np.concatenate([[0], np.cumsum(lengths)]).astype("<u4")}
