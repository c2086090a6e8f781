"""The user's own agents as a model: asked without tools, hooks and a session, ended in time, and never recorded."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from crystal.errors import CrystalError, ModelUnavailableError, NotConfiguredError
from crystal.llm.ask import Completion, Prompt
from crystal.llm.programs import ProgramModel
from tests.support.table import each_row

PROMPT = Prompt("the task", "the secret data", {"type": "object"})
CLAUDE = {"type": "result", "is_error": False, "result": "said", "total_cost_usd": 0.02,
          "usage": {"input_tokens": 3, "cache_creation_input_tokens": 40, "cache_read_input_tokens": 500,
                    "output_tokens": 7}}  # fmt: skip
CODEX = (
    {"type": "thread.started", "thread_id": "t"},
    {"type": "item.completed", "item": {"type": "reasoning", "text": "hm"}},
    {"type": "item.completed", "item": {"type": "agent_message", "text": "said"}},
    {"type": "turn.completed", "usage": {"input_tokens": 90, "cached_input_tokens": 5, "output_tokens": 7}},
)


def played(folder: Path, name: str, script: str, seconds: float = 30) -> ProgramModel:
    """A program of this name that notes how it was called, then does as a shell script says."""
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" > {folder}/arguments; env > {folder}/environ; cat > {folder}/input;'
        f" pwd > {folder}/where; grep -rl 'the secret data' .. > {folder}/found\n{script}\n",
        "utf-8",
    )
    program.chmod(0o755)
    environ = {"PATH": f"{folder}:{os.environ['PATH']}", "CLAUDECODE": "1", "HOME": str(folder)}
    return ProgramModel(name, "default" if name == "codex" else "haiku", environ, seconds)


def prints(*values: object) -> str:
    return "cat <<'END'\n" + "\n".join(map(json.dumps, values)) + "\nEND"


@each_row(
    ("name", "script", "answer", "guards"),
    [
        ("claude", prints(CLAUDE), Completion("said", 543, 7, 0.02),
         ("--no-session-persistence", "--safe-mode", "--strict-mcp-config", '{"disableAllHooks": true}')),
        ("codex", prints(*CODEX), Completion("said", 90, 7), ("--ephemeral", "read-only", "features.hooks=false",
         "features.shell_tool=false", "--ignore-user-config")),
    ],
)  # fmt: skip
def test_a_program_is_asked_through_its_input_and_guarded(
    tmp_path: Path, name: str, script: str, answer: Completion, guards: tuple[str, ...]
) -> None:
    folder = tmp_path / name
    assert played(folder, name, script).complete(PROMPT) == answer
    arguments = (folder / "arguments").read_text().splitlines()
    assert set(guards) <= set(arguments)
    assert "the secret data" not in str(arguments)  # other users of the machine see them
    assert "the secret data" in (folder / "input").read_text()
    assert (folder / "found").read_text() == ""  # no file is left if crystal is killed
    environ = (folder / "environ").read_text().splitlines()
    assert "CRYSTAL_INTERNAL=1" in environ
    assert "CLAUDECODE=1" not in environ
    where = Path((folder / "where").read_text().strip())
    assert where.name == "work"
    assert not where.parent.exists()


@pytest.mark.slow
@each_row(
    ("script", "words"),
    [
        ("exit 3", "exit code 3"),
        ("echo nonsense", "gave no answer"),
        (prints({**CLAUDE, "is_error": True}), "gave no answer"),
        (prints({**CLAUDE, "result": None}), "gave no answer"),
        (prints([1], "x", None), "gave no answer"),
        ("yes | head -c 6000000", "more than 4194304 bytes"),
        ("yes", "more than 4194304 bytes"),
        ("sleep 60 & sleep 60", "did not answer in time"),
    ],
)
def test_a_program_in_trouble_is_ended_with_all_that_it_started(tmp_path: Path, script: str, words: str) -> None:
    folder = tmp_path / str(abs(hash(script)))
    began = time.monotonic()
    with pytest.raises(ModelUnavailableError) as caught:
        played(folder, "claude", script, 0.5 if "sleep" in script else 30).complete(PROMPT)
    assert words in caught.value.message
    assert caught.value.may_be_billed
    assert time.monotonic() - began < 20
    while _runs_in(folder):  # a killed process needs a moment to go
        assert time.monotonic() - began < 20


def _runs_in(folder: Path) -> list[str]:
    """The processes that have the folder in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            data = path.read_bytes()
        except OSError:
            continue
        if f"HOME={folder}".encode() in data:
            found.append(path.parent.name)
    return found


def test_a_program_that_is_not_there_or_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotConfiguredError, match="claude is not on the PATH"):
        ProgramModel("claude", "haiku", {"PATH": str(tmp_path)}).complete(PROMPT)
    (tmp_path / "codex").write_text("no program", "utf-8")
    (tmp_path / "codex").chmod(0o755)
    with pytest.raises(CrystalError) as caught:
        ProgramModel("codex", "default", {"PATH": str(tmp_path)}).complete(PROMPT)
    assert "codex" in caught.value.message
