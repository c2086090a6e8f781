"""The turns that the index names for a query or a text are never fewer than those found by reading every text."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from crystal.forgetting.match.indexed_turns import turns_repeating, turns_with_terms
from crystal.forgetting.match.query_terms import QUOTE, Terms, folded
from crystal.model.capture import Chunk, Origin, Turn
from crystal.search.index import bring_up_to_date
from crystal.store import Store
from crystal.store.capture import turns
from tests.support.examples import examples
from tests.support.table import each_row

ALPHABET = "abekrt ningsyil E-_.,0é\u0301ßﬁＡ密码的가각\u200d\u200b\ue0a0ςΣжİı²\u0901क\n\"'ſ…"
PIECES = [
    "sekrit",
    "running",
    "botany",
    "happiness",
    "relational",
    "any",
    "ization",
    "naïve",
    "token-42",
    "的密码",
    "한국",
]
WORDS = st.one_of(st.sampled_from(PIECES), st.text(ALPHABET, min_size=1, max_size=12))
TEXTS = st.lists(WORDS, min_size=1, max_size=12).flatmap(
    lambda words: st.sampled_from([" ", "", "-"]).map(lambda joint: joint.join(words))
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("candidates")


def stored(folder: Path, texts: list[str]) -> Store:
    for old in sorted(folder.rglob("*"), reverse=True):
        old.unlink() if old.is_file() else old.rmdir()
    store = Store.open(folder / "crystal.db")
    store.db.execute("PRAGMA synchronous = OFF")
    said = [(Turn(f"u{at}", 0, "user", text, at), None, [Chunk(0, text)]) for at, text in enumerate(texts)]
    with store.transaction():
        turns.add_turns(store, Origin("cc", "desk", "s"), said, {}, None)
    bring_up_to_date(store, now=1)
    return store


@each_row("part", ["tion", "iona", "ional", "ationall", "fulness", "ing", "ization"])
def test_a_part_of_a_word_that_its_stem_loses_is_not_looked_up(folder: Path, part: str) -> None:
    with stored(folder, ["sekrit", f"kondit{part}ly", f"kon{part}", f"konditat{part}"]) as store:
        assert turns_with_terms(store, Terms.of(f'"{part}"')) in (None, {2, 3, 4})


@pytest.mark.slow
@examples(15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(TEXTS, min_size=1, max_size=4), data=st.data())
def test_no_turn_is_missed(folder: Path, texts: list[str], data: st.DataObject) -> None:
    whole = data.draw(st.sampled_from(texts))
    start = data.draw(st.integers(0, max(0, len(whole) - 1)))
    part = whole[start : data.draw(st.integers(start + 1, max(start + 1, len(whole))))]
    with stored(folder, texts) as store:
        for query in (part, f'"{part}"', f'{part} "{whole[:start]}"'):
            terms = Terms.of(query)
            if not terms.is_empty:
                found = turns_with_terms(store, terms)
                meant = {at for at, text in enumerate(texts, 1) if terms.are_in(folded(text))}
                assert found is None or meant <= found, (query, terms)
        sought = [folded(text) for text in (part, whole)]
        repeating = turns_repeating(store, sought)
        quoting = {
            at
            for at, text in enumerate(texts, 1)
            if any(one and (one == folded(text) or (len(one) >= QUOTE and one in folded(text))) for one in sought)
        }
        assert repeating is None or quoting <= repeating, sought


def test_the_index_is_asked(folder: Path) -> None:
    with stored(folder, ["the sekrit word", "another text", "sekrits of others"]) as store:
        assert turns_with_terms(store, Terms.of("sekrit")) == {1, 3}
        # the longest word names few enough to read
        assert turns_with_terms(store, Terms.of('"ekrit word"')) == {1, 3}
        assert turns_repeating(store, ["the sekrit word"]) == {1, 3}
