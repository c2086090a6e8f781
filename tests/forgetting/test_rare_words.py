"""Which words only a forgotten text says: the quick look before a text is taken apart leaves nothing out."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crystal.forgetting.match import forgotten_text
from crystal.forgetting.match.forgotten_text import rare_words
from crystal.search.index.terms import document_words
from crystal.store.search.tokenizer import tokenizer
from tests.support.store_factory import add_turn, open_store

STEMS = ("deploy", "happy", "die", "sky", "Zürich", "run", "relate", "able", "agree", "KeyStore", "v2beta", "数据库")
ENDS = ("", "s", "ed", "ing", "ly", "ness", "ies", "ation", "al", "e", "Server", "-token", "_x")


def forms() -> st.SearchStrategy[str]:
    stem = st.sampled_from(STEMS).flatmap(lambda one: st.sampled_from((one, one[:-1], one.upper(), one.lower())))
    return st.tuples(stem, st.sampled_from(ENDS)).map("".join)


def has_word(text, word, tokenize):
    found = document_words(tokenize, text, None)
    terms = {*tokenize(text), *found.text, *found.parts}
    stem = " ".join(tokenize(word))
    return word in terms or stem in terms or f" {stem} " in f" {' '.join(tokenize(text))} "


@pytest.mark.parametrize("most", [0, 500])
@settings(max_examples=30)
@given(words=st.sets(forms(), min_size=1, max_size=6), texts=st.lists(st.lists(forms(), max_size=5), max_size=4))
def test_a_word_is_rare_if_no_other_text_says_it_in_any_form(tmp_path_factory, most, words, texts):
    with open_store(tmp_path_factory.mktemp("store")) as store, pytest.MonkeyPatch.context() as patch:
        patch.setattr(forgotten_text, "MAX_BEGINNINGS", most)
        texts = [" ".join(["x", *text]) for text in texts]
        for number, text in enumerate(texts):
            add_turn(store, text, session=f"s{number}")
        tokenize = tokenizer(store)
        said = {word for word in words if any(has_word(text, word, tokenize) for text in texts)}
        assert rare_words([store], words, (), ()) == words - said
