"""Sessions that end badly, and sessions that are brought back."""

from __future__ import annotations

import json
import os
import shutil
import signal

from tests.e2e.client import Client, Stream, kill
from tests.e2e.fake_anthropic import FakeAnthropic, Pause, Think, Use
from tests.support.whole_memory import Memory, said, wait_until


def test_after_sigkill_the_sweep_finds_what_no_hook_told_of(client, model, memory):
    pause = Pause()
    model.when("work hard", ["First step.", Use("Bash", {"command": "echo step-one"})], ["Second", pause, " step."])
    process = client.start("work hard")
    assert pause.reached.wait(30)
    wait_until(
        lambda: any("step-one" in str(line.get("toolUseResult")) for line in client.lines()), "the tool's result"
    )
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    kill(process)
    memory.settle()
    memory.crystal("sync")
    assert memory.said() == said(
        ("user", "work hard"),
        ("assistant", "First step."),
        ("tool_call", "Bash: echo step-one"),
        ("tool_result", "step-one"),
    )
    memory.verify()


def test_a_killed_session_is_found_by_the_start_of_the_next(client, model, memory):
    pause = Pause()
    model.when("work hard", ["Never finished", pause])
    model.when("hello again", ["Hello."])
    process = client.start("work hard")
    assert pause.reached.wait(30)
    wait_until(lambda: any(line.get("type") == "user" for line in client.lines()), "the prompt to be written")
    os.killpg(process.pid, signal.SIGKILL)
    kill(process)
    client.ask("hello again")
    memory.settle()
    assert memory.said() == said(("user", "work hard"), ("user", "hello again"), ("assistant", "Hello."))
    memory.verify()


def test_a_terminated_session_is_kept_by_its_last_hook(client: Client, model: FakeAnthropic, memory: Memory) -> None:
    pause = Pause()
    model.when("work hard", ["Never finished", pause])
    process = client.start("work hard")
    assert pause.reached.wait(30)
    wait_until(lambda: any(line.get("type") == "user" for line in client.lines()), "the prompt to be written")
    process.terminate()
    process.wait(timeout=30)
    kill(process)
    memory.settle()
    assert memory.said() == said(("user", "work hard"))
    memory.verify()


def test_a_deleted_session_is_restored_and_really_goes_on(client: Client, model: FakeAnthropic, memory: Memory) -> None:
    model.when(
        "remember the number", [Think("Easy."), "It is 4711.", Use("Bash", {"command": "echo noted"})], ["Noted."]
    )
    model.when("which number", ["4711 of course."])
    model.when("thank you", ["You are welcome."])
    session = client.ask("remember the number 4711").session
    memory.settle()
    memory.crystal("sync")
    shutil.rmtree(client.config / "projects")
    memory.crystal("restore", session)
    answer = client.ask("which number was it", "--resume", session)
    assert (answer.session, answer.text) == (session, "4711 of course.")
    sent = model.texts_sent()
    assert all(words in sent for words in ("remember the number 4711", "It is 4711.", "echo noted", "Noted.")), sent
    client.ask("thank you", "--resume", session)
    memory.settle()
    assert memory.said() == said(
        ("user", "remember the number 4711"),
        ("thinking", "Easy."),
        ("assistant", "It is 4711."),
        ("tool_call", "Bash: echo noted"),
        ("tool_result", "noted"),
        ("assistant", "Noted."),
        ("user", "which number was it"),
        ("assistant", "4711 of course."),
        ("user", "thank you"),
        ("assistant", "You are welcome."),
    )
    memory.verify()


def test_sessions_from_before_crystal_are_not_replayed_and_backfill_imports_them(client, model):
    model.when("long ago", ["That was then."])
    model.when("right now", ["This is now."])
    model.when("go on", ["Going on."])
    old = client.ask("long ago")
    memory = Memory(client.home, client.env())
    memory.crystal("init", "--yes")
    client.ask("right now")
    memory.settle()
    now = [("user", "right now"), ("assistant", "This is now.")]
    assert memory.said() == said(*now)
    client.ask("go on", "--resume", old.session)
    memory.settle()
    now += [("user", "go on"), ("assistant", "Going on.")]
    assert memory.said() == said(*now)
    memory.crystal("backfill")
    assert memory.said() == said(*now, ("user", "long ago"), ("assistant", "That was then."))
    memory.verify()


def test_three_clients_in_one_session_at_once_are_all_kept(client, model, memory):
    names = ("one", "two", "three")
    model.when("the beginning", ["Begun."])
    for name in names:
        model.when(f"question {name}", [f"Answer {name}."])
    session = client.ask("the beginning").session
    processes = [client.start(f"question {name}", "--resume", session) for name in names]
    for process in processes:
        process.communicate(timeout=60)
    memory.settle()
    assert memory.said(session) == said(
        ("user", "the beginning"),
        ("assistant", "Begun."),
        *(("user", f"question {name}") for name in names),
        *(("assistant", f"Answer {name}.") for name in names),
    )
    memory.verify()


def test_where_the_hook_waits_everything_is_kept_when_the_client_ends(client, model, memory):
    model.when("a container", ["It vanishes at once."])
    client.ask("in a container", env={"CRYSTAL_HOOK_WAIT": "1"})
    assert memory.said() == said(("user", "in a container"), ("assistant", "It vanishes at once."))


def test_a_session_that_is_not_to_be_saved_is_no_error(client: Client, model: FakeAnthropic, memory: Memory) -> None:
    model.when("leave no trace", ["None."])
    client.ask("leave no trace", "--no-session-persistence")
    memory.settle()
    assert memory.said() == said()
    memory.verify()
    assert json.loads(memory.crystal("status", "--json"))["problems"] == []


def test_a_compacted_session_with_a_subagent_is_restored_and_goes_on(client, model, memory):
    task = {"description": "count stones", "prompt": "helper-task count", "subagent_type": "general-purpose"}
    model.when("send a helper", ["I will.", Use("Agent", task)], ["It is on its way."])
    model.when("helper-task", ["There are seven stones."])
    model.when("<task-notification>", ["The helper says seven."])
    model.when("detailed summary of", ["<analysis>x</analysis><summary>They counted stones.</summary>"])
    model.when("and now", ["Now we rest."])
    model.when("after the loss", ["Nothing is lost."])
    with Stream(client) as stream:
        for prompt in ("send a helper", "/compact", "and now"):
            stream.send(prompt)
            while not stream.result() and prompt != "/compact":
                pass
        stream.end()
    memory.settle()
    memory.crystal("sync")
    before, session = memory.said(), client.transcripts()[0].stem
    shutil.rmtree(client.config / "projects")
    memory.crystal("restore", session)
    client.ask("after the loss", "--resume", session)
    assert "They counted stones." in model.texts_sent()
    assert "Now we rest." in model.texts_sent()
    memory.settle()
    assert memory.said() == before + said(("user", "after the loss"), ("assistant", "Nothing is lost."))
    memory.verify()


def test_a_restored_session_holds_nothing_of_what_was_private_and_goes_on(client, model, memory):
    for key in ("open one", "hidden two", "open three", "go on"):
        model.when(key, [f"Answer to {key}."])
    session = client.ask("open one").session
    client.ask("hidden two", "--resume", session, env={"CRYSTAL_PRIVATE": "1"})
    client.ask("open three", "--resume", session)
    memory.settle()
    memory.crystal("sync")
    shutil.rmtree(client.config / "projects")
    memory.crystal("restore", session)
    client.ask("go on", "--resume", session)
    sent = model.texts_sent()
    assert all(words in sent for words in ("open one", "Answer to open one.", "open three", "Answer to open three."))
    assert "hidden two" not in sent
    memory.settle()
    memory.verify()
    assert memory.files_with("hidden two") == []
