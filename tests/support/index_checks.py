"""What an index must say, compared with its store."""

import math

import numpy as np
import pytest

from crystal.search.index.terms import query_terms
from crystal.store.search import vectors
from crystal.store.search.scope import SearchScope
from tests.support.index_store import reference, vector


def terms_of(world, *texts):
    return [(query_terms(world.store, text), 1.0 + 0.5 * at) for at, text in enumerate(texts)]


def live(index):
    mask = index.mask(SearchScope())
    return np.ones(index.size, np.bool_) if mask is None else mask


def by_chunk(index, numbers):
    ids = index.take("id", np.arange(index.size)).tolist()
    there = live(index)
    return {ident: float(numbers[at]) for at, ident in enumerate(ids) if there[at]}


def assert_says_what_the_store_says(world, index, *, is_fresh):
    """Documents, attributes, words, scores and vectors agree with the store."""
    store, ids = world.store, world.ids()
    there = live(index)
    every = np.arange(index.size)
    assert sorted(index.take("id", every)[there].tolist()) == ids
    assert index.documents == len(ids)
    places = index.find(ids)
    for name in ("role", "agent", "device", "branch", "source", "subagent", "session", "start"):
        rows = dict(store.rows(f"SELECT id, {name} FROM chunks"))
        nothing = 0 if name in ("session", "start") else ""
        assert index.take(name, places).tolist() == [rows[ident] or nothing for ident in ids]
    for terms in (terms_of(world, "walk"), terms_of(world, "alpha beta", "FindMostRecent 東京", "4711", "september")):
        own, padded = index.scores(terms, None)
        expected_own, expected_padded = reference(world, index, terms, ids=ids)
        assert by_chunk(index, own) == pytest.approx(expected_own, abs=1e-4)
        if is_fresh:
            assert by_chunk(index, padded) == pytest.approx(expected_padded, abs=1e-4)
        half = np.zeros(index.size, np.bool_)
        half[every % 2 == 0] = True
        few = np.zeros(index.size, np.bool_)
        few[every % 29 == 3] = True
        for mask in (half & there, few & there):
            one, other = index.scores(terms, mask)
            assert np.allclose(one, np.where(mask, own, 0.0), atol=1e-5)
            assert np.allclose(other, np.where(mask, padded, 0.0), atol=1e-5)
    for generation in vectors.generations(store):
        assert_same_vectors(world, index, generation.id, ids)


def assert_same_vectors(world, index, generation, ids):
    assert index.has_vectors(generation)
    query = np.frombuffer(vector(5), np.float32)
    expected = dict(vectors.nearest(world.store, generation, query.tobytes(), 4096))
    found, cosines = index.nearest(generation, query, 4096, None)
    got = dict(zip(index.take("id", found).tolist(), cosines.tolist(), strict=True))
    assert got.keys() == expected.keys()
    assert all(abs(got[ident] - expected[ident]) < 0.02 for ident in got)
    assert list(got.values()) == sorted(got.values(), reverse=True)
    asked = index.cosines(generation, query, index.find(ids))
    known = {ident: cosine for ident, cosine in zip(ids, asked.tolist(), strict=True) if not math.isnan(cosine)}
    assert known == pytest.approx(got)


def all_bytes(folder):
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
