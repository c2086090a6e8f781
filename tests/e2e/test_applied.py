"""The benchmark of applied decisions runs whole with the real Claude Code; the model that looks, or cannot, is ours."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.e2e.client import Client
from tests.e2e.fake_anthropic import FakeAnthropic, Step, Use
from tests.e2e.programs import run_to_end
from tests.project.test_benchmark_applied import FOLDER, ROWS, answer_from, decision_words

TASKS = 3
TOOL = "mcp__crystal__crystal_search"


class LookingModel(FakeAnthropic):
    """A model that searches for a task's decision if it has the tool, and applies only what it found."""

    def step_for(self, body: dict[str, Any]) -> Step:
        """Return the search, or what the results of one allow to say."""
        said = json.dumps(body["messages"], ensure_ascii=False)
        task = next((row[1] for row in ROWS[:TASKS] if row[1] in said), None)
        if task is None:
            return ["(a title)"]
        results = [block for message in body["messages"] if isinstance(message["content"], list)
                   for block in message["content"] if block.get("type") == "tool_result"]  # fmt: skip
        has_tool = TOOL in json.dumps(body)  # the client names tools that it does not describe at once
        if has_tool and not results:
            return [Use(TOOL, {"query": decision_words(task)})]
        return [answer_from(task, json.dumps(results, ensure_ascii=False))]


def test_a_model_that_looks_applies_the_decisions_and_one_that_cannot_does_not(client: Client, home: Path) -> None:
    command = [sys.executable, str(FOLDER / "applied.py"), "--tasks", str(TASKS), "--claude", str(client.program)]
    with LookingModel() as looking:
        more = {"ANTHROPIC_BASE_URL": looking.base_url, "PYTHONPATH": str(FOLDER.parent)}
        env = client.env({**more, "CRYSTAL_EMBEDDING_PROVIDER": "none"})
        done = run_to_end(command, 280, home, env)
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"with crystal   {TASKS} of {TASKS} decisions applied, searched before {TASKS} answers" in done.stdout
    assert f"without        0 of {TASKS} decisions applied, searched before 0 answers" in done.stdout
