"""Which words only a forgotten text says: neither the quick look before a text is taken apart nor the index misses one."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crystal.forgetting.match import forgotten_text
from crystal.forgetting.match.forgotten_text import rare_words
from crystal.search.index import bring_up_to_date
from crystal.search.index.terms import Tokenize, document_words
from crystal.store.search.tokenizer import tokenizer
from tests.support.examples import examples
from tests.support.store_factory import add_turn, open_store

STEMS = ("deploy", "happy", "die", "sky", "Zürich", "run", "relate", "able", "agree", "KeyStore", "v2beta", "数据库",
         "univers", "straße", "a\u200db", "ﬁle", "ıx", "x\ue0a0y", "का")  # fmt: skip
ENDS = ("", "s", "ed", "ing", "ly", "ness", "ies", "ation", "al", "e", "Server", "-token", "_x", ".run", "数")


def forms() -> st.SearchStrategy[str]:
    stem = st.sampled_from(STEMS).flatmap(lambda one: st.sampled_from((one, one[:-1], one.upper(), one.lower())))
    return st.tuples(stem, st.sampled_from(ENDS)).map("".join)


def has_word(text: str, word: str, tokenize: Tokenize) -> bool:
    found = document_words(tokenize, text, None)
    terms = {*tokenize(text), *found.text, *found.parts}
    stem = " ".join(tokenize(word))
    return word in terms or stem in terms or f" {stem} " in f" {' '.join(tokenize(text))} "


@examples(30)
@example(words={"straßs"}, texts=[["straße"]])
@given(words=st.sets(forms(), min_size=1, max_size=6), texts=st.lists(st.lists(forms(), max_size=5), max_size=4))
def test_a_word_is_rare_if_no_other_text_says_it_in_any_form(tmp_path_factory, words, texts):
    with open_store(tmp_path_factory.mktemp("store")) as store:
        texts = [" ".join(["x", *text]) for text in texts]
        for number, text in enumerate([*texts, " ".join(words)]):
            add_turn(store, text, session=f"s{number}")
        gone = [uuid for (uuid,) in store.rows("SELECT uuid FROM turns ORDER BY id DESC LIMIT 1")]
        tokenize = tokenizer(store)
        said = {word for word in words if any(has_word(text, word, tokenize) for text in texts)}
        for is_indexed, most in ((False, 0), (False, 500), (True, 0), (True, 500)):
            if is_indexed:
                bring_up_to_date(store, now=1)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(forgotten_text, "MAX_BEGINNINGS", most)
                assert rare_words([store], words, gone, ()) == words - said, (is_indexed, most)


def test_no_text_is_read_again_for_another_word(tmp_path, monkeypatch):
    read: list[str] = []
    words_in = forgotten_text._SoughtWords.words_in
    monkeypatch.setattr(
        forgotten_text._SoughtWords, "words_in", lambda self, text: read.append(text) or words_in(self, text)
    )
    with open_store(tmp_path) as store:
        for number in range(40):
            add_turn(store, f"strassburg {number} é", session=f"s{number}")
        add_turn(store, "straßs straßings", session="gone")
        bring_up_to_date(store, now=1)
        gone = [uuid for (uuid,) in store.rows("SELECT uuid FROM turns ORDER BY id DESC LIMIT 1")]
        assert rare_words([store], {"straßs", "straßings"}, gone, ()) == {"straßs", "straßings"}
    assert len(read) == len(set(read)) == 40
