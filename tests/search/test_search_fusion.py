from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from crystal.search.rrf import RRF_K, fuse, sureness

ANSWERS = st.lists(st.tuples(st.integers(0, 30), st.floats(0, 1)), unique_by=lambda answer: answer[0])
LISTS = st.dictionaries(st.sampled_from(["keywords", "vectors", "third"]), ANSWERS)


def by_number(key):
    return (float(key),)


def test_the_sum_of_reciprocal_ranks_decides():
    found = fuse({"keywords": [(1, 1.0), (2, 1.0), (3, 1.0)], "vectors": [(3, 1.0), (4, 1.0)]}, by_number)
    assert [one.key for one in found] == [3, 1, 2, 4]
    assert found[0].score == 1 / (RRF_K + 3) + 1 / (RRF_K + 1)
    assert found[0].ranks == {"keywords": 3, "vectors": 1}


def test_a_vote_counts_as_much_as_the_engine_is_sure():
    found = fuse({"keywords": [(1, 1.0), (2, 0.2)], "vectors": [(3, 0.7)]}, by_number)
    assert [one.key for one in found] == [1, 3, 2]


@given(st.lists(st.floats(0, 100)), st.floats(0, 100))
def test_sureness_is_a_part_of_the_best(scores, best):
    parts = sureness(scores, best)
    assert all(0 <= part <= 1 for part in parts)
    assert parts == sorted(parts, reverse=True)
    assert sureness([best], best) == [1.0]


@given(LISTS)
def test_everything_is_answered_once_in_falling_order_and_whatever_the_order_of_engines(lists):
    found = fuse(lists, by_number)
    assert sorted(one.key for one in found) == sorted({key for answers in lists.values() for key, _ in answers})
    assert all(a.score >= b.score for a, b in pairwise(found))
    turned = fuse(dict(reversed(list(lists.items()))), by_number)
    assert {one.key for one in turned} == {one.key for one in found}


@given(LISTS, st.dictionaries(st.integers(0, 30), st.integers(1, 3)))
def test_what_is_first_stays_before_the_rest_and_what_has_more_before_that(lists, first):
    given_on_top = [first.get(one.key, 0) for one in fuse(lists, by_number, first=first)]
    assert given_on_top == sorted(given_on_top, reverse=True)


@given(LISTS)
def test_being_found_by_one_more_engine_never_hurts(lists):
    base = {one.key: one.score for one in fuse(lists, by_number)}
    more = {one.key: one.score for one in fuse({**lists, "fourth": [(99, 1.0), (5, 0.5)]}, by_number)}
    assert all(more[key] >= score for key, score in base.items())
