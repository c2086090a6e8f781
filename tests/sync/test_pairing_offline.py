"""Pairing without a relay in between: one word with a checksum, and its picture."""

from __future__ import annotations

import io
import itertools
import os
import re

import pytest
import segno
from hypothesis import given
from hypothesis import strategies as st

from crystal.cli.qr import QUIET, qr_ansi, qr_text
from crystal.errors import UsageError
from crystal.sync.keys.bundle import MAX_OFFLINE_CHARS, OFFLINE_PREFIX, Bundle, parse_offline
from crystal.sync.keys.forms import armor
from tests.support.examples import examples
from tests.support.table import each_row

ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"


def bundle(ca: str | None = None, url: str = "https://relay.example.org") -> Bundle:
    return Bundle(
        url=url,
        token="crt_0123456789ab_" + "Q" * 43 + "_deadbeef",
        device_id=os.urandom(16),
        generation=1,
        device_secret=os.urandom(32),
        up_prefix=os.urandom(8),
        down_prefix=os.urandom(8),
        home_name="mini",
        device_name="laptop",
        ca=ca,
    )


# ------------------------------------------------------------------------------------------------------------- the word


def test_the_word_is_short_and_holds_the_whole_bundle() -> None:
    one = bundle()
    text = one.format_offline()
    assert re.fullmatch(r"crystal1:[a-z2-7]{140,310}", text)
    assert parse_offline(text) == one


@each_row("width", [1, 7, 40, 79])
def test_case_and_line_breaks_do_not_matter(width: int) -> None:
    one = bundle(ca="-----BEGIN CERTIFICATE-----\n" + "A" * 1200 + "\n-----END CERTIFICATE-----\n")
    text = one.format_offline()
    wrapped = [text[at : at + width] for at in range(0, len(text), width)]
    for shown in ("\n".join(wrapped), "\r\n  ".join(wrapped), " ".join(wrapped).upper() + "\n\n", "\t" + text.title()):
        assert parse_offline(shown) == one


@pytest.mark.slow
def test_every_wrong_character_is_refused() -> None:
    text = bundle().format_offline()
    for at, letter in itertools.product(range(len(text)), ALPHABET + "0189-.:é"):
        if letter != text[at]:
            with pytest.raises(UsageError):
                parse_offline(text[:at] + letter + text[at + 1 :])


@pytest.mark.slow
def test_every_swap_of_neighbours_is_refused() -> None:
    for _ in range(10):
        text = bundle().format_offline()
        for at in range(len(text) - 1):
            if text[at] != text[at + 1]:
                with pytest.raises(UsageError):
                    parse_offline(text[:at] + text[at + 1] + text[at] + text[at + 2 :])


def test_every_missing_or_doubled_character_and_every_beginning_is_refused() -> None:
    text = bundle().format_offline()
    for at in range(len(text)):
        for changed in (text[:at] + text[at + 1 :], text[: at + 1] + text[at:], text[:at]):
            with pytest.raises(UsageError):
                parse_offline(changed)


@examples(50)
@given(st.data())
def test_errors_within_four_neighbouring_letters_are_always_found(data: st.DataObject) -> None:
    text = bundle().format_offline()
    at = data.draw(st.integers(len(OFFLINE_PREFIX), len(text) - 4))
    other = data.draw(st.text(alphabet=ALPHABET, min_size=4, max_size=4))
    if other != text[at : at + 4]:
        with pytest.raises(UsageError):
            parse_offline(text[:at] + other + text[at + 4 :])


@each_row(
    ("text", "problem"),
    [
        ("", "does not begin with crystal1:"),
        ("crystal1:", "checksum"),
        ("crystal1", "does not begin"),
        ("crystal2:aaaa", "does not begin"),
        ("7-apple-river-stone", "does not begin"),
        ("mc1:abcdef", "does not begin"),
        ("crystal1:" + "a" * 30_000, "characters long"),
        ("crystal1:aaaa0aaa", "character 14 is not one of"),
        ("crystal1:" + "ａ" * 20, "not ASCII"),
        (armor(OFFLINE_PREFIX, b""), "0 bytes long"),
        (armor(OFFLINE_PREFIX, b"\x02\x00" + bytes(100)), "of version 2"),
        (armor(OFFLINE_PREFIX, b"\x01\x00" + bytes(100)), "cannot be used"),
        (armor(OFFLINE_PREFIX, bundle().encode() + b"x"), "damaged"),
    ],
)
def test_what_is_no_pairing_string_is_refused_with_its_reason(text: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem) as caught:
        parse_offline(text)
    assert caught.value.hint


def test_the_longest_bundle_fits() -> None:
    one = bundle(ca="x" * 15_600)
    text = one.format_offline()
    assert len(text) <= MAX_OFFLINE_CHARS
    assert parse_offline(text) == one


@pytest.mark.slow
@given(st.text(max_size=300))
def test_no_text_does_more_than_be_refused(text: str) -> None:
    for tried in (text, OFFLINE_PREFIX + text):
        with pytest.raises(UsageError):
            parse_offline(tried)


def test_a_typing_error_is_not_shown() -> None:
    text = bundle().format_offline()
    with pytest.raises(UsageError) as caught:
        parse_offline(text[:100] + "0" + text[101:])
    assert text[20:30] not in caught.value.message
    assert text[95:100] not in caught.value.message


# ---------------------------------------------------------------------------------------------------------- the picture


def modules_of(drawn: str) -> list[list[int]]:
    """The modules that a drawing shows, 1 for dark, as an eye reads the half blocks."""
    halves = {"█": (0, 0), "▀": (0, 1), "▄": (1, 0), " ": (1, 1)}
    rows: list[list[int]] = []
    for line in drawn.split("\n"):
        pairs = [halves[letter] for letter in line]
        rows += [[above for above, _ in pairs], [below for _, below in pairs]]
    return rows


@each_row("text", ["7-APPLE-RIVER-STONE", "A", "x" * 500, "crystal1:" + "a" * 290, "ünïcode"])
def test_the_picture_shows_the_modules_with_their_quiet_zone(text: str) -> None:
    drawn = qr_text(text)
    rows = modules_of(drawn)
    width = len(rows[0])
    assert {len(row) for row in rows} == {width}
    assert len(rows) in (width, width + 1)
    expected = [list(row) for row in segno.make_qr(text, error="l").matrix_iter(border=QUIET)]
    assert rows[:width] == expected
    assert not any(itertools.chain(*rows[width:]))
    edge = rows[:4] + rows[width - 4 : width] + [row[:4] + row[-4:] for row in rows]
    assert not any(itertools.chain(*edge))


@each_row("text", ["7-APPLE-RIVER-STONE", "", None])
def test_the_picture_decodes_to_the_text(text: str | None) -> None:
    zxing = pytest.importorskip("zxingcpp", reason="a decoder of QR codes: pip install zxing-cpp")
    text = bundle().format_offline().upper() if text is None else text or "https://example.org/?a=ä"
    rows = modules_of(qr_text(text))
    scale = 4
    width, height = len(rows[0]) * scale, len(rows) * scale
    pixels = b"".join(bytes(0 if dark else 255 for dark in row for _ in range(scale)) * scale for row in rows)
    view = memoryview(pixels).cast("B", (height, width))
    (found,) = zxing.read_barcodes(view)
    assert found.text == text


def test_pictures_are_small_enough_for_a_terminal() -> None:
    code = qr_text("7-APPLE-RIVER-STONE").split("\n")
    whole = qr_text(bundle().format_offline().upper()).split("\n")
    assert (len(code[0]), len(code)) <= (33, 17)
    assert (len(whole[0]), len(whole)) <= (65, 33)


def test_with_colours_the_picture_is_the_same() -> None:
    plain, coloured = qr_text("7-APPLE-RIVER-STONE"), qr_ansi("7-APPLE-RIVER-STONE")
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain
    assert all(line.startswith("\x1b[40;97m") and line.endswith("\x1b[0m") for line in coloured.split("\n"))
    assert io.StringIO(plain).read().isprintable() is False  # line breaks, and nothing else
    assert plain.replace("\n", "").replace(" ", "").isprintable()
