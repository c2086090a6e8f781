"""Claims of transcript/gemini_cli.py: a session that goes on says again what it said, in another form."""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import Any

from crystal.transcript.gemini_cli import READER
from crystal.transcript.parts import Part
from crystal.transcript.snapshot import Snapshot
from tests.support.agent_samples import no_such_table


def said(lines: list[dict[str, Any]]) -> list[tuple[str, str, list[Part]]]:
    """Return the id, the time and the parts of each message that says something."""
    data = b"".join(json.dumps(one).encode() + b"\n" for one in lines)
    source = Snapshot(PurePath("chats/session-x.jsonl"), data, no_such_table, {})
    [talk] = READER.conversations(source)
    read = [(record.id, json.loads(record.line)) for record in READER.records(source, talk)]
    found = [(name, fields["timestamp"], [part for part in READER.parts(fields) if part.text]) for name, fields in read]
    return [one for one in found if one[-1]]


def test_a_resumed_session_changes_nothing_of_what_was_said() -> None:
    """As version 0.61 writes it after ``-r latest``: parts with the thoughts among them, each call with all results."""
    first, later = "2026-02-03T09:00:00Z", "2026-02-04T09:00:00Z"
    calls = [{"id": f"c{number}", "name": "ls", "args": {"path": f"{number}"}} for number in range(2)]
    results = [
        {"functionResponse": {"id": f"c{number}", "response": {"output": f"{number}.py"}}} for number in range(2)
    ]
    asked: dict[str, Any] = {"id": "m0", "type": "user", "timestamp": first, "content": "look"}
    answer: dict[str, Any] = {"id": "m1", "type": "gemini", "timestamp": first, "content": "I look.\nThen I go on."}
    answer["thoughts"] = [{"description": "Think."}]
    done = [{**call, "result": [result]} for call, result in zip(calls, results, strict=True)]
    session: list[dict[str, Any]] = [{"sessionId": "s"}, asked, answer, {**answer, "toolCalls": done}]
    [(*_, prompt), (*_, parts)] = before = said(session)
    assert prompt == [Part("user", "look")]
    assert [part.text for part in parts] == ["Think.", answer["content"], "ls: 0", "0.py", "ls: 1", "1.py"]

    repeated = [{"text": "Think.", "thought": True}, {"text": "I look.\n"}, {"functionCall": calls[0]}]
    history: list[dict[str, Any]] = [
        {**asked, "timestamp": later, "content": [{"text": "look"}]},
        {**answer, "timestamp": later, "content": [*repeated, {"text": "Then I go on.\n"}]},
        {"id": "m1", "type": "user", "timestamp": later, "content": results},
    ]
    del history[1]["thoughts"]
    again = {**answer, "toolCalls": [{**call, "result": results} for call in calls]}
    assert said([*session, {"$set": {"messages": history}}, again]) == before
    assert said([session[0], {"$set": {"messages": history[:2]}}])[-1][-1][0] == Part("thinking", "Think.")


def test_what_the_program_says_to_its_model_is_no_prompt() -> None:
    text = "System: Potential loop detected. Details: Repeating content."
    assert said([{"sessionId": "s"}, {"id": "m2", "type": "user", "timestamp": "", "content": text}]) == []
