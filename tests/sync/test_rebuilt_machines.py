"""Machines whose database was rebuilt: what home's archive has is not archived again, and nothing stays unsent."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from crystal.store.notes import write_note
from crystal.store.sync import past
from tests.support.capture_machine import line
from tests.support.two_machines import Computer, pair_by_hand

pytestmark = pytest.mark.slow  # two machines and a relay

FIRST, SECOND = "11111111-1111-4111-8111-111111111111", "21111111-1111-4111-8111-111111111111"
MODE = b'{"type":"permission-mode","permissionMode":"default"}\n'
"""A line without an id, which a transcript repeats."""
SECRET = f"password={'hunter2' * 3}"
"""What is removed from a line, so that later lines of the archive stand elsewhere than in the transcript."""


def pair(desk: Computer, lap: Computer, name: str = "lap") -> None:
    bundle = desk.ok("relay", "pair", "--offline", "--name", name)
    lap.ok("relay", "join", "--replace", stdin=bundle)


def exchange(desk: Computer, lap: Computer) -> None:
    for _ in range(2):
        lap.ok("relay", "sync")
        desk.ok("relay", "poll")


def lose_database(computer: Computer) -> None:
    for path in computer.home.rglob("crystal.db*"):
        path.unlink()
    computer.crystal("verify", "--repair")


def lines_of(computer: Computer) -> Counter[str]:
    """The lines of an export."""
    folder = computer.home / "exported"
    shutil.rmtree(folder, ignore_errors=True)
    computer.ok("export", "--all", "--to", str(folder), "--as", "jsonl")
    records = map(json.loads, (folder / "export.jsonl").read_bytes().splitlines())
    return Counter(record["raw"] for record in records if record["type"] == "line")


@pytest.fixture
def lap(desk: Computer, tmp_path: Path) -> Computer:
    """A device, all of whose lines its home has."""
    desk.say("31111111-1111-4111-8111-111111111111", line("said at the desk"))
    desk.ok("sync")
    lap = Computer(tmp_path / "lap", {"CRYSTAL_DEVICE": "lap"})
    lap.ok("init", "--yes")
    pair(desk, lap)
    lap.say(FIRST, MODE, line(f"about pears, {SECRET}", sessionId=FIRST), MODE)
    lap.ok("sync")
    lap.say(FIRST, MODE)
    lap.ok("sync")
    lap.say(FIRST, line("about plums", sessionId=FIRST), line("about quinces", sessionId=FIRST))
    lap.say(SECOND, line("about figs", sessionId=SECOND))
    lap.ok("sync")
    exchange(desk, lap)
    return lap


def nothing(desk: Computer, lap: Computer) -> None:
    """Nothing else is amiss."""


def archive_again(desk: Computer, lap: Computer) -> None:
    """Have the device lose all that it has, and archive its transcripts again, in other pieces."""
    for path in [*lap.home.rglob("*.jsonl.zst"), *lap.home.rglob("crystal.db*"), *lap.home.rglob("private.jsonl")]:
        path.unlink()
    lap.ok("init", "--yes", "--import")


def forget_at_home(desk: Computer, lap: Computer) -> None:
    desk.ok("forget", "--query", "plums", "--yes")
    exchange(desk, lap)


@pytest.mark.parametrize("happens", [nothing, archive_again, forget_at_home])
@pytest.mark.parametrize("name", ["lap", "another name"])
def test_what_its_archive_has_is_not_archived_again(
    desk: Computer, lap: Computer, name: str, happens: Callable[[Computer, Computer], None]
) -> None:
    assert lines_of(desk)[MODE.decode().strip()] == 3
    happens(desk, lap)
    before = lines_of(desk)
    names = [name] * 2 if name == "lap" else [name, f"{name} again"]
    for given, text in zip(names, ("said meanwhile", "said after that"), strict=True):
        lose_database(desk)
        assert lines_of(desk) == before
        lap.say(FIRST, line(text, sessionId=FIRST), MODE)
        lap.ok("sync")
        pair(desk, lap, given)
        exchange(desk, lap)
        after = lines_of(desk)
        new = sorted(text in said for said, count in (after - before).items() for _ in range(count))
        assert new == ([True] if happens is forget_at_home else [False, True]), "a line without an id may be private"
        assert before - after == Counter()
        assert desk.crystal("verify").code == 0
        before = after
    assert {one["device"] for one in desk.json("sessions")["sessions"]} == {"desk", names[-1]}


def test_a_rebuilt_home_is_exported_and_handed_over_whole(desk: Computer, lap: Computer, tmp_path: Path) -> None:
    lose_database(desk)
    before = lines_of(desk)
    copy = Computer(tmp_path / "copy")
    copy.ok("init", "--yes")
    for _ in range(2):
        copy.ok("import", str(desk.home / "exported" / "export.jsonl"))
        assert lines_of(copy) == before
    phone = Computer(tmp_path / "phone")
    pair_by_hand(desk, phone, "phone")
    desk.ok("demote", "--to", "phone", "--yes")
    phone.ok("promote", "--yes")
    exchange(phone, desk)
    assert lines_of(phone) == before
    assert {one.crystal("verify").code for one in (copy, phone)} == {0}


def test_a_device_joins_though_what_waits_for_its_former_home_is_damaged(desk: Computer, lap: Computer) -> None:
    lap.say(SECOND, line("said meanwhile", sessionId=SECOND))
    lap.ok("sync")
    with lap.machine() as machine, machine.store.transaction():
        machine.store.execute("UPDATE outbox SET sealed = zeroblob(length(sealed))")
    lose_database(desk)
    pair(desk, lap)
    exchange(desk, lap)
    assert sum("said meanwhile" in said for said in lines_of(desk)) == 1


@pytest.mark.parametrize("key", ["relay_past", "forgotten_relay"])
@pytest.mark.parametrize("text", ["{broken", '{"row": 7}'])
def test_a_damaged_note_of_what_was_sent_ends_nothing_and_all_is_sent_again(
    desk: Computer, lap: Computer, key: str, text: str
) -> None:
    before = lines_of(desk)
    lap.ok("forget", "--query", "plums", "--yes")
    lap.say(SECOND, line("said meanwhile", sessionId=SECOND))
    lap.ok("sync")
    with lap.machine() as machine, machine.store.transaction():
        past.begin(machine.store)
        write_note(machine.store, key, text)
    done = lap.crystal("relay", "sync")
    assert (done.code, f"the note {key} is not as crystal writes it" in done.err) == (6, True), done
    assert lap.crystal("verify").code == 6
    done = lap.crystal("verify", "--repair")
    assert (done.code, "sent again" in done.out) == (0, True), done
    exchange(desk, lap)
    assert sum("said meanwhile" in said for said in lines_of(desk)) == 1
    assert not any("plums" in said for said in lines_of(desk))
    assert (lines_of(desk) - before).total() == 1
