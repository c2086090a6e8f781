"""What is said while capture is off is never captured: not by the hook, not by the sweep, not by backfill."""

from __future__ import annotations

from tests.e2e.client import Client, Stream
from tests.e2e.fake_anthropic import FakeAnthropic
from tests.support.whole_memory import Memory, said

SECRET, ANSWER = "a private matter of mine", "Nobody will hear about it."
OPEN = (("user", "an open matter"), ("assistant", "Everybody may hear about it."))


def teach(model: FakeAnthropic) -> None:
    model.when("private matter", [ANSWER])
    model.when("open matter", ["Everybody may hear about it."])


def assert_nothing_of_it_is_kept(memory: Memory, prompt: str = SECRET) -> None:
    memory.crystal("sync")
    memory.crystal("backfill")
    memory.verify()
    assert memory.files_with(prompt) == []
    assert memory.files_with(ANSWER) == []


def test_a_private_session_leaves_nothing_and_is_captured_from_where_it_goes_on(client, model, memory):
    teach(model)
    private = client.ask(SECRET, env={"CRYSTAL_PRIVATE": "1"})
    memory.settle()
    assert memory.said() == said()
    assert_nothing_of_it_is_kept(memory)
    client.ask("an open matter", "--resume", private.session)
    memory.settle()
    assert memory.said(private.session) == said(*OPEN)
    assert_nothing_of_it_is_kept(memory)


def test_a_fork_of_a_private_session_keeps_the_private_part_private(client, model, memory):
    teach(model)
    private = client.ask(SECRET, env={"CRYSTAL_PRIVATE": "1"})
    fork = client.ask("an open matter", "--resume", private.session, "--fork-session")
    memory.settle()
    assert memory.said(fork.session) == said(*OPEN)
    assert_nothing_of_it_is_kept(memory)


def test_off_and_on_around_whole_sessions(client: Client, model: FakeAnthropic, memory: Memory) -> None:
    teach(model)
    memory.crystal("--off")
    client.ask(SECRET)
    memory.settle()
    memory.crystal("--on")
    client.ask("an open matter")
    memory.settle()
    assert memory.said() == said(*OPEN)
    assert_nothing_of_it_is_kept(memory)


def test_off_and_on_in_the_middle_of_a_running_session(client: Client, model: FakeAnthropic, memory: Memory) -> None:
    teach(model)
    model.when("the first matter", ["About the first."])
    with Stream(client) as stream:
        stream.send("the first matter")
        stream.result()
        memory.crystal("--off")
        stream.send(SECRET)
        stream.result()
        memory.crystal("--on")
        stream.send("an open matter")
        stream.result()
        stream.end()
    memory.settle()
    assert memory.said() == said(("user", "the first matter"), ("assistant", "About the first."), *OPEN)
    assert_nothing_of_it_is_kept(memory)


def test_a_private_project_leaves_nothing(client: Client, model: FakeAnthropic, memory: Memory) -> None:
    teach(model)
    memory.crystal("config", "set", "private.projects", str(client.project))
    client.ask(SECRET)
    memory.settle()
    assert memory.said() == said()
    assert_nothing_of_it_is_kept(memory)


def test_a_private_span_is_cut_out_of_what_is_kept(client: Client, model: FakeAnthropic, memory: Memory) -> None:
    model.when("the dinner", ["Noted."])
    client.ask("the dinner is at <private>the house of Gretel</private> tomorrow")
    memory.settle()
    memory.verify()
    (kept,) = memory.texts("user")
    assert kept.startswith("the dinner is at ")
    assert kept.endswith(" tomorrow")
    assert memory.files_with("the house of Gretel") == []
