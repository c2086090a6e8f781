"""The patterns of forgotten text: every form of it is found, and a word only where it stands alone."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.forgetting.match import patterns, window_hashes
from crystal.forgetting.match.multi_pattern import MultiPatternMatcher
from crystal.forgetting.match.patterns import PatternSet, TextMatcher, forms_of, stretches_of
from tests.support.examples import examples, part_of


def test_a_tiny_text_has_nothing_to_look_for() -> None:
    assert [stretches_of(text) for text in ("ok", "yes", "  \n ", "no\nyes")] == [[], [], [], ["no\nyes"]]


@pytest.mark.slow
@examples(50)
@given(st.lists(st.binary(min_size=5, max_size=24), min_size=1, max_size=20), st.data())
def test_the_seeker_finds_what_a_plain_search_finds(strings: list[bytes], data: st.DataObject) -> None:
    strings = list(dict.fromkeys(strings))
    parts = data.draw(st.lists(st.one_of(st.sampled_from(strings), st.binary(max_size=9)), max_size=20))
    text = b"".join(parts)
    expected = {
        (at, number) for number, string in enumerate(strings) for at in range(len(text)) if text.startswith(string, at)
    }
    assert set(MultiPatternMatcher(strings).find(text)) == expected


TEXTS = st.one_of(st.text(min_size=1, max_size=40), st.text('ab /\\"é', min_size=3, max_size=40))


@examples(150)
@given(st.lists(TEXTS, min_size=1, max_size=6), st.binary(min_size=24, max_size=90), st.data())
def test_very_many_texts_are_found_in_any_pieces_where_a_plain_search_finds_them(texts, body, data):
    forms = sorted((form, text) for text in set(texts) for form in forms_of(text) if len(form) >= 5)
    own = [body[at : at + 24] for at in range(0, len(body) - 23, 24)]
    glue = st.one_of(
        st.binary(max_size=9), st.just(body), *(st.sampled_from(forms).map(lambda one: one[0]) for _ in forms[:1])
    )
    file = b"".join(data.draw(st.lists(glue, max_size=20)))
    expected = {(at, at + len(form), text) for form, text in [*forms, *((one, one) for one in own)]
                for at in range(len(file)) if file.startswith(form, at)}  # fmt: skip
    size = data.draw(st.integers(1, 60))
    pieces = [file[at : at + size] for at in range(0, len(file), size)]
    for most in (0, 1 << 20):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(patterns, "MAX_FAST", most)
            patch.setattr(patterns, "MAX_FAST_BODIES", most)
            patch.setattr(window_hashes, "BLOCK", 64)
            found = list(
                PatternSet(texts[1:], texts[:1], patterns.body_stretches([body]), lambda text: [text]).find(pieces)
            )
        assert set(found) == expected
        assert len(found) == len(expected)


def test_what_repeats_a_whole_text_is_found_among_very_many() -> None:
    matcher = TextMatcher([f"the text with the number {number} is here" for number in range(300)], ())
    assert matcher.is_quoted(["he", "he said: the text with the number 299 is here, too"])
    assert not matcher.is_quoted(["the text with the", " number 299 is here", "the text with the number 300 is here"])
    assert TextMatcher(["so much space       in it"], ()).is_quoted(["not so much space in it"])


@pytest.mark.parametrize("most", part_of([1 << 20, 0]))
def test_lines_that_very_many_texts_share_are_not_looked_up_in_each(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"--- PASS: Test {at:05}\n--- PASS: TestOfAll\nok  example.org/all\t0.{at:05}s" for at in range(150)]
    asked: list[str] = []
    monkeypatch.setattr(patterns, "MAX_FAST", most)
    monkeypatch.setattr(patterns, "forms_of", lambda text: asked.append(text) or forms_of(text))
    matcher = TextMatcher(texts, ())
    lines = [json.dumps(text).encode() for text in texts]
    assert all(list(matcher.find(line)) for line in (*lines, *reversed(lines)))
    assert len(asked) < 5 * 3 * len(texts)


@examples(50)
@given(st.one_of(st.text(min_size=1, max_size=60), st.text("ab1 ,.;:'()-", min_size=1, max_size=9)))
def test_every_form_in_which_json_can_hold_a_text_is_looked_for(text: str) -> None:
    forms = forms_of(text)
    for ascii_only in (True, False):
        once = json.dumps(text, ensure_ascii=ascii_only)
        assert once[1:-1].encode("utf-8", "surrogatepass") in forms
        twice = json.dumps(once, ensure_ascii=ascii_only)
        assert twice[3:-3].encode("utf-8", "surrogatepass") in forms
    assert text.encode("utf-16-le", "surrogatepass") in forms
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(patterns, "_SIMPLE", re.compile("(?!)"))
        assert forms_of(text) == forms
    if "/" in text:
        assert json.dumps(text)[1:-1].replace("/", "\\/").encode() in forms


@examples(50)
@given(st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["Cc", "Zl", "Zp", "Cs"]), max_size=300))
def test_whoever_quotes_enough_of_a_line_quotes_a_stretch_of_it(text: str) -> None:
    line = text.strip()
    found = stretches_of(line)
    if len(line) < 20 or len(line.splitlines()) != 1:
        return
    assert all(stretch in line for stretch in found)
    for at in range(max(1, len(line) - 63)):
        quotation = line[at : at + 64]
        assert len(quotation) < 64 or any(stretch in quotation for stretch in found)


def test_a_word_is_not_looked_for_within_other_words() -> None:
    words = PatternSet(["zweitausend"])
    alone = (
        "zweitausend",
        '"zweitausend"',
        r"eins\nzweitausend\t",
        r"\\nzweitausend",
        r"\u00e9zweitausend",
        "日zweitausend",
    )
    for text in alone:
        assert list(words.find_in_lines(text.encode())), text
    for text in ("zweitausenddrei", "hundertzweitausend", "ßzweitausend", "zweitausendä"):
        assert list(words.find([text.encode()])), text
        assert not list(words.find_in_lines(text.encode())), text
