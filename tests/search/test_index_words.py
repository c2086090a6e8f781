"""The derived index: which parts are merged, and what the words of a document are."""

import contextlib
import random
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.search.index import words as index_words
from crystal.search.index.step import merged_next
from crystal.search.index.terms import camel_parts, document_words, joint_words, query_terms
from crystal.search.index.word_pairs import PairCollector, filters_of, having_in_a_row, merge_pairs
from crystal.search.index.words import PartWords, WordCollector, merge_words
from crystal.store import Store
from crystal.store.search.tokenizer import tokenizer
from tests.support.examples import examples
from tests.support.index_store import rebuild


@pytest.mark.slow
@given(st.lists(st.integers(0, 70_000), max_size=60))
def test_merging_leaves_few_parts_and_loses_none(sizes):
    for _ in range(60):
        members = merged_next(sizes, most=65_536)
        if not members:
            break
        merged = [sizes[at] for at in members]
        assert len(merged) == len(set(members)) > 1
        assert sum(merged) <= 65_536
        sizes = [size for at, size in enumerate(sizes) if at not in members] + [sum(merged)]
    assert not members
    assert sum(0 < size < 512 for size in sizes) <= 1
    assert sum(512 <= size < 4_096 for size in sizes) < 8


def document_terms(store, text, ts):
    """All words under which a document is found."""
    words = document_words(tokenizer(store), text, ts)
    return [*words.header, *words.text, *words.parts]


@given(st.text(), st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)))
def test_any_text_has_words(text, ts):
    with contextlib.closing(apsw.Connection(":memory:")) as db:
        store = Store(Path("memory"), db)
        assert all(isinstance(word, str) for word in document_terms(store, text, ts))
        assert all(word in document_terms(store, text, ts) for word in query_terms(store, text))


def test_words_of_a_document(world):
    words = document_terms(world.store, "FindMostRecentSession walked 東京都 x 京 München", 1_683_504_000_000)
    assert words == [
        *["8", "mai", "2023", "mondai"],
        *["findmostrecentsess", "walk", "東京", "京都", "x", "京", "munchen"],
        *["find", "most", "recent", "session"],
        "都",  # the last of a run: every other character begins a pair
    ]
    assert camel_parts("HTTPServer parseJSONFile aB getURL2x plain UPPER") == "parse JSON File a B get URL".split()
    assert camel_parts("a" * 200_000) == []


def test_rebuilding_gives_the_same(world):
    world.add(100)
    world.embed()
    world.refresh()
    before, _ = world.open().scores([(["alpha"], 1.0)], None)
    rebuild(world)
    after, _ = world.open().scores([(["alpha"], 1.0)], None)
    assert np.array_equal(before, after)


@examples(30)
@given(st.integers(0, 2**32), st.one_of(st.integers(1, 3_000), st.integers(4_000, 9_000)))
def test_the_documents_of_rare_and_frequent_words_are_those_that_have_them(seed, count):
    dice = np.random.default_rng(seed)
    shares = {"everywhere": 1.0, "often": 0.3, "seldom": 0.01, "rarely": 0.003}
    having = {word: np.flatnonzero(dice.random(count) < share) for word, share in shares.items()}
    known = {word: set(documents.tolist()) for word, documents in having.items()}
    halves = []
    for first, last in ((0, count // 2), (count // 2, count)):
        gathering = WordCollector()
        for document in range(first, last):
            there = [word for word, documents in known.items() if document in documents]
            gathering.add(there * (1 + document % 3))
        halves.append(PartWords(gathering.arrays(np.arange(last - first))))
    orders = [np.arange(count // 2), np.arange(count // 2, count)]
    merged = PartWords(merge_words(halves, orders))
    for word, documents in having.items():
        found = merged.find(word.encode())
        assert merged.documents(*found).tolist() == documents.tolist()
        assert merged.times(*found).tolist() == (1 + documents % 3).tolist()
        some = np.flatnonzero(dice.random(count) < 0.1)
        assert merged.times_in(*found, some).tolist() == np.where(np.isin(some, documents), 1 + some % 3, 0).tolist()
    both = np.intersect1d(having["often"], having["seldom"])
    assert merged.with_all([b"often", b"seldom"]).tolist() == both.tolist()
    assert merged.with_all([b"often", b"never"]).tolist() == []


@pytest.mark.parametrize(
    ("name", "text", "has_it"),
    [("get_user", "call obj.get_user(x)", True), ("get_user", "call Get_Users now", True), ("get_user", "get user", False),
     ("get_user", "get-user", False), ("get_user", "set_user", False), ("src/a/main.py", "in lib/src/a/main.py:3", True),
     ("src/a/main.py", "src/main.py", False)],
)  # fmt: skip
def test_a_text_with_a_name_has_the_words_of_its_joints_and_other_texts_seldom(name, text, has_it):
    assert set(joint_words(name)).issubset(joint_words(text)) == has_it
    assert joint_words(name)
    assert all(len(word) == 2 and max(word) < " " for word in joint_words(name))


@pytest.mark.parametrize(
    "text", ["", "plain words. And -- more", "at 10:32 on 2026-11-28", "a::b", "_a b_", "x" * 200_000]
)
def test_what_joins_no_letters_has_no_joint(text):
    assert joint_words(text) == []


@examples(40)
@given(st.lists(st.lists(st.sampled_from("ab cd ef gh ij".split()), max_size=6), min_size=1, max_size=12), st.data())
def test_words_in_a_row_are_found_in_parts_and_when_these_are_merged(texts, data):
    cut = data.draw(st.integers(0, len(texts)))
    order = np.array(data.draw(st.permutations(range(len(texts)))))
    kept = np.array(data.draw(st.lists(st.booleans(), min_size=len(texts), max_size=len(texts))))
    row = data.draw(st.lists(st.sampled_from("ab cd ef".split()), min_size=1, max_size=3))
    new = np.where(kept[order], np.cumsum(kept[order]) - 1, -1)[np.argsort(order)]
    parts, orders = [], []
    for some, places in ((texts[:cut], new[:cut]), (texts[cut:], new[cut:])):
        collected, lengths = PairCollector(), np.array([*map(len, some)], np.uint16)
        for text in some:
            collected.add(text)
        parts.append({"length": lengths, **collected.arrays(np.arange(len(some)), lengths)})
        orders.append(places)
        has_row = having_in_a_row(parts[-1], filters_of(lengths), np.arange(len(some)), row)
        assert all(has_row[[_has_row(text, row) for text in some]])
    left = [text for _, text in sorted((place, text) for place, text in zip(new, texts, strict=True) if place >= 0)]
    lengths = np.array([*map(len, left)], np.uint16)
    merged = {"length": lengths, **merge_pairs(parts, orders, lengths)}
    assert all(
        having_in_a_row(merged, filters_of(lengths), np.arange(len(left)), row)[[_has_row(text, row) for text in left]]
    )


def _has_row(text, row):
    return f" {' '.join(row)} " in f" {' '.join(text)} "


@pytest.mark.slow
def test_of_texts_without_a_pair_one_in_four_seems_to_have_it_and_one_in_eighteen_two():
    dice, collected = random.Random(1), PairCollector()
    texts = [[f"w{dice.randrange(300)}" for _ in range(150)] for _ in range(6_000)]
    for text in texts:
        collected.add(text)
    lengths = np.full(len(texts), 150, np.uint16)
    part = {"length": lengths, **collected.arrays(np.arange(len(texts)), lengths)}
    for row, most in (["w1", "w2"], 0.25), (["w1", "w2", "w3"], 0.065):
        wrong = having_in_a_row(part, filters_of(lengths), np.arange(len(texts)), row) & ~np.array(
            [_has_row(text, row) for text in texts]
        )
        assert 0 < np.mean(wrong) < most


@pytest.mark.slow
def test_searches_at_once_take_no_words_from_each_other(monkeypatch):
    monkeypatch.setattr(index_words, "KNOWN_WORDS", 2)
    collector, names = WordCollector(), [f"word{number}" for number in range(8)]
    for at in range(400):
        collector.add([name for number, name in enumerate(names) if at % (number + 1) == 0])
    part = PartWords(collector.arrays(np.arange(400)))

    start = threading.Barrier(len(names))

    def look_up(number: int) -> None:
        start.wait()
        for _ in range(10_000):
            found = part.documents(*part.find(names[number].encode()))
            assert np.array_equal(found, np.arange(0, 400, number + 1))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(len(names)) as pool:
            list(pool.map(look_up, range(len(names))))
    finally:
        sys.setswitchinterval(interval)
