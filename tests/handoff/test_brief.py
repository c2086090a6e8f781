"""Claims about a brief: what is in it, that it stays within its budget, and that nothing in it becomes an instruction."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from crystal.handoff.brief import make_prompt
from crystal.redact import Redactor
from crystal.sessions.reading import SessionSummary, ShownTurn
from tests.handoff.test_targets import NOW, roles, source, texts, turn
from tests.support.command import crystal
from tests.support.exports import SESSION, remember
from tests.support.table import each_row


def call(number: int, tool: str, text: str) -> ShownTurn:
    return ShownTurn(number, f"line-{number}", 0, "tool_call", text, NOW + number, tool)


def result(number: int, tool: str, text: str) -> ShownTurn:
    return ShownTurn(number, f"line-{number}", 0, "tool_result", text, NOW + number, tool)


def prompt_of(turns: list[ShownTurn], tokens: int = 4_000, one: SessionSummary | None = None) -> str:
    return make_prompt(one or source("codex"), turns, now=NOW, nonce="abcdef", tokens=tokens)


def test_it_has_the_task_the_decisions_the_deeds_and_what_is_open() -> None:
    turns = [
        turn(0, "user", "Build the mill."),
        turn(1, "assistant", "We will use oak instead of pine. Shall I begin?"),
        call(2, "Bash", "Bash: make wheel"), result(3, "Bash", "done"),
        call(4, "Bash", "Bash: make dam"), result(5, "Bash", "Exit code 2\nno water"),
        call(6, "exec_command", "exec_command: make roof"), result(7, "exec_command", "Process exited with code 0\nok"),
        call(8, "Edit", "Edit: /shop/mill.py\nold_string: a"), result(9, "Edit", "ok"),
        turn(10, "user", "Go on."),
        turn(11, "assistant", "The wheel turns. The dam is still missing.\n- [ ] dig the canal"),
    ]  # fmt: skip
    prompt = prompt_of(turns)
    parts = {part.split(":\n")[0]: part for part in prompt.split("\n\n")}
    assert "Codex CLI" in prompt.split("\n")[0]
    assert "- Build the mill." in parts["Task"]
    assert "oak instead of pine" in parts["Decisions, in the words they were made with"]
    assert "- mill.py (edited)" in parts["Files"]
    assert "- make wheel" in parts["Commands that worked"]
    assert "- make roof" in parts["Commands that worked"]
    assert "make dam" not in parts["Commands that worked"]
    assert "- dig the canal" in parts["Open"]
    assert "The dam is still missing." in parts["Open"]
    assert "[assistant] The wheel turns." in parts["The last turns"]


def test_a_request_without_an_answer_is_open() -> None:
    assert "- no answer yet: Build the mill." in prompt_of([turn(0, "user", "Build the mill.")])


@given(said=st.lists(st.tuples(roles, texts | st.text(max_size=3000))), tokens=st.integers(300, 3000))
def test_it_stays_within_its_tokens_and_in_its_fence(said: list[tuple[str, str]], tokens: int) -> None:
    turns = [turn(number, role, text) for number, (role, text) in enumerate(said)]
    prompt = prompt_of(turns, tokens)
    assert len(prompt) <= tokens * 4
    assert prompt.count("<crystal-memory-abcdef>") == prompt.count("</crystal-memory-abcdef>") == 1
    assert prompt.endswith("</crystal-memory-abcdef>")


def test_what_is_sent_as_a_prompt_is_not_stored_a_second_time() -> None:
    prompt = prompt_of([turn(0, "user", "Build the mill.")])
    clean, _ = Redactor(b"key").clean_line(json.dumps({"text": prompt}).encode())
    assert b"Go on with the work" in clean
    assert b"mill" not in clean


@each_row("words", [("--brief",), ("--brief", "--to", "goose"), ("--brief", "--to", "codex")])
def test_the_command_prints_it_for_any_agent_and_writes_nothing(home: Path, words: tuple[str, ...]) -> None:
    remember(home, ["Which port? My key is sk-ant-api03-" + "a1B2" * 24, "4711."], cwd="/gone")
    done = crystal("handoff", SESSION, *words)
    assert done.code == 0, done.err
    assert "4711." in done.out
    assert "a1B2a1B2" not in done.out
    assert not (home / ".codex").exists()
    as_json = json.loads(crystal("handoff", SESSION, *words, "--json").out)
    assert as_json["session"] == SESSION
    assert "4711." in as_json["brief"]
