"""Claims of the reader of VS Code's chats: a log of changes gives the chat that the editor would show."""

from __future__ import annotations

import json
from pathlib import Path, PurePath
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from crystal.transcript.line_context import Context, complete
from crystal.transcript.messages import SessionStamp
from crystal.transcript.reader import reader_of
from crystal.transcript.snapshot import Snapshot, SourceError
from tests.support.examples import examples
from tests.support.table import each_row
from tests.support.transcript_lines import json_values

HOME = Path(__file__).parents[1] / "data" / "agents" / "vscode-chat" / "home"
[LOG] = HOME.rglob("9c1d3a52*.jsonl")
READER: Any = reader_of("vscode-chat")


def source(data: bytes, **sides: bytes) -> Snapshot:
    beside: dict[PurePath, bytes] = {LOG.parent.parent / f"{name}.json": content for name, content in sides.items()}
    return Snapshot(PurePath(LOG), data, lambda *_: iter(()), beside)


def said(data: bytes) -> list[str]:
    """Return the texts of what the reader finds in a file."""
    try:
        [chat] = READER.conversations(source(data))
    except SourceError:
        return []
    records = list(READER.records(source(data), chat))
    lines = [(at, complete(one.line, one.context._replace(id=one.id))) for at, one in enumerate(records)]
    return [turn.text for turn in READER.turns(lines, "", subagent=False)]


@examples(30)
@given(st.integers(0, LOG.stat().st_size))
def test_a_log_cut_anywhere_gives_what_its_whole_lines_say(cut: int) -> None:
    data = LOG.read_bytes()
    whole = data[: data.rfind(b"\n", 0, cut) + 1]
    assert said(data[:cut]) in (said(whole), said(data[: data.find(b"\n", cut - 1) + 1]))


def test_a_log_that_was_compacted_gives_the_same_records() -> None:
    requests = [json.loads(record.line) for record in READER.records(source(LOG.read_bytes()), SessionStamp("s", ""))]
    [chat] = READER.conversations(source(LOG.read_bytes()))
    merged: dict[str, Any] = {}
    for request in requests:
        if "requestId" in request:
            merged.setdefault(request["requestId"], {}).update(request)
    compacted = json.dumps({"kind": 0, "v": {"sessionId": chat.session, "requests": list(merged.values())}}).encode()
    assert said(compacted) == said(LOG.read_bytes())


def test_a_prompt_that_was_sent_again_in_other_words_replaces_the_first() -> None:
    def request(ident: str, text: str) -> dict[str, Any]:
        return {"requestId": ident, "message": {"text": text}, "response": [{"value": f"to {text}"}]}

    first = {"kind": 0, "v": {"sessionId": "s", "requests": [request("a", "one")]}}
    again = {"kind": 2, "k": ["requests"], "i": 0, "v": [request("b", "two")]}
    assert said(json.dumps(first).encode()) == ["one", "to one"]
    assert said(b"\n".join(json.dumps(line).encode() for line in (first, again))) == ["two", "to two"]


def test_a_call_that_was_added_again_as_it_went_on_comes_once() -> None:
    call = {"kind": "toolInvocationSerialized", "toolCallId": "c1", "toolId": "run_in_terminal"}
    asked = {"commandLine": {"original": "make"}}
    done = {**asked, "terminalCommandOutput": {"text": "made"}}
    request = {"requestId": "a", "message": {"text": "go"}, "response": [{**call, "toolSpecificData": asked}]}
    more = [{"value": "Now:"}, {**call, "toolSpecificData": done}, {"kind": "markdownContent", "value": " done"}]
    log = [
        {"kind": 0, "v": {"sessionId": "s", "requests": [request]}},
        {"kind": 2, "k": ["requests", 0, "response"], "v": more},
    ]
    told = said(b"\n".join(json.dumps(line).encode() for line in log))
    assert told == ["go", "run_in_terminal: make", "made", "Now: done"]


@each_row(
    ("workspace", "folder"),
    [
        ({"folder": "file:///home/me/shop%20floor"}, "/home/me/shop floor"),
        ({"folder": "file:///c%3A/Users/me/shop"}, "c:\\Users\\me\\shop"),
        ({"folder": "vscode-remote://wsl%2Bubuntu/home/me/shop"}, "/home/me/shop"),
        ({"workspace": "file:///home/me/shops.code-workspace"}, "/home/me"),
        ({}, "/home/me/shop floor"),
    ],
)
def test_the_folder_is_that_of_the_workspace(workspace: dict[str, str], folder: str) -> None:
    file = source(LOG.read_bytes(), workspace=json.dumps(workspace).encode())
    [chat] = READER.conversations(file)
    assert {record.context.cwd for record in READER.records(file, chat)} == {folder}


@examples(30)
@given(json_values, st.lists(json_values, max_size=3))
def test_no_change_and_no_request_makes_it_fail(value: Any, path: list[Any]) -> None:
    for number in (1, 2, 3):
        change = {"kind": number, "k": ["requests", *path], "v": value, "i": value}
        assert isinstance(said(LOG.read_bytes() + json.dumps(change).encode() + b"\n"), list)
    for request in ({"message": value, "timestamp": value}, {"response": value, "result": value}):
        line = complete(json.dumps(request).encode(), Context(id="x"))
        READER.facts(line)
        list(READER.turns([(0, line)], "", subagent=False))
    for kind in ("thinking", "inlineReference", "toolInvocationSerialized", "textEditGroup", "markdownContent"):
        fields = ("value", "content", "inlineReference", "toolSpecificData", "resultDetails", "edits", "uri", "name")
        pieces = [{"kind": kind, **dict.fromkeys(fields, value)}]
        rounds = {"toolCallRounds": [{"toolCalls": [{"id": value, "arguments": value}]}], "toolCallResults": value}
        answer = {"response": pieces, "result": {"metadata": rounds}}
        line = complete(json.dumps(answer).encode(), Context(id="x"))
        list(READER.turns([(0, line)], "", subagent=False))
