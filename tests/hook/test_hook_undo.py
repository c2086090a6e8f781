"""The command that the hook's line names takes a memory back, also before the worker has stored it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import crystal

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.slow
def test_what_was_told_can_be_taken_back_at_once(home: Path) -> None:
    (home / ".claude").mkdir()
    assert crystal("init", "--yes").code == 0
    said = {
        "hook_event_name": "UserPromptSubmit",
        "session_id": "s1",
        "cwd": str(home),
        "prompt": "remember we use tabs",
    }
    lock = home / ".ldm" / "memory" / "capture.lock"
    lock.unlink(missing_ok=True)
    lock.mkdir()  # the worker cannot begin
    hook = [sys.executable, "-I", "-S", str(ROOT / "crystal" / "hook" / "main.py")]
    done = subprocess.run(hook, input=json.dumps(said), capture_output=True, text=True, check=True)
    line = json.loads(done.stdout)["systemMessage"]
    undo = re.search(r"undo: crystal (memories deprecate mem-[0-9a-f]{12})", line)
    assert undo, line
    lock.rmdir()
    taken_back = crystal(*undo[1].split())
    assert taken_back.code == 0, taken_back.err
    assert json.loads(crystal("search", "tabs", "--json").out)["hits"] == []
