"""Search by similarity alone: scores are cosines, whoever answers, and nothing else decides."""

import zlib
from array import array

import numpy as np
import pytest

from crystal.errors import UsageError
from crystal.model.recall import Filters
from crystal.search import candidates
from crystal.search.deep import Deep
from crystal.search.index.index_files import IndexDamagedError
from crystal.search.index.open_index import Index
from crystal.search.request import MemorySource, SearchOptions
from crystal.store.search.vectors import count_pending
from tests.support.ranked_by import each_way, search, search_home_first  # noqa: F401 - a fixture
from tests.support.store_factory import DAY, HOUR, NOW, Meaning, add_turn, embed_all, open_store
from tests.support.table import each_row

ROUNDING = 3e-3
"""Vectors are kept as bytes."""

pytestmark = pytest.mark.usefixtures("ranked_by")
WORDS = "amber birch cedar delta ember fjord grove heath islet juniper kelp larch moss needle oak pine reed".split()


class Spread(Meaning):
    """An embedder whose texts lie in all directions: the sum of a random vector for each of their words."""

    model = "spread"

    def __init__(self, dimension=48):
        super().__init__()
        self.dimension, self.identity = dimension, "test spread"

    def vector(self, text):
        total = np.full(self.dimension, 0.1)
        for word in text.lower().split():
            total += np.random.default_rng(zlib.crc32(word.encode())).normal(size=self.dimension)
        return array("f", total / np.linalg.norm(total)).tobytes()

    def cosine(self, one, other):
        return float(np.frombuffer(self.vector(one), "<f4") @ np.frombuffer(self.vector(other), "<f4"))


def ask(store, query, embedder=None, limit=10, how=None, mirror=None, **filters):
    how = how or SearchOptions(fusion="similarity")
    return search(store, embedder, query, now=NOW, limit=limit, how=how, mirror=mirror, filters=Filters(**filters))


def found(result):
    return [hit.uuid for hit in result.hits]


def say_many(store, embedder, count=60):
    texts = {}
    for number in range(count):
        text = " ".join(WORDS[(number * step + step) % len(WORDS)] for step in range(1, 2 + number % 6))
        role, project = ("user", "assistant")[number % 2], f"/code/p{number % 3}"
        more = {"session": f"s{number % 7}", "ts": NOW - number * HOUR, "role": role, "project": project}
        texts[add_turn(store, f"{text} {number}", **more)] = f"{text} {number}"
    embed_all(store, embedder)
    return texts


def test_the_score_is_the_cosine_and_the_order_is_by_it_alone(store):
    embedder = Spread()
    texts = say_many(store, embedder)
    result = ask(store, "needle oak larch", embedder, limit=20)
    true = sorted((embedder.cosine("needle oak larch", text) for text in texts.values()), reverse=True)
    assert result.mode == "vectors"
    assert len(result.hits) == 20
    assert [hit.score for hit in result.hits] == pytest.approx(true[:20], abs=ROUNDING)
    for place, hit in enumerate(result.hits, 1):
        assert hit.score == pytest.approx(embedder.cosine("needle oak larch", hit.text), abs=ROUNDING)
        assert 0 <= hit.score <= 1
        assert hit.ranks == {"vectors": place}
        assert hit.scores == {"vectors": pytest.approx(hit.score, abs=ROUNDING)}


def test_what_says_just_this_has_a_score_of_one(store):
    embedder = Spread()
    uuid = add_turn(store, "amber birch cedar")
    say_many(store, embedder)
    assert [(hit.uuid, hit.score) for hit in ask(store, "amber birch cedar", embedder, limit=1).hits] == [
        (uuid, pytest.approx(1, abs=ROUNDING))
    ]


def test_no_word_no_session_no_time_and_nobody_is_preferred(store):
    near = add_turn(store, "kitten kitten cat", role="assistant", session="old", ts=NOW - 900 * DAY)
    for number in range(6):
        add_turn(store, f"the zebra asks again, {number}, about the cat and its money", session="busy", ts=NOW - number)
    embed_all(store, Meaning())
    result = ask(store, "what did the zebra say yesterday about cats? feline", Meaning(), how=None)
    assert found(result)[0] == near
    scores = [hit.score for hit in result.hits]
    assert scores == sorted(scores, reverse=True)
    strong = ask(store, "feline", Meaning(), how=SearchOptions(fusion="similarity", recency="strong"))
    assert [(hit.uuid, hit.score) for hit in strong.hits] == [
        (hit.uuid, hit.score) for hit in ask(store, "feline", Meaning()).hits
    ]


def test_a_time_alone_and_a_name_alone_are_asked_by_meaning_too(store):
    embedder = Spread()
    uuid, other = add_turn(store, "yesterday was fine"), add_turn(store, "ERR-4711 again")
    embed_all(store, embedder)
    assert found(ask(store, "yesterday", embedder))[0] == uuid
    assert found(ask(store, "ERR-4711", embedder))[0] == other
    for hit in (*ask(store, "yesterday", embedder).hits, *ask(store, "ERR-4711", embedder).hits):
        assert hit.score < 1


def test_what_has_nothing_to_do_with_the_question_is_left_out(store):
    add_turn(store, "rain and storm")
    embed_all(store, Meaning())
    result = ask(store, "payment payment", Meaning())
    assert (result.hits, result.notes) == ((), ("no text is close to it in meaning",))


def test_every_filter_holds_and_still_fills_the_list(store):
    embedder = Spread()
    texts = say_many(store, embedder)
    result = ask(store, "needle oak", embedder, limit=8, role="assistant", project="p1", since=NOW - 50 * HOUR)
    assert {(hit.role, hit.project) for hit in result.hits} == {("assistant", "p1")}
    assert all(hit.timestamp >= NOW - 50 * HOUR for hit in result.hits)
    allowed = [number for number in range(51) if number % 2 and number % 3 == 1]
    near = [one for one in (embedder.cosine("needle oak", list(texts.values())[at]) for at in allowed) if one >= 0.15]
    assert [hit.score for hit in result.hits] == pytest.approx(sorted(near, reverse=True)[:8], abs=ROUNDING)
    quoted = ask(store, '"needle" oak', embedder)
    assert quoted.hits
    assert all("needle" in hit.text for hit in quoted.hits)


def test_a_turn_is_one_hit_by_its_nearest_chunk_and_copies_are_one(store):
    filler = "amber birch. " * 300
    turn = add_turn(store, f"{filler}\n\n{'kitten cat. ' * 200}\n\n{filler}")
    for number in range(5):
        add_turn(store, "the cat has money", session=f"s{number}")
    embed_all(store, Meaning())
    result = ask(store, "feline", Meaning())
    assert len(result.hits) == 2
    assert result.hits[0].uuid == turn
    assert "kitten" in result.hits[0].text
    assert (result.hits[1].similar, result.hits[1].copies) == (4, 5)


def test_many_copies_do_not_keep_others_from_a_full_list(store):
    for number in range(130):
        add_turn(store, "kitten", session=f"s{number}")
    for number in range(12):
        add_turn(store, f"a cat or so {number} {'x' * number} {'y ' * (number % 5)}")
    embed_all(store, Meaning())
    for limit in (1, 9, 13):
        assert len({hit.text for hit in ask(store, "feline", Meaning(), limit=limit).hits}) >= min(limit, 9)


# ------------------------------------------------------------------------------------------------- what is missing


def test_without_a_model_there_is_a_reason_and_no_hit(store):
    add_turn(store, "a needle")
    result = ask(store, "needle")
    assert (result.hits, result.mode) == ((), "vectors")
    assert result.notes == ("similarity needs vectors: no embedding model is configured",)


def test_without_vectors_there_is_a_reason_and_no_hit(store):
    add_turn(store, "a kitten")
    result = ask(store, "cat", Meaning())
    assert (result.hits, result.notes) == ((), ("similarity needs vectors: no vectors yet, 1 chunk to embed",))


def test_many_chunks_without_vectors_are_not_counted_to_the_end(store, monkeypatch):
    monkeypatch.setattr(candidates, "MAX_COUNTED", 3)
    for waiting, words in enumerate(("1 chunk", "2 chunks", "3 chunks", "more than 3 chunks", "more than 3 chunks"), 1):
        add_turn(store, f"kitten {waiting}")
        assert ask(store, "cat", Meaning()).notes == (f"similarity needs vectors: no vectors yet, {words} to embed",)
        assert count_pending(store, 0, 4) == min(waiting, 4)


def test_what_waits_for_its_vector_is_named(store):
    known = add_turn(store, "a kitten")
    embed_all(store, Meaning())
    add_turn(store, "a cat")
    result = ask(store, "feline", Meaning())
    assert found(result) == [known]
    assert result.notes == ("1 chunk not embedded yet, not found by similarity",)


def test_nobody_is_asked_for_another_order():
    with pytest.raises(UsageError, match="deep search cannot be combined"):
        SearchOptions(fusion="similarity", deep=Deep(None, NOW, []))


@each_row("query", ["", "   ", "?!", '"', "x" * 50_000, "\ud800 \x00", "猫 " * 100])
def test_no_question_raises(store, query):
    add_turn(store, "kitten")
    embed_all(store, Meaning())
    for hit in ask(store, query, Meaning()).hits:
        assert 0 <= hit.score <= 1


# ------------------------------------------------------------------------------------------------- two memories


def test_two_memories_are_one_list_and_a_turn_in_both_is_this_machines(tmp_path, store):
    (tmp_path / "theirs").mkdir()
    with open_store(tmp_path / "theirs") as theirs:
        both = add_turn(store, "the cat has money")
        add_turn(theirs, "the cat has money", uuid=both)
        only = add_turn(theirs, "kitten", uuid="only", device="server")
        for one in (store, theirs):
            embed_all(one, Meaning())
        result = ask(store, "feline", Meaning(), mirror=MemorySource(theirs, "mirror", Meaning(), ""))
        assert [(hit.uuid, hit.memory) for hit in result.hits] == [(only, "mirror"), (both, "local")]
        alone = ask(store, "feline", Meaning(), mirror=MemorySource(theirs, "mirror", None, "its model is not here"))
        assert found(alone) == [both]
        assert alone.notes == ("mirror: similarity needs vectors: its model is not here",)


def test_a_project_comes_first_as_long_as_it_has_anything_near(store):
    inside = add_turn(store, "a cat in the shop", project="/code/shop")
    outside = add_turn(store, "kitten", project="/code/other")
    embed_all(store, Meaning())
    how = SearchOptions(fusion="similarity")
    result, is_inside = search_home_first(store, Meaning(), "feline", home="shop", now=NOW, how=how)
    assert (found(result), is_inside) == ([inside], True)
    result, is_inside = search_home_first(store, Meaning(), "feline", home="elsewhere", now=NOW, how=how)
    assert (found(result), is_inside) == ([outside, inside], False)


def test_a_damaged_index_changes_nothing(store, monkeypatch):
    embedder = Spread()
    say_many(store, embedder, 20)
    before = ask(store, "needle oak", embedder)
    nearest = Index.nearest

    def rotten(index, *args):
        if index._files:
            raise IndexDamagedError("a bit has changed")
        return nearest(index, *args)

    monkeypatch.setattr(Index, "nearest", rotten)
    after = ask(store, "needle oak", embedder)
    assert found(after) == found(before)
    assert [hit.score for hit in after.hits] == pytest.approx([hit.score for hit in before.hits], abs=ROUNDING)
