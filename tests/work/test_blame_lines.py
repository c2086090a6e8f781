"""Which edit wrote a line."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from crystal.work.blame import MIN_RUN, SLACK_MS, WINDOW_MS, FileEdit, Line, attribute
from crystal.work.line_hashes import hasher, line_hashes, plain_line

DAY = 86_400_000
NOW = 100 * DAY


def wrote(*edits: tuple[FileEdit, Sequence[int]]) -> tuple[list[FileEdit], dict[int, list[int]]]:
    by_line: dict[int, list[int]] = {}
    for at, (_, lines) in enumerate(edits):
        for line in lines:
            by_line.setdefault(line, []).append(at)
    return [edit for edit, _ in edits], by_line


def edit(turn: int, at: int = NOW, name: str = "a.py", session: int = 0) -> FileEdit:
    return FileEdit(turn, 0, session or turn, at, name)


def lines(*hashes: int | None, at: int | None = None) -> list[Line]:
    return [Line(one, at, "a.py") for one in hashes]


def turns_of(found: Sequence[FileEdit | None]) -> list[int]:
    return [0 if one is None else one.turn for one in found]


def test_lines_together_tell_more_than_a_line_alone() -> None:
    edits = wrote((edit(1), [1, 2, 3]), (edit(2, NOW + 1), [2]))
    assert turns_of(attribute(lines(1, 2, 3, 4), *edits)) == [1, 1, 1, 0]


def test_the_latest_edit_before_the_commit_wrote_it() -> None:
    edits = wrote((edit(1), [1, 2]), (edit(2, NOW + DAY), [1, 2]))
    assert turns_of(attribute(lines(1, 2, at=NOW + 1), *edits)) == [1, 1]
    assert turns_of(attribute(lines(1, 2, at=NOW + 2 * DAY), *edits)) == [2, 2]
    assert turns_of(attribute(lines(1, 2), *edits)) == [2, 2], "not committed yet"


def test_a_line_from_before_the_sessions_is_nobodys() -> None:
    edits = wrote((edit(1), [1, 2, 3, 4, 5]))
    assert turns_of(attribute(lines(1, 2, 3, 4, 5, at=NOW - SLACK_MS - 1), *edits)) == [0] * 5
    assert turns_of(attribute(lines(1, 2, 3, 4, 5, at=NOW + WINDOW_MS + 1), *edits)) == [0] * 5


def test_an_edit_of_another_file_must_have_written_more_lines() -> None:
    known = list(range(1, MIN_RUN + 1))
    renamed = wrote((edit(1, name="b.py"), known))
    assert turns_of(attribute(lines(*known), *renamed)) == [1] * MIN_RUN
    assert turns_of(attribute(lines(*known[1:]), *renamed)) == [0] * (MIN_RUN - 1)


def test_a_line_that_many_sessions_wrote_says_nothing_alone() -> None:
    edits = wrote(*((edit(turn), [1]) for turn in range(1, 9)))
    assert turns_of(attribute(lines(1), *edits)) == [0]


def test_braces_go_with_the_lines_around_them() -> None:
    edits = wrote((edit(1), [1, 2]), (edit(2), [3]))
    assert turns_of(attribute(lines(None, 1, None, None, 2, None, 3), *edits)) == [0, 1, 1, 1, 1, 0, 2]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=30)))
def test_a_line_is_the_same_without_its_spaces(texts: list[str]) -> None:
    hash_of = hasher(b"key")
    spaced = ["\t  " + "  ".join(one.split(" ")) + " ," for one in texts]
    assert line_hashes(texts, hash_of) == line_hashes(spaced, hash_of)


def test_short_lines_do_not_count_and_no_hash_confirms_a_guess() -> None:
    assert [plain_line(one) for one in ("}", "", "  else:", "return", "// ----------------", "x = compute(y);")] == [
        "", "", "", "", "", "x=compute(y)",
    ]  # fmt: skip
    assert hasher(b"one")("x = compute(y)") != hasher(b"two")("x = compute(y)")
