"""The benchmark of applied decisions plants, finds and counts them. A server of our own proves that, and no model."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.chat_server import Reply, chat_server, openai_reply

FOLDER = Path(__file__).parents[2] / "benchmarks"
ROWS = [line.split("\t") for line in (FOLDER / "applied.tsv").read_text("utf-8").splitlines()[1:]]
TASKS = 3


def run(*arguments: str) -> str:
    command = [sys.executable, str(FOLDER / "applied.py"), "--tasks", str(TASKS), *arguments]
    env = {**os.environ, "CRYSTAL_EMBEDDING_PROVIDER": "none", "PYTHONPATH": str(FOLDER.parent)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_there_are_33_decisions_and_no_task_gives_its_answer_away() -> None:
    assert len({row[0] for row in ROWS}) == len(ROWS) == 33
    assert all(len(row) == 3 and not re.search(row[2], row[1]) for row in ROWS)


@pytest.mark.slow
def test_a_model_that_looks_applies_them_and_one_that_cannot_look_does_not() -> None:
    def answer(request: dict[str, Any]) -> Reply:
        body = request["body"]
        told = [one["content"] for one in body["messages"] if one["role"] == "tool"]
        task = next(one["content"] for one in body["messages"] if one["role"] == "user")
        if "tools" in body and not told:
            call = {"name": "crystal_search", "arguments": json.dumps({"query": decision_words(task)})}
            reply = openai_reply(None)
            reply["choices"][0]["message"]["tool_calls"] = [{"id": "1", "type": "function", "function": call}]
            return Reply(reply)
        return Reply(openai_reply(answer_from(task, "".join(told))))

    with chat_server(answer) as server:
        out = run("--url", server.url, "--model", "fake")
    assert f"with crystal   {TASKS} of {TASKS} decisions applied, searched before {TASKS} answers" in out
    assert f"without        0 of {TASKS} decisions applied, searched before 0 answers" in out


def decision_words(task: str) -> str:
    return next(row[0] for row in ROWS if row[1] == task)


def answer_from(task: str, told: str) -> str:
    """Return what applies the decision, if it was told."""
    good = {"three times": "RETRIES = 3", "trunk": "git push origin HEAD:trunk", "day-month-year": "05.03.2026"}
    words = next(one for one in good if one in decision_words(task))
    return good[words] if words in told else "I do not know."
