"""Claims of transcript/copilot_cli.py: a call is kept once, whether the tool ran or was interrupted before."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support import agent_samples as samples
from tests.support.command import crystal

TOOL = "6d6ec1ca-1d9b-456a-b727-667a547bd983"


def test_a_call_that_was_interrupted_before_its_tool_ran_is_kept_once(home: Path) -> None:
    path = home / ".copilot" / "session-state" / TOOL / "events.jsonl"
    [data] = [
        one.read_bytes() for one, name in samples.sample_files("copilot-cli") if name.endswith(f"{TOOL}/events.jsonl")
    ]
    lines = data.splitlines(keepends=True)
    [ran] = [number for number, line in enumerate(lines) if b'"tool.execution_start"' in line]
    path.parent.mkdir(parents=True)
    assert crystal("init", "--yes", "--no-import").code == 0
    told = [one for one in samples.expected("copilot-cli")[1] if one["session"] == TOOL]
    for count in (ran, ran + 1, len(lines)):
        path.write_bytes(b"".join(lines[:count]))
        assert crystal("sync").code == 0
        found = samples.captured()[1]
        assert found == told[: len(found)]
        assert [one["role"] for one in found].count("tool_call") == 1
        assert json.loads(crystal("verify", "--json").out)["faults"] == []
