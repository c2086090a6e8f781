"""The record of memories: it survives the database, agrees with it, and forgets what is forgotten."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st

from crystal.app import memories as remembering
from crystal.app import memory_changes
from crystal.app.context import Machine
from crystal.app.forget import execute_and_prove, plan_forget
from crystal.errors import NotFoundError, StoreFullError, UsageError
from crystal.forgetting.request import ForgetRequest
from crystal.memories.reconcile import find_faults, reconcile, restore_memories
from crystal.memories.record import encode_entry, read_record
from crystal.store.capture import projects
from crystal.store.memories import memories
from crystal.store.memories.memories import Version
from tests.support.command import crystal
from tests.support.examples import examples
from tests.support.killed import killed_at
from tests.support.pairing_boxes import Box
from tests.support.table import each_row

Change = tuple[str, int, int]
WORDS = ("tabs win", "we deploy on Fridays", "Alice\nand Bob", '漢字 \u2028 "quoted" \\', "x" * 700, "naïve")
KEYS = (None, "editor", "Deploy Day")
KINDS = ("remember", "edit", "deprecate", "restore", "key", "forget")


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path, "laptop", "cc-laptop")


@pytest.fixture
def machine(box: Box) -> Iterator[Machine]:
    with box.open() as machine:
        yield machine


def state(machine: Machine) -> object:
    """All that the database says of memories, but for the numbers of its rows."""
    columns = "m.uid, m.text, m.category, m.key, m.status, m.source, m.agent, m.device, m.session, m.created_at"
    sql = f"SELECT {columns}, m.updated_at, p.cwd, p.name FROM memories m LEFT JOIN projects p ON p.id = m.project"
    former = "SELECT m.uid, h.text, h.category, h.status, h.from_at, h.until_at FROM memory_history h"
    chunks = "SELECT m.uid, c.start, c.text, c.ts FROM chunks c JOIN memories m ON m.id = c.memory"
    return (
        machine.store.rows(f"{sql} ORDER BY m.uid"),
        machine.store.rows(f"{former} JOIN memories m ON m.id = h.memory ORDER BY m.uid, h.id"),
        machine.store.rows(f"{chunks} ORDER BY m.uid, c.start"),
    )


def act(machine: Machine, change: Change) -> None:
    kind, which, what = change
    known = [one.id for one in reversed(memories.all_memories(machine.store))]
    text, uid = WORDS[what % len(WORDS)], known[which % len(known)] if known else "mem-000000000000"
    try:
        if kind == "remember":
            place = "shop" if which % 2 else None
            remembering.remember(machine, text, key=KEYS[what % len(KEYS)], project=place, category="preference")
        elif kind == "edit":
            memory_changes.edit(machine, uid, text=text, category="skill")
        elif kind == "deprecate":
            memory_changes.deprecate(machine, uid)
        elif kind == "restore":
            memory_changes.revive(machine, uid)
        elif kind == "key":
            memory_changes.edit(machine, uid, key=KEYS[what % len(KEYS)] or "")
        elif known:
            _, proof = execute_and_prove(machine, plan_forget(machine, ForgetRequest(targets=(uid,))))
            assert proof.proved, proof
    except (NotFoundError, UsageError):
        pass


def killed(box: Box, change: Change, number: int) -> int:
    """Make a change and die at the so manieth statement; return how many there were."""
    with box.open() as machine, killed_at(machine.store, number) as run:
        act(machine, change)
    return run.statements


def faults(machine: Machine) -> list[str]:
    agents = machine.places.ldm_home / "agents"
    return [one.message for one in find_faults(machine.store, agents, machine.memory_record())]


def lose_database(box: Box) -> None:
    for path in (box.home / ".ldm" / "memory").glob("crystal.db*"):
        path.unlink()


def restored(box: Box) -> tuple[int, object, list[str]]:
    with box.open() as machine:
        came = restore_memories(machine.store, machine.places.ldm_home / "agents", machine.memory_record())
        return came, state(machine), faults(machine)


CHANGES = st.tuples(st.sampled_from(KINDS), st.integers(0, 9), st.integers(0, 17))


@pytest.mark.slow
@examples(10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(life=st.lists(CHANGES, min_size=1, max_size=9), seed=st.integers(0, 1 << 20), dies=st.booleans())
@example(life=[("remember", 0, 0), ("remember", 1, 1), ("key", 0, 1), ("forget", 0, 0)], seed=1, dies=True)
def test_a_life_of_memories_comes_back_without_the_database(tmp_path_factory, life, seed, dies):
    box = Box(tmp_path_factory.mktemp("life"), "laptop", "cc-laptop")
    chance = random.Random(seed)
    for change in life:
        if dies and change[0] != "forget":
            killed(box, change, chance.randrange(1, 60))
        with box.open() as machine:
            machine.settle_memories()
            assert faults(machine) == []
            act(machine, change)
            expected = state(machine)
            assert faults(machine) == []
    lose_database(box)
    came, found, left = restored(box)
    assert (found, left) == (expected, [])
    assert came == len(expected[0])  # type: ignore[index]


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["remember", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("edit", "deprecate", "key"))]
)
def test_killed_at_any_statement_a_change_is_neither_lost_nor_doubled(tmp_path: Path, kind: str) -> None:
    number, ended = 1, False
    while not ended:
        box = Box(tmp_path / str(number), "laptop", "cc-laptop")
        with box.open() as machine:
            act(machine, ("remember", 0, 0))
        ended = killed(box, (kind, 1, 1), number) < number
        with box.open() as machine:
            machine.settle_memories()
            act(machine, (kind, 1, 1))
            said = [one.text for one in memories.all_memories(machine.store)]
            assert len(said) == len(set(said)) == (2 if kind == "remember" else 1)
            assert faults(machine) == []
        number += 1
    assert number > 6


@pytest.mark.slow
def test_a_record_of_a_change_that_was_not_committed_is_taken_in(box: Box) -> None:
    with box.open() as machine:
        act(machine, ("remember", 0, 0))
        copy = machine.places.db.with_name("copy")
        machine.store.db.wal_checkpoint()
        shutil.copy(machine.places.db, copy)
        act(machine, ("remember", 0, 1))
        act(machine, ("edit", 0, 2))
        expected = state(machine)
    lose_database(box)
    copy.replace(copy.with_name("crystal.db"))  # as when the last of the log is lost
    with box.open() as machine:
        found = list(find_faults(machine.store, machine.places.ldm_home / "agents", machine.memory_record()))
        assert [one.is_behind for one in found] == [True, True]
        machine.settle_memories()
        assert (state(machine), faults(machine)) == (expected, [])


@pytest.mark.slow
def test_the_record_is_private_and_a_line_says_all_of_a_memory(machine: Machine) -> None:
    secret = "ghp_0123456789abcdefghijklmnopqrstuvwxyz"
    one = remembering.remember(machine, f"the token {secret} is old", key="token", session="s1")
    path = machine.memory_record()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert secret not in path.read_text()
    (line,) = map(json.loads, path.read_text().splitlines())
    assert line["memory"]["id"] == one.id
    assert (line["memory"]["session"], line["memory"]["key"], line["former"]) == ("s1", "token", [])


@pytest.mark.slow
@examples(12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(where=st.floats(0, 1), bit=st.integers(0, 7), is_cut=st.booleans())
def test_a_flipped_bit_or_a_lost_end_is_named_and_written_again(tmp_path_factory, where, bit, is_cut):
    box = Box(tmp_path_factory.mktemp("damage"), "laptop", "cc-laptop")
    with box.open() as machine:
        for change in [("remember", 0, 0), ("remember", 1, 1), ("edit", 0, 2), ("deprecate", 1, 0)]:
            act(machine, change)
        expected, path = state(machine), machine.memory_record()
        data = bytearray(path.read_bytes())
        at = min(int(where * len(data)), len(data) - 1)
        if is_cut:
            del data[at:]
        else:
            data[at] ^= 1 << bit
        path.write_bytes(data)
        assert faults(machine)
        reconcile(machine.store, path)
        assert (state(machine), faults(machine)) == (expected, [])


@pytest.mark.slow
def test_without_database_all_but_the_damaged_line_comes_back(box: Box) -> None:
    with box.open() as machine:
        for what in (0, 1, 5):
            act(machine, ("remember", 0, what))
        path = machine.memory_record()
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(lines[0] + lines[1].replace(b"Fridays", b"Mondays") + lines[2])
    lose_database(box)
    came, _, left = restored(box)
    assert (came, left) == (2, [])
    assert b"Mondays" in path.with_name("memories.jsonl.damaged").read_bytes()


def test_a_text_that_was_altered_in_the_database_is_corrected_from_the_record(machine: Machine) -> None:
    act(machine, ("remember", 0, 0))
    expected = state(machine)
    machine.store.execute("UPDATE memories SET text = 'tabs lose', agent = 'x'")
    assert faults(machine) == ["1 memory otherwise in the record than in the database"]
    assert list(reconcile(machine.store, machine.memory_record()).in_words()) == ["1 memory corrected from the record"]
    assert (state(machine), faults(machine)) == (expected, [])


@pytest.mark.slow
def test_a_history_out_of_order_stays_as_it_happened(machine: Machine) -> None:
    own = remembering.remember(machine, "first", key="editor")
    clash = replace(own, id="mem-aaaaaaaaaaaa", text="theirs", created_at=own.created_at + 1)
    later = replace(own, text="edited", key="other", updated_at=own.updated_at + 5)
    for one in (replace(clash, updated_at=own.updated_at + 10), later):
        with machine.store.transaction():
            assert memories.put_version(machine.store, Version(one, None))
    times = [until for (until,) in machine.store.rows("SELECT until_at FROM memory_history ORDER BY id")]
    assert times == [own.updated_at + 10, own.updated_at + 5]
    before = state(machine)
    assert list(reconcile(machine.store, machine.memory_record()).in_words()) == []
    assert state(machine) == before


def test_a_database_of_an_older_crystal_gets_its_record(machine: Machine) -> None:
    machine.store.before_commit = None
    act(machine, ("remember", 0, 0))
    act(machine, ("edit", 0, 1))
    assert not machine.memory_record().exists()
    machine.settle_memories()
    assert faults(machine) == []
    (entry,) = read_record(machine.memory_record()).entries.values()
    assert [one.text for one in entry.former] == [WORDS[0]]


@pytest.mark.slow
def test_what_is_forgotten_is_in_no_record_and_in_no_damaged_line(box: Box) -> None:
    with box.open() as machine:
        one = remembering.remember(machine, "the xyzzyplugh is blue")
        path, other = machine.memory_record(), machine.places.agent_folder("cc-old") / "memories.jsonl"
        other.parent.mkdir(parents=True)
        other.write_bytes(path.read_bytes())
        path.with_name("memories.jsonl.damaged").write_bytes(b'{"text":"the xyzzyplugh is blue"\n')
        stale = path.read_bytes()
        _, proof = execute_and_prove(machine, plan_forget(machine, ForgetRequest(targets=(one.id,))))
        assert proof.proved, proof
        files = [found for found in box.home.rglob("*") if found.is_file()]
        assert not [found for found in files if b"xyzzyplugh" in found.read_bytes()]

        path.write_bytes(stale)  # an old copy is put back
        assert faults(machine) == ["1 memory still in the record, though forgotten"]
        machine.settle_memories()
        assert (memories.all_memories(machine.store), faults(machine)) == ([], [])
        assert b"xyzzyplugh" not in path.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fsync", "replace"])
def test_a_full_disk_leaves_record_and_database_as_they_were(machine, monkeypatch, name):
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    if name == "fsync":
        act(machine, ("remember", 0, 0))
    path = machine.memory_record()
    before = state(machine), path.read_bytes() if path.exists() else None
    monkeypatch.setattr(*((os, "fsync") if name == "fsync" else (Path, "replace")), full)
    with pytest.raises(StoreFullError, match="no space left"):
        remembering.remember(machine, "tabs lose")
    monkeypatch.undo()
    assert (state(machine), path.read_bytes() if path.exists() else None) == before
    assert faults(machine) == []


@each_row("line", [b"", b"{}", b"[]", b'{"v":2}', b"\xff", b'{"v":1,"memory":{},"former":[]}'])
def test_a_line_of_something_else_is_named_and_the_rest_is_read(machine: Machine, line: bytes) -> None:
    act(machine, ("remember", 0, 0))
    path = machine.memory_record()
    path.write_bytes(line + b"\n" + path.read_bytes())
    contents = read_record(path)
    assert [one.number for one in contents.damaged] == [1]
    (entry,) = contents.entries.values()
    assert encode_entry(entry) == path.read_bytes()[len(line) + 1 :]


def test_a_link_to_another_program_s_file_leaves_that_file_alone(machine: Machine, tmp_path: Path) -> None:
    act(machine, ("remember", 0, 0))
    path, other = machine.memory_record(), tmp_path / "other"
    shutil.move(path, tmp_path / "moved")
    other.write_bytes(content := b"[settings]\nuser = 1\n" + b"x" * 9_000)
    path.symlink_to(other)
    for change in (lambda: remembering.remember(machine, "tabs lose"), machine.settle_memories):
        with pytest.raises(UsageError, match=f"is a link to .*{other.name}, which is no record of memories"):
            change()
    assert other.read_bytes() == content
    assert not path.with_name("memories.jsonl.damaged").exists()
    path.unlink()
    path.symlink_to(tmp_path / "moved")
    remembering.remember(machine, "tabs lose")
    assert (path.is_symlink(), len(read_record(path).entries), faults(machine)) == (True, 2, [])


@pytest.mark.slow
def test_verify_names_what_is_missing_and_repair_says_what_came_back(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    for number in range(12):
        assert crystal("remember", f"fact number {number}").code == 0
    assert crystal("verify").code == 0
    (record,) = tmp_path.glob(".ldm/agents/*/memory/memories.jsonl")
    record.unlink()
    done = crystal("verify")
    assert (done.code, "12 memories only in the database" in done.out) == (6, True)
    assert crystal("verify", "--repair").code == 0
    assert crystal("forget", "--query", "number 7", "--yes").code == 0
    for left, damaged in ((11, 0), (10, 1)):
        lines = record.read_bytes().splitlines(keepends=True)
        record.write_bytes(b"".join([*(b"{damaged}\n" for _ in range(damaged)), *lines[damaged:]]))
        for path in (tmp_path / ".ldm" / "memory").glob("crystal.db*"):
            path.unlink()
        assert "the database is gone" in crystal("verify").err
        done = crystal("verify", "--repair")
        assert done.code == 0
        assert f" {left} memories" in done.out, done
        assert ("1 damaged line of the record of memories" in done.out) == bool(damaged)
        assert crystal("memories", "--json").out.count("fact number") == left


def test_a_renamed_project_has_its_new_name_in_the_record(machine: Machine) -> None:
    act(machine, ("remember", 1, 0))
    with machine.store.transaction():
        projects.rename(machine.store, [machine.store.value("SELECT id FROM projects")], "store")
    machine.settle_memories()
    (entry,) = read_record(machine.memory_record()).entries.values()
    assert (entry.version.memory.project, faults(machine)) == ("store", [])
