"""The patterns of forgotten text: every form of it is found, and a word only where it stands alone."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crystal.forgetting.match.multi_pattern import MultiPatternMatcher
from crystal.forgetting.match.patterns import PatternSet, forms_of, stretches_of


def test_a_tiny_text_has_nothing_to_look_for() -> None:
    assert [stretches_of(text) for text in ("ok", "yes", "  \n ", "no\nyes")] == [[], [], [], ["no\nyes"]]


@pytest.mark.slow
@settings(max_examples=50)
@given(st.lists(st.binary(min_size=5, max_size=24), min_size=1, max_size=20), st.data())
def test_the_seeker_finds_what_a_plain_search_finds(strings: list[bytes], data: st.DataObject) -> None:
    strings = list(dict.fromkeys(strings))
    parts = data.draw(st.lists(st.one_of(st.sampled_from(strings), st.binary(max_size=9)), max_size=20))
    text = b"".join(parts)
    expected = {
        (at, number) for number, string in enumerate(strings) for at in range(len(text)) if text.startswith(string, at)
    }
    seeker = MultiPatternMatcher(strings)
    assert set(seeker.find(text)) == expected
    size = data.draw(st.integers(1, 30))
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    found = list(seeker.find_in(pieces))
    assert set(found) == expected
    assert len(found) == len(expected)


@settings(max_examples=50)
@given(st.text(min_size=1, max_size=60))
def test_every_form_in_which_json_can_hold_a_text_is_looked_for(text: str) -> None:
    forms = forms_of(text)
    for ascii_only in (True, False):
        once = json.dumps(text, ensure_ascii=ascii_only)
        assert once[1:-1].encode("utf-8", "surrogatepass") in forms
        twice = json.dumps(once, ensure_ascii=ascii_only)
        assert twice[3:-3].encode("utf-8", "surrogatepass") in forms
    assert text.encode("utf-16-le", "surrogatepass") in forms
    if "/" in text:
        assert json.dumps(text)[1:-1].replace("/", "\\/").encode() in forms


@settings(max_examples=50)
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
    patterns = PatternSet(["zweitausend"])
    alone = (
        "zweitausend",
        '"zweitausend"',
        r"eins\nzweitausend\t",
        r"\\nzweitausend",
        r"\u00e9zweitausend",
        "日zweitausend",
    )
    for text in alone:
        assert list(patterns.find_in_lines(text.encode())), text
    for text in ("zweitausenddrei", "hundertzweitausend", "ßzweitausend", "zweitausendä"):
        assert list(patterns.find([text.encode()])), text
        assert not list(patterns.find_in_lines(text.encode())), text
