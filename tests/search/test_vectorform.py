"""Vectors as signed bytes: the same with and without NumPy, stable, and near to what they were."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.store import vector_bytes
from tests.support.table import each_row

DIMENSIONS = [4, 64, 100, 256, 384]


def drawn(dimension: int, seed: int, rows: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, dimension)).astype("<f4")


@pytest.mark.slow
@given(st.sampled_from(DIMENSIONS), st.integers(0, 2**32))
def test_rounding_is_one_function(dimension: int, seed: int) -> None:
    vectors = [row.tobytes() for row in drawn(dimension, seed)]
    found = vector_bytes.rounded(vectors, dimension)
    assert found == [vector_bytes._rounded_one(vector, dimension) for vector in vectors]
    assert [len(one) for one in found] == [dimension] * len(vectors)
    again = [vector_bytes.restored(one) for one in found]
    assert vector_bytes.rounded(again, dimension) == found


@pytest.mark.slow
@given(st.sampled_from(DIMENSIONS), st.integers(0, 2**32))
def test_what_is_restored_has_the_direction_of_before(dimension: int, seed: int) -> None:
    rows = drawn(dimension, seed)
    found = vector_bytes.rounded([row.tobytes() for row in rows], dimension)
    for row, one in zip(rows, found, strict=True):
        back = np.frombuffer(vector_bytes.restored(one), "<f4")
        assert float(back @ row) / float(np.linalg.norm(row)) > 0.999
        assert np.linalg.norm(back) == pytest.approx(1.0, abs=1e-6)


@each_row("number", [0.0, float("nan"), float("inf")])
def test_what_is_no_direction_is_zero(number: float) -> None:
    vector = np.full(64, number, "<f4").tobytes()
    assert vector_bytes.rounded([vector], 64) == [vector_bytes._rounded_one(vector, 64)] == [bytes(64)]
