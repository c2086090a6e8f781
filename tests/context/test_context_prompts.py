"""What a prompt asks to remember, and what is forgotten is told no more."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crystal import worker
from crystal.app.capture_switch import turn_off, turn_on
from crystal.app.context import Machine, open_machine
from crystal.app.forget import execute_plan, plan_forget
from crystal.app.memories import remember
from crystal.app.memory_changes import edit
from crystal.app.session_context import refresh
from crystal.forgetting.request import ForgetRequest
from crystal.hook import event as hook
from crystal.store import problems
from crystal.store.memories import memories
from tests.support.capture_machine import NOW, line
from tests.support.command import crystal
from tests.support.context_machine import QUARTZ, say, told

# --- what a prompt asks to remember


def ask(machine: Machine, prompt: str, *, session: str = "s1", cwd: str | None = QUARTZ, times: int = 1) -> str:
    """Leave the notes that the hook leaves, and let the worker act on them; gives the id that the user is told."""
    spool = machine.places.spool
    spool.mkdir(parents=True, exist_ok=True)
    for _ in range(times):
        said: dict[str, object] = {
            "hook_event_name": "UserPromptSubmit", "session_id": session, "cwd": cwd, "prompt": prompt
        }  # fmt: skip
        asked = hook.asked_to_remember(said, {})
        hook._write_note(str(spool.parent), said, {}, machine.now() * 1_000_000, asked)
    worker.main()
    return "" if asked is None else str(asked["id"])


def remembered(machine: Machine) -> list[tuple[str, str | None, str, str | None]]:
    return [(one.text, one.cwd, one.source, one.session_id) for one in memories.all_memories(machine.store)]


@pytest.mark.slow
def test_a_prompt_that_asks_is_a_memory_of_its_project_at_once(machine: Machine) -> None:
    ask(machine, "Remember: we deploy\n\non Fridays\n")
    ask(machine, "记住：所有提交都要签名")
    assert sorted(remembered(machine)) == [
        ("we deploy\n\non Fridays", QUARTZ, "prompt", "s1"),
        ("所有提交都要签名", QUARTZ, "prompt", "s1"),
    ]
    assert list(machine.places.spool.glob("*.json")) == []


@pytest.mark.slow
def test_two_hooks_and_a_second_time_make_one_memory(machine: Machine) -> None:
    first = ask(machine, "remember everywhere: tabs", times=2)
    second = ask(machine, "remember everywhere: tabs", session="s2")
    assert remembered(machine) == [("tabs", None, "prompt", "s1")]
    for ident in (first, second):  # whichever the user was told, it is known
        assert crystal("memories", "deprecate", ident).code == 0
        assert crystal("memories", "restore", ident).code == 0
    (one,) = memories.all_memories(machine.store)
    execute_plan(machine, plan_forget(machine, ForgetRequest(targets=(one.id,))))
    assert machine.store.rows("SELECT key FROM meta WHERE value = ?", (one.id,)) == []


@pytest.mark.parametrize(
    "begin", ["From now on, remember: ", "pls remember this: ", "/remember ", "\u8bf7\u8bb0\u4f4f\uff1a"]
)
def test_forgetting_a_memory_takes_the_prompt_that_asked_for_it(machine: Machine, begin: str) -> None:
    say(machine, "s1", line(f"{begin}tabs"), line("I remember that tabs are ugly"))
    one = remember(machine, "tabs", source="prompt", session="s1")
    plan = plan_forget(machine, ForgetRequest(targets=(one.id,)))
    assert [item.text for item in plan.items if item.kind == "line"] == [f"{begin}tabs"]


@pytest.mark.slow
def test_the_id_that_the_user_was_told_is_the_memorys_also_when_the_note_is_read_twice(machine: Machine) -> None:
    ident = ask(machine, "remember this: tabs")
    edit(machine, ident, text="spaces")
    remember(machine, "tabs", ident=ident)  # a worker was killed before it removed the note
    assert [(one.id, one.text) for one in memories.all_memories(machine.store)] == [(ident, "spaces")]


@pytest.mark.slow
def test_where_something_may_be_private_the_hook_is_told(machine: Machine) -> None:
    mark = machine.places.data_dir / "private"
    for change, is_there in ((lambda: turn_off(machine, None), True), (lambda: turn_on(machine, None), False)):
        change()
        assert mark.exists() == is_there
    assert crystal("config", "set", "private.projects", "/srv/*").code == 0
    assert mark.exists()


@pytest.mark.slow
def test_secrets_and_private_spans_are_taken_out_first(machine: Machine) -> None:
    ask(machine, "remember this: DB_PASSWORD=hunter2 of <private>Ada Lovelace</private> is old")
    ((text, *_),) = remembered(machine)
    assert "hunter2" not in text
    assert "Ada" not in text
    assert "[private] is old" in text
    ask(machine, "remember this: <private>nothing of this</private>")
    assert len(remembered(machine)) == 1
    assert list(machine.places.spool.glob("*.json")) == []


@pytest.mark.slow
def test_a_character_that_no_text_has_loses_nothing_else(machine: Machine) -> None:
    ask(machine, "remember this: tabs \0 and \ud83d spaces")
    assert [text for text, *_ in remembered(machine)] == ["tabs \ufffd and ? spaces"]


@pytest.mark.slow
def test_what_is_too_long_is_said_and_not_kept(machine: Machine) -> None:
    ask(machine, "remember this: " + "long words " * 1000)
    assert remembered(machine) == []
    problem = problems.find_problem(machine.store, "remember")
    assert problem is not None
    assert problem.message == "a prompt asked to remember 10,999 characters, a memory has at most 8,000"
    ask(machine, "remember this: tabs")
    assert problems.find_problem(machine.store, "remember") is None


@pytest.mark.slow
def test_nothing_is_remembered_where_nothing_is_kept(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = "0b7d2a4e-6d0a-4c55-9e5f-0d1c2b3a4f50"
    turn_off(machine, closed)
    ask(machine, "remember this: a", session=closed)
    monkeypatch.setenv("CRYSTAL_PRIVATE_PROJECTS", "/home/dev/*")
    monkeypatch.setenv("CRYSTAL_PRIVATE_SESSIONS", "hush*")
    ask(machine, "remember this: b")
    ask(machine, "remember this: c", cwd=None)
    ask(machine, "remember this: d", cwd="/srv", session="hush-1")
    turn_off(machine, None)
    ask(machine, "remember this: e", cwd="/srv")
    turn_on(machine, None)
    assert remembered(machine) == []
    assert list(machine.places.spool.glob("*.json")) == []
    ask(machine, "remember this: f", cwd="/srv")
    assert [text for text, *_ in remembered(machine)] == ["f"]


@pytest.mark.slow
@pytest.mark.parametrize("asked", [5, {}, {"words": 3, "length": 1}, {"words": "x", "length": "1"}, {"length": True}])
def test_a_note_that_was_tampered_with_stores_nothing(machine: Machine, asked: object) -> None:
    machine.places.spool.mkdir(parents=True)
    note = {"v": 1, "at": NOW, "event": "UserPromptSubmit", "session_id": "s", "cwd": QUARTZ, "remember": asked}
    (machine.places.spool / "01795000000000000000-1-x.json").write_text(json.dumps(note))
    worker.main()
    assert remembered(machine) == []
    assert list(machine.places.spool.glob("*.json")) == []


@pytest.mark.slow
def test_setting_it_makes_it_ready_at_once(home: Path) -> None:
    with open_machine() as machine:
        remember(machine, "tabs")
        folder = machine.places.data_dir / "context"
        assert not folder.exists()
        assert crystal("config", "set", "context.enabled", "true").code == 0
        assert "tabs" in (told(machine, CRYSTAL_CONTEXT_ENABLED="") or "")
        crystal("config", "set", "search.limit", "20")
        assert told(machine, CRYSTAL_CONTEXT_ENABLED="")
        crystal("config", "unset", "context.enabled")
        assert not folder.exists()


@pytest.mark.slow
def test_what_is_forgotten_is_told_no_more_at_once(machine: Machine) -> None:
    say(machine, "s1", line("fix the slate roof"))
    say(machine, "s2", line("paint the door"))
    one = remember(machine, "basalt is black", project=QUARTZ)
    remember(machine, "marble is white", project=QUARTZ)
    refresh(machine)
    for wish in (ForgetRequest(targets=(one.id,)), ForgetRequest(session="s1")):
        execute_plan(machine, plan_forget(machine, wish))
    text = told(machine) or ""
    assert "marble" in text
    assert "paint the door" in text
    assert "basalt" not in text
    assert "slate" not in text
    ready = b"".join(path.read_bytes() for path in (machine.places.data_dir / "context").iterdir())
    assert b"basalt" not in ready
    assert b"slate" not in ready


@pytest.mark.slow
def test_purging_takes_it_too(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRYSTAL_CONTEXT_ENABLED", "1")
    assert crystal("init", "--yes").code == 0
    with open_machine() as machine:
        remember(machine, "tabs")
        assert told(machine)
    assert crystal("uninstall", "--purge", "--yes").code == 0
    assert not (home / ".ldm" / "memory").exists()
