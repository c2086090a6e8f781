"""``claude -p --input-format stream-json``: one process, many prompts, also while it is busy."""

from __future__ import annotations

import json

import pytest

from tests.e2e.client import Client, Stream
from tests.e2e.fake_anthropic import FakeAnthropic, Pause, Use
from tests.support.whole_memory import Memory, said


def test_three_prompts_of_one_process_are_kept(client: Client, model: FakeAnthropic, memory: Memory) -> None:
    expected = []
    with Stream(client) as stream:
        for number in ("one", "two", "three"):
            model.when(f"question {number}", [f"Answer {number}."])
            stream.send(f"question {number}")
            assert stream.result() == f"Answer {number}."
            expected += [("user", f"question {number}"), ("assistant", f"Answer {number}.")]
        stream.end()
    memory.settle()
    assert memory.said() == said(*expected)
    memory.verify()


def test_what_is_said_while_the_agent_works_is_kept_once(client: Client, model: FakeAnthropic, memory: Memory) -> None:
    busy = Pause()
    model.when("begin the work", ["Working.", busy, Use("Bash", {"command": "echo tool-output"})], ["It is done."])
    model.when("also look at the roof", ["The roof is fine."], ["The roof is fine."])
    with Stream(client) as stream:
        stream.send("begin the work")
        assert busy.reached.wait(30)
        stream.send("also look at the roof")
        busy.go.set()
        stream.result()
        stream.end()
    memory.settle()
    assert memory.texts("user") == ["also look at the roof", "begin the work"]
    assert memory.texts("tool_result") == ["tool-output"]
    assert "Working." in memory.texts("assistant")
    assert "The roof is fine." in memory.texts("assistant")
    assert set(memory.said().values()) == {1}
    assert any(line.get("attachment", {}).get("type") == "queued_command" for line in client.lines()), (
        "what this is about"
    )
    memory.verify()


@pytest.mark.usefixtures("_modern")
def test_what_no_stop_told_of_is_kept_from_a_transcript_that_is_replaced(client, model, memory):
    """The worker is told of nothing but the compaction itself."""
    settings = json.loads((client.config / "settings.json").read_text())
    settings["hooks"] = {name: settings["hooks"][name] for name in ("SubagentStop", "SessionStart")}
    (client.config / "settings.json").write_text(json.dumps(settings))
    client.extra["CLAUDE_CODE_TRANSCRIPT_LOCAL_GC"] = "1"
    long = "\n".join(f"{number} crystals were counted and written down." for number in range(120_000))
    model.when("a long tale", [long])
    model.when("the first thing", ["About the first."])
    model.when("the second thing", ["About the second."])
    model.when("detailed summary of", ["<analysis>x</analysis><summary>They talked.</summary>"])
    with Stream(client) as stream:
        for prompt in ("a long tale", "the first thing", "/compact", "the second thing"):
            stream.send(prompt)
            stream.result()
        stream.end()
    memory.settle()
    for text in ("a long tale", long, "the first thing", "About the first."):
        assert text in memory.texts("user") + memory.texts("assistant")
    memory.verify()


@pytest.mark.usefixtures("_modern")
def test_a_transcript_that_the_client_replaces_after_compaction_loses_nothing(client, model, memory):
    client.extra["CLAUDE_CODE_TRANSCRIPT_LOCAL_GC"] = "1"  # from 5 MB on, and in this mode only
    long = "\n".join(f"{number} crystals were counted and written down." for number in range(120_000))
    answers = {"a long tale": long, "the first thing": "About the first.", "the second thing": "About the second."}
    for prompt, answer in answers.items():
        model.when(prompt, [answer])
    model.when("detailed summary of", ["<analysis>x</analysis><summary>They talked of two things.</summary>"])
    inodes = []
    with Stream(client) as stream:
        for prompt in ("a long tale", "the first thing", "/compact", "the second thing"):
            stream.send(prompt)
            stream.result()
            inodes.append(client.transcripts()[0].stat().st_ino)
        stream.end()
    assert inodes[0] == inodes[1] != inodes[3], "the client did what this is about"
    memory.settle()
    kept = memory.said()
    (summary,) = (turn for turn in kept if turn[0] == "summary")
    assert kept == said(
        summary, *(("user", prompt) for prompt in answers), *(("assistant", text) for text in answers.values())
    )
    memory.verify()
