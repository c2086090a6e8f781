"""Claims about documents whose beginning is lost: what is left is read, the rest named, and nothing comes twice."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.transcript.damaged import MessageList, parse_damaged
from tests.support import agent_samples as samples
from tests.support.command import crystal
from tests.support.examples import examples

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
