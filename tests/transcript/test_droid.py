"""Claims about Droid's sessions: their first line is rewritten in place, and everything behind it moves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crystal.transcript.droid import READER
from tests.support import agent_samples as samples
from tests.support.command import crystal

SESSIONS = samples.AGENTS / "droid" / "home" / ".factory" / "sessions"
SESSION = SESSIONS / "-tmp-demo-project" / "55783ea6-6654-490d-8bd5-7a9c6b92d37c.jsonl"


@pytest.mark.parametrize(
    "read_before", [1, pytest.param(2, marks=pytest.mark.slow), 5, pytest.param(12, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    "title",
    [
        pytest.param("", marks=pytest.mark.slow),
        "x",
        "A title that is longer than the one that the session has in the sample",
    ],
)
def test_a_new_title_moves_the_lines_and_none_is_lost_or_doubled(
    home: Path, read_before: int, title: str, ready: None
) -> None:
    first, *rest = SESSION.read_bytes().splitlines(keepends=True)
    target = home / ".factory" / "sessions" / "-tmp-demo-project" / SESSION.name
    target.parent.mkdir(parents=True)
    target.write_bytes(b"".join([first, *rest][:read_before]))
    assert crystal("sync").code == 0
    renamed = json.dumps({**json.loads(first), "title": title}).encode() + b"\n"
    with target.open("r+b") as file:  # the same file, as the program does it
        file.write(b"".join([renamed, *rest]))
        file.truncate()
    assert crystal("sync").code == 0
    sessions, turns = samples.captured()
    assert turns == [turn for turn in samples.expected("droid")[1] if turn["session"] == SESSION.stem]
    assert sessions[0]["title"] == (title or "Please run a command for me.")
    assert json.loads(crystal("verify", "--json").out)["percent"] == 100.0


def test_results_that_are_read_later_than_their_calls_have_the_names_of_their_tools(home: Path, ready: None) -> None:
    sample = SESSIONS / "-home-me-shop" / "0d000000-1111-4222-8333-00000000000d.jsonl"
    lines = sample.read_bytes().splitlines(keepends=True)
    target = home / ".factory" / "sessions" / "-home-me-shop" / sample.name
    target.parent.mkdir(parents=True)
    for end in (3, len(lines)):  # a line with two calls, then one with both results
        target.write_bytes(b"".join(lines[:end]))
        assert crystal("sync").code == 0
    told = [turn for turn in samples.expected("droid")[1] if turn["session"] == sample.stem and not turn["subagent"]]
    assert samples.captured()[1] == told


def test_what_only_the_model_is_shown_was_typed_by_nobody() -> None:
    for where in ("message", "line"):
        message = {"role": "user", "content": "rules", **({"visibility": "llm_only"} if where == "message" else {})}
        line = {
            "type": "message",
            "id": "m1",
            "message": message,
            **({"visibility": "llm_only"} if where == "line" else {}),
        }
        assert not list(READER.turns([(0, json.dumps(line).encode())], "", subagent=False))
