"""A block of memories in a file: what is outside stays byte for byte, what is inside is read as it was written."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.errors import UsageError
from crystal.model.recall import Remembered
from crystal.vault.block import TITLE, MemoryBlock, canonical, compare, parse_block, render_item

MEMORY = Remembered(
    "mem-000000000000", "x", "fact", None, None, None, "active", "cli", "cc-mini", "box", None, 1, 2
)  # fmt: skip
PIECES = st.sampled_from(
    ["- ", "<!-- ", "<\\!-- ", " -->", "crystal files end 1:", "mem-0123456789ab", "\n", "\n\n", "  ", "\t", "```", "# ", "\r",
     "<!-- crystal files: x -->", "<!-- mem-000000000001 00000000 -->", "<<<<<<< ", "\x85", "a", "語"]
)  # fmt: skip
TEXT = st.lists(PIECES | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6)).map(
    "".join
)
OUTSIDE = st.text(st.sampled_from("ab#- \t\ufeff"), max_size=8) | st.just("\n```sh\n- a\n<!-- a -->\n```\n")


def wanted(texts: list[str]) -> list[Remembered]:
    return [replace(MEMORY, id=f"mem-{at:012x}", text=text) for at, text in enumerate(texts, 1)]


def whole(lines: list[list[str]], newline: str) -> str:
    return newline.join("".join(line) for line in lines)


@given(st.lists(TEXT.filter(canonical), max_size=5), st.lists(st.lists(OUTSIDE, max_size=2), max_size=4),
       st.sampled_from(["\n", "\r\n"]))  # fmt: skip
def test_what_is_written_is_read_and_removing_it_restores_the_file(texts, outside, newline):
    before, memories = whole(outside, newline), wanted(texts)
    written = parse_block(before, "f").with_lines([TITLE, *map(render_item, memories)])
    assert written.startswith(before)
    block = parse_block(written, "f")
    assert [one.text for one in block.entries[1:]] == [canonical(text) for text in texts]
    assert {row.state for row in compare(block, [], frozenset())} == {"kept"}
    rows = compare(block, memories, frozenset(one.id for one in memories))
    assert [row.state for row in rows] == ["kept", *("same" for _ in texts)]
    assert block.with_lines([one.raw for one in block.entries]) == written
    assert block.without() == before


@given(st.lists(TEXT.filter(canonical), min_size=1, max_size=4, unique_by=canonical), TEXT.filter(canonical), OUTSIDE,
       OUTSIDE, st.data())  # fmt: skip
def test_each_edit_is_seen_once_and_nothing_outside_is_touched(texts, new, head, tail, data):
    memories = wanted(texts)
    ids = frozenset(one.id for one in memories)
    at, act = data.draw(st.integers(0, len(texts) - 1)), data.draw(st.sampled_from(["edited", "deleted", "added"]))
    written = parse_block("", "f").with_lines([render_item(one) for one in memories])
    lines = [one.raw for one in parse_block(written, "f").entries]
    mark = lines[at][lines[at].rindex("<!-- mem-") :]
    said = render_item(replace(MEMORY, text=new)).rpartition("<!-- mem-")[0].rstrip()
    lines[at : at + 1] = {"edited": [f"{said}\n  {mark}"], "deleted": [], "added": [lines[at], said]}[act]
    block = parse_block(f"{head}\n{parse_block(written, 'f').with_lines(lines)}{tail}", "f")
    block = replace(block, listed=tuple(sorted(ids)))  # the person left the last line as it was
    assert (block.head, block.tail) == (f"{head}\n", f"\n{tail}")
    found = [row for row in compare(block, memories, ids) if row.state != "same"]
    if canonical(new) in map(canonical, texts) and act != "deleted":
        return
    assert [row.state for row in found] == [act]
    if act != "deleted":
        assert found[0].entry is not None
        assert found[0].entry.text == canonical(new)


def test_a_block_in_fenced_code_is_an_example_and_no_line_end_is_made_another() -> None:
    good, real = (parse_block("", "f").with_lines([item]) for item in ("- a", "- a\n  ```\n  b"))
    for fence in ("```", "~~~", "````md\n```\n```", "   ```"):
        closing = fence.strip().partition("md")[0]
        example = f"{fence}\n{good}{closing}\n"
        assert parse_block(f"{example}{real}{example}", "f").head == example
        with pytest.raises(UsageError, match="code block at line 1"):
            parse_block(example, "f")
    with pytest.raises(UsageError, match="code block at line 2"):
        parse_block("a\n```\nb\n", "f")
    assert parse_block("``` `a` ```\n", "f").is_there is False
    with pytest.raises(UsageError, match="ends with a carriage return"):
        parse_block("a\rb\r", "f")


def test_a_block_that_is_damaged_or_doubled_is_refused() -> None:
    good = parse_block("", "f").with_lines(["- a"])
    first, _, rest = good.partition("\n")
    for text in (first, rest, good + good, f"{rest}{first}\n", good.replace("- a", "<<<<<<< ours\n- a")):
        with pytest.raises(UsageError):
            parse_block(text, "f")
    assert isinstance(parse_block(good.replace("- a", "- a\n\n  b"), "f"), MemoryBlock)
