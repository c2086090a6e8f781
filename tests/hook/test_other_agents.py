"""Claims of hook/other_agents.py: the real inputs of other agents' hooks become notes that the worker understands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crystal.hook import main as hook
from crystal.hook.other_agents import translate
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


def test_claude_codes_note_names_no_harness() -> None:
    assert "harness" not in hook.make_note({"session_id": "s"}, {"crystal_harness": "x"}, 1)


def test_the_hook_of_another_agent_prints_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook, "_read_stdin", lambda: b'{"hook_event_name":"SessionStart","session_id":"0199"}')
    monkeypatch.setattr(hook, "_open_standard_streams", lambda: None)
    monkeypatch.setattr(hook, "_print", lambda _: pytest.fail("it printed something"))
    monkeypatch.setattr(hook, "_half", lambda name="rest": __import__(f"crystal.hook.{name}", fromlist=["x"]))
    monkeypatch.setattr("crystal.hook.launch.start_worker", lambda *_: None)
    hook.main(["--harness", "codex"])
    [note] = (home / ".ldm" / "memory" / "spool").glob("*.json")
    assert json.loads(note.read_bytes())["harness"] == "codex"
