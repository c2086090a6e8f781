"""Claims of app/read_again.py: what an older reader did not find comes in by itself after an update."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crystal.app.context import open_machine
from crystal.app.read_again import read_again
from crystal.config.harnesses import HARNESSES
from crystal.ingest import archive
from crystal.integrity.rebuild import write_turns
from crystal.model.capture import Turn
from crystal.store.forget.forgetting import add_tombstones, make_tombstone
from crystal.store.notes import READERS, read_note
from crystal.transcript.messages import SnapshotReader
from crystal.transcript.reader import reader_of
from tests.support import agent_samples as samples
from tests.support.command import crystal

pytestmark = pytest.mark.slow


def older(patch: pytest.MonkeyPatch, harness: str) -> None:
    """Let a reader find no tools, thoughts as answers, each answer twice; of a rewritten file no second record."""
    reader = reader_of(harness)
    turns = reader.turns

    def misread(*given: Any, **more: Any) -> Iterator[Turn]:
        for turn in turns(*given, **more):
            if turn.role in ("thinking", "assistant"):
                yield turn._replace(role="assistant")
                yield turn._replace(role="assistant", part=turn.part + 100)
            elif not turn.role.startswith("tool"):
                yield turn

    patch.setattr(reader, "turns", misread)
    if isinstance(reader, SnapshotReader):
        messages = reader.messages
        patch.setattr(reader, "messages", lambda *given: [*messages(*given)][::2])


def newer(patch: pytest.MonkeyPatch, harness: str, by: int = 1) -> int:
    version = HARNESSES[harness].reader_version + by
    patch.setitem(HARNESSES, harness, HARNESSES[harness]._replace(reader_version=version))
    return version


def captured_by_an_older_one(home: Path, harness: str) -> list[Any]:
    samples.lay_out(harness, home)
    with pytest.MonkeyPatch.context() as patch:
        older(patch, harness)
        assert crystal("init", "--yes", "--import", "--wait").code == 0
        return samples.captured()[1]


@pytest.mark.parametrize("harness", ["copilot-cli", "gemini-cli", "goose", "opencode", "codex"])
def test_what_a_newer_reader_finds_comes_in_by_itself_once(
    harness: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = captured_by_an_older_one(home, harness)
    assert crystal("sync").code == 0
    assert samples.captured()[1] == before  # its version is the same
    newer(monkeypatch, harness)
    for _ in range(2):
        assert crystal("sync").code == 0
    assert samples.captured() == samples.expected(harness)
    assert samples.captured()[1] != before
    assert crystal("verify").code == 0


def stopping_after(calls: int) -> Callable[[], bool]:
    left = iter(range(calls))
    return lambda: next(left, None) is None


def test_an_interrupted_reading_goes_on_and_nothing_is_read_twice(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crystal.capture.tail.SEGMENT_BYTES", 1_000)
    captured_by_an_older_one(home, "codex")
    version = newer(monkeypatch, "codex")
    monkeypatch.setattr("crystal.app.read_again.STEP_SECONDS", 0)
    rows = list[int]()
    write = "crystal.app.read_again.write_turns"
    monkeypatch.setattr(write, lambda *given: rows.append(given[2]) or write_turns(*given))
    with open_machine() as machine:
        for _ in range(1000):
            read_again(machine, stopping_after(1))
            if json.loads(read_note(machine.store, READERS) or "{}").get("codex") == version:
                break
        assert len(rows) == len({*rows}) > 5
        newer(monkeypatch, "codex", -1)  # an older crystal comes back, then the newer one
        read_again(machine, stopping_after(1000))
        newer(monkeypatch, "codex")
        frames, text_of = list[object](), archive.text_of
        monkeypatch.setattr(archive, "text_of", lambda *frame: frames.append(frame) or text_of(*frame))
        read_again(machine, stopping_after(1000))
        assert len(frames) == len(rows)  # twice each row, in however many steps
        assert len(rows) == 2 * len({*rows})
    assert samples.captured() == samples.expected("codex")


def test_what_is_being_forgotten_does_not_come_back(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = captured_by_an_older_one(home, "codex")
    newer(monkeypatch, "codex")
    with open_machine() as machine:
        now = machine.now()
        told = make_tombstone("before", {}, now, now, "another")
        with machine.store.transaction():  # it is found and deleted later
            add_tombstones(machine.store, [told], now)
        read_again(machine, stopping_after(1000))
    assert {one["text"] for one in samples.captured()[1]} == {one["text"] for one in before}


@pytest.mark.parametrize("harness", ["codex", "gemini-cli", "goose"])
def test_what_was_forgotten_before_does_not_come_back(
    harness: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, told = captured_by_an_older_one(home, harness), samples.expected(harness)[1]
    count = Counter(word for one in told for word in words_of(one))
    word = next(word for one in before if one["role"] == "user" for word in sorted(words_of(one)) if count[word] == 1)
    assert crystal("forget", "--query", word, "--yes").code == 0
    newer(monkeypatch, harness)
    for _ in range(2):
        assert crystal("sync").code == 0
    assert samples.captured()[1] == [one for one in told if word not in words_of(one)]
    assert crystal("verify").code == 0


def test_a_record_that_an_agent_rewrote_keeps_the_parts_that_both_readers_find(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = home / ".gemini" / "tmp" / "shop" / "chats" / "session-2026-02-03T09-00-5f0c3d1e.jsonl"
    path.parent.mkdir(parents=True)
    asked = {"id": "m0", "type": "user", "timestamp": "2026-02-03T09:00:00Z", "content": "look"}
    answer = {
        "id": "m1",
        "type": "gemini",
        "timestamp": "2026-02-03T09:00:01Z",
        "thoughts": [{"description": "Think."}],
    }
    tools = [{"name": "ls", "args": {"path": "."}, "resultDisplay": "a.py"}]
    states = [{"sessionId": "5f0c3d1e"}, asked, {**answer, "content": "I"}]
    states += [{**answer, "content": "I look.", "toolCalls": tools}]
    with pytest.MonkeyPatch.context() as patch:
        reader = reader_of("gemini-cli")
        turns = reader.turns
        patch.setattr(reader, "turns", lambda *given, **more: (
            one for one in turns(*given, **more) if not one.role.startswith("tool")
        ))  # fmt: skip
        path.write_text("".join(json.dumps(one) + "\n" for one in states[:-1]))
        assert crystal("init", "--yes", "--import", "--wait").code == 0
        path.write_text("".join(json.dumps(one) + "\n" for one in states))
        assert crystal("sync").code == 0
    newer(monkeypatch, "gemini-cli")
    with open_machine() as machine:
        read_again(machine, stopping_after(1000))
    said = [(one["role"], one["text"]) for one in samples.captured()[1]]
    assert said == [
        ("user", "look"),
        ("thinking", "Think."),
        ("assistant", "I look."),
        ("tool_call", "ls: ."),
        ("tool_result", "a.py"),
    ]
    assert crystal("verify").code == 0


def test_what_nobody_said_is_no_evidence_any_more(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = home / ".gemini" / "tmp" / "shop" / "chats" / "session-2026-02-03T09-00-5f0c3d1e.jsonl"
    path.parent.mkdir(parents=True)
    lines = [{"sessionId": "5f0c3d1e"}]
    for number, text in enumerate(["look", "System: Potential loop detected. Details: x"]):
        lines.append({"id": f"m{number}", "type": "user", "timestamp": "2026-02-03T09:00:00Z", "content": text})
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("crystal.transcript.gemini_cli._NOT_TYPED", ("<session_context>",))
        assert crystal("init", "--yes", "--import", "--wait").code == 0
    assert crystal("remember", "loops are bad").code == 0
    with open_machine() as machine:
        machine.store.execute(
            "INSERT INTO learned_from (memory, line, session, kind, confidence, at) SELECT m.uid, t.uuid, s.session_id,"
            " 'preference', 1, 0 FROM memories m, turns t JOIN sessions s ON s.id = t.session"
        )
    newer(monkeypatch, "gemini-cli")
    assert crystal("sync").code == 0
    assert [(one["role"], one["text"]) for one in samples.captured()[1]] == [("user", "look")]
    assert crystal("verify").code == 0
    with open_machine() as machine:
        assert machine.store.value("SELECT count(*) FROM learned_from") == 1


def words_of(turn: Any) -> set[str]:
    return {*re.findall(r"\w{5,}", turn["text"].lower())}
