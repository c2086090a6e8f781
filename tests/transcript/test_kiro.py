"""Claims of the reader of Kiro: the pieces of a message are one, and no line or row makes it fail."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.transcript.line import digest
from crystal.transcript.line_context import complete
from crystal.transcript.messages import SessionStamp
from crystal.transcript.reader import reader_of
from crystal.transcript.snapshot import Snapshot, SourceError
from tests.support.examples import examples
from tests.support.transcript_lines import json_values

READER: Any = reader_of("kiro")
FILE = PurePath("/home/me/.kiro/sessions/cli/s.jsonl")


def piece(ident: str, *blocks: object) -> dict[str, Any]:
    return {"version": "v1", "kind": "AssistantMessage", "data": {"message_id": ident, "content": list(blocks)}}


def text(words: str) -> dict[str, str]:
    return {"kind": "text", "data": words}


def said(*lines: object, side: bytes = b"{}") -> list[tuple[str, str | None, str]]:
    data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    source = Snapshot(FILE, data, lambda *_: iter(()), {FILE.with_suffix(".json"): side})
    [session] = READER.conversations(source)
    records = READER.records(source, session)
    told = [(at, complete(one.line, one.context._replace(id=one.id))) for at, one in enumerate(records)]
    return [(turn.role, turn.cwd, turn.text) for turn in READER.turns(told, "", subagent=False)]


@given(st.lists(st.text("ab ", min_size=1), min_size=1, max_size=5), st.booleans())
def test_pieces_of_a_message_are_one_text_whether_each_goes_on_or_repeats(words: list[str], repeats: bool) -> None:
    whole = "x" + "".join(words)
    ends = [1 + sum(map(len, words[:count])) for count in range(len(words) + 1)]
    starts = [0] * len(ends) if repeats else [0, *ends[:-1]]
    pieces = [piece("m1", text(whole[start:end])) for start, end in zip(starts, ends, strict=True)]
    expected = whole if repeats or len({json.dumps(one) for one in pieces}) == len(pieces) else None
    if expected is not None:
        assert said(*pieces)[0][2] == expected


def test_a_prompt_in_the_editor_is_a_text_or_blocks() -> None:
    for content in (
        "go on",
        [{"type": "text", "text": "go on"}, {"type": "image", "source": {"data": "iVBORw0KGgo="}}],
    ):
        event = {"id": "e1", "timestamp": "2026-11-02T10:00:01Z", "payload": {"type": "user", "content": content}}
        assert said(event) == [("user", None, "go on")]


def test_what_is_known_of_a_session_with_a_very_long_file_beside_it() -> None:
    cut = b'{"session_id":"s","cwd":"/home/me/\\u00fc","session_state":{"x":['
    assert said(piece("m1", text("hi")), side=cut) == [("assistant", "/home/me/ü", "hi")]


@examples(40)
@given(json_values, json_values)
def test_no_line_makes_it_fail(value: Any, other: Any) -> None:
    kinds = ("text", "thinking", "toolUse", "toolResult", "image")
    known = piece("m", text("a"))
    for kind in ("Prompt", "AssistantMessage", "ToolResults", "Compaction"):
        blocks = [{"kind": one, "data": value} for one in kinds]
        said(known, {"kind": kind, "data": {"message_id": other, "content": [*blocks, other], "meta": value}})
        said(known, {"kind": kind, "data": value}, value, side=json.dumps(value).encode())
    for event in ("user", "assistant", "tool_call", "tool_result", "sub_agent_start", "sub_agent_complete"):
        said({"id": other, "timestamp": value, "payload": {"type": event, "content": value, "args": other}})


@examples(40)
@given(json_values, json_values)
def test_no_row_makes_it_fail(value: Any, other: Any) -> None:
    entry = {"user": {"content": {"Prompt": value, "ToolUseResults": other}}, "assistant": {"ToolUse": value}}
    whole = json.dumps({"conversation_id": "c", "history": [entry, [value, other], value], "latest_summary": other})

    def rows(sql: str, values: Any = ()) -> Iterator[Any]:
        if "sqlite_master" in sql:
            return iter([("conversations",)])
        return iter([(whole,)] if sql.startswith("SELECT value") else [("/home/me", whole), ("x", json.dumps(value))])

    source = Snapshot(PurePath("data.sqlite3"), b"", rows, {})
    assert [one.session for one in READER.conversations(source)] == ["c", digest("x")[:32]]
    lines = [
        (0, complete(one.line, one.context._replace(id=one.id)))
        for one in READER.records(source, SessionStamp("c", ""))
    ]
    list(READER.turns(lines, "", subagent=False))


def test_lines_of_another_program_are_refused() -> None:
    for line in (b"", b'{"role":"user","content":"x"}\n'):
        with pytest.raises(SourceError):
            list(READER.conversations(Snapshot(FILE, line, lambda *_: iter(()), {})))
