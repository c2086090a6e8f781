"""Search for many byte strings in one pass whose cost does not depend on their number.

Every string is represented by its rarest five bytes. A table tells for each position whether one of those may start
there; the few candidates are compared with the strings themselves, so the result is exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

MIN_LENGTH = 5
"""Minimum bytes of a string; a shorter one would match by chance."""

MAX_LENGTH = 1 << 16
PIECE = 1 << 22
MAX_HEAD = 96
"""Bytes of a string among which those that represent it are chosen."""

_STEP = 1 << 18
_BITS = 20
_SPREADS = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))
_DOWN = np.uint64(64 - _BITS)
_MASKS = {width: np.uint64((1 << 8 * width) - 1) for width in range(MIN_LENGTH, 9)}
_USUAL = frozenset(b' \0etaoinsrhld\\",.')
_MARKS = bytes(byte not in _USUAL for byte in range(256))

Keys = npt.NDArray[np.uint64]
Hit = tuple[int, int]
"""Offset of a match, and the number of the string."""


class MultiPatternMatcher:
    """Prepared set of strings, each of ``MIN_LENGTH`` to ``MAX_LENGTH`` bytes."""

    def __init__(self, strings: Sequence[bytes]) -> None:
        self.strings = tuple(strings)
        self.longest = max(map(len, self.strings), default=0)
        self._tables: list[npt.NDArray[np.bool_]] = [np.zeros(1 << _BITS, np.bool_) for _ in _SPREADS]
        self._by_key: dict[int, dict[int, list[Hit]]] = {}
        for number, string in enumerate(self.strings):
            at, width = _anchor(string)
            key = int.from_bytes(string[at : at + width], "little")
            self._by_key.setdefault(width, {}).setdefault(key, []).append((at, number))
        self._keys: dict[int, Keys] = {}
        for width, known in self._by_key.items():
            keys = np.array(sorted(known), np.uint64)
            self._keys[width] = keys
            for table, spread in zip(self._tables, _SPREADS, strict=True):
                table[_places_of(keys & _MASKS[MIN_LENGTH], spread)] = True

    def __len__(self) -> int:
        return len(self.strings)

    def find(self, data: bytes) -> Iterator[Hit]:
        """Yield every position of ``data`` where one of the strings starts, in no order."""
        if not self.strings or len(data) < MIN_LENGTH:
            return
        padded = data + bytes(8)
        keys: Keys = np.ndarray((len(data),), "<u8", padded, strides=(1,))
        for start in range(0, len(data), _STEP):
            block = keys[start : start + _STEP]
            beginnings = block & _MASKS[MIN_LENGTH]
            maybe = np.flatnonzero(self._tables[0][_places_of(beginnings, _SPREADS[0])])
            maybe = maybe[self._tables[1][_places_of(beginnings[maybe], _SPREADS[1])]]
            if len(maybe):
                yield from self._sure(data, start, maybe, block[maybe])

    def _sure(self, data: bytes, start: int, places: npt.NDArray[Any], found: Keys) -> Iterator[Hit]:
        for width, known in self._keys.items():
            some = found & _MASKS[width]
            at = np.minimum(np.searchsorted(known, some), len(known) - 1)
            for index in np.flatnonzero(known[at] == some).tolist():
                place = start + int(places[index])
                for back, number in self._by_key[width][int(some[index])]:
                    if place >= back and data.startswith(self.strings[number], place - back):
                        yield place - back, number

    def is_in(self, data: bytes) -> bool:
        """Return True if one of the strings is in ``data``."""
        return next(self.find(data), None) is not None

    def find_in(self, pieces: Iterable[bytes]) -> Iterator[Hit]:
        """Yield every match in a file that is read in pieces, in constant memory."""
        kept, at = b"", 0
        for piece in pieces:
            data = kept + piece
            for place, number in self.find(data):
                if place + len(self.strings[number]) > len(kept):
                    yield at - len(kept) + place, number
            at += len(piece)
            kept = data[max(0, len(data) - self.longest + 1) :] if self.longest > 1 else b""


def _places_of(keys: Keys, spread: np.uint64) -> npt.NDArray[Any]:
    with np.errstate(over="ignore"):
        return np.asarray((keys * spread) >> _DOWN)


def _anchor(string: bytes) -> Hit:
    """Return the position and length of the bytes that represent a string: eight, or all of a shorter one."""
    if len(string) <= 8:
        return 0, len(string)
    head = string[:MAX_HEAD]
    marks = head.translate(_MARKS)
    unusual = [marks.count(1, at, at + 5) for at in range(len(head) - 7)]
    most = max(unusual)
    rarest = (at for at, count in enumerate(unusual) if count == most)
    return max(rarest, key=lambda at: len(set(head[at : at + 8]))), 8
