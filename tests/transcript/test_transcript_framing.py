"""Framing: complete lines and nothing else, in any pieces, at a bounded cost."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from crystal.model.capture import RawSegment
from crystal.transcript.claude_code.reader import READER
from crystal.transcript.framing import _last_newline, end_of_lines, read_lines, read_segment
from tests.support.table import each_row

SESSION = "1f35fa49-4fbf-45ec-8a6d-f234f365aa9d"
file_bytes = st.lists(st.sampled_from([b"\n", b"a", b"{}", b"\r", "\u2028\u0085".encode(), b"x" * 9])).map(b"".join)


def may_end(before: bytes, last: bytes) -> bool:
    """Return whether a newline alone may follow a last line."""
    return last.endswith(b"\r") or not before.endswith(b"\r")


class Dribble(io.BytesIO):
    """A file that gives a few bytes a read and counts them."""

    def __init__(self, data: bytes, most: int = 5) -> None:
        super().__init__(data)
        self.most = most
        self.given = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(self.most if size is None or size < 0 else min(size, self.most))
        self.given += len(data)
        return data


@pytest.mark.slow
@given(file_bytes, st.lists(st.integers(0, 60), max_size=5), st.integers(1, 40))
def test_reading_a_growing_file_in_any_pieces_gives_every_complete_line_once(
    whole: bytes, sizes: list[int], limit: int
) -> None:
    lasts = {size: whole[:size].rpartition(b"\n") for size in (*sizes, len(whole))}
    ends = [size for size, (before, _, last) in lasts.items() if last.rstrip() == b"{}" and may_end(before, last)]
    assume(all(whole[size : size + 1] in (b"", b"\n") for size in ends))  # else the file is taken for another one
    limit = max(limit, *(len(last) + 1 for _, _, last in lasts.values()))
    read, offset = b"", 0
    for size in [*sorted(sizes), len(whole)]:
        file = io.BytesIO(whole[:size])
        assert end_of_lines(file, size) >= offset
        while (segment := read_segment(file, offset, limit=limit)).raw:
            assert segment.start == offset
            assert segment.raw.endswith(b"\n")
            assert len(segment.raw) <= limit or segment.raw.count(b"\n") == 1
            read, offset = read + segment.raw, segment.end
    complete = whole[: whole.rfind(b"\n") + 1] if len(whole) not in ends else whole + b"\n"
    assert (read, end_of_lines(io.BytesIO(whole), len(whole))) == (complete, len(complete))
    assert read_lines(io.BytesIO(whole), 0, offset) == complete


@pytest.mark.slow
@given(file_bytes, st.integers(0, 60), st.integers(1, 40))
def test_a_file_that_gives_few_bytes_a_read_reads_the_same(whole: bytes, start: int, limit: int) -> None:
    expected = read_segment(io.BytesIO(whole), start, limit=limit)
    assert read_segment(Dribble(whole), start, limit=limit) == expected


@each_row("data", [b"", b"torn", b"line\n", b"line\ntorn"])
def test_nothing_complete_gives_an_empty_segment_also_beyond_the_end(data: bytes) -> None:
    for start in (data.rfind(b"\n") + 1, len(data), len(data) + 1, 1 << 40):
        assert read_segment(io.BytesIO(data), start) == RawSegment(start, b"")


def test_a_line_longer_than_the_limit_is_read_whole_and_its_bytes_at_most_twice() -> None:
    line = b"x" * 3_000_000 + b"\n"
    file = Dribble(b"before\n" + line + b"after\n", most=1 << 20)
    segment = read_segment(file, 7, limit=65_536)
    assert segment == RawSegment(7, line)
    assert file.given <= 2 * len(line) + 2 * (1 << 20)


def test_only_the_newline_byte_ends_a_line() -> None:
    text = "one\u2028two\u2029three\u0085four\x0b\x0c\x1c\x1e\rfive"
    for end, expected in ((b"", b""), (b"\n", text.encode() + b"\n"), (b"\n\nsix", text.encode() + b"\n\n")):
        assert read_segment(io.BytesIO(text.encode() + end), 0).raw == expected


@pytest.mark.slow
@given(file_bytes, st.integers(0, 80))
def test_the_last_newline_is_found_from_behind(data: bytes, size: int) -> None:
    assert _last_newline(io.BytesIO(data), size) == data[:size].rfind(b"\n") + 1


def test_the_last_newline_far_from_the_end_is_found_across_blocks() -> None:
    data = b"first\n" + b"x" * 700_000
    assert _last_newline(io.BytesIO(data), len(data)) == 6


@each_row(
    ("path", "expected"),
    [
        (f"/h/.claude/projects/-p/{SESSION}.jsonl", (SESSION, SESSION, None)),
        (f"/elsewhere/-q/{SESSION}.jsonl", (SESSION, SESSION, None)),
        (f"/h/-p/{SESSION}/subagents/agent-a1.jsonl", (f"{SESSION}/agent-a1", SESSION, "a1")),
        (f"/h/-p/{SESSION}/subagents/workflows/w/agent-a1.jsonl", (f"{SESSION}/agent-a1", SESSION, "a1")),
        (f"/h/subagents/-p/{SESSION}/subagents/agent-a1.jsonl", (f"{SESSION}/agent-a1", SESSION, "a1")),
        (f"/h/-p/{SESSION}/subagents/agent-a/subagents/agent-b.jsonl", (f"{SESSION}/agent-b", SESSION, "b")),
        (f"/h/-p/{SESSION}/subagents/journal.jsonl", (f"{SESSION}/journal", SESSION, "journal")),
        ("/h/-p/my-session/subagents/agent-x.jsonl", ("my-session/agent-x", "my-session", "x")),
        ("/h/.claude/projects/-p/agent-5f2b.jsonl", ("agent-5f2b", None, "5f2b")),
        ("/h/.claude/projects/-p/agent-.jsonl", ("agent-", "agent-", None)),
        ("/h/-p/with.dots.jsonl", ("with.dots", "with.dots", None)),
    ],
)
def test_the_key_comes_from_the_file_and_not_from_its_project_folder(
    path: str, expected: tuple[str, str | None, str | None]
) -> None:
    assert READER.identify(Path(path)) == expected
