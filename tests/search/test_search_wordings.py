"""A question in several wordings, searched as one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.errors import UsageError
from crystal.search.request import SearchOptions
from tests.support.examples import examples
from tests.support.ranked_by import search
from tests.support.store_factory import NOW, Meaning, add_turn, embed_all, open_store

WORDS = "alpha beta gamma delta epsilon zeta".split()


def found(store, query, *wordings, **options):
    return [hit.uuid for hit in search(store, None, query, now=NOW, wordings=wordings, **options).hits]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with open_store(tmp_path_factory.mktemp("wordings")) as store:
        for number in range(1, 40):
            add_turn(store, " ".join(word for bit, word in enumerate(WORDS) if number >> bit & 1) + f" number{number}")
        yield store


@pytest.fixture(scope="module")
def alone(store):
    return {word: found(store, word, limit=50) for word in WORDS}


@pytest.mark.slow
@examples(30)
@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=4, unique=True), st.integers(1, 50))
def test_any_wordings_find_what_each_finds_and_first_what_several_put_first(store, alone, words, limit):
    each = [alone[word] for word in words]
    together = found(store, words[0], *words[1:], limit=limit)
    assert len(together) == len(set(together)) == min(limit, len({one for hits in each for one in hits}))
    if len(words) == 1:
        assert together == each[0][:limit]
    for better in together:
        for worse in each[0]:
            if all(better in hits and (worse not in hits or hits.index(better) < hits.index(worse)) for hits in each):
                assert worse not in together or together.index(better) < together.index(worse)


def test_what_only_another_wording_finds_is_there_and_a_wording_without_an_answer_says_nothing(tmp_path):
    with open_store(tmp_path) as store:
        car = add_turn(store, "the automobile needs new tyres")
        result = search(store, None, "vehicle", now=NOW, wordings=("car", "automobile"))
        assert [hit.uuid for hit in result.hits] == [car]
        nothing = "no text contains a word of the question"
        assert nothing not in result.notes
        assert nothing in search(store, None, "vehicle", now=NOW, wordings=("car",)).notes


def test_the_best_by_similarity_keeps_its_cosine(tmp_path):
    model, how = Meaning(), SearchOptions(fusion="similarity")
    with open_store(tmp_path) as store:
        for text in ("a car and a kitten", "a car", "a kitten in the rain"):
            add_turn(store, text)
        embed_all(store, model)
        alone = [search(store, model, word, now=NOW, how=how).hits for word in ("vehicle", "feline")]
        hits = search(store, model, "vehicle", now=NOW, how=how, wordings=("feline",)).hits
        best = {one.id: max(hit.score for hits in alone for hit in hits if hit.id == one.id) for one in hits}
        assert [hit.score for hit in hits] == sorted(best.values(), reverse=True)


def test_more_than_five_wordings_are_refused(store):
    with pytest.raises(UsageError, match="the question has 6 wordings"):
        found(store, *WORDS)
