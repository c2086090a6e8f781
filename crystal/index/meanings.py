"""The vectors of one part of the index: signs to find candidates, small integers to score them.

Row i belongs to document i of the part. ``signs`` holds one bit for each dimension of the turned rows, 64 to a word and
word by word, so that a question is compared with all rows by counting bits. ``rows`` are the vectors as the store has
them, turned and rounded to int8 (``crystal.vectorform``), each with a ``scale`` that gives it the length 1 again. Only
the rows of the candidates are read at all.

Signs are taken from half the mean of the rows: from the whole mean, a sign tells more of the direction, but leaves out
the mean's own part of the cosine; half was measured to be best.

A question is rounded to integers so small that every sum is exact in float32: the same row gets the same cosine
wherever it lies, whatever BLAS is at hand, so that equal texts stay in order and one store gives one order.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from crystal.index.signs import count_different, signs_of
from crystal.vectorform import LARGEST

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
Wide = npt.NDArray[np.float64]
Ordinals = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Arrays = dict[str, Array]
Allocate = Callable[[str, str, tuple[int, ...]], Array]
"""Makes an array of zeros from its name, dtype and shape: in memory, or a writable map of a file."""
CANDIDATES = 4000
"""The rows of 384 numbers that are guessed, of all parts together, are so many,"""
CANDIDATES_EACH = 100
"""and so many more for each one that is asked for,"""
CANDIDATES_SHARE = 0.01
"""and this share of those that may be found; of longer rows fewer, because more signs tell more."""
MORE = 32
"""Rows that are measured: so many more than twice those asked for."""
TIED = 4
"""Rows of the last distance are taken whole until there are so many times more candidates than needed."""
SELECTIVE = 8
"""A mask that leaves less than one row of so many: only the signs of its rows are looked at."""
RESIDENT = 200_000_000
"""Bytes of mapped rows that stay in the process's memory; parts beyond it are let go of when they have been read."""


STRIPE = 16_384
"""Rows whose signs are compared at once: they stay in the processor's cache."""
GATHER = 200_000
"""Numbers of rows that are scored at once, likewise."""
BLOCK = 1 << 20
"""Numbers that are built or merged at once: bounds the memory."""
CENTRE = 0.5
"""Where signs are taken from, as a share of the mean."""


def zeros(_name: str, dtype: str, shape: tuple[int, ...]) -> Array:
    """Make an array in memory, see ``Allocate``."""
    return np.zeros(shape, dtype)


def shapes(n: int, dimension: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The arrays of a part of ``n`` rows: their dtypes and shapes, in the order in which they are best laid out."""
    return {
        "centre": ("<f4", (dimension,)),
        "has": ("|u1", (n,)),
        "scale": ("<f4", (n,)),
        "signs": ("<u8", (-(-dimension // 64), n)),
        "rows": ("|i1", (n, dimension)),
    }


def build_arrays(rows: Iterable[tuple[int, bytes]], n: int, dim: int, allocate: Allocate = zeros) -> Arrays:
    """Make a part of ``n`` rows.

    Args:
        rows: Ordinals and vectors, as signed bytes, in any order, read once. A vector that is no direction (zero, of
            another dimension) counts as missing, like one that is not given.
        n: How many documents the part has.
        dim: How many numbers a vector has.
        allocate: Where the arrays are.
    """
    arrays = _allocated(n, dim, allocate)
    for ordinals, vectors in _blocks(rows, dim):
        _put(arrays, ordinals, vectors)
    _sign(arrays)
    return arrays


def merge_arrays(
    parts: Sequence[Mapping[str, Array]], orders: Sequence[Ordinals], n: int, dim: int, allocate: Allocate = zeros
) -> Arrays:
    """Make a part of ``n`` rows from the rows of others, some thousands at once; nothing is lost by merging again.

    Args:
        parts: The arrays of the others.
        orders: For each of them the new ordinal of each of its rows, -1 for a row that is left out.
        n: How many documents the part has; those that no order names have no vector.
        dim: How many numbers a vector has.
        allocate: Where the arrays are.
    """
    arrays = _allocated(n, dim, allocate)
    for part, order in zip(parts, orders, strict=True):
        for block in _slices(len(order), dim):
            kept = (order[block] >= 0) & (part["has"][block] != 0)
            to = order[block][kept]
            for name in ("rows", "scale"):
                arrays[name][to] = part[name][block][kept]
            arrays["has"][to] = 1
    _sign(arrays)
    return arrays


def _allocated(n: int, dim: int, allocate: Allocate) -> Arrays:
    return {name: allocate(name, dtype, shape) for name, (dtype, shape) in shapes(n, dim).items()}


def _blocks(rows: Iterable[tuple[int, bytes]], dim: int) -> Iterator[tuple[Ordinals, Array]]:
    ordinals: list[int] = []
    vectors: list[bytes] = []
    for ordinal, vector in rows:
        if len(vector) == dim:
            ordinals.append(ordinal)
            vectors.append(vector)
        if len(ordinals) * dim >= BLOCK:
            yield np.array(ordinals, np.int64), np.frombuffer(b"".join(vectors), np.int8).reshape(-1, dim)
            ordinals, vectors = [], []
    if ordinals:
        yield np.array(ordinals, np.int64), np.frombuffer(b"".join(vectors), np.int8).reshape(-1, dim)


def _put(arrays: Arrays, ordinals: Ordinals, rows: Array) -> None:
    lengths = np.sqrt(np.square(rows, dtype=np.float64).sum(axis=1))
    good = lengths > 0.0
    arrays["rows"][ordinals[good]] = rows[good]
    arrays["scale"][ordinals[good]] = 1.0 / lengths[good]
    arrays["has"][ordinals[good]] = 1


def _sign(arrays: Arrays) -> None:
    """Find the mean of the rows, and on which side of it each one lies."""
    n, dim = arrays["rows"].shape
    total = np.zeros(dim, np.float64)
    for block in _slices(n, dim):
        total += (arrays["rows"][block] * arrays["scale"][block, None]).sum(axis=0)
    arrays["centre"][:] = total * CENTRE / max(1, int(np.count_nonzero(arrays["has"])))
    for block in _slices(n, dim):
        arrays["signs"][:, block] = signs_of(arrays["rows"][block] * arrays["scale"][block, None], arrays["centre"]).T


def _slices(n: int, dim: int, numbers: int = BLOCK) -> Iterator[slice]:
    step = max(1, numbers // dim)
    return (slice(start, start + step) for start in range(0, n, step))


class Meanings:
    """The vectors of one part, over its arrays as ``build_arrays`` gives them, or as maps of a file."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self._centre: Floats = arrays["centre"]
        self._has: Mask = arrays["has"] != 0
        self._scale: Floats = arrays["scale"]
        self.signs: npt.NDArray[np.uint64] = arrays["signs"]
        self._rows: npt.NDArray[np.int8] = arrays["rows"]
        self.size, self.dimension = self._rows.shape
        self.count = int(np.count_nonzero(self._has))

    def nearest(self, query: Floats, k: int, mask: Mask | None = None) -> tuple[Ordinals, Floats]:
        """The ``k`` rows nearest to a question, see ``nearest``."""
        return nearest([self], query, k, [mask])

    def cosines(self, query: Floats, ordinals: Ordinals) -> Floats:
        """The cosines of rows in the order given, nan where there is no vector: the same as ``nearest`` gives."""
        ordinals = np.asarray(ordinals, np.int64)
        found = np.full(len(ordinals), np.nan, np.float32)
        whole = _whole(query, self.dimension, LARGEST, 2.0**53)
        if whole is not None:
            known = np.flatnonzero((ordinals >= 0) & (ordinals < self.size))
            known = known[self._has[ordinals[known]]]
            found[known] = self.measured(whole, ordinals[known])
        return found

    def allowed(self, mask: Mask | None) -> Mask | None:
        """The rows that may be found; None for all of them."""
        if self.count == self.size:
            return mask
        return self._has if mask is None else self._has & mask

    def distances(self, query: Floats, at: Ordinals | None) -> npt.NDArray[np.uint16]:
        """In how many dimensions rows lie on the other side of the mean than the question: of all rows or of some."""
        signs = signs_of(query[None, :], self._centre)[0]
        found = np.empty(self.size if at is None else len(at), np.uint16)
        for start in range(0, len(found), STRIPE):
            block = slice(start, start + STRIPE)
            count_different(self.signs[:, block] if at is None else self.signs[:, at[block]], signs, found[block])
        return found

    def guessed(self, whole: Floats, ordinals: Ordinals) -> Floats:
        """The cosines of any number of rows by int8 alone, never more than some hundred rows as float32 at once."""
        found = np.empty(len(ordinals), np.float32)
        for block in _slices(len(ordinals), self.dimension, GATHER):
            found[block] = self._rows.take(ordinals[block], axis=0).astype(np.float32) @ whole
        return found * self._scale.take(ordinals)

    def measured(self, whole: Wide, ordinals: Ordinals) -> Floats:
        """The cosines of rows, by all bits there are."""
        found = np.empty(len(ordinals), np.float64)
        for block in _slices(len(ordinals), self.dimension, GATHER):
            found[block] = self._rows.take(ordinals[block], axis=0).astype(np.float64) @ whole
        found *= self._scale.take(ordinals) / _length(whole)
        return np.clip(found, -1.0, 1.0).astype(np.float32)

    def let_go(self) -> None:
        """Give the memory of mapped rows back; the system keeps what it can in its cache, and maps it again at need."""
        _let_go(self._rows)


def nearest(parts: Sequence[Meanings], query: Floats, k: int, masks: Sequence[Mask | None]) -> tuple[Ordinals, Floats]:
    """The ``k`` rows nearest to a question, or as many as there are, best first, ties by ordinal.

    Args:
        parts: Where to look. An ordinal counts through all of them, part after part.
        query: The question's vector, of any length; one that is no direction finds nothing.
        k: How many.
        masks: For each part the rows that may be found, None for all.
    """
    whole = _whole(query, parts[0].dimension, 127, 2.0**24) if parts and k > 0 else None
    if whole is None:
        return np.empty(0, np.int64), np.empty(0, np.float32)
    chosen = _candidates(parts, (whole / _length(whole)).astype(np.float32), k, masks)
    starts = np.cumsum([0, *(part.size for part in parts)])
    ordinals = np.concatenate([start + some for start, some in zip(starts, chosen, strict=False)])
    ordinals, _ = _best(ordinals, _guessed(parts, whole.astype(np.float32), chosen), 2 * k + MORE)
    ordinals.sort()
    return _best(ordinals, cosines(parts, query, ordinals), k)


def cosines(parts: Sequence[Meanings], query: Floats, ordinals: Ordinals) -> Floats:
    """The cosines of rows in the order given, nan where there is no vector; ordinals as ``nearest`` gives them."""
    ordinals = np.asarray(ordinals, np.int64)
    found = np.full(len(ordinals), np.nan, np.float32)
    start = 0
    for part in parts:
        here = np.flatnonzero((ordinals >= start) & (ordinals < start + part.size))
        found[here] = part.cosines(query, ordinals[here] - start)
        start += part.size
    return found


def _guessed(parts: Sequence[Meanings], whole: Floats, chosen: Sequence[Ordinals]) -> Floats:
    found, resident = [], 0
    for part, some in zip(parts, chosen, strict=True):
        found.append(part.guessed(whole, some))
        resident += part.size * part.dimension
        if resident > RESIDENT:
            part.let_go()
    return np.concatenate(found)


def _candidates(parts: Sequence[Meanings], query: Floats, k: int, masks: Sequence[Mask | None]) -> list[Ordinals]:
    """The rows of each part that are worth scoring, ascending."""
    allowed = [part.allowed(mask) for part, mask in zip(parts, masks, strict=True)]
    counts = [
        part.size if may is None else int(np.count_nonzero(may)) for part, may in zip(parts, allowed, strict=True)
    ]
    wanted = CANDIDATES + CANDIDATES_EACH * k + CANDIDATES_SHARE * sum(counts)
    wanted = max(2 * k + MORE, int(wanted * min(4.0, 384 / parts[0].dimension)))
    chosen: list[Ordinals | None] = []
    for part, may, count in zip(parts, allowed, counts, strict=True):
        is_few = may is not None and (count * SELECTIVE < part.size or sum(counts) <= wanted)
        chosen.append(np.flatnonzero(may) if is_few and may is not None else None)
    if sum(counts) <= wanted:
        return [np.arange(part.size) if some is None else some for part, some in zip(parts, chosen, strict=True)]
    far = 64 * len(parts[0].signs) + 1
    distances = []
    for part, may, some in zip(parts, allowed, chosen, strict=True):
        distances.append(part.distances(query, some))
        if some is None and may is not None:
            np.copyto(distances[-1], far, where=~may)
    limit, tied = _limit(distances, far, wanted)
    found = []
    for distance, some in zip(distances, chosen, strict=True):
        near = np.flatnonzero(distance <= limit)
        on = np.flatnonzero(distance[near] == limit)
        near = np.delete(near, on[max(0, tied) :])
        tied -= len(on)
        found.append(near if some is None else some[near])
    return found


def _limit(distances: Sequence[npt.NDArray[np.uint16]], far: int, wanted: int) -> tuple[int, int]:
    """The distance up to which rows are candidates, and how many of those at just this distance."""
    sums = sum(np.bincount(distance, minlength=far + 1) for distance in distances)
    upto = np.cumsum(np.asarray(sums)[:far])
    limit = int(np.searchsorted(upto, wanted))
    nearer = int(upto[limit - 1]) if limit else 0
    return limit, min(int(upto[limit]), TIED * wanted) - nearer


def _whole(query: Floats, dimension: int, largest: int, exact: float) -> Wide | None:
    """A question as integers whose product with any row, of numbers up to ``largest``, stays below ``exact``.

    None if it is no direction.
    """
    wide: Wide = np.asarray(query, np.float64)
    if wide.shape != (dimension,):
        raise ValueError(f"the question has {wide.shape} numbers, the rows {dimension}")
    most = np.abs(wide).max(initial=0.0)
    if not (np.isfinite(most) and most > 0.0):
        return None
    wide = wide / most
    wide *= (exact / (largest * np.sqrt(dimension)) - np.sqrt(dimension)) / _length(wide)
    return np.asarray(np.rint(wide), np.float64)


def _length(vector: npt.NDArray[Any]) -> float:
    return float(np.sqrt(np.square(vector, dtype=np.float64).sum()))


def _let_go(rows: Array) -> None:
    """Tell the system that the pages under a read-only map are not needed now."""
    owner: Any = rows
    while owner is not None and not isinstance(owner, mmap.mmap):
        owner = owner.obj if isinstance(owner, memoryview) else getattr(owner, "base", None)
    if owner is None or rows.flags.writeable or not hasattr(mmap, "MADV_DONTNEED"):
        return
    first = rows.ctypes.data - np.frombuffer(owner, np.uint8).ctypes.data
    start = first // mmap.PAGESIZE * mmap.PAGESIZE
    owner.madvise(mmap.MADV_DONTNEED, start, first + rows.nbytes - start)


def _best(ordinals: Ordinals, cosines: Floats, k: int) -> tuple[Ordinals, Floats]:
    """The ``k`` best, ties by ordinal; the ordinals come ascending."""
    if len(ordinals) > k:
        least = np.partition(cosines, len(cosines) - k)[len(cosines) - k]
        some = np.flatnonzero(cosines >= least)
        ordinals, cosines = ordinals[some], cosines[some]
    order = np.argsort(-cosines, kind="stable")[:k]
    return ordinals[order], cosines[order]
