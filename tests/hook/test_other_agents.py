"""Claims of hook/other_agents.py: the real inputs of other agents' hooks become notes that the worker understands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.hook import event as hook
from crystal.hook.matching import facts_for_edit, plain_line
from crystal.hook.other_agents import shaped, translate
from tests.support.table import each_row

SAMPLES = {
    "codex": '{"hook_event_name":"Stop","session_id":"0199","transcript_path":"/h/.codex/sessions/r.jsonl","cwd":"/w",'
    '"last_assistant_message":"Done."}',
    "copilot-cli": '{"sessionId":"0199","transcriptPath":"/h/.copilot/e.jsonl","cwd":"/w","stopReason":"end_turn"}',
    "cline": '{"taskId":"conv_1","sessionContext":{"rootSessionId":"0199"},"hookName":"agent_end"}',
}


@each_row("harness", sorted(SAMPLES))
def test_a_note_names_session_and_harness(harness: str) -> None:
    said = translate(json.loads(SAMPLES[harness]), ["--harness", harness, "--event", "Stop"])
    note = hook.make_note(said, {}, 1_795_000_000_000_000_000)
    assert (note["harness"], note["session_id"], note["event"]) == (harness, "0199", "Stop")
    assert note["transcript_path"] == (None if harness == "cline" else note["transcript_path"])


OLD, NEW = "RETRIES = 3  # attempts", "RETRIES = 7  # attempts"
PATCH = f"*** Begin Patch\n*** Update File: /w/a.py\n@@\n-{OLD}\n+{NEW}\n*** Update File: /w/b.py\n-x\n*** End Patch"
MOVED = (
    f"*** Begin Patch\n*** Add File: /w/c.py\n+{OLD}\n*** Update File: /w/a.py\n*** Move to: /w/d.py\n@@\n-{OLD}\n+{NEW}\n"
    "*** End Patch"
)
WHO = {"session_id": "0199", "cwd": "/w"}
EDITS = [
    ("codex", {"hook_event_name": "PreToolUse", "tool_name": "apply_patch", "tool_input": {"command": PATCH}}),
    ("codex", {"hook_event_name": "PreToolUse", "tool_input": {"command": f"apply_patch <<'EOF'\n{PATCH}\nEOF"}}),
    ("codex", {"tool_input": {"command": MOVED}}),
    ("gemini-cli", {"hook_event_name": "AfterTool", "tool_input": {"file_path": "/w/a.py", "old_string": OLD,
     "new_string": NEW}, "tool_response": {"llmContent": "done"}}),
    ("droid", {"hook_event_name": "PostToolUse", "tool_input": {"file_path": "/w/a.py", "old_str": OLD, "new_str": NEW}}),
    ("copilot-cli", {"toolName": "edit", "toolArgs": {"path": "/w/a.py", "old_str": OLD, "new_str": NEW}}),
    ("pi", {"tool_input": {"path": "/w/a.py", "edits": [{"oldText": OLD, "newText": NEW}]}}),
    ("opencode", {"tool_input": {"filePath": "/w/a.py", "oldString": OLD, "newString": NEW}}),
]  # fmt: skip
NO_EDITS: list[dict[str, Any]] = [
    {"toolName": "view", "toolArgs": {"path": "/w/a.py"}},
    {"toolName": "bash", "toolArgs": {"command": "make"}},
    {"toolName": "bash", "toolArgs": "make"},
    {},
]


@each_row(("harness", "said"), EDITS)
def test_each_agents_edit_is_read_as_claude_codes(harness: str, said: dict[str, Any]) -> None:
    told = translate({**WHO, **said}, ["--harness", harness, "--event", "PreToolUse"])
    found: list[str] = []
    facts_for_edit(told["tool_input"], "/w", lambda *key: found.append(key[-1]))
    assert found == [plain_line(OLD), "a.py"]


@each_row("said", NO_EDITS)
def test_another_tool_is_no_edit(said: dict[str, Any]) -> None:
    told = translate({**WHO, **said}, ["--harness", "copilot-cli", "--event", "PreToolUse"])
    assert facts_for_edit(told["tool_input"], "/w", lambda *_: pytest.fail("it was looked up")) == []


FAILURES: list[tuple[str, dict[str, Any], bool]] = [
    ("codex", {"tool_input": {"command": "sh check.sh"}, "tool_response": "error: no"}, True),
    ("codex", {"tool_input": {"command": "cat build.log"}, "tool_response": "error: no"}, False),
    ("gemini-cli", {"tool_response": {"llmContent": "Output: error: no\nExit Code: 3\nProcess Group PGID: 1"}}, True),
    ("gemini-cli", {"tool_response": {"llmContent": "Output: error: no\nProcess Group PGID: 1"}}, False),
    ("gemini-cli", {"tool_response": {"llmContent": "Output: error: no, exit code 2\nProcess Group PGID: 1"}}, False),
    ("gemini-cli", {"tool_response": {"llmContent": "Output: error: no\nExit Code: -1\nProcess Group PGID: 1"}}, True),
    ("qwen-code", {"error": "Output: error: no\nExit Code: 1"}, True),
    ("copilot-cli", {"toolResult": {"textResultForLlm": "error: no\n<shellId: 0 completed with exit code 1>"}}, True),
    ("copilot-cli", {"toolResult": {"textResultForLlm": "error: no\n<shellId: 0 completed with exit code 0>"}}, False),
    ("pi", {"error": "error: no"}, True),
    ("pi", {"error": None}, False),
]


@each_row(("harness", "said", "is_failure"), FAILURES)
def test_a_command_that_failed_is_told_from_one_that_did_not(
    harness: str, said: dict[str, Any], is_failure: bool
) -> None:
    told = translate({**WHO, **said}, ["--harness", harness, "--event", "PostToolUseFailure"])
    assert told["hook_event_name"] == ("PostToolUseFailure" if is_failure else "PostToolUse")
    assert ("error: no" in told.get("error", "")) == is_failure


def test_an_answer_has_the_shape_that_the_agent_takes() -> None:
    answer = {"hookSpecificOutput": {"hookEventName": "PreToolUse", "additionalContext": "x"}}
    shapes = {
        "gemini-cli": {"hookSpecificOutput": {"hookEventName": "AfterTool", "additionalContext": "x"}},
        "copilot-cli": {"additionalContext": "x"},
        "cursor": {"additional_context": "x"},
    }
    for harness, expected in shapes.items():
        said = translate({**WHO, "hook_event_name": "AfterTool"}, ["--harness", harness, "--event", "PreToolUse"])
        assert shaped(answer, said) == expected
        assert shaped({}, said) == {}


@given(st.dictionaries(st.sampled_from(["tool_input", "toolArgs", "tool_response", "toolResult", "error", "source", "cwd",
       "workspace_roots", "session_id"]), st.recursive(st.none() | st.text() | st.booleans(), lambda one: st.lists(one)
       | st.dictionaries(st.sampled_from(["command", "edits", "path", "old_str", "llmContent"]), one))),
       st.sampled_from(["SessionStart", "PreToolUse", "PostToolUseFailure", "Stop"]))  # fmt: skip
def test_whatever_an_agent_says_the_hook_is_silent_or_answers(said: dict[str, Any], event: str) -> None:
    told = hook._attempt(translate, said, ["--harness", "codex", "--event", event])
    assert told is None or told["crystal_harness"] == "codex"


def test_claude_codes_note_names_no_harness() -> None:
    assert "harness" not in hook.make_note({"session_id": "s"}, {"crystal_harness": "x"}, 1)


def test_the_hook_of_another_agent_prints_nothing_where_nothing_is_known(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hook, "_read_stdin", lambda: b'{"hook_event_name":"SessionStart","session_id":"0199"}')
    monkeypatch.setattr(hook, "_open_standard_streams", lambda: None)
    monkeypatch.setattr(hook, "_print", lambda answer, *_: answer and pytest.fail("it printed something"))
    monkeypatch.setattr(hook, "_import_beside", lambda name="rest": __import__(f"crystal.hook.{name}", fromlist=["x"]))
    monkeypatch.setattr("crystal.hook.launch.start_worker", lambda *_: None)
    hook.main(["--harness", "codex"])
    [note] = (home / ".ldm" / "memory" / "spool").glob("*.json")
    assert json.loads(note.read_bytes())["harness"] == "codex"
