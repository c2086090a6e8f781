from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from crystal.fusion import RRF_K, fuse

LISTS = st.dictionaries(st.sampled_from(["keywords", "vectors", "third"]), st.lists(st.integers(0, 30), unique=True))


def by_number(key):
    return (float(key),)


def test_the_sum_of_reciprocal_ranks_decides():
    found = fuse({"keywords": [1, 2, 3], "vectors": [3, 4]}, {}, by_number)
    assert [one.key for one in found] == [3, 1, 2, 4]
    assert found[0].score == 1 / (RRF_K + 3) + 1 / (RRF_K + 1)
    assert found[0].ranks == {"keywords": 3, "vectors": 1}


def test_weights_count():
    found = fuse({"keywords": [1], "vectors": [2]}, {"vectors": 1.5}, by_number)
    assert [one.key for one in found] == [2, 1]


@given(LISTS)
def test_everything_is_answered_once_in_falling_order_and_whatever_the_order_of_engines(lists):
    found = fuse(lists, {}, by_number)
    assert sorted(one.key for one in found) == sorted({key for keys in lists.values() for key in keys})
    assert all(a.score >= b.score for a, b in pairwise(found))
    turned = fuse(dict(reversed(list(lists.items()))), {}, by_number)
    assert {one.key for one in turned} == {one.key for one in found}


@given(LISTS, st.frozensets(st.integers(0, 30)))
def test_what_is_first_stays_before_the_rest(lists, first):
    flags = [one.key in first for one in fuse(lists, {}, by_number, first=first)]
    assert flags == sorted(flags, reverse=True)


@given(LISTS)
def test_being_found_by_one_more_engine_never_hurts(lists):
    base = {one.key: one.score for one in fuse(lists, {}, by_number)}
    more = {one.key: one.score for one in fuse({**lists, "fourth": [99, 5]}, {}, by_number)}
    assert all(more[key] >= score for key, score in base.items())
