"""Claims of transcript/cline.py: what a subagent says belongs to the session that started it, and nobody typed it."""

from __future__ import annotations

import json
import time
from pathlib import PurePath
from typing import Any

import pytest

from crystal.transcript.cline import READER
from crystal.transcript.line_context import complete
from crystal.transcript.snapshot import Snapshot

FOLDER = PurePath("sessions/1795665936745_9h4hb")
NAMES = {"lead": "1795665936745_9h4hb.messages.json", "subagent": "agent_1795665937593_zjuhg4.messages.json"}
SIDE = {"session_id": FOLDER.name, "cwd": "/tmp/demo/shop", "metadata": {"title": "Stones"}}


def source(agent: str) -> Snapshot:
    own = FOLDER.name if agent == "lead" else f"{FOLDER.name}__agent_1795665937593_zjuhg4"
    origin = {"mode": "user"} if agent == "lead" else {"mode": "subagent", "parentThreadId": FOLDER.name}
    messages = [
        {"id": f"m{number}", "role": role, "content": "stones"} for number, role in enumerate(("user", "assistant"))
    ]
    whole: dict[str, Any] = {"agent": agent, "sessionId": own, "origin": origin, "messages": messages}
    path = FOLDER / NAMES[agent]
    sides = {side: json.dumps(SIDE).encode() for side in READER.side_files(path) if side.stem == FOLDER.name}
    return Snapshot(path, json.dumps(whole).encode(), lambda *_: iter(()), sides)


def test_a_subagents_file_belongs_to_its_session_and_has_its_folder_but_no_title() -> None:
    for agent, titles in (("lead", ["Stones"]), ("subagent", [])):
        one = source(agent)
        [talk] = READER.conversations(one)
        records = list(READER.records(one, talk))
        own = talk.subagent or talk.session
        assert (talk.session, talk.subagent is None) == (FOLDER.name, agent == "lead")
        assert own == json.loads(one.data)["sessionId"]
        assert [record.id for record in records[:2]] == [f"{own}-m0", f"{own}-m1"]
        assert {record.context.cwd for record in records} == {"/tmp/demo/shop"}
        assert [json.loads(record.line).get("title") for record in records[2:]] == titles


def task(messages: list[dict[str, Any]]) -> list[tuple[str, str, str | None]]:
    """Return what a task of the editor's extension says: (role, text, model)."""
    data = b"\xef\xbb\xbf" + json.dumps(messages).encode()
    one = Snapshot(PurePath("tasks/1790000000001/api_conversation_history.json"), data, lambda *_: iter(()), {})
    [talk] = READER.conversations(one)
    lines = [complete(record.line, record.context._replace(id=record.id)) for record in READER.records(one, talk)]
    return [(turn.role, turn.text, turn.model) for turn in READER.turns(enumerate(lines), "", subagent=False)]


def test_a_task_of_the_editor_has_its_thoughts_summaries_and_models_and_no_notes_of_the_program() -> None:
    call = {"type": "tool_use", "id": "t1", "name": "read_file", "input": {"path": "a.py"}}
    thought = {"type": "reasoning", "text": "the wobblefish swims", "summary": []}
    condensed = {"isSummary": True, "condenseId": "c1"}
    truncated = {"isTruncationMarker": True, "truncationId": "x"}
    encrypted = {
        "type": "reasoning",
        "encrypted_content": "x",
        "summary": [{"type": "summary_text", "text": "I look."}],
    }
    assert task(
        [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": [], **encrypted},
            {"role": "assistant", "content": [thought, call], "modelInfo": {"modelId": "m9", "providerId": "p"}},
            {"role": "user", "content": "[2 messages hidden]", **truncated},
            {"role": "assistant", "content": [thought, {"type": "text", "text": "done so far"}, call], **condensed},
            {"role": "user", "content": [{"type": "text", "text": "done till now"}], **condensed},
        ]
    ) == [
        ("user", "go", None),
        ("thinking", "I look.", None),
        ("thinking", "the wobblefish swims", "m9"),
        ("tool_call", "read_file: a.py", "m9"),
        ("summary", "done so far", None),
        ("summary", "done till now", None),
    ]


@pytest.mark.slow
def test_older_versions_write_calls_and_results_as_texts() -> None:
    def texts(role: str, *told: str) -> dict[str, Any]:
        return {"role": role, "content": [{"type": "text", "text": one} for one in told]}

    details = "<environment_details>\n# Time\n</environment_details>"
    command = (
        "<execute_command>\n<command>make</command>\n<requires_approval>false</requires_approval>\n</execute_command>"
    )
    edit = "<write_to_file>\n<path>a.html</path>\n<content>\n<b>x</b>\n</content>\n</write_to_file>"
    asked = "<ask_followup_question>\n<question>Which port?</question>\n</ask_followup_question>"
    said = task(
        [
            texts("user", "<task>\nbuild it\n</task>", details),
            texts("assistant", f"<thinking>\nSoon.\n</thinking>\n\nI build.\n\n{command}", "in <thinking> prose"),
            texts("user", "[execute_command for 'make'] Result:", "Command executed.\nOutput:\ndone", details),
            texts("assistant", edit),
            texts(
                "user", "[write_to_file for 'a.html'] Result:\n\nThe user denied it.\n<feedback>\nnot so\n</feedback>"
            ),
            texts("assistant", asked),
            texts("user", f"[ask_followup_question for 'Which port?'] Result:\n<answer>\n80\n</answer>{details}"),
            texts("user", "[is this] Result: a prompt"),
        ]
    )
    assert [(role, text) for role, text, _ in said] == [
        ("user", "build it"),
        ("thinking", "Soon."),
        ("assistant", "I build."),
        ("tool_call", "execute_command: make\nrequires_approval: false"),
        ("assistant", "in <thinking> prose"),
        ("tool_result", "Command executed.\nOutput:\ndone"),
        ("tool_call", "write_to_file: a.html\ncontent: <b>x</b>"),
        ("tool_result", "The user denied it."),
        ("user", "not so"),
        ("assistant", "Which port?"),
        ("user", "80"),
        ("user", "[is this] Result: a prompt"),
    ]
    start = time.process_time()
    for tag in ("<thinking>", "<answer>", "<execute_command><a>"):
        task([texts("assistant", tag * 20_000), texts("user", f"[x] Result:\n{tag * 20_000}")])
    assert time.process_time() - start < 2


def test_ten_thousand_messages_with_one_id_cost_no_more_than_others() -> None:
    begun = time.process_time()
    said = task([{"id": "same", "role": "user", "content": str(number)} for number in range(10_000)])
    assert [text for _, text, _ in said] == [*map(str, range(10_000))]
    assert time.process_time() - begun < 10  # 1 s; with the square of it, half a minute
