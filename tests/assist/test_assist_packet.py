"""What an agent is told of its own session: built without a model, ready before it is needed, never said twice."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.app.assist_replay import replay
from crystal.app.context import Machine, open_machine
from crystal.app.session_context import refresh
from crystal.assist.facts import SO_FAR, encode_facts
from crystal.assist.packet import MAX_TOKENS, packet_facts
from crystal.context.prepared import Rules, read_marks, write_contexts
from crystal.hook.assist import WORTH, is_in_summary, worth_telling
from crystal.reflect.statement_patterns import find_statement
from crystal.store.work.index import make_again
from crystal.work.cures import WorkStep
from tests.support.command import crystal
from tests.support.copied_hook import SESSION, START, Hook, unfenced
from tests.support.store_factory import add_turn
from tests.support.work_sessions import did

SHOP = "/home/dev/shop"
RULE = "From now on use three retries for the queue."
DONE = [
    WorkStep(1, 0, True, f"{SHOP}/worker.py", 1, 0),
    WorkStep(2, 0, False, "cd /x && make lint 2>&1 | tail -5", 2, 0), WorkStep(3, 0, False, "make lint", 2, 1),
    WorkStep(4, 0, False, "make test", 3, 1), WorkStep(5, 0, False, "make test", 3, 0),
    WorkStep(6, 0, False, "git log", 4, 0), WorkStep(7, 0, False, "git log", 4, 0), WorkStep(8, 0, False, "make once", 5, 1),
]  # fmt: skip
FACTS = packet_facts(["Build the mill.", "And now the dam?"], [RULE], DONE, SHOP)
BODIES = [fact.body for fact in FACTS]
RULES = Rules("/none", "-", {}, moments=("compaction", "subagent"), assist_tokens="2000")
COMPACT = {**START, "source": "compact"}
SUMMARY = {**START, "hook_event_name": "SubagentStop", "agent_type": "", "last_assistant_message": "They built."}
HELPER = {**START, "hook_event_name": "SubagentStart", "agent_id": "a57d", "agent_type": "general-purpose"}


@pytest.fixture
def door(tmp_path: Path) -> Hook:
    return Hook(tmp_path)


def lay(door: Hook, rules: Rules = RULES) -> Path:
    write_contexts(door.data, rules, [])
    path = door.data / "context" / f"{SESSION}.packet"
    path.write_bytes(encode_facts(SHOP, SO_FAR, FACTS, bytes(16), b"i"))
    return path


def tell(door: Hook, said: dict[str, Any], **env: str) -> list[str]:
    """The lines that the real hook tells, without the heading."""
    answer = (door.run(said, env=env) or {}).get("hookSpecificOutput")
    if answer is None:
        return []
    assert answer["hookEventName"] == said["hook_event_name"]
    head, *lines = unfenced(answer["additionalContext"]).split("\n")
    assert head.startswith("recalled, as data: crystal, of this session so far")
    return lines


def test_it_has_the_task_the_decisions_the_files_and_what_failed_or_worked() -> None:
    assert [
        'The user had asked first: "Build the mill.".',
        'Later the user had asked: "And now the dam?".',
        f'The user had said: "{RULE}".',
        'This command ran more than once here, and failed when it ran last: "make lint".',
        'This command ran more than once here, and succeeded when it ran last: "make test".',
        'Edited in this session: "worker.py".',
    ] == BODIES
    assert [WORTH in fact.told() for fact in FACTS] == [False, False, True, True, False, False]
    assert packet_facts([], [], [], SHOP) == []


def test_it_says_nothing_twice() -> None:
    rule = "We must never retry POST requests, because the bank charges twice."
    assert find_statement(rule) is not None
    said = [fact.body for fact in packet_facts([f"Add a retry. {rule} Begin now.", rule], [rule, RULE], [], SHOP)]
    assert said == [
        'The user had asked first: "Add a retry. Begin now.".',
        f'The user had said: "{rule}".',
        f'The user had said: "{RULE}".',
    ]


@given(st.lists(st.text(max_size=900)), st.lists(st.text(max_size=400)), st.lists(st.text(min_size=1, max_size=300)))
def test_it_is_short_and_each_line_is_one_line(asked: list[str], stated: list[str], paths: list[str]) -> None:
    done = [WorkStep(at, 0, True, path, at, 0) for at, path in enumerate(paths)]
    facts = packet_facts(asked, stated, done, SHOP)
    assert sum(int(fact.told()["tokens"]) for fact in facts) <= MAX_TOKENS
    assert all(len(fact.body.splitlines()) == 1 and "<crystal-memory" not in fact.body for fact in facts)


def test_a_damaged_packet_is_silence_at_once(door: Hook) -> None:
    path = lay(door)
    head, _, rest = path.read_bytes().partition(b"\n")
    number = b'"facts": "%d"' % len(FACTS)
    assert number in head
    for wrong in (b"999999999999", b"-1", b"x"):
        path.write_bytes(head.replace(number, b'"facts": "%s"' % wrong) + b"\n" + rest)
        assert tell(door, HELPER) == []


def test_after_a_compaction_it_is_told_once_without_what_the_summary_says(door: Hook) -> None:
    lay(door)
    assert tell(door, {**COMPACT, "session_id": "two"}) == []
    said = "Summary: the mill was to be built, and now the dam; `make test` ran, worker.py changed."
    assert door.run({**SUMMARY, "last_assistant_message": said}) is None
    assert tell(door, COMPACT) == [BODIES[2], BODIES[3]]
    (_, told), *_ = read_marks(door.data, 0)
    assert told is not None
    assert (told.why, len(told.chosen)) == ({"compaction": 2}, 2)
    assert tell(door, COMPACT) == []
    assert tell(door, HELPER) == BODIES  # another context, in which nothing of this was said
    assert tell(door, HELPER) == []


def test_it_is_made_again_while_a_long_turn_goes_on(door: Hook) -> None:
    edit = {**START, "hook_event_name": "PreToolUse", "tool_name": "Edit", "tool_input": {"file_path": f"{SHOP}/a.py"}}
    path = lay(door)
    for said, notes in ((edit, 0), ({**edit, "session_id": "new"}, 1)):
        assert door.run(said) is None
        assert len(door.notes) == notes
    os.utime(path, (1, 1))
    door.run(edit)
    assert [note["session_id"] for note in door.notes] == ["new", SESSION]
    lay(door, Rules("/none", "-", {}, moments=("edit", "failure"), assist_tokens="2000"))
    door.run({**edit, "session_id": "other"})
    door.run({**edit, "session_id": "other"}, env={"CRYSTAL_PRIVATE": "1"})
    lay(door, replace(RULES, private_folders=(f"{SHOP}/",)))
    door.run({**edit, "session_id": "private", "cwd": f"{SHOP}/"})
    assert len(door.notes) == 2


def test_no_worker_starts_for_an_agent_that_is_told_no_packet(door: Hook) -> None:
    lay(door)
    edit = {"file_path": f"{SHOP}/a.py", "old_str": "b", "new_str": "c"}
    for agent in ("gemini-cli", "copilot-cli", "pi", "codex"):
        said = {**START, "session_id": "new", "hook_event_name": "PreToolUse", "tool_input": edit}
        assert door.run(said, agent=agent) is None
    assert [note["harness"] for note in door.notes] == ["codex"]


def test_it_stands_beside_the_context_of_a_session_start(door: Hook) -> None:
    door.lay_ready({"default": "a memory"}, RULES)
    lay(door, RULES)
    door.lay_ready({"default": "a memory"}, RULES)
    text = door.run(COMPACT)["hookSpecificOutput"]["additionalContext"]
    assert text.count("<crystal-memory-") == 2
    assert text.index("a memory") < text.index(RULE)


QUIET: dict[str, dict[str, Any]] = {
    "another moment": {"moments": ("edit", "failure")},
    "no budget": {"assist_tokens": "5"},
    "a private folder": {"private_folders": (f"{SHOP}",)},
    "a private session": {"private_sessions": ("1f35",)},
    "capture is off": {"off": (SESSION,)},
    "new settings": {"stamp": "another"},
}


def test_what_the_rules_forbid_or_is_in_doubt_is_not_told(door: Hook) -> None:
    kept = {"config": "/none", "stamp": "-", "variables": {}, "moments": RULES.moments, "assist_tokens": "2000"}
    for name, rules in QUIET.items():
        lay(door, Rules(**{**kept, **rules}))
        assert (tell(door, COMPACT), tell(door, HELPER)) == ([], []), name
    path = lay(door)
    whole = path.read_bytes()
    for content in (b"", whole[:-3], whole[: len(whole) // 2], b"\0" * 99, whole.replace(b"{", b"[")):
        path.write_bytes(content)
        assert (door.run(SUMMARY), tell(door, COMPACT), tell(door, HELPER)) == (None, [], [])
    path.write_bytes(whole)
    for said in ({"session_id": "../x"}, {"cwd": 7}, {"cwd": "shop"}):
        assert tell(door, {**COMPACT, **said}) == []
    assert tell(door, COMPACT, CRYSTAL_PRIVATE="1") == tell(door, {**COMPACT, "source": "resume"}) == []
    assert tell(door, COMPACT) == BODIES


def test_a_packet_is_told_only_for_a_decision_or_a_failure() -> None:
    told = [fact.told() for fact in FACTS]
    assert worth_telling("compaction", told) == told
    assert worth_telling("subagent", [told[0], told[4]]) == []
    assert worth_telling("edit", [told[0]]) == [told[0]]


def test_a_summary_says_what_two_thirds_of_the_words_are_in() -> None:
    body = BODIES[2]
    assert is_in_summary(body, "use THREE retries from the (queue) now")
    assert not is_in_summary(body, "the queue has retries")
    assert is_in_summary('Edited in this session: "a/b.py".', "changed `a/b.py`:")
    assert not is_in_summary('Edited in this session: "a/b.py".', "")


# --- what the worker keeps ready


@pytest.fixture
def machine(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    monkeypatch.setenv("CRYSTAL_ASSIST_MODE", "on")
    monkeypatch.setenv("CRYSTAL_EMBEDDING_PROVIDER", "none")
    (home / ".claude" / "projects" / "p").mkdir(parents=True)
    with open_machine() as machine:
        yield machine


def work(machine: Machine, session: str, at: int) -> None:
    """The user states a rule, an agent edits, and a check fails twice with words that only the tool says."""
    add_turn(machine.store, RULE, ts=at, session=session, project=SHOP)
    add_turn(machine.store, "a task of the agent", ts=at, session=session, project=SHOP, subagent="a1")
    edit = {"file_path": f"{SHOP}/worker.py", "old_string": "x = 1", "new_string": "x = 3"}
    steps = [("Edit", edit, "updated"), *[("Bash", {"command": "make lint"}, "Exit code 1\nodious output")] * 2]
    for number, (tool, arguments, said) in enumerate(steps):
        did(machine.store, session, at + 10 * (number + 1), tool, arguments, said, SHOP)
    make_again(machine.store)


def ready(machine: Machine) -> dict[str, str]:
    folder = machine.places.data_dir / "context"
    return {path.stem: path.read_text("ascii") for path in folder.glob("*.packet")}


def test_the_packet_of_a_running_session_is_ready_and_goes_with_it(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = machine.now()
    work(machine, "old", now - 7_200_000)
    work(machine, "one", now - 1_000)
    refresh(machine)
    packets = ready(machine)
    assert list(packets) == ["one"]
    assert all(text in packets["one"] for text in (RULE, "worker.py", "make lint", "failed when it ran last"))
    assert not any(text in packets["one"] for text in ("odious", "a task of the agent", "x = 3"))
    path = machine.places.data_dir / "context" / "one.packet"
    assert path.stat().st_mode & 0o777 == 0o600
    assert crystal("forget", "--session", "one", "--yes").code == 0
    assert ready(machine) == {}
    work(machine, "two", now - 1_000)
    refresh(machine)
    assert list(ready(machine)) == ["two"]
    switched = [
        ("COMPACTION", "false", ["two"]),
        ("SUBAGENT", "false", []),
        ("SUBAGENT", "true", ["two"]),
        ("MODE", "off", []),
    ]
    for name, value, left in switched:
        monkeypatch.setenv(f"CRYSTAL_ASSIST_{name}", value)
        with open_machine() as again:
            refresh(again)
        assert list(ready(machine)) == left, name


def test_a_session_whose_id_names_another_file_has_no_packet(machine: Machine) -> None:
    for number, name in enumerate(["one", "é" * 128, "nul\0", "a" * 300, "../../evil"]):
        work(machine, name, machine.now() - 10_000 + number * 1_000)  # the latest comes first
    refresh(machine)
    assert list(ready(machine)) == ["one"]
    assert not [*machine.places.data_dir.parent.rglob("evil*")]


def test_a_replay_says_how_often_a_packet_was_told_and_used(machine: Machine) -> None:
    now = machine.now()
    work(machine, "one", now)
    place: dict[str, Any] = {"session": "one", "project": SHOP}
    add_turn(machine.store, "Go on.", ts=now + 500_000, **place)
    did(machine.store, "one", now + 500_010, "Agent", {"prompt": "look around"}, "worker.py is odd", SHOP)
    add_turn(machine.store, "They wrote code. make lint fails.", ts=now + 500_070, role="summary", **place)
    add_turn(machine.store, "I keep three retries in the queue.", ts=now + 500_080, role="assistant", **place)
    tallies = replay(machine)
    assert [(tallies[name].moments, tallies[name].with_fact, tallies[name].used) for name in ("compaction", "subagent")] == [
        (1, 1, 1), (1, 1, 1),
    ]  # fmt: skip
    assert "make lint" not in tallies["compaction"].told[0][1]
    found = json.loads(crystal("assist", "replay", "--json").out)
    assert found["compaction"]["used"] == found["subagent"]["used"] == 1
    assert "after a compaction: 1 compaction, 1 with a fact" in crystal("assist", "replay").out
