"""Which words only a forgotten text says: the quick look before a text is taken apart leaves nothing out."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from crystal.forgetting.match.forgotten_text import _words_in, rare_words
from crystal.store.search.tokenizer import tokenizer
from tests.support.store_factory import add_turn, open_store

STEMS = ("deploy", "happy", "die", "sky", "Zürich", "run", "relate", "able", "agree", "KeyStore", "v2beta", "数据库")
ENDS = ("", "s", "ed", "ing", "ly", "ness", "ies", "ation", "al", "e", "Server", "-token", "_x")


def forms() -> st.SearchStrategy[str]:
    stem = st.sampled_from(STEMS).flatmap(lambda one: st.sampled_from((one, one[:-1], one.upper(), one.lower())))
    return st.tuples(stem, st.sampled_from(ENDS)).map("".join)


@settings(max_examples=30)
@given(words=st.sets(forms(), min_size=1, max_size=6), texts=st.lists(st.lists(forms(), max_size=5), max_size=4))
def test_a_word_is_rare_if_no_other_text_says_it_in_any_form(tmp_path_factory, words, texts):
    with open_store(tmp_path_factory.mktemp("store")) as store:
        for number, text in enumerate(texts):
            add_turn(store, " ".join(["x", *text]), session=f"s{number}")
        tokenize = tokenizer(store)
        stems = {word: " ".join(tokenize(word)) for word in words}
        said = [_words_in(" ".join(["x", *text]), words, stems, tokenize) for text in texts]
        assert rare_words([store], words, (), ()) == words - set().union(*said)
