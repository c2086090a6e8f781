"""Claims of ``crystal agents``: which agents are here, how much of them is captured, what they delete."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import crystal

SESSION = "9d3d8d59-5b0e-4d6e-9d19-1a3c1c1d1a11"
LINE = (
    '{"type":"user","uuid":"u%d","sessionId":"%s","cwd":"/w","timestamp":"2026-11-20T10:00:00Z",'
    '"message":{"role":"user","content":"Which port?"}}\n'
)


@pytest.fixture
def transcript(home: Path) -> Path:
    path = home / ".claude" / "projects" / "w" / f"{SESSION}.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text(LINE % (1, SESSION))
    assert crystal("init", "--yes", "--no-import").code == 0
    return path


def claude_code() -> dict[str, Any]:
    agents = json.loads(crystal("agents", "--json").out)["agents"]
    [found] = [one for one in agents if one["name"] == "claude-code"]
    return dict(found)


def test_what_was_there_before_is_counted_and_how_to_import_it_is_said(transcript: Path) -> None:
    done = crystal("agents")
    assert "nothing captured yet" in done.out
    assert "from before crystal, not imported" in done.out
    assert "crystal backfill" in done.err
    assert claude_code()["before"] == transcript.stat().st_size


def test_what_waits_and_what_is_captured_add_up(transcript: Path) -> None:
    assert crystal("backfill").code == 0
    assert claude_code()["percent"] == 100
    with transcript.open("a") as file:
        file.write(LINE % (2, SESSION))
    found = claude_code()
    assert (found["waiting"], found["sessions"]) == (transcript.stat().st_size // 2, 1)
    assert crystal("sync").code == 0
    assert (claude_code()["waiting"], claude_code()["percent"]) == (0, 100)


def test_an_agent_that_deletes_its_files_says_so(transcript: Path) -> None:
    assert "deletes transcripts after 30 days" in crystal("agents").out
    transcript.unlink()
    assert claude_code()["files"] == 0


def test_an_empty_machine_says_what_crystal_could_read(home: Path) -> None:
    assert crystal("init", "--yes", "--no-import").code == 0
    done = crystal("agents")
    assert "no agent has written a conversation on this machine yet" in done.out
    assert "not found here: Claude Code" in done.out
