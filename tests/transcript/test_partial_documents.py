"""Claims about documents without their beginning or end: what is left is read, the rest named, nothing comes twice."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path, PurePath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.transcript.chatgpt import READER as CHATGPT
from crystal.transcript.damaged import MessageList, parse_damaged
from crystal.transcript.snapshot import Snapshot
from tests.cli.test_cli_imports import talk_of
from tests.support import agent_samples as samples
from tests.support.command import crystal
from tests.support.examples import examples, part_of
from tests.transcript.test_trees import said

FILES = {
    "gemini-cli": "session-2026-02-03T09-00-5f0c3d1e.json",
    "qwen-code": "session-*.json",
    "vscode-chat": "41e0b6d8-*.json",
    "cline": "*m5nrm.messages.json",
    "roo-code": "api_conversation_history.json",
}


@examples(80)
@given(st.lists(st.text() | st.dictionaries(st.text(), st.text()), max_size=5), st.booleans(), st.data())
def test_what_is_left_of_a_document_gives_each_message_that_is_whole(
    words: list[Any], is_pretty: bool, data: st.DataObject
) -> None:
    messages = [{"content": one, "more": [{"text": one}]} for one in words]
    document = {"id": "x", "messages": messages, "last": {"tags": [{}]}}
    whole = json.dumps(document, indent=2 if is_pretty else None).encode()
    begin = data.draw(st.integers(1, len(whole) - 1))
    end = data.draw(st.just(len(whole)) | st.integers(begin, len(whole)))
    left = bytes(data.draw(st.sampled_from((0, begin)))) + whole[begin:end]
    found, left_out = parse_damaged(left, MessageList("messages", ("content", "more")))
    told = found["messages"] if isinstance(found, dict) else []
    decoded, at = [], whole.index(b"[") + 1
    for message in messages:
        text = json.dumps(message, indent=2 if is_pretty else None).encode()
        text = text.replace(b"\n", b"\n    ") if is_pretty else text
        start = whole.index(text, at)
        at = start + len(text)
        decoded += [message] if begin <= start and at <= end else []
    assert told == decoded
    kept = b"".join(left[one] for one in left_out)
    assert end < len(whole) or not told or found["last"] == document["last"]  # type: ignore[index]
    assert len(kept) <= len(left)


def by_talk(turns: list[dict[str, Any]]) -> list[list[tuple[str, str]]]:
    """Return what was said in each conversation, whatever its id, in any order."""
    talks: dict[str, list[tuple[str, str]]] = {}
    for one in turns:
        talks.setdefault(one["session"], []).append((one["role"], one["text"]))
    return sorted(sorted(talk) for talk in talks.values())


@pytest.mark.parametrize("how", ["cut", "overwritten"])
def test_a_document_without_its_beginning_is_read_and_named_and_the_whole_one_later_adds_the_rest(
    how: str, home: Path
) -> None:
    for harness in FILES:
        samples.lay_out(harness, home)
    paths = {path: path.read_bytes() for name in FILES.values() for path in home.rglob(name)}
    for path, whole in paths.items():
        at = len(whole) * 2 // 5
        path.write_bytes(bytes(at if how == "overwritten" else 0) + whole[at:])
        os.utime(path, (1_700_000_000, 1_700_000_000))
    expected = [turn for harness in FILES for turn in samples.expected(harness)[1]]
    assert crystal("init", "--yes", "--no-import").code == 0
    told = crystal("backfill").err
    assert {one["text"] for one in samples.captured()[1]} <= {one["text"] for one in expected}
    crystal("sync")
    doctor = " ".join(crystal("doctor").out.split())
    assert "and 2 more: crystal sync names them" in doctor
    for path, whole in paths.items():
        assert f"{path}: is not complete JSON: bytes 0 to " in told
        path.write_bytes(whole)
    assert sum(f"{path}: is not complete JSON" in doctor for path in paths) == len(paths) - 2
    first = samples.captured()[1]
    assert "complete JSON" not in crystal("backfill").err + crystal("sync").err
    found = samples.captured()[1]
    assert all(one in found for one in first)
    assert len(first) > 0.8 * len(expected)
    assert by_talk(found) == by_talk(expected)
    assert crystal("verify").code == 0


def export(talks: int) -> list[dict[str, Any]]:
    """Return an export as ChatGPT writes it: the id of a conversation follows its messages."""
    found = []
    for number in range(talks):
        told = json.dumps(talk_of("chatgpt", [0, 0, 1, 1, 3], 4))
        talk = json.loads(told.replace("00000000-", f"{number:08}-").replace("said", f"talk {number} says"))
        shown, ident = talk.pop("current_node"), f"{talk.pop('id')} {number}"
        found.append({**talk, "current_node": shown, "conversation_id": ident, "id": ident})
    return found


def nodes_before(cut: bytes) -> set[str]:
    """Return the texts of the messages whose nodes are whole in a cut export."""
    texts, at = set[str](), 0
    while (at := cut.find(b'{"id": "', at + 1)) > 0:
        with contextlib.suppress(ValueError):
            node, _ = json.JSONDecoder().raw_decode(cut[at:].decode())
            texts |= {*node["message"]["content"]["parts"]} if "message" in node else set()
    return texts


def test_a_cut_conversation_of_chatgpt_gives_the_messages_whose_nodes_are_whole_and_the_shown_branch() -> None:
    whole = json.dumps(export(2)).encode()
    tried = 0
    for end in range(whole.index(b"talk 1"), len(whole), 7):
        cut = whole[:end]
        told = list(said(CHATGPT, cut))
        texts = [text for _, branch in told for text in branch]
        assert nodes_before(cut) <= set(texts), cut[-40:]
        last = [branch for session, branch in told if session == "00000001-0000-4000-8000-000000000000"]
        tried += last == [[f"talk 1 says {number}" for number in (0, 1, 3)]]
    assert tried > 20


@pytest.mark.parametrize("end", part_of((0.65, 0.8, 0.95)))
def test_a_whole_export_later_goes_on_with_a_cut_conversation(end: float, home: Path, ready: None) -> None:
    path, talks = home / "conversations.json", export(2)
    whole = json.dumps(talks).encode()
    path.write_bytes(whole[: int(len(whole) * end)])
    begun = crystal("import", str(path), "--json")
    assert "download the export again" in begun.err
    first = samples.captured()[1]
    assert {"talk 0 says 4", "talk 1 says 0"} <= {one["text"] for one in first}
    path.write_bytes(whole)
    rest = crystal("import", str(path), "--json")
    found = samples.captured()[1]
    assert all(one in found for one in first)
    assert sum(json.loads(done.out)["turns"] for done in (begun, rest)) == 10, "each message is new once"
    assert len({str(one) for one in found}) == len(found)
    assert {one["text"] for one in found} == {f"talk {talk} says {number}" for talk in (0, 1) for number in range(5)}
    told = [one["text"][-1] for one in found if one["session"] == "00000001-0000-4000-8000-000000000000"]
    assert [number for number in told if number != "2"] == ["0", "1", "3", "4"]
    assert "nothing new" in crystal("import", str(path)).out
    assert crystal("verify").code == 0


def test_a_conversation_that_is_none_is_named_and_one_that_comes_twice_is_read_twice() -> None:
    [talk] = export(1)
    other = export(2)[1] | {"conversation_id": talk["conversation_id"]}
    source = Snapshot(PurePath("conversations.json"), json.dumps([talk, {}, other]).encode(), samples.no_such_table, {})
    found = {one.session: list(CHATGPT.messages(source, one)) for one in CHATGPT.conversations(source)}
    assert [len(messages) for messages in found.values()] == [8, 3, 3]
    assert [one.message for one in source.damaged] == ["conversations.json: a conversation has no id or no messages"]
