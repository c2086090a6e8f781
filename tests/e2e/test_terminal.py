"""The client's own screen: commands, interruptions, files that move and files that are replaced."""

from __future__ import annotations

import json
import shlex
import sys
from typing import Any

import pytest

from tests.e2e.client import Client, Terminal
from tests.e2e.fake_anthropic import FakeAnthropic, Pause, Use
from tests.e2e.programs import NoClient
from tests.support.whole_memory import Memory, said

SUMMARY = "<analysis>They talked.</analysis>\n\n<summary>\nThey talked of two things.\n</summary>"


@pytest.fixture
def terminal(client: Client, memory: Memory) -> Any:
    try:
        with Terminal(client) as terminal:
            yield terminal
    except NoClient as reason:
        pytest.skip(str(reason))


def conversation(model: FakeAnthropic, *names: str) -> list[tuple[str, str]]:
    """Teach the model an answer for each name; gives what will have been said."""
    for name in names:
        model.when(f"the {name} thing", [f"About the {name} one."])
    return [turn for name in names for turn in (("user", f"the {name} thing"), ("assistant", f"About the {name} one."))]


def compact(terminal: Terminal, model: FakeAnthropic) -> None:
    model.when("detailed summary of", [SUMMARY])
    terminal.type("/compact")
    terminal.wait_for_line(lambda line: line.get("subtype") == "compact_boundary")
    terminal.wait_until_idle()


def test_compact_and_clear_lose_nothing_and_add_only_the_summary(client, model, memory, terminal):
    expected = conversation(model, "first", "second", "third", "fourth")
    terminal.ask("the first thing", "About the first one.")
    terminal.ask("the second thing", "About the second one.")
    compact(terminal, model)
    shown = terminal.screen()
    assert "Compacted" in shown
    assert "hook" not in shown, "the user sees no line of crystal"
    terminal.ask("the third thing", "About the third one.")
    terminal.type("/clear")
    terminal.wait_for(lambda: len(client.transcripts()) == 2, "a new session")
    terminal.ask("the fourth thing", "About the fourth one.")
    terminal.leave()
    memory.settle()
    kept = memory.said()
    (summary,) = (turn for turn in kept if turn[0] == "summary")
    assert "They talked of two things." in summary[1]
    assert kept == said(*expected, summary)
    new = client.transcripts()[-1].stem
    assert memory.said(new) == said(*expected[-2:])
    memory.verify()


def test_the_status_line_says_that_the_conversation_is_kept(client, model, memory):
    conversation(model, "first")
    settings = client.config / "settings.json"
    command = f"{shlex.quote(sys.executable)} -I -m crystal statusline"
    added = {"statusLine": {"type": "command", "command": command, "refreshInterval": 1}}
    settings.write_text(json.dumps({**json.loads(settings.read_text("utf-8")), **added}), "utf-8")
    with Terminal(client) as terminal:
        terminal.ask("the first thing", "About the first one.")
        memory.settle()
        terminal.wait_for(lambda: "crystal: kept" in terminal.screen(), "the status line")
        memory.crystal("--off")
        terminal.wait_for(lambda: "crystal: paused; resume: crystal --on" in terminal.screen(), "the pause")


def test_a_session_that_moves_to_another_folder_goes_on_where_it_stood(client, model, memory):
    other = client.home / "other"
    client.prepare(other)
    memory.crystal("init", "--yes")
    expected = conversation(model, "first", "second")
    try:
        with Terminal(client) as terminal:
            terminal.ask("the first thing", "About the first one.")
            was = client.transcripts()[0]
            terminal.type(f"/cd {other}")
            terminal.wait_for(lambda: not was.exists(), "the transcript to move")
            terminal.ask("the second thing", "About the second one.")
            terminal.leave()
    except NoClient as reason:
        pytest.skip(str(reason))
    memory.settle()
    assert memory.said() == said(*expected)
    assert memory.value("SELECT count(*) FROM capture_state") == 1
    memory.verify()
    assert memory.value("SELECT path FROM capture_state") == str(client.transcripts()[0])


@pytest.mark.usefixtures("_modern")
def test_what_was_said_until_escape_is_kept(client, model, memory, terminal):
    pause = Pause()
    expected = conversation(model, "next")
    model.when("a long tale", ["Once upon a time", pause, "there was nothing more."])
    terminal.type("a long tale")
    assert pause.reached.wait(30)
    terminal.wait_for(lambda: "esc to interrupt" in terminal.screen(), "the client to be at work")
    terminal.interrupt()
    pause.go.set()
    terminal.ask("the next thing", "About the next one.")
    terminal.leave()
    memory.settle()
    assert memory.said() == said(("user", "a long tale"), ("assistant", "Once upon a time"), *expected)
    memory.verify()


def test_two_times_control_c_keeps_what_was_said(client, model, memory, terminal):
    expected = conversation(model, "only")
    terminal.ask("the only thing", "About the only one.")
    terminal.press("C-c")
    terminal.wait_for(lambda: "again to exit" in terminal.screen(), "the client to ask for a second")
    # On a busy machine the client has stopped waiting for it by then, and takes it for a first one.
    terminal.wait_for(lambda: not terminal.is_alive() or terminal.press("C-c"), "the client's end")
    memory.settle()
    assert memory.said() == said(*expected)
    memory.verify()


def test_a_prompt_typed_while_the_agent_works_is_kept_once(client, model, memory, terminal):
    busy = Pause()
    model.when("begin the work", ["Working.", busy, Use("Bash", {"command": "echo tool-output"})], ["It is done."])
    model.when("mind the roof", ["The roof is fine."], ["The roof is fine."])
    terminal.type("begin the work")
    assert busy.reached.wait(30)
    terminal.type("mind the roof")
    terminal.wait_for_line(
        lambda line: line.get("type") == "queue-operation" and "mind the roof" in str(line.get("content"))
    )
    busy.go.set()
    terminal.wait_for_line(lambda line: line.get("type") == "assistant" and "The roof is fine." in json.dumps(line))
    terminal.wait_until_idle()
    terminal.leave()
    memory.settle()
    assert memory.texts("user") == ["begin the work", "mind the roof"]
    assert set(memory.said().values()) == {1}
    memory.verify()


def test_shell_commands_and_the_clients_own_are_nobodys_words(client, model, memory, terminal):
    expected = conversation(model, "only")
    model.when("<bash-input>", ["I saw the shell."])
    terminal.ask("the only thing", "About the only one.")
    terminal.type("!echo from-the-shell")
    terminal.wait_for_line(lambda line: "I saw the shell." in json.dumps(line.get("message")))
    terminal.wait_until_idle()
    terminal.type("/context")
    terminal.wait_for_line(lambda line: "<command-name>/context" in json.dumps(line))
    terminal.leave()
    memory.settle()
    assert memory.said() == said(*expected, ("assistant", "I saw the shell."))
    memory.verify()


def test_a_private_session_that_is_only_looked_at_again_leaves_nothing(client, model, memory):
    model.when("a private matter", ["Nobody will hear about it."])
    session = client.ask("a private matter", env={"CRYSTAL_PRIVATE": "1"}).session
    try:
        for arguments in (("--resume", session), ("--resume", session, "--fork-session")):
            with Terminal(client, *arguments) as terminal:
                terminal.wait_for(
                    lambda terminal=terminal: "Nobody will hear about it." in terminal.screen(), "the session"
                )
                terminal.leave()
    except NoClient as reason:
        pytest.skip(str(reason))
    memory.settle()
    memory.verify()
    assert memory.files_with("a private matter") == []
