"""The signs of vectors: one bit for each dimension, so that nearness can be guessed by counting bits.

Vectors come turned (see ``crystal.store.vector_bytes``): a model gives some dimensions more weight than others,
and a sign does not know it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Words = npt.NDArray[np.uint64]


def signs_of(vectors: Floats, centre: Floats) -> npt.NDArray[np.uint64]:
    """Return one bit for each dimension of the turned vectors, in whole words: ``(rows, words)``."""
    bits = np.zeros((len(vectors), -(-vectors.shape[1] // 64) * 64), np.bool_)
    np.greater(vectors, centre, out=bits[:, : vectors.shape[1]])
    return np.packbits(bits, axis=1, bitorder="little").view("<u8")


def count_different(signs: Words, query: Words, found: npt.NDArray[np.uint16]) -> None:
    """Count the bits that differ; three words of 64 fit a byte."""
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
