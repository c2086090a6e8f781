"""Whole machines: what is forgotten on one is gone from the files of all, and from the relay, and does not come back."""

from __future__ import annotations

import shutil

import pytest

from crystal.app.mirror import device_mirror
from crystal.errors import UnavailableError
from crystal.store.forget.forgetting import newest_tombstone
from tests.support.capture_machine import line
from tests.support.two_machines import Computer, RelayProcess, pair_by_hand

pytestmark = pytest.mark.slow  # two machines and a relay, each a process

WORD = "aardvark7"
FIRST, SECOND, THIRD = (f"{digit}0000000-0000-4000-8000-000000000000" for digit in "123")


def device(desk: Computer, name: str, *words: str) -> Computer:
    computer = Computer(desk.home.parent / name)
    pair_by_hand(desk, computer, name, *words)
    return computer


def holding(computer: Computer, word: str = WORD) -> list[str]:
    """The files of crystal's on a machine that hold a word; Claude Code's own are its own."""
    return [
        path.relative_to(computer.home).as_posix()
        for path in sorted(computer.home.rglob("*"))
        if ".claude" not in path.relative_to(computer.home).parts
        if path.is_file() and word.encode() in path.read_bytes()
    ]


def settle(desk: Computer, *devices: Computer, rounds: int = 3) -> None:
    for _ in range(rounds):
        for one in devices:
            one.deliver()
        outcome = desk.poll()
        assert outcome.problems == (), outcome.problems
    for one in devices:
        one.deliver()


def mirrored(computer: Computer) -> list[str]:
    from crystal.store import Store

    path = next(computer.home.rglob("mirror.db"), None)
    if path is None:
        return []
    with Store.open_existing(path) as store:
        return sorted(text for (text,) in store.rows("SELECT text FROM chunks"))


def lap_of(desk: Computer, *others: Computer, more: bytes = b"") -> Computer:
    """A device that said something to be forgotten, which everybody has."""
    lap = device(desk, "lap")
    lap.say(FIRST, line("about pears"), line(f"my {WORD} is private"), more)
    lap.ok("sync")
    settle(desk, lap, *others)
    return lap


def forget(computer: Computer, *words: str) -> None:
    computer.ok("forget", *words, "--yes")


def test_what_a_device_forgets_is_gone_from_every_machine(desk: Computer) -> None:
    tower = device(desk, "tower")
    lap = lap_of(desk, tower, more=line("and plums"))
    assert holding(desk)
    assert holding(tower), "the mirror has it"
    forget(lap, "--query", WORD)
    assert holding(lap) == []
    assert "1 deletion (" in lap.ok("status")
    assert "not confirmed by home yet" in lap.crystal("relay", "status").out
    settle(desk, lap, tower)
    for one in (lap, desk, tower):
        assert holding(one) == [], one.home.name
    assert desk.texts() == ["about pears", "and plums"]
    assert mirrored(tower) == ["about pears", "and plums"]
    status = desk.json("status")["relay"]
    assert isinstance(status, dict)
    assert status["forgotten"] == {"count": 0, "since": None, "devices": []}
    lap.say(SECOND, line("later"))
    lap.ok("sync")
    settle(desk, lap, tower)
    assert mirrored(tower) == ["about pears", "and plums", "later"]


def test_what_home_forgets_is_gone_from_the_device_that_said_it(desk: Computer) -> None:
    lap = lap_of(desk)
    forget(desk, "--query", WORD)
    assert holding(desk) == []
    before = desk.json("status")["relay"]
    assert isinstance(before, dict)
    (behind,) = before["forgotten"]["devices"]
    assert (behind["name"], behind["count"]) == ("lap", 1)
    assert behind["since"].endswith("Z")
    assert "lap has not confirmed 1 deletion" in desk.ok("status")
    assert "lap has not confirmed 1 deletion" in desk.crystal("relay", "status").out
    settle(desk, lap)
    assert holding(lap) == []
    assert lap.texts() == ["about pears"]
    lap.ok("sync")  # the transcript still has it
    settle(desk, lap)
    assert holding(lap) == []
    assert desk.texts() == ["about pears"]


def test_a_device_without_a_memory_of_its_own_forgets_what_waits(desk: Computer) -> None:
    lap = device(desk, "lap")
    with lap.machine() as machine:
        from crystal.config.edit import set_value

        set_value(machine.places.config_file, "relay.local_memory", "false")
    lap.say(FIRST, line("about pears"), line(f"my {WORD} is private"))
    lap.ok("sync")
    settle(desk, lap)
    assert lap.texts() == []
    forget(lap, "--query", WORD)
    settle(desk, lap)
    assert holding(lap) == []
    assert holding(desk) == []
    assert desk.texts() == ["about pears"]


def test_a_machine_that_joins_later_brings_its_forgetting(desk: Computer) -> None:
    lap = Computer(desk.home.parent / "lap")
    lap.say(FIRST, line("about pears"), line(f"my {WORD} is private"))
    lap.ok("init", "--yes", "--agent-id", "cc-lap")
    lap.ok("backfill")
    forget(lap, "--query", WORD)
    desk.say(FIRST, line(f"unrelated {WORD} at the desk"))
    pair_by_hand(desk, lap, "lap")
    settle(desk, lap)
    with desk.machine() as machine:
        assert newest_tombstone(machine.store) >= 1
    assert desk.texts() == ["about pears"]


def test_a_mirror_that_is_built_before_home_has_heard_lacks_it(desk: Computer) -> None:
    tower = device(desk, "tower")
    lap = lap_of(desk, tower, more=line("and plums"))
    forget(tower, "--query", WORD)
    with tower.machine() as machine:  # it is lost, and built anew from what home published before
        mirror = device_mirror(machine.places)
        manifest = mirror.memo.read_bytes()
        mirror.discard()
        mirror.memo.write_bytes(manifest)
    tower.deliver()
    assert mirrored(tower) == ["about pears", "and plums"]
    assert holding(tower) == []
    with tower.machine() as machine:
        assert device_mirror(machine.places).status().problem is None
    settle(desk, lap, tower)
    assert holding(lap) == holding(desk) == holding(tower) == []
    assert mirrored(tower) == ["about pears", "and plums"]


def test_the_relay_keeps_no_object_that_held_it(desk: Computer, relay: RelayProcess) -> None:
    lap = lap_of(desk)
    from crystal.app.relay_links import relay_client

    def objects() -> set[bytes]:
        with desk.machine() as machine, relay_client(machine) as client:
            return {one.object_id for one in client.objects()}

    before = objects()
    forget(desk, "--query", WORD)
    desk.poll()
    after = objects()
    assert before - after, "the objects that held it are deleted in the same run"
    assert lap.deliver().problem is None


def test_a_memory_that_is_forgotten_goes_from_every_machine(desk: Computer) -> None:
    lap, tower = device(desk, "lap"), device(desk, "tower")
    lap.ok("remember", f"the {WORD} lives in the attic")
    settle(desk, lap, tower)
    assert mirrored(tower) == [f"the {WORD} lives in the attic"]
    forget(tower, "--query", WORD)
    settle(desk, lap, tower, rounds=4)
    for one in (lap, desk, tower):
        assert holding(one) == [], one.home.name


def test_handing_over_keeps_everything_forgotten(desk: Computer) -> None:
    lap = device(desk, "lap")
    lap.say(FIRST, line("about pears"), line(f"my {WORD} is private"))
    desk.say(SECOND, line("about desks"), line(f"the {WORD} at the desk"))
    lap.ok("sync")
    desk.ok("sync")
    settle(desk, lap)
    forget(desk, "--query", WORD)
    desk.ok("demote", "--to", "lap", "--yes")
    lap.ok("promote", "--yes")
    for _ in range(4):
        desk.deliver()
        lap.poll()
    desk.deliver()
    assert holding(desk) == []
    assert holding(lap) == []
    assert sorted(lap.texts()) == ["about desks", "about pears"]
    status = lap.json("status")["relay"]
    assert isinstance(status, dict)
    assert status["forgotten"]["devices"] == []


def test_a_home_put_back_from_a_backup_forgets_again(desk: Computer) -> None:
    lap = lap_of(desk)
    copy = desk.home.parent / "desk-copy"
    shutil.copytree(desk.home, copy)
    forget(lap, "--query", WORD)
    settle(desk, lap)
    assert holding(desk) == []
    shutil.rmtree(desk.home)
    shutil.copytree(copy, desk.home)
    shutil.rmtree(copy)
    assert holding(desk)
    lap.say(SECOND, line("later"))
    lap.ok("sync")
    settle(desk, lap, rounds=5)
    assert holding(desk) == []
    assert holding(lap) == []
    assert desk.texts() == ["about pears", "later"]


def test_a_device_whose_key_is_away_forgets_at_once_and_tells_later(desk: Computer) -> None:
    lap = lap_of(desk)
    lap.say(FIRST, line(f"more of the {WORD}"))
    lap.ok("sync")
    (key,) = lap.home.rglob("relay.key")
    away = key.rename(lap.home.parent / "key")
    forget(lap, "--query", WORD)
    assert holding(lap) == []
    assert lap.texts() == ["about pears"]
    away.rename(key)
    settle(desk, lap)
    assert holding(desk) == []
    assert holding(lap) == []
    assert desk.texts() == ["about pears"]


def test_what_home_cannot_delete_just_now_it_deletes_with_the_next_poll(desk, monkeypatch):
    lap = lap_of(desk)
    forget(lap, "--query", WORD)
    lap.deliver()
    with monkeypatch.context() as patch:

        def fail(_: object) -> int:
            raise UnavailableError("the disk is away")

        patch.setattr("crystal.app.sync.forget.finish_forgetting", fail)
        assert any("the disk is away" in words for words in desk.poll().problems)
    assert holding(desk)
    settle(desk, lap)
    assert holding(desk) == []
