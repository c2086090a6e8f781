"""Claims of transcript/trees.py: whatever the parents of an export's messages are, each message is in a branch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import PurePath

from hypothesis import given
from hypothesis import strategies as st

from crystal.transcript.chatgpt import READER as CHATGPT
from crystal.transcript.claude_ai import READER as CLAUDE_AI
from crystal.transcript.record_kinds import count_records
from crystal.transcript.snapshot import Snapshot
from tests.support.agent_samples import no_such_table

SESSION = "5d0b6f0a-2f8f-4a55-9a55-0d4a7b3f1c22"
NAMES = [f"{number:08d}-0000-4000-8000-000000000000" for number in range(7)]
PARENTS = st.dictionaries(st.sampled_from(NAMES), st.sampled_from([*NAMES, "gone", None]), min_size=1)


def said(reader: object, export: bytes) -> Iterator[tuple[str, list[str]]]:
    """Yield (session, what is said in it) of an export."""
    source = Snapshot(PurePath("conversations.json"), export, no_such_table, {})
    for one in reader.conversations(source):  # type: ignore[attr-defined]
        lines = [(0, record.line) for record in reader.records(source, one)]  # type: ignore[attr-defined]
        yield one.session, [part.text for _, line in lines for part in reader.parts(json.loads(line))]  # type: ignore[attr-defined]


@given(PARENTS, st.sampled_from([*NAMES, None]))
def test_each_message_of_a_graph_is_in_a_branch_also_in_a_circle(
    parents: dict[str, str | None], shown: str | None
) -> None:
    def node(name: str) -> object:
        message = {"author": {"role": "user"}, "content": {"content_type": "text", "parts": [f"said in {name}"]}}
        return {"message": message, "parent": parents[name]}

    graph = {"id": SESSION, "mapping": {name: node(name) for name in parents}, "current_node": shown}
    messages = [
        {"uuid": name, "parent_message_uuid": parent, "sender": "human", "text": f"said in {name}"}
        for name, parent in parents.items()
    ]
    tree = {"uuid": SESSION, "chat_messages": messages, "current_leaf_message_uuid": shown}
    for reader, talk in ((CHATGPT, graph), (CLAUDE_AI, tree)):
        found = list(said(reader, json.dumps([talk]).encode()))
        assert len({session for session, _ in found}) == len(found)
        assert all(session.startswith(SESSION) for session, _ in found)
        texts = [text for _, branch in found for text in branch]
        assert set(texts) == {f"said in {name}" for name in parents}
        if shown in parents:
            assert f"said in {shown}" in dict(found)[SESSION], "the shown branch is the conversation"


def test_a_message_without_an_id_is_said_too() -> None:
    messages = [{"sender": "human", "text": "quartz"}, {"uuid": None, "sender": "assistant", "text": "basalt"}, None]
    [(session, texts)] = said(CLAUDE_AI, json.dumps([{"uuid": SESSION, "chat_messages": messages}]).encode())
    assert (session, texts) == (SESSION, ["quartz", "basalt"])


def test_what_was_spoken_or_printed_is_said_and_content_of_a_new_kind_is_counted() -> None:
    spoken = {"type": "voice_note", "title": "memo", "text": "quartz"}
    message = {"uuid": NAMES[0], "sender": "human", "text": "", "content": [spoken]}
    [(_, texts)] = said(CLAUDE_AI, json.dumps([{"uuid": SESSION, "chat_messages": [message]}]).encode())
    assert texts == ["quartz"]
    contents = [
        {"content_type": "citable_code_output", "output_str": "basalt"},
        {"content_type": "later", "say": "mica"},
    ]
    for content, text, unknown in zip(contents, ("basalt", ""), ((), (("later", 1),)), strict=True):
        line = json.dumps({"author": {"role": "tool", "name": "python"}, "content": content}).encode()
        assert [part.text for part in CHATGPT.parts(json.loads(line))] == [text]
        assert count_records(CHATGPT, [(0, line)], [0] if text else ()).unknown == unknown
