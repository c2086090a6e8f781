"""The vectors of the index: what is found is what exact arithmetic finds, in one order, whatever the vectors are."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.search.index import part_vectors
from crystal.search.index.part_vectors import Arrays, PartVectors, best, build_arrays, likely, measured
from crystal.search.index.stored_vectors import StoredVectors, having_arrays
from crystal.store.vector_bytes import round_rows, turned
from tests.support.examples import examples
from tests.support.table import each_row

Floats = npt.NDArray[np.float32]


def drawn(seed: int, n: int, dim: int) -> Floats:
    """Unit vectors in clusters, wide along few axes and with a common direction, as models give."""
    draw = np.random.default_rng(seed)
    axes = (np.arange(dim) + 4.0) ** -0.35
    centres = (0.4 * draw.standard_normal(dim) + draw.standard_normal((40, dim))) * axes
    found = centres[draw.integers(0, 40, n)] + 0.8 * draw.standard_normal((n, dim)) * axes
    return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True), np.float32)


def rounded(vectors: Floats) -> npt.NDArray[np.int8]:
    wide = vectors.astype(np.float64)
    wide[~np.isfinite(wide).all(axis=1)] = 0.0
    return round_rows(wide)


def arrays_of(vectors: Floats) -> Arrays:
    return build_arrays(((at, row.tobytes()) for at, row in enumerate(rounded(vectors))), *vectors.shape)


class Kept:
    """A part with the vectors that the store has, which is how the index answers."""

    def __init__(self, vectors: Floats, arrays: Arrays | None = None) -> None:
        self.meanings = PartVectors(arrays_of(vectors) if arrays is None else arrays)
        self.rows = [row.tobytes() for row in rounded(vectors)]

    def nearest(self, query: Floats, k: int, mask: Any = None) -> tuple[Any, Any]:
        return nearest([self], query, k, [mask])

    def cosines(self, query: Floats, ordinals: Any) -> Floats:
        return measured(query, [self.rows[at] if 0 <= at < len(self.rows) else None for at in ordinals])


def nearest(parts: list[Kept], query: Floats, k: int, masks: list[Any]) -> tuple[Any, Any]:
    found = likely([part.meanings for part in parts], query, k, masks)
    return best(found, cosines(parts, query, found), k)


def cosines(parts: list[Kept], query: Floats, ordinals: Any) -> Floats:
    rows = [row for part in parts for row in part.rows]
    return measured(query, [rows[at] for at in ordinals])


def exact(vectors: Floats, query: Floats) -> npt.NDArray[np.float64]:
    """The cosines with the rows as they are kept."""
    return cosines_of(rounded(vectors), query)


def cosines_of(vectors: npt.NDArray[Any], query: Floats) -> npt.NDArray[np.float64]:
    wide = vectors.astype(np.float64)
    return np.asarray(wide @ query / np.linalg.norm(wide, axis=1) / np.linalg.norm(query.astype(np.float64)))


def recall(truth: npt.NDArray[np.float64], found: npt.NDArray[np.int64], k: int) -> float:
    """The share of the ``k`` found that are as near as the ``k``-th nearest: which of two equals does not matter."""
    least = np.sort(truth)[-k]
    return float(np.count_nonzero(truth[found[:k]] >= least - 2e-6)) / k


@pytest.fixture
def few_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let some thousand rows be searched as hundreds of thousands are."""
    monkeypatch.setattr(part_vectors, "CANDIDATES", 200)
    monkeypatch.setattr(part_vectors, "CANDIDATES_EACH", 20)
    monkeypatch.setattr(part_vectors, "CANDIDATES_SHARE", 0.02)


# -------------------------------------------------------------------------------------------------- what is found


@pytest.mark.parametrize(("n", "dim"), [
    pytest.param(20_000, 256, marks=pytest.mark.slow), pytest.param(20_000, 384, marks=pytest.mark.slow),
    pytest.param(3000, 1536, marks=pytest.mark.slow), (2000, 100),
])  # fmt: skip
@pytest.mark.usefixtures("few_candidates")
def test_the_ten_nearest_are_the_ten_nearest(n: int, dim: int) -> None:
    vectors = turned(drawn(1, n, dim)).astype(np.float32)
    part = Kept(vectors)
    recalls = []
    for query in vectors[:: n // 20] + 0.02 * np.random.default_rng(2).standard_normal((20, dim)).astype(np.float32):
        found, scores = part.nearest(query, 10)
        recalls.append(recall(cosines_of(vectors, query), found, 10))
        assert np.abs(scores - exact(vectors, query)[found]).max() < 1e-5
    assert round(float(np.mean(recalls)), 6) >= 0.99


@pytest.mark.slow
@examples(60)
@given(st.integers(0, 60), st.integers(1, 200), st.integers(0, 80), st.integers(0, 2**32 - 1), st.floats(0, 1))
def test_small_parts_answer_as_exact_arithmetic_does(n: int, dim: int, k: int, seed: int, share: float) -> None:
    draw = np.random.default_rng(seed)
    vectors = draw.standard_normal((n, dim)).astype(np.float32)
    mask = draw.random(n) < share
    query = draw.standard_normal(dim).astype(np.float32)
    found, scores = Kept(vectors).nearest(query, k, mask)
    truth = exact(vectors, query)
    assert len(found) == min(k, np.count_nonzero(mask))
    assert mask[found].all()
    assert len(set(found.tolist())) == len(found)
    assert (np.diff(scores) <= 0).all()
    assert np.allclose(scores, truth[found], atol=2e-4)
    assert np.allclose(scores, np.sort(truth[mask])[::-1][: len(found)], atol=2e-4)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.9, 0.5, 0.1, 0.02, 0.001, 0.0])
@pytest.mark.usefixtures("few_candidates")
def test_a_mask_leaves_the_full_number_and_nothing_else(share: float) -> None:
    vectors = drawn(3, 12_000, 128)
    mask = np.random.default_rng(4).random(len(vectors)) < share
    query = vectors[5]
    found, _ = Kept(vectors).nearest(query, 10, mask)
    assert len(found) == min(10, np.count_nonzero(mask))
    assert mask[found].all()
    if len(found) == 10:
        assert recall(np.where(mask, exact(vectors, query), -2.0), found, 10) >= 0.9


@pytest.mark.slow
@pytest.mark.usefixtures("few_candidates")
def test_parts_are_searched_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_vectors, "STRIPE", 1000)
    vectors = drawn(5, 9000, 192)
    pieces = [vectors[:4000], vectors[4000:4000], vectors[4000:4100], vectors[4100:]]
    parts = [Kept(piece) for piece in pieces]
    masks = [None, None, np.arange(100) % 2 == 0, np.arange(4900) < 3000]
    allowed = np.concatenate([np.ones(4000, bool), masks[2], masks[3]])
    for query in vectors[::900]:
        found, scores = nearest(parts, query, 20, masks)
        assert recall(np.where(allowed, exact(vectors, query), -2.0), found, 20) >= 0.9
        assert np.array_equal(cosines(parts, query, found), scores)


@pytest.mark.usefixtures("few_candidates")
def test_rows_of_the_store_are_searched_with_shortened_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = drawn(7, 3000, 192)
    parts = [Kept(vectors[:1000]), Kept(vectors[1000:])]
    listed = [(at + 5, row) for at, row in enumerate(parts[1].rows)]
    block = [*range(6, 2005)], [*range(1, 2000)], b"".join(parts[1].rows)
    monkeypatch.setattr("crystal.store.search.index_source.blocks_of_vectors", lambda *_: [block])
    parts[1].meanings = stored = StoredVectors(having_arrays(((at - 5, row) for at, row in listed), 2000, 192))
    assert stored.count == 2000
    stored.read(store := Mock(), 1, np.arange(5, 2005))
    monkeypatch.undo()
    stored.read(store, 1, np.arange(5, 2005))  # not a second time
    masks = [np.arange(1000) < 900, None]
    allowed = np.concatenate([masks[0], np.arange(2000) > 0])
    for query in vectors[::300]:
        found, _ = nearest(parts, query, 20, masks)
        assert allowed[found].all()
        assert recall(np.where(allowed, exact(vectors, query), -2.0), found, 20) >= 0.9


def test_no_parts_and_no_rows_find_nothing() -> None:
    query = np.ones(8, np.float32)
    assert len(nearest([], query, 5, [])[0]) == 0
    assert len(Kept(np.empty((0, 8), np.float32)).nearest(query, 5)[0]) == 0
    assert len(Kept(np.ones((3, 8), np.float32)).nearest(query, 0)[0]) == 0


# ----------------------------------------------------------------------------------------------- rows of all kinds


def test_vectors_that_are_no_direction_are_missing() -> None:
    vectors = np.ones((8, 4), np.float32)
    vectors[1], vectors[2, 1], vectors[3, 0], vectors[4, 2] = 0.0, np.nan, np.inf, -np.inf
    rows = [(at, row.tobytes()) for at, row in enumerate(rounded(vectors))][:7]  # the eighth is never given
    rows[5] = (5, b"short")
    part = PartVectors(build_arrays(rows, 8, 4))
    query = np.ones(4, np.float32)
    assert part.count == 2
    assert likely([part], query, 8, [None]).tolist() == [0, 6]
    told = measured(query, [None, *(row for _, row in rows), None])
    assert np.flatnonzero(~np.isnan(told)).tolist() == [1, 7]


@each_row("query", [np.zeros(4), np.full(4, np.nan), np.array([1, np.inf, 0, 0])])
def test_a_question_that_is_no_direction_finds_nothing(query: npt.NDArray[np.float64]) -> None:
    part = Kept(np.ones((3, 4), np.float32))
    assert [len(found) for found in part.nearest(query.astype(np.float32), 2)] == [0, 0]
    assert np.isnan(part.cosines(query.astype(np.float32), np.array([0, 2]))).all()


def test_a_question_of_another_model_is_refused() -> None:
    with pytest.raises(ValueError, match="the rows 4"):
        Kept(np.ones((3, 4), np.float32)).nearest(np.ones(5, np.float32), 2)


@each_row("factor", [1e-40, 1e-30, 1e-3, 1e30, 3e38])
def test_the_length_of_vectors_and_questions_does_not_matter(factor: float) -> None:
    vectors = drawn(6, 50, 33)
    vectors /= np.abs(vectors).max(axis=1, keepdims=True)
    scaled = (vectors.astype(np.float64) * factor).astype(np.float32)
    found, scores = Kept(scaled).nearest(scaled[7], 5)
    plain, expected = Kept(vectors).nearest(vectors[7], 5)
    assert found.tolist() == plain.tolist()
    assert np.allclose(scores, expected, atol=1e-3)


@pytest.mark.usefixtures("few_candidates")
def test_equal_vectors_come_in_the_order_of_their_ordinals() -> None:
    vectors = np.tile(drawn(7, 1, 96), (5000, 1))
    found, scores = Kept(vectors).nearest(vectors[0], 30)
    assert found.tolist() == list(range(30))
    assert np.allclose(scores, 1.0, atol=1e-4)
    among = drawn(8, 5000, 96)
    among[[40, 900, 901, 4999]] = among[13]
    assert Kept(among).nearest(among[13], 5)[0].tolist() == [13, 40, 900, 901, 4999]
    halves = [Kept(among[:1000]), Kept(among[1000:])]  # equal to the last bit in other parts too
    assert nearest(halves, among[13], 5, [None, None])[0].tolist() == [13, 40, 900, 901, 4999]


@pytest.mark.slow
@pytest.mark.usefixtures("few_candidates")
def test_asked_twice_it_answers_the_same() -> None:
    vectors = drawn(9, 8000, 384)
    first, second = Kept(vectors), Kept(vectors)
    for query in vectors[::1000]:
        one, other = first.nearest(query, 50), second.nearest(query, 50)
        assert one[0].tolist() == other[0].tolist()
        assert one[1].tobytes() == other[1].tobytes()
        assert first.cosines(query, one[0]).tobytes() == one[1].tobytes()


# -------------------------------------------------------------------------------------------------- built and kept


def mapped(path: Path, arrays: Arrays) -> tuple[mmap.mmap, Arrays]:
    """The arrays in one file, mapped to be read, none of them at the start of a page."""
    starts, blob = {}, b"head"
    for name, array in arrays.items():
        blob += bytes(-len(blob) % 64)
        starts[name] = len(blob)
        blob += array.tobytes()
    path.write_bytes(blob + b"tail")
    with path.open("rb") as file:
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    views = {
        name: np.frombuffer(memory, array.dtype, array.size, starts[name]).reshape(array.shape)
        for name, array in arrays.items()
    }
    return memory, views


@pytest.mark.slow
@pytest.mark.usefixtures("few_candidates")
def test_parts_of_files_answer_the_same(tmp_path: Path) -> None:
    vectors = drawn(11, 4000, 256)
    arrays = arrays_of(vectors)
    _, views = mapped(tmp_path / "part", arrays)
    for query in vectors[::500]:
        one, other = Kept(vectors, views).nearest(query, 10), Kept(vectors, arrays).nearest(query, 10)
        assert one[0].tolist() == other[0].tolist()
        assert one[1].tobytes() == other[1].tobytes()
