"""Chunking: exact slices, cut where a reader would cut, never inside a character, in linear time."""

from __future__ import annotations

import itertools
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.model.capture import Chunk
from crystal.text.chunking import merge, split
from crystal.text.grapheme import boundary_after, boundary_before, is_boundary
from tests.support.table import each_row

FAMILY = "👨‍👩‍👧"
PIECES = [
    "word ", "a", "\n", "\n\n", "\r\n", "\r\n\r\n", "# Heading\n", "```py\ncode()\n```\n", "```\n", "~~~\n", "Sentence. ",
    "ü", "e\u0301", FAMILY, "🇩🇪", "👍🏽", "漢字。", "क्ष", "한글", "\u1112\u1161\u11ab", "\ufeff", "\u2028", "x" * 50, " " * 30,
]  # fmt: skip
texts = st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=60).map("".join)


def size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


@pytest.mark.slow
@given(texts, st.integers(1, 30), st.data())
def test_chunks_are_exact_slices_that_cover_the_text_in_order(text: str, tokens: int, data: st.DataObject) -> None:
    overlap = data.draw(st.integers(0, tokens - 1))
    chunks = split(text, tokens=tokens, overlap=overlap)
    ends = [chunk.start + len(chunk.text) for chunk in chunks]
    assert merge(chunks) == text
    assert all(text[chunk.start : end] == chunk.text != "" for chunk, end in zip(chunks, ends, strict=True))
    assert [chunk.start for chunk in chunks] == sorted({chunk.start for chunk in chunks})
    assert ends == sorted(set(ends))
    for end, following in zip(ends, chunks[1:], strict=False):
        assert size(text[following.start : end]) <= overlap * 4


@pytest.mark.slow
@given(texts, st.integers(4, 30))
def test_no_cut_is_inside_a_character_as_a_reader_sees_it(text: str, tokens: int) -> None:
    for chunk in split(text, tokens=tokens, overlap=tokens // 4):
        assert is_boundary(text, chunk.start)
        assert is_boundary(text, chunk.start + len(chunk.text))


@pytest.mark.slow
@given(texts, st.integers(1, 30))
def test_a_chunk_is_longer_than_asked_for_only_by_white_space_or_one_character(text: str, tokens: int) -> None:
    for chunk in split(text, tokens=tokens, overlap=0):
        visible = chunk.text.rstrip()
        if size(visible) > tokens * 4:
            assert boundary_after(visible, 1, 0) == len(visible) or size(visible) <= tokens * 4 + size(FAMILY)


def test_a_short_text_is_one_chunk_and_an_empty_one_none() -> None:
    assert split("y") == [Chunk(0, "y")]
    assert split("x" * 1600) == [Chunk(0, "x" * 1600)]
    assert split("") == []
    assert merge([]) == ""


def test_ordinary_prose_gives_chunks_of_about_400_tokens_with_about_80_overlap() -> None:
    text = "".join(f"This is sentence number {number} of a long and even text. " for number in range(2000))
    chunks = split(text)
    sizes = [len(chunk.text) / 4 for chunk in chunks[:-1]]
    overlaps = [(before.start + len(before.text) - after.start) / 4 for before, after in itertools.pairwise(chunks)]
    assert 360 < sum(sizes) / len(sizes) <= 400
    assert max(sizes) <= 400
    assert min(overlaps) > 40
    assert max(overlaps) <= 80
    assert all(chunk.text.endswith(". ") for chunk in chunks)
    assert all(chunk.text.startswith("This is") for chunk in chunks)


FILLER = "word " * 10


@each_row(
    ("better", "worse"),
    [
        ("end.\n\n", "# Heading\n" + FILLER),
        ("end.\n", "# not a heading here"),
        ("end.\n", "One sentence. And"),
        ("End of a sentence. ", "word word"),
        ("「終わり。", "word word"),
        ("word ", "x" * 60),
    ],
)
def test_the_strongest_boundary_near_the_end_is_taken(better: str, worse: str) -> None:
    head = "x" * 240 + better
    text = head + worse + "y" * 400
    assert split(text, tokens=100, overlap=0)[0].text == head


def test_an_indent_stays_with_its_line_and_blank_lines_make_no_chunk() -> None:
    text = "a" * 250 + "\n\n\n    indented " + "b" * 300 + "\n  \n"
    chunks = split(text, tokens=100, overlap=0)
    assert [chunk.text[:6] for chunk in chunks] == ["aaaaaa", "    in"]
    assert chunks[0].text.endswith("a\n\n\n")


def test_a_heading_stays_with_what_it_heads() -> None:
    text = "a" * 250 + "\n\n## Next\n\n" + "b" * 300
    assert [chunk.text[:7] for chunk in split(text, tokens=100, overlap=0)] == ["aaaaaaa", "## Next"]


@each_row("mark", ["```", "~~~", "````"])
def test_a_code_fence_that_fits_is_whole_in_one_chunk(mark: str) -> None:
    fence = f"{mark}python\n" + "code()\n\n" * 40 + f"{mark}\n"
    for before in range(0, 1600, 53):
        text = "w " * (before // 2) + "\n" + fence + "\nafter " * 300
        assert any(fence in chunk.text for chunk in split(text)), before


def test_a_code_fence_that_does_not_fit_is_cut_at_lines() -> None:
    fence = "```\n" + "some code()\n" * 1000 + "```\n"
    assert all(chunk.text.endswith("\n") for chunk in split(fence))


def test_a_fence_that_is_never_closed_is_text() -> None:
    text = "```\n" + "paragraph\n\n" * 500
    assert merge(split(text)) == text


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "x" * 1_000_000,
        " " * 1_000_000,
        "\n" * 1_000_000,
        "\u2028" * 300_000,
        "漢" * 300_000,
        FAMILY * 50_000,
        "🇩🇪" * 100_000,
        "a" + "\u0301" * 300_000,
        "```\n" * 100_000,
        "# \n" * 100_000,
        "\r\n" * 300_000,
        "`" * 1_000_000,
    ],
    ids=lambda text: ascii(text[:6]),
)
def test_hostile_texts_are_cut_hard_and_come_back_whole(text: str) -> None:
    chunks = split(text)
    assert merge(chunks) == text
    assert max(size(chunk.text) for chunk in chunks) <= 1600 + 200 * 3


def test_the_time_grows_with_the_length_and_not_faster() -> None:
    calls = 0
    original = unicodedata.category

    def counting(char: str) -> str:
        nonlocal calls
        calls += 1
        return original(char)

    counts = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unicodedata, "category", counting)
        for length in (20_000, 40_000):
            calls = 0
            split(("a" + "\u0301" * 400) * (length // 400))
            counts.append(calls)
    assert counts[1] <= counts[0] * 2.2


@each_row(("tokens", "overlap"), [(0, 0), (-1, -2), (10, 10), (10, -1)])
def test_senseless_sizes_are_refused(tokens: int, overlap: int) -> None:
    with pytest.raises(ValueError, match="tokens must be positive"):
        split("text", tokens=tokens, overlap=overlap)


def test_merging_says_where_a_stretch_is_missing() -> None:
    with pytest.raises(ValueError, match="characters 2 to 5 are in no chunk"):
        merge([Chunk(0, "ab"), Chunk(5, "fg")])
    assert merge([Chunk(2, "cd"), Chunk(0, "abc")]) == "abcd"


@each_row(
    ("text", "boundaries"),
    [
        ("ab", [1]),
        ("e\u0301x", [2]),
        ("\r\nx", [2]),
        ("\n\rx", [1, 2]),
        (FAMILY + "x", [len(FAMILY)]),
        ("👍🏽👍", [2]),
        ("🇩🇪🇫🇷x", [2, 4]),
        ("✋\ufe0fx", [2]),
        ("\u1112\u1161\u11ab\uac00\u11a8x", [3, 5]),
        ("क्षx", [3]),
        ("a\u200db", []),
        ("🏴\U000e0067\U000e007fx", [3]),
    ],
)
def test_boundaries_are_where_a_reader_sees_one_character_end(text: str, boundaries: list[int]) -> None:
    assert [place for place in range(1, len(text)) if is_boundary(text, place)] == boundaries


@pytest.mark.slow
@given(texts, st.data())
def test_looking_for_a_boundary_finds_the_nearest(text: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(text)))
    assert boundary_before(text, at, 0) == max(place for place in range(at + 1) if is_boundary(text, place))
    assert boundary_after(text, at, 0) == min(place for place in range(at, len(text) + 1) if is_boundary(text, place))
