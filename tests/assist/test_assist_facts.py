"""What is gathered from past sessions for each project, when it goes again, and what a replay says of it."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crystal.app.assist import facts_in, refresh_facts
from crystal.app.assist_replay import replay
from crystal.app.background import enrich
from crystal.app.context import Machine, open_machine
from crystal.app.session_context import refresh
from crystal.app.session_context_content import LOCK
from crystal.app.used_afterwards import is_used
from crystal.assist.decisions import find_reason
from crystal.assist.facts import Fact, Known, edited, encode_facts, failure_fact
from crystal.assist.replay import Moment, common_words, replay_moments
from crystal.capture.lock import try_lock
from crystal.config.edit import set_value
from crystal.errors import StoreDamagedError
from crystal.hook.assist import MOMENTS
from crystal.hook.matching import plain_error
from crystal.hook.session_start import context_file
from crystal.store.forget.forgetting import add_tombstones, make_tombstone
from crystal.store.work.index import make_again
from tests.support.command import crystal
from tests.support.store_factory import NOW, add_turn
from tests.support.work_sessions import ERROR, cured, did

SHOP = "/a/shop"
LINE = "RETRIES = 3  # attempts for each message"
REASON = "I keep three because the queue drops a message after the fourth attempt."
EDIT = {"file_path": f"{SHOP}/worker.py", "old_string": "x = 1", "new_string": LINE}


@pytest.fixture
def machine(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    monkeypatch.setenv("CRYSTAL_ASSIST_MODE", "on")
    monkeypatch.setenv("CRYSTAL_DEVICE", "desk")
    monkeypatch.setenv("CRYSTAL_EMBEDDING_PROVIDER", "none")
    (home / ".claude" / "projects" / "p").mkdir(parents=True)
    with open_machine() as machine:
        yield machine


def decide(machine: Machine, session: str, at: int, reason: str = REASON, folder: str = SHOP) -> None:
    """A session in which the user asks, and the agent gives a reason and edits."""
    for role, text in (("user", "how often do we retry?"), ("assistant", reason)):
        add_turn(machine.store, text, ts=at, role=role, uuid=f"{session}-{role}", session=session, project=folder)
    did(machine.store, session, at + 2, "Edit", EDIT, "updated", folder)
    make_again(machine.store)


def ready(machine: Machine, folder: str = SHOP) -> Path:
    return machine.places.data_dir / "context" / f"{context_file(folder)}.facts"


def bodies(machine: Machine) -> list[str]:
    """What may be told in the shop."""
    lines = ready(machine).read_bytes().split(b"\n")
    return [json.loads(line)["body"] for line in lines[1 : 1 + int(json.loads(lines[0])["facts"])]]


def make_old(path: Path) -> None:
    os.utime(path, (1, 1))


def make_ready(machine: Machine) -> None:
    ready(machine).unlink(missing_ok=True)
    refresh(machine)
    refresh_facts(machine, lambda: None)


def test_what_was_decided_failed_and_cured_is_ready_for_its_project(machine: Machine) -> None:
    decide(machine, "one", NOW)
    cured(machine.store, "two", NOW + 1_000, new="    total = int(a) + b")
    make_ready(machine)
    told = bodies(machine)
    assert any(REASON in text and "how often do we retry?" in text and "(session one)" in text for text in told)
    assert any("When cart.py had been edited" in text and "make test" in text for text in told)
    assert any('the agent edited cart.py, adding "total = int(a) + b"; then it succeeded' in text for text in told)
    assert any('the agent ran "pip install pyyaml"' in text for text in told)
    assert ERROR.format(NOW)[20:40] not in "".join(told)  # no output of a tool
    assert ready(machine).stat().st_mode & 0o777 == 0o600
    assert LINE.encode() not in ready(machine).read_bytes()
    before = ready(machine).read_bytes()
    refresh_facts(machine, lambda: None)
    assert ready(machine).read_bytes() == before  # it is young
    assert "assist.mode" in crystal("config").out


def test_of_a_file_that_was_edited_twice_the_line_is_told_alone(machine: Machine) -> None:
    path, run = f"{SHOP}/cart.py", {"command": "make test"}
    edits = [{"file_path": path, "old_string": "", "new_string": line} for line in ("b = 1", "total = int(a) + b")]
    steps = [("Bash", run, ERROR.format(NOW)), *(("Edit", one, "updated") for one in edits), ("Bash", run, "3 passed")]
    for number, step in enumerate(steps):
        did(machine.store, "two", NOW + 10 * number, *step, SHOP)
    make_again(machine.store)
    make_ready(machine)
    (told,) = (text for text in bodies(machine) if "was cured here" in text)
    assert '(session two): the agent edited cart.py, adding "total = int(a) + b"; then it succeeded.' in told


def test_it_goes_with_the_switch_with_forgetting_and_from_private_folders(machine: Machine) -> None:
    decide(machine, "one", NOW)
    make_ready(machine)
    assert any(REASON in text for text in bodies(machine))
    assert crystal("forget", "--session", "one", "--yes").code == 0
    assert not ready(machine).exists() or not bodies(machine)
    assert crystal("forget", "--session", "one", "--prove").code in (0, 1)
    make_ready(machine)
    assert not ready(machine).exists() or not bodies(machine)
    decide(machine, "three", NOW + 5_000)
    make_ready(machine)
    assert bodies(machine)
    set_value(machine.places.config_file, "private.projects", [SHOP])
    make_old(ready(machine))
    with open_machine() as private:
        refresh(private)
        refresh_facts(private, lambda: None)
    assert not ready(machine).exists()


def test_it_is_made_again_when_it_is_old_and_nobody_waits_for_that(machine: Machine) -> None:
    decide(machine, "one", NOW)
    make_ready(machine)
    decide(machine, "two", NOW + 9_000, REASON.replace("three", "nine"))
    refresh_facts(machine, lambda: None)
    assert not any("nine" in text for text in bodies(machine))
    make_old(ready(machine))
    free = list[bool]()

    def look() -> None:
        with try_lock(machine.places.data_dir / LOCK) as held:
            free.append(held is not None)

    refresh_facts(machine, look)
    assert any("nine" in text for text in bodies(machine))
    assert free == [True]


def test_lines_are_told_only_of_the_edit_that_wrote_them_last_in_their_file(machine: Machine) -> None:
    decide(machine, "one", NOW)

    def told(path: str, lines: str, at: int = 1 << 60) -> str:
        make_again(machine.store)
        given = {"file_path": path, "old_string": lines}
        ((_, facts),) = replay_moments(
            [Moment("edit", at, "x", given)], Known(facts_in(machine.store, "local", [1])), 999
        )
        return " ".join(fact["session"] for fact in facts)

    other = {**EDIT, "file_path": f"{SHOP}/test/worker.py", "new_string": "queue.drain(until=None)"}
    assert told("worker.py", LINE) == "one"
    assert (told("test/worker.py", LINE), told("worker.py", f"{LINE}\nlimit = seven\nbase = twelve")) == ("", "")
    did(machine.store, "two", NOW + 50, "Edit", other, "updated", SHOP)  # another file, and no reason
    assert told("worker.py", LINE) == "one"
    did(machine.store, "two", NOW + 60, "Edit", {**EDIT, "new_string": f"{LINE}\nx = 12"}, "updated", SHOP)
    assert told("worker.py", LINE) == ""  # who wrote it now gave no reason
    assert told("worker.py", LINE, NOW + 55) == "one"
    decide(machine, "three", NOW + 70)
    assert told("worker.py", LINE) == "three"
    did(machine.store, "four", NOW + 80, "Edit", {**EDIT, "file_path": f"{SHOP}/b.py"}, "updated", SHOP)
    assert told("worker.py", LINE) == ""  # a line of several files


def test_what_is_forgotten_while_it_is_gathered_is_never_written(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide(machine, "one", NOW)
    make_ready(machine)
    written = list[bytes]()
    monkeypatch.setattr("crystal.app.assist.write_derived", lambda _, content: written.append(content))

    def made(*given: Any) -> bytes:
        for step in steps:
            step()
        return encode_facts(*given)

    monkeypatch.setattr("crystal.app.assist.encode_facts", made)
    mark = [make_tombstone("session", {"session": "one"}, None, NOW, "desk", NOW, NOW)]

    def block() -> None:
        with machine.store.transaction():
            add_tombstones(machine.store, mark, NOW)

    steps = list[Callable[[], object]]()
    for steps[:] in ([block], [], [lambda: crystal("forget", "--session", "one", "--yes")]):
        make_old(ready(machine))  # blocked meanwhile; blocked before and not deleted yet; deleted meanwhile
        refresh_facts(machine, lambda: None)
        assert not ready(machine).exists()
        assert written == []
        ready(machine).touch()


def test_another_repository_of_the_same_name_tells_nothing_here(machine: Machine) -> None:
    decide(machine, "one", NOW)
    decide(machine, "two", NOW + 9_000, REASON.replace("three", "nine"), "/b/shop")
    make_ready(machine)
    assert ["nine" in text for text in bodies(machine)] == [False]
    assert replay(machine)["edit"].with_fact == 0


def test_a_full_disk_is_told_and_stops_nothing_else(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    decide(machine, "one", NOW)
    make_ready(machine)
    make_old(ready(machine))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("crystal.app.assist.write_derived", full)
    (problem,) = enrich(machine, budget_seconds=5)
    assert "no space left" in problem


def test_switched_off_no_file_is_left(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    decide(machine, "one", NOW)
    make_ready(machine)
    with open_machine() as on:
        assert on.config.tells_at_start
    assert ready(machine).with_suffix("").exists()  # the context of a session's start
    no_moment = {f"ASSIST_{name.upper()}": "false" for name in MOMENTS.values()}
    all_off = {"ASSIST_MODE": "on", "CONTEXT_ENABLED": "false", **no_moment}
    for variables in ({"ASSIST_MODE": "off"}, {"ASSIST_MODE": "ask"}, all_off):
        for name, value in variables.items():
            monkeypatch.setenv(f"CRYSTAL_{name}", value)
        with open_machine() as off:
            assert off.config.assist_moments == ()
            refresh(off)
        assert list(machine.places.data_dir.glob("context/*")) == []


def test_a_replay_counts_what_another_session_used_afterwards(machine: Machine) -> None:
    decide(machine, "one", NOW)
    change = {"file_path": f"{SHOP}/worker.py", "old_string": LINE, "new_string": "RETRIES = 9"}
    did(machine.store, "two", NOW + 10_000, "Edit", change, "updated", SHOP)
    said = "The queue drops messages, so I undo it."
    add_turn(machine.store, said, ts=NOW + 11_000, role="assistant", session="two", project=SHOP)
    did(machine.store, "one", NOW + 12_000, "Edit", change, "updated", SHOP)  # its own words are not told it
    make_again(machine.store)
    tally = replay(machine)["edit"]
    assert (tally.moments, tally.with_fact, tally.used, tally.unused_share) == (3, 1, 1, 0.0)
    assert replay(machine, lambda session: session == "one")["edit"].with_fact == 0
    found = json.loads(crystal("assist", "replay", "--json").out)
    assert [found["edit"][name] for name in ("moments", "with_fact", "used", "unused_share")] == [3, 1, 1, 0.0]
    assert found["edit"]["facts"][0]["session"] == "two"
    with pytest.MonkeyPatch.context() as agent:
        agent.setenv("CLAUDECODE", "1")
        assert crystal("assist", "replay", "--show").out.startswith("<crystal-memory-")
    done = crystal("assist", "replay", "--show")
    assert "with a prompt: 1 prompt, none with a fact" in done.out
    assert "before an edit: 3 edits, 1 with a fact, 1 used, 0 not used (0.0 % of all)" in done.out
    assert "after a failed command: no failed command yet" in done.out
    assert REASON in done.out


def test_a_replay_of_a_damaged_store_says_so_and_what_to_do(machine: Machine) -> None:
    decide(machine, "one", NOW)
    machine.store.execute("PRAGMA foreign_keys = OFF")
    for table, words in (("chunks", "1 turns have no text"), ("projects", "rows that are gone")):
        machine.store.execute("BEGIN")
        machine.store.execute(f"DELETE FROM {table}")
        with pytest.raises(StoreDamagedError, match=words) as raised:
            replay(machine)
        machine.store.execute("ROLLBACK")
        assert raised.value.hint == "run: crystal verify --repair"
    assert replay(machine)["edit"].moments == 1
    add_turn(machine.store, "Bash: make", ts=NOW, role="tool_call", tool="Bash")
    assert "1 calls and results are not indexed yet" in crystal("assist", "replay").err


def test_nothing_of_the_future_and_nothing_of_its_own_is_told() -> None:
    fact = Fact((("error", plain_error("no such table in here")),), 10, "one", "words")
    moments = [Moment("failure", at, session, "no such table in here") for at, session in
               ((9, "a"), (10, "b"), (11, "one"), (11, "c"), (12, "c"), (20, "d"), (21, "e"))]  # fmt: skip
    told = [(moment.at, moment.session) for moment, facts in replay_moments(moments, Known([fact]), 100) if facts]
    assert told == [(11, "c"), (20, "d"), (21, "e")]
    assert not any(facts for _, facts in replay_moments(moments, Known([fact]), 1))  # more than the budget


def test_new_names_or_two_new_words_count_as_use() -> None:
    def used(told: str, before: str, after: str) -> bool:
        return is_used(told.split(), before.split(), after.split())

    assert used("a.py", "", "a.py")
    assert not used("a.py", "a.py", "a.py")
    assert not used("queue", "", "queue")
    assert used("queue drops", "", "drops queue")
    assert common_words([{"a"}, {"a", "b"}, {"a", "b"}, {"a", "b"}, *[set()] * 10]) == {"a"}


def test_of_a_cure_the_line_that_has_words_of_the_error_is_told() -> None:
    lines = ["import os", "  total = float(total)", "x"]
    assert edited("cart.py", lines, "cannot add str to int in total") == (
        'the agent edited cart.py, adding "total = float(total)"'
    )
    assert edited("cart.py", [], "") == edited("cart.py", ["x"], "total") == "", "a file alone cures nothing"


REASONS = {
    REASON: REASON,
    f"Sure. {REASON} Now I edit it.": REASON,
    "I use a lock here because two workers may write at once!": "I use a lock here because two workers may write at once!",
    "I edit the file now.": None,
    "The issue is that with `Timeout: 5 * time.Second` the queue is cut. Now I edit:": "The issue is that with `Timeout: 5 * time.Second` the queue is cut.",
    "The issue is this: the queue drops a message because it is full.": "The issue is this: the queue drops a message because it is full.",
    "The issue is that with `ShutdownTimeout:\n5 * time.Second` it ends too early": None,
    "It fails because of what this function returns here:": None,
    "Is it because of the queue that it fails here again?": None,
    "- because a list entry is not a sentence of its own": None,
    "Let me check whether it fails because of the queue or not.": None,
    "because": None,
    "": None,
}


def test_only_a_sentence_that_gives_a_reason_is_one() -> None:
    assert {text: find_reason(text) for text in REASONS} == REASONS
    assert find_reason(None) is None


def test_a_session_is_told_once_of_a_command_that_failed_whatever_the_file() -> None:
    files = ("a.py", "b.py")
    facts = [
        failure_fact(file, f"make lint{end}", 1, "one", "2026-11-20")
        for file, end in zip(files, ("", " 2>&1"), strict=True)
    ]
    moments = [Moment("edit", 2 + at, "two", {"file_path": file}) for at, file in enumerate(files)]
    assert [len(told) for _, told in replay_moments(moments, Known(facts), 1_000)] == [1, 0]


@pytest.mark.parametrize(("key", "value"), [("agents.codex.isolated", "true"), ("private.projects", SHOP)])
def test_what_was_gathered_goes_at_once_when_it_is_hidden(machine: Machine, key: str, value: str) -> None:
    decide(machine, "one", NOW)
    machine.store.execute("UPDATE sessions SET harness = 'codex'")
    make_ready(machine)
    assert bodies(machine)
    assert crystal("config", "set", key, value).code == 0
    assert not ready(machine).exists()
    refresh(machine)  # by one who has read the settings before
    refresh_facts(machine, lambda: None)
    assert not ready(machine).exists()
    with open_machine() as now:
        refresh(now)
        refresh_facts(now, lambda: None)
        assert not ready(now).exists() or not bodies(now)
