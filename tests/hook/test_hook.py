"""The hook as Claude Code runs it: the real file, a real interpreter, real pipes and signals.

The file is copied into a package of the test's own, whose worker tells what it found and waits for nobody."""

from __future__ import annotations

import json
import stat
import sys
import time
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.hook import event as hook
from tests.support.hook_machine import NOTE_KEYS, SECRET, STOP, Machine

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the hook is untested on Windows")


# --- the note


def test_the_note_holds_the_allowed_fields_and_nothing_else(machine: Machine) -> None:
    transcript = machine.claude / "projects" / "p" / "täglich 漢.jsonl"
    transcript.write_bytes(b"x" * 77)
    before = time.time_ns() // 1_000_000
    assert machine.run({**STOP, "transcript_path": str(transcript), "prompt": SECRET, "agent_id": 7}) == b""
    (note,) = machine.notes()
    at = note.pop("at")
    assert before <= at <= time.time_ns() // 1_000_000
    assert note == {
        "v": 1,
        "event": "Stop",
        "session_id": STOP["session_id"],
        "transcript_path": str(transcript),
        "agent_transcript_path": None,
        "cwd": "/home/user/work",
        "size": 77,
        "private": False,
        "awaited": {"crc": zlib.crc32(SECRET.encode()), "length": len(SECRET)},
    }


def test_a_subagent_and_an_end_are_told_too(machine: Machine) -> None:
    agent = machine.claude / "projects" / "p" / "agent-a1.jsonl"
    machine.run({**STOP, "hook_event_name": "SubagentStop", "agent_id": "a1", "agent_transcript_path": str(agent)})
    machine.run({**STOP, "hook_event_name": "SessionEnd", "reason": "prompt_input_exit"})
    subagent, end = machine.notes()
    assert (subagent["event"], subagent["agent_transcript_path"]) == ("SubagentStop", str(agent))
    assert end["event"] == "SessionEnd"


@pytest.mark.parametrize(
    ("told", "is_kept"),
    [
        ({"hook_event_name": "SubagentStop", "agent_type": ""}, True),
        ({"hook_event_name": "SessionStart", "source": "compact"}, True),
        ({"hook_event_name": "PreCompact"}, True),
        ({"hook_event_name": "SubagentStop", "agent_type": "general-purpose"}, False),
        ({"hook_event_name": "SessionStart", "source": "resume"}, False),
        ({"hook_event_name": "Stop"}, False),
    ],
)
def test_a_compaction_gives_the_transcript_a_second_name(machine: Machine, told: dict[str, str], is_kept: bool) -> None:
    transcript = machine.claude / "projects" / "p" / "t.jsonl"
    transcript.write_bytes(b"{}\n")
    machine.run({**STOP, **told, "transcript_path": str(transcript)})
    assert [path.samefile(transcript) for path in machine.spool.glob("*.kept")] == [True] * is_kept


@pytest.mark.parametrize("name", ["outside.jsonl", "claude/projects/../outside.jsonl", "claude/projects/p/link.jsonl"])
def test_a_file_that_is_not_the_clients_is_neither_looked_at_nor_linked(machine: Machine, name: str) -> None:
    outside = machine.claude.parent / "outside.jsonl"
    outside.write_bytes(b"12345")
    (machine.claude / "outside.jsonl").write_bytes(b"12345")
    (machine.claude / "projects" / "p" / "link.jsonl").symlink_to(outside)
    machine.run({**STOP, "hook_event_name": "PreCompact", "transcript_path": str(machine.claude.parent / name)})
    assert machine.notes()[0]["size"] is None
    assert list(machine.spool.glob("*.kept")) == []


@pytest.mark.slow
def test_names_sort_by_time_and_files_are_private(machine: Machine) -> None:
    for _ in range(3):
        machine.run(STOP)
    names = sorted(path.name for path in machine.spool.iterdir())
    assert [int(name[:20]) for name in names[:3]] == sorted(int(name[:20]) for name in names[:3])
    assert [note["at"] for note in machine.notes()] == sorted(note["at"] for note in machine.notes())
    assert names[3:] == ["latency.log"]
    for path in [*machine.spool.iterdir()]:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for folder in (machine.spool, machine.spool.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("value", "private"), [("1", True), ("true", True), ("yes", True), ("0", False), ("", False), (" Off ", False)]
)
def test_a_private_environment_is_told(machine: Machine, value: str, private: bool) -> None:
    machine.run(STOP, env={"CRYSTAL_PRIVATE": value})
    assert machine.notes()[0]["private"] is private


def test_no_word_of_a_message_and_nothing_of_the_environment_gets_into_a_file(machine: Machine) -> None:
    (machine.package / "crystal" / "worker.py").write_text("def main(): pass\n")
    said = {**STOP, "prompt": SECRET, "reason": SECRET, "source": SECRET, "cwd": SECRET, "session_id": SECRET}
    machine.run(said, env={"ANTHROPIC_API_KEY": "sk-ant-in-the-environment"})
    machine.run(json.dumps(said).encode()[:-3])  # cut off
    files = [path for path in machine.ldm.rglob("*") if path.is_file()]
    assert len(files) == 3
    for path in files:
        assert b"private conversation" not in path.read_bytes()
        assert b"sk-ant" not in path.read_bytes()


def test_our_own_client_leaves_no_trace(machine: Machine) -> None:
    assert machine.run(STOP, env={"CRYSTAL_INTERNAL": "1"}) == b""
    assert list(machine.ldm.iterdir()) == []


@pytest.mark.slow
@given(
    st.binary(max_size=300)
    | st.recursive(st.none() | st.text() | st.floats() | st.integers(), st.lists).map(json.dumps).map(str.encode)
)
def test_any_bytes_make_a_note(raw: bytes) -> None:
    note = hook.make_note(hook.parse_hook_input(raw), {}, 5_000_000)
    assert json.loads(hook.encode(note)) == note
    assert set(note) == NOTE_KEYS


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.text() | st.integers(), lambda inner: st.lists(inner, max_size=3)
)


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from([*sorted(NOTE_KEYS), "hook_event_name", "last_assistant_message"]), JSON_VALUES))
def test_any_fields_make_a_note_of_plain_values(said: dict[str, object]) -> None:
    note = hook.make_note(hook.parse_hook_input(json.dumps(said).encode()), {}, 0)
    assert json.loads(hook.encode(note)) == note
    message = said.get("last_assistant_message")
    text = message.strip() if isinstance(message, str) else ""
    crc = zlib.crc32(text.encode("utf-8", "surrogatepass"))
    assert note["awaited"] == ({"crc": crc, "length": len(text)} if text else None)
