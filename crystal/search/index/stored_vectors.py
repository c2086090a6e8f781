"""The vectors of one part of a small store, read from the store: its index has no copy of them.

Shortened rows select what a search reads from the store. A store of some thousand rows is read as a whole, once in a
process, which takes some milliseconds; its index is then smaller by a tenth of the transcripts, for short messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np
import numpy.typing as npt

from crystal.search.index.array_types import Array, Floats, Mask, Ordinals
from crystal.search.index.part_vectors import (
    CENTRE,
    GATHER,
    Arrays,
    PartVectors,
    Question,
    Rows,
    Words,
    blocks_of,
    product,
    signs_of,
    slices_of,
)
from crystal.store import Store
from crystal.store.search import index_source

MAX_STORED = 8_192
"""Maximum number of chunks in a store whose new parts have no shortened rows."""


def having_arrays(rows: Rows, n: int, dim: int) -> Arrays:
    """Build the arrays of ``n`` rows of ``dim`` numbers, as ``build_arrays``, without the rows themselves."""
    has = np.zeros(n, np.bool_)
    for ordinals, _ in blocks_of(rows, dim):
        has[ordinals] = True
    return {"has": has, "dimension": np.array([dim], "<u4")}


class StoredVectors(PartVectors):
    """The vectors of one part whose file only has which documents have one. ``read`` them before they are compared."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self.has: Mask = arrays["has"]
        self.size, self.dimension = len(self.has), int(arrays["dimension"][0])
        self.count = int(np.count_nonzero(self.has))
        self._whole: npt.NDArray[np.int8] | None = None

    def read(self, store: Store, generation: int, ids: Array) -> None:
        """Read the rows, at the first call. Later changes of vectors are in the log, or make a new file."""
        if self._whole is None:
            whole, order = np.zeros((self.size, self.dimension), np.int8), np.argsort(ids)
            for chunks, rows, data in index_source.blocks_of_vectors(store, generation, ids.tolist()):
                places = order[np.searchsorted(ids, np.array(chunks, ids.dtype), sorter=order)]
                whole[places] = np.frombuffer(data, np.int8).reshape(-1, self.dimension)[[*rows]]
            lengths = np.sqrt(np.einsum("ij,ij->i", whole, whole, dtype=np.float64))
            self._scale = np.divide(1, lengths, out=np.zeros(self.size), where=lengths > 0).astype(np.float32)
            self.has = self.has & (lengths > 0)
            self._whole = whole

    @cached_property
    def _units(self) -> Floats:
        """Return the rows with length 1."""
        assert self._whole is not None
        return np.asarray(self._whole * self._scale[:, None])

    @cached_property
    def _centre(self) -> Floats:  # type: ignore[override]
        return np.asarray(self._units.sum(axis=0, dtype=np.float64) * CENTRE / max(1, self.count), np.float32)

    @cached_property
    def signs(self) -> Words:  # type: ignore[override]
        """Return the signs, which only a store that has grown since needs."""
        return np.ascontiguousarray(signs_of(self._units, self._centre).T)

    def guessed(self, question: Question, ordinals: Ordinals) -> Floats:
        """Return cosines of rows, but for the length of the question."""
        assert self._whole is not None
        found = np.empty(len(ordinals), np.float32)
        for block in slices_of(len(ordinals), self.dimension, GATHER):
            found[block] = product(self._whole.take(ordinals[block], axis=0).astype(np.float64), question.whole)
        return found * self._scale.take(ordinals)
