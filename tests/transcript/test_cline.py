"""Claims of transcript/cline.py: what a subagent says belongs to the session that started it, and nobody typed it."""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import Any

from crystal.transcript.cline import READER
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
