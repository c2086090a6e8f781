"""What a session is told reaches the model, once, and is never kept; a prompt that asks to remember is a memory."""

from __future__ import annotations

import json

from crystal.text.fence import HEADER
from tests.support.whole_memory import Memory, said, wait_until

OPEN = "<crystal-memory-"
FACT = "the staging server listens on port 8123"


def memories_of(memory: Memory) -> list[tuple[str, str]]:
    return [(one["text"], one["source"]) for one in json.loads(memory.crystal("memories", "--json"))["memories"]]


def told_to(memory: Memory, session: str, count: int) -> list[str]:
    """The sources for which a session was told something, once there are so many."""
    found: list[str] = []

    def is_noted() -> bool:
        entries = json.loads(memory.crystal("context", "--log", "--json"))["told"]
        found[:] = sorted(entry["source"] for entry in entries if entry["session_id"] == session)
        return len(found) >= count

    wait_until(is_noted, lambda: f"what was told: {found}", seconds=20)
    return found


def test_what_a_prompt_asks_to_remember_is_told_to_the_next_session_and_never_kept_again(client, model, memory):
    memory.crystal("config", "set", "context.enabled", "true")
    for words in ("Remember that", "a fresh start", "going on"):
        model.when(words, ["Noted."])
    client.ask(f"Remember that {FACT}")
    memory.settle()
    assert memories_of(memory) == [(FACT, "prompt")]
    assert not model.was_told(OPEN)

    second = client.ask("a fresh start")
    memory.settle()
    told = model.texts_sent()
    assert OPEN in told
    assert HEADER in told
    assert FACT in told
    assert told.count(HEADER) == 1
    assert told_to(memory, second.session, 1) == ["startup"]

    before = len(model.requests)
    client.ask("going on", "--resume", second.session)
    client.ask("going on", "--resume", second.session)
    memory.settle()
    assert told_to(memory, second.session, 2) == ["resume", "startup"]
    assert model.texts_sent(before).count(HEADER) <= 2  # the one of its start, in its history, and that of resuming
    assert model.texts_sent().count(HEADER) <= 2  # not told again

    assert memory.said() == said(
        ("user", f"Remember that {FACT}"),
        ("assistant", "Noted."),
        ("user", "a fresh start"),
        ("assistant", "Noted."),
        *[("user", "going on"), ("assistant", "Noted.")] * 2,
    )
    memory.verify()
    archives = {path for path in memory.bytes_on_disk() if path.suffix == ".zst" or ".zst" in path.name}
    assert archives
    assert not archives & set(memory.files_with(HEADER))
    assert archives & set(memory.files_with("[recalled]"))


def test_private_sessions_are_told_nothing_and_remember_nothing(client, model, memory):
    memory.crystal("config", "set", "context.enabled", "true")
    memory.crystal("remember", "tabs are for indenting")
    model.when("emember that", ["Noted."])
    client.ask(f"remember that {FACT}", env={"CRYSTAL_PRIVATE": "1"})
    memory.settle()
    assert not model.was_told(HEADER)
    assert [text for text, _ in memories_of(memory)] == ["tabs are for indenting"]
    assert memory.files_with(FACT) == []
