"""The signs of vectors: one bit for each dimension, so that nearness can be guessed by counting bits.

Vectors are turned first, by a rotation that is quick to compute, because a model gives some dimensions more weight than
others, and a sign does not know it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Words = npt.NDArray[np.uint64]


def signs_of(vectors: Floats, centre: Floats) -> npt.NDArray[np.uint64]:
    """One bit for each dimension of the turned vectors, in whole words: ``(rows, words)``."""
    bits = _turned(vectors - centre) > 0.0
    return np.packbits(bits, axis=1, bitorder="little").view("<u8")


def _turned(vectors: Floats) -> Floats:
    """Vectors turned so that each number depends on all of before; made longer by zeros to a multiple of 64.

    Some signs flip, the blocks of 64 go through a Hadamard matrix, their numbers are dealt out to other blocks, and
    all this once more without the dealing.
    """
    count, dim = vectors.shape
    blocks = -(-dim // 64)
    padded = np.zeros((count, blocks * 64), np.float32)
    padded[:, :dim] = vectors
    padded *= _flips(blocks * 64, 1)
    mixed: Floats = padded.reshape(-1, 64) @ HADAMARD
    dealt = mixed.reshape(count, blocks, 64).transpose(0, 2, 1).reshape(count, -1) * _flips(blocks * 64, 2)
    turned: Floats = dealt.reshape(-1, 64) @ HADAMARD
    return turned.reshape(count, -1)


def _flips(dim: int, turn: int) -> Floats:
    """As many times 1 or -1, always the same, whatever NumPy's random numbers become: bits of a mixed-up counter."""
    mixed = (np.arange(dim, dtype=np.uint64) + np.uint64(turn << 32)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    flips: Floats = np.float32(1.0) - np.float32(2.0) * (mixed >> np.uint64(63)).astype(np.float32)
    return flips


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


def _hadamard(size: int) -> Floats:
    matrix = np.ones((1, 1), np.float32)
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix


HADAMARD = _hadamard(64)
