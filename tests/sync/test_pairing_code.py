"""The code of a pairing: shown, typed and read."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.errors import UsageError
from crystal.sync.keys.word_codes import PairingCode, new_code, parse_code
from tests.support.examples import examples
from tests.support.table import each_row

CODE = PairingCode(7, ("apple", "river", "stone"))


@pytest.mark.slow
@given(st.integers(1, 2**31 - 1), st.binary(min_size=5, max_size=5))
def test_a_code_is_read_as_it_is_shown(nameplate: int, random: bytes) -> None:
    code = new_code(nameplate, lambda count: random[:count])
    assert code.text.split("-")[0] == str(nameplate)
    assert parse_code(code.text) == code
    assert parse_code(code.text.upper()) == code


def test_the_words_of_a_code_are_uniform() -> None:
    """Each of the 33 bits makes a difference, and nothing but them."""
    seen = {new_code(1, lambda count, bit=bit: (1 << bit).to_bytes(count, "big")).words for bit in range(40)}
    assert len(seen) == 34
    everything = new_code(1, lambda count: b"\xff" * count)
    assert everything.words == ("zoo", "zoo", "zoo")


@each_row(
    "text",
    [
        "7-apple-river-stone",
        "7 apple river stone",
        " 7-APPLE-River-stone \n",
        "7 - apple - river - stone",
        "7–apple—river‑stone",
        "7.appl.rive.ston",
        "７-apple-river-stone",
        "07-apple-river-stone",
    ],
)
def test_a_code_is_read_as_people_type_it(text: str) -> None:
    assert parse_code(text) == CODE


@each_row(
    ("text", "problem", "hint"),
    [
        ("", "is empty", "7-apple-river-stone"),
        ("apple-river-stone", "number of a mailbox", ""),
        ("7-apple-river", "2 words", ""),
        ("7", "0 words", ""),
        ("7-apple-river-stone-zoo", "4 words", ""),
        ("7-aple-river-stone", "word 1, 'aple'", "apple"),
        ("7-apple-rivr-stone", "word 2, 'rivr'", "river"),
        ("0-apple-river-stone", "number of a mailbox", ""),
        ("99999999999-apple-river-stone", "number of a mailbox", ""),
        ("2147483648-apple-river-stone", "number of a mailbox", ""),
        ("-7-apple-river", "2 words", ""),
        ("x" * 300, "300 characters", ""),
        ("7-apple-river-" + "s" * 50, "word 3 is 50 characters", ""),
    ],
)
def test_what_is_no_code_is_refused_with_its_reason(text: str, problem: str, hint: str) -> None:
    with pytest.raises(UsageError, match=problem) as caught:
        parse_code(text)
    assert hint in (caught.value.hint or "")


@each_row("nameplate", [0, -1, 2**31])
def test_a_mailbox_without_a_number_gives_no_code(nameplate: int) -> None:
    with pytest.raises(ValueError, match="nameplate"):
        new_code(nameplate, os.urandom)


@examples(25)
@given(st.text(max_size=60))
def test_no_text_does_more_than_be_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_code(text)
