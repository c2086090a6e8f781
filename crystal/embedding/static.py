"""Embed with the packaged table of token vectors, which needs no key and no network.

A text's vector is the mean of its tokens' vectors, which include their weights. The table is mapped, not read, so only
the vocabulary takes time to load. Made by benchmarks/distill.py, see docs/adr/0004-embedding-by-default.md.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from crystal.embedding.embedded import DATA, read_table

PIECE = 8192
"""Maximum tokens looked up together, which bounds the memory for a very long text."""


class StaticModel:
    """The table and its vocabulary.

    Args:
        folder: See ``read_table``.
    """

    def __init__(self, folder: Path = DATA) -> None:
        self._table = read_table(folder)
        self._vectors = np.frombuffer(self._table.vectors, np.int8).reshape(-1, self._table.dimension)
        self._scales = np.frombuffer(self._table.scales, "<f4")

    def vector(self, text: str) -> npt.NDArray[np.float32]:
        """Return the text's vector, of length 1. A text without known tokens gets the vector of the unknown token."""
        ids = np.array(self.tokens(text) or [self._table.unknown])
        total = np.zeros(self._vectors.shape[1], np.float32)
        for start in range(0, len(ids), PIECE):
            piece = ids[start : start + PIECE]
            total += self._scales.take(piece) @ self._vectors.take(piece, axis=0).astype(np.float32)
        length = np.sqrt(total @ total)
        if not length > 0:  # opposite tokens may add up to zero
            return np.asarray(self.rows([self._table.unknown])[0], np.float32)
        return np.asarray(total / length, np.float32)

    def tokens(self, text: str) -> list[int]:
        """Return the known tokens of a text."""
        return self._table.tokens(text)

    def rows(self, tokens: Sequence[int]) -> npt.NDArray[np.float32]:
        """Return the vectors of tokens, each of length 1: ``(tokens, dimension)``."""
        rows = self._vectors[list(tokens)].astype(np.float32)
        return np.asarray(rows / np.sqrt((rows * rows).sum(axis=1, keepdims=True)), np.float32)


@functools.cache
def static_model() -> StaticModel:
    """Return the packaged table, loaded once per process because reading its vocabulary takes time."""
    return StaticModel()
