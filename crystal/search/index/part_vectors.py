"""Quantized vectors of one part of the index: signs select candidates, two bits for each number rank them.

Row i belongs to document i of the part. ``signs`` has one bit for each dimension of the rotated rows, 64 to a word and
word by word, so that a question is compared with all rows by counting bits. ``rows`` has two bits for each dimension:
the sign of a number, and whether it is large; multiplied by ``scale``, products with them approximate cosines. The
exact cosines of the few remaining candidates come from the vectors in the store (``crystal.store.vector_bytes``).

Signs are relative to half the mean of the rows: relative to the whole mean, a sign says more about the direction, but
the mean's part of the cosine is lost. Half was measured to be best.

In a small store that would only be a copy: see ``crystal.search.index.stored_vectors``.

A question is rounded to integers so small that every sum is exact in float32. So the same row gets the same cosine
wherever it is stored and with any BLAS, and one store always gives the same order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from crystal.model.quick_dataclass import dataclass
from crystal.search.index.array_types import Array, Floats, Mask, Ordinals
from crystal.store import Store
from crystal.store.vector_bytes import MAX_SIZE

Words = npt.NDArray[np.uint64]
Wide = npt.NDArray[np.float64]
Arrays = dict[str, Array]
Rows = Iterable[tuple[int, bytes]]
"""Ordinals and vectors, as signed bytes, in any order. A zero vector, or one of another dimension, is missing."""


def signs_of(vectors: Floats, centre: Floats) -> npt.NDArray[np.uint64]:
    """Return one bit for each dimension of the rotated vectors, in whole words: ``(rows, words)``."""
    bits = np.zeros((len(vectors), -(-vectors.shape[1] // 64) * 64), np.bool_)
    np.greater(vectors, centre, out=bits[:, : vectors.shape[1]])
    return np.packbits(bits, axis=1, bitorder="little").view("<u8")


def count_different(signs: Words, query: Words, found: npt.NDArray[np.uint16]) -> None:
    """Count the bits that differ. The counts of three words of 64 bits fit into a byte."""
    different = np.empty(len(found), np.uint64)
    ones, more = np.empty(len(found), np.uint8), np.empty(len(found), np.uint8)
    for first in range(0, len(signs), 3):
        np.bitwise_count(np.bitwise_xor(signs[first], query[first], out=different), out=ones)
        for word in range(first + 1, min(first + 3, len(signs))):
            np.bitwise_count(np.bitwise_xor(signs[word], query[word], out=different), out=more)
            np.add(ones, more, out=ones)
        if first:
            np.add(found, ones, out=found)
        else:
            found[:] = ones


CANDIDATES = 4000
"""Number of rows of 384 numbers, of all parts together, that get an approximate cosine;"""
CANDIDATES_EACH = 100
"""so many more for each requested row;"""
CANDIDATES_SHARE = 0.01
"""and this share of the allowed rows. Longer rows need fewer, because more signs are more precise."""
MORE, TIMES = 200, 4
"""Number of rows that get an exact cosine: ``TIMES`` for each requested one, and ``MORE``. Measured with 20,000 real
messages, they include 0.998 of the 64 nearest, and all of the ten nearest."""
USUAL, LARGE, LIMIT = 3, 10, 0.9816
"""Values of the two bits, and the limit above which a number is large, as shares of the root mean square. They are
optimal for a normal distribution, which rotated vectors nearly have. Source: Max, Quantizing for minimum distortion
(1960), table 1, four levels."""
TIED = 4
"""Maximum number of candidates, as a multiple of those needed, if many rows have the last distance."""
SELECTIVE = 8
"""If a mask leaves fewer than one in this many rows, only the signs of its rows are compared."""
STRIPE = 16_384
"""Number of rows whose signs are compared together, so that they fit into the processor's cache."""
GATHER = 200_000
"""Number of values that are scored together, for the same reason."""
BLOCK = 1 << 20
"""Number of values that are processed together while building, which limits the memory."""
CENTRE = 0.5
"""Point that signs are relative to, as a share of the mean."""


def build_arrays(rows: Rows, n: int, dim: int) -> Arrays:
    """Build the arrays of ``n`` rows of ``dim`` numbers. All rows are kept in memory, because signs need the mean."""
    arrays: Arrays = {
        "centre": np.zeros(dim, "<f4"),
        "scale": np.zeros(n, "<f4"),
        "signs": np.zeros((-(-dim // 64), n), "<u8"),
        "rows": np.zeros((n, -(-dim // 4)), "|u1"),
    }
    total, count = np.zeros(dim, np.float64), 0
    blocks = list(blocks_of(rows, dim))
    for ordinals, vectors in blocks:
        units = _units(vectors)
        arrays["rows"][ordinals], arrays["scale"][ordinals] = _two_bits(units)
        total += units.sum(axis=0)
        count += len(ordinals)
    arrays["centre"][:] = total * CENTRE / max(1, count)
    for ordinals, vectors in blocks:
        arrays["signs"][:, ordinals] = signs_of(_units(vectors), arrays["centre"]).T
    return arrays


def blocks_of(rows: Rows, dim: int) -> Iterator[tuple[Ordinals, npt.NDArray[np.int8]]]:
    """Yield blocks of some thousand rows."""
    usable = ((ordinal, vector) for ordinal, vector in rows if len(vector) == dim and any(vector))
    while some := list(islice(usable, max(1, BLOCK // dim))):
        vectors = np.frombuffer(b"".join(vector for _, vector in some), np.int8).reshape(-1, dim)
        yield np.array([ordinal for ordinal, _ in some], np.int64), vectors


def _units(vectors: npt.NDArray[np.int8]) -> Floats:
    """Scale vectors to length 1."""
    lengths = np.sqrt(np.square(vectors, dtype=np.float64).sum(axis=1))
    units: Floats = (vectors / lengths[:, None]).astype(np.float32)
    return units


def _two_bits(units: Floats) -> tuple[Array, Floats]:
    """Round rows of length 1 to two bits for each number, four numbers to a byte; with the scales."""
    n, dim = units.shape
    is_large = np.abs(units) > LIMIT / math.sqrt(dim)
    levels = np.copysign(np.where(is_large, np.float32(LARGE), np.float32(USUAL)), units)
    codes = np.zeros((n, -(-dim // 4) * 4), np.uint8)
    codes[:, :dim] = (units < 0) + 2 * is_large
    packed = codes.reshape(n, -1, 4) << np.array([0, 2, 4, 6], np.uint8)
    # The product of a question with the levels, divided by that of the row with them, approximates that with the row.
    return packed.sum(axis=2, dtype=np.uint8), 1.0 / (units * levels).sum(axis=1)


@cache
def _levels() -> Floats:
    """Return the four numbers of each byte."""
    bits = np.arange(256)[:, None] >> np.array([0, 2, 4, 6]) & 3
    return np.asarray(np.array([USUAL, -USUAL, LARGE, -LARGE], np.float32)[bits])


def _products(whole: Wide) -> Floats:
    """Return, for each byte of a row and each of its 256 values, the product of its numbers with the question's."""
    numbers = np.zeros((-(-len(whole) // 4), 4), np.float32)
    numbers.ravel()[: len(whole)] = whole
    return np.asarray(np.einsum("vi,bi->bv", _levels(), numbers))


class Question:
    """A question as integers, and its products with each byte of a row, which only shortened rows need."""

    def __init__(self, whole: Wide) -> None:
        self.whole = whole

    @cached_property
    def products(self) -> Floats:
        """Return the products."""
        return _products(self.whole)


def slices_of(n: int, dim: int, numbers: int = BLOCK) -> Iterator[slice]:
    """Yield slices of ``n`` rows of ``dim`` numbers, each of about so many numbers."""
    step = max(1, numbers // dim)
    return (slice(start, start + step) for start in range(0, n, step))


class PartVectors:
    """The vectors of one part, over its arrays as ``build_arrays`` gives them, or as maps of a file."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self._centre: Floats = arrays["centre"]
        self._scale: Floats = arrays["scale"]
        self.has: Mask = self._scale != 0
        self.signs: npt.NDArray[np.uint64] = arrays["signs"]
        self._rows: npt.NDArray[np.uint8] = arrays["rows"]
        self.size, self.dimension = len(self._rows), len(self._centre)
        self.count = int(np.count_nonzero(self.has))

    def read(self, store: Store, generation: int, ids: Array) -> None:
        """Read what the file lacks: nothing, but see ``StoredVectors``."""

    def allowed(self, mask: Mask | None) -> Mask | None:
        """Return the rows that may be found; None for all of them."""
        if self.count == self.size:
            return mask
        return self.has if mask is None else self.has & mask

    def rows_in(self, mask: Mask | None) -> int:
        """Count the rows of a mask; None stands for all."""
        return self.size if mask is None else int(np.count_nonzero(mask))

    def distances(self, query: Floats, at: Ordinals | None) -> npt.NDArray[np.uint16]:
        """Count the dimensions in which the signs of rows and question differ; for all rows, or those in ``at``."""
        signs = signs_of(query[None, :], self._centre)[0]
        found = np.empty(self.size if at is None else len(at), np.uint16)
        for start in range(0, len(found), STRIPE):
            block = slice(start, start + STRIPE)
            count_different(self.signs[:, block] if at is None else self.signs[:, at[block]], signs, found[block])
        return found

    def guessed(self, question: Question, ordinals: Ordinals) -> Floats:
        """Return approximate cosines of rows, from two bits for each number.

        Looking up the four numbers of a byte in ``products`` takes a third of the time of multiplying them.
        """
        products = question.products
        found, starts = np.empty(len(ordinals), np.float32), np.arange(len(products)) * products.shape[1]
        for block in slices_of(len(ordinals), self.dimension, GATHER):
            found[block] = products.take(self._rows.take(ordinals[block], axis=0) + starts).sum(axis=1)
        return found * self._scale.take(ordinals)


@dataclass(frozen=True, slots=True)
class VectorPiece:
    """Vectors with the ordinals of their rows: from ``start`` on, or ``places``; ``void`` rows are not used."""

    meanings: PartVectors
    start: int
    places: Ordinals | None
    void: Ordinals

    def ordinals(self, rows: Ordinals) -> Ordinals:
        """Return the ordinals of rows."""
        return rows + self.start if self.places is None else self.places[rows]

    def mask(self, mask: Mask | None) -> Mask | None:
        """Return a mask of the rows that may be found; None for all."""
        if mask is None and not len(self.void):
            return None
        if mask is None:
            found = np.ones(self.meanings.size, np.bool_)
        elif self.places is None:
            found = mask[self.start : self.start + self.meanings.size].copy()
        else:
            found = mask[self.places]
        found[self.void] = False
        return found


def likely(parts: Sequence[PartVectors], query: Floats, k: int, masks: Sequence[Mask | None]) -> Ordinals:
    """Return more than ``k`` rows, in ascending order, that very probably include the ``k`` nearest to a question.

    Args:
        parts: The parts; their rows are numbered in one sequence.
        query: The question's vector, of any length; a zero vector finds nothing.
        k: The number of requested rows.
        masks: For each part a mask of the rows that may be found; None for all.
    """
    whole = _whole(query, parts[0].dimension, LARGE, 2.0**24) if parts and k > 0 else None
    if whole is None:
        return np.empty(0, np.int64)
    chosen = _candidates(parts, (whole / _length(whole)).astype(np.float32), k, masks)
    starts = np.cumsum([0, *(part.size for part in parts)])
    ordinals = np.concatenate([start + some for start, some in zip(starts, chosen, strict=False)])
    question = Question(whole)
    guessed = [part.guessed(question, some) for part, some in zip(parts, chosen, strict=True)]
    ordinals, _ = best(ordinals, np.concatenate(guessed), TIMES * k + MORE)
    ordinals.sort()
    return ordinals


def nearly(query: Floats, rows: Sequence[tuple[PartVectors, Ordinals]]) -> Iterator[Floats]:
    """Yield approximate cosines of a rotated question with rows of each part; nan for rows without a vector."""
    whole = _whole(query, len(query), LARGE, 2.0**24)
    question, length = None if whole is None else Question(whole), 1.0 if whole is None else _length(whole)
    for part, some in rows:
        if question is None:
            yield np.full(len(some), np.nan, np.float32)
        else:
            yield np.where(part.has[some], part.guessed(question, some) / np.float32(length), np.nan)


def measured(query: Floats, rows: Sequence[bytes | None]) -> Floats:
    """Return the exact cosines of a rotated question with vectors of the store; nan for rows without a vector."""
    found = np.full(len(rows), np.nan, np.float32)
    whole = _whole(query, len(query), MAX_SIZE, 2.0**53)
    known = [at for at, row in enumerate(rows) if row is not None and len(row) == len(query) and any(row)]
    if whole is None or not known:
        return found
    vectors = np.frombuffer(b"".join(rows[at] or b"" for at in known), np.int8).reshape(len(known), -1)
    for block in slices_of(len(known), len(query), GATHER):
        wide = vectors[block].astype(np.float64)
        cosines = product(wide, whole) / (np.sqrt(np.square(wide).sum(axis=1)) * _length(whole))
        found[known[block]] = np.clip(cosines, -1.0, 1.0)
    return found


def product(rows: npt.NDArray[Any], vector: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the product of each row with a vector, without BLAS, whose threads wait in busy loops."""
    return np.asarray(np.einsum("ij,j->i", rows, vector))


def _candidates(parts: Sequence[PartVectors], query: Floats, k: int, masks: Sequence[Mask | None]) -> list[Ordinals]:
    """Return the candidate rows of each part, in ascending order."""
    allowed = [part.allowed(mask) for part, mask in zip(parts, masks, strict=True)]
    counts = [part.rows_in(may) for part, may in zip(parts, allowed, strict=True)]
    wanted = CANDIDATES + CANDIDATES_EACH * k + CANDIDATES_SHARE * sum(counts)
    wanted = max(TIMES * k + MORE, int(wanted * min(4.0, 384 / parts[0].dimension)))
    chosen: list[Ordinals | None] = []
    is_all = sum(counts) <= wanted
    for part, may, count in zip(parts, allowed, counts, strict=True):
        is_few = is_all or count * SELECTIVE < part.size
        chosen.append(np.flatnonzero(may) if is_few and may is not None else None)
    if is_all:
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
    """Return the maximum distance of candidates, and how many rows at exactly this distance are candidates."""
    sums = sum(np.bincount(distance, minlength=far + 1) for distance in distances)
    upto = np.cumsum(np.asarray(sums)[:far])
    limit = int(np.searchsorted(upto, wanted))
    nearer = int(upto[limit - 1]) if limit else 0
    return limit, min(int(upto[limit]), TIED * wanted) - nearer


def _whole(query: Floats, dimension: int, largest: int, exact: float) -> Wide | None:
    """Scale a question to integers whose product with any row, of numbers up to ``largest``, stays below ``exact``.

    Return None for a zero vector, or one with numbers that are not finite.
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


def best(ordinals: Ordinals, cosines: Floats, k: int) -> tuple[Ordinals, Floats]:
    """Return the ``k`` highest cosines with their ordinals, ties in the order of the (ascending) ordinals."""
    if len(ordinals) > k:
        least = np.partition(cosines, len(cosines) - k)[len(cosines) - k]
        some = np.flatnonzero(cosines >= least)
        ordinals, cosines = ordinals[some], cosines[some]
    order = np.argsort(-cosines, kind="stable")[:k]
    return ordinals[order], cosines[order]
