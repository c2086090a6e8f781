"""A home that moves, cut off at every step and run again; nothing is lost, and there is one home in the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crystal.app.relay_links import relay_keys
from crystal.app.sync import handover
from crystal.store.sync import past, relay_peers
from crystal.sync.keys.places import KeyPlaces
from crystal.sync.keys.word_codes import paper_words
from tests.support.capture_machine import line
from tests.support.two_machines import Computer, account_of, pair_by_hand

pytestmark = pytest.mark.slow  # two machines and a relay, each a process

FIRST = "11111111-1111-4111-8111-111111111111"
SECOND = "21111111-1111-4111-8111-111111111111"
ALL = ["said at the desk", "said on the lap"]
STEPS: list[tuple[Any, str, int]] = [
    (handover, "put_document", 1),
    (KeyPlaces, "write_key", 1),
    (KeyPlaces, "write_token", 1),
    (past, "begin", 1),
    (handover, "set_value", 1),
]
NAMES = [name for _, name, _ in STEPS]


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture
def desk(desk: Computer) -> Computer:
    desk.say(FIRST, line("said at the desk"))
    desk.ok("sync")
    return desk


@pytest.fixture
def lap(tmp_path: Path, desk: Computer) -> Computer:
    """A device that goes by another name at home than here."""
    computer = Computer(tmp_path / "lap")
    pair_by_hand(desk, computer, "lap")
    computer.say(SECOND, line("said on the lap"))
    computer.ok("sync")
    desk.poll()
    computer.deliver()
    return computer


def cut_off(computer: Computer, room: Any, name: str, nth: int, *words: str, before: bool, stdin: str = "") -> None:
    """Run a command that is killed at the n-th call of a function, before or after it did its work."""
    real, calls = getattr(room, name), []

    def deadly(*args: Any, **more: Any) -> Any:
        calls.append(name)
        if len(calls) == nth and before:
            raise Killed
        done = real(*args, **more)
        if len(calls) == nth:
            raise Killed
        return done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, name, deadly)
        with pytest.raises(Killed):
            computer.crystal(*words, stdin=stdin)


def settle(desk: Computer, lap: Computer) -> None:
    """Let everything that waits arrive, and look whether it has."""
    for _ in range(2):
        desk.deliver()
        lap.poll()
    desk.deliver()
    assert lap.texts() == ALL
    assert [(one["name"], one["state"]) for one in lap.json("devices")["devices"]] == [("desk", "ok")]
    assert lap.json("relay", "status")["ok"]
    told = desk.json("status")["relay"]
    assert (told["role"], told["home"]["name"], told["outbox"]["blobs"]) == ("device", "lap", 0)
    for computer in (desk, lap):
        assert computer.crystal("verify").code == 0


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize(("room", "name", "nth"), STEPS, ids=NAMES)
def test_demote_goes_on_where_it_was_cut_off(desk, lap, room, name, nth, before):
    desk.poll()
    cut_off(desk, room, name, nth, "demote", "--to", "lap", "--yes", before=before)
    desk.crystal("relay", "poll")  # a timer that does not know; it takes nothing more
    again = desk.crystal("demote", "--to", "lap", "--yes")
    if name == "set_value" and not before:
        assert (again.code, "is a device already" in again.err) == (2, True), again
    else:
        assert again.code == 0, again.err
    lap.ok("promote", "--yes")
    settle(desk, lap)


@pytest.mark.parametrize(("room", "name", "nth"), STEPS[1:4], ids=NAMES[1:4])
def test_demote_goes_on_as_the_device_that_the_new_home_knows(desk, lap, room, name, nth):
    cut_off(desk, room, name, nth, "demote", "--to", "lap", "--yes", before=True)
    lap.ok("promote", "--yes")  # it was told; that the old home was cut off cannot be seen from there
    desk.ok("demote", "--to", "lap", "--yes")
    settle(desk, lap)


def test_a_handover_that_an_older_version_began_goes_on(desk, lap):
    cut_off(desk, handover, "put_document", 1, "demote", "--to", "lap", "--yes", before=True)
    with desk.machine() as machine:  # as version 0.1 named the field
        machine.store.execute("UPDATE meta SET value = replace(value, 'new_home', 'heir') WHERE key = 'relay_demoting'")
    desk.ok("demote", "--to", "lap", "--yes")
    lap.ok("promote", "--yes")
    settle(desk, lap)


def test_a_home_that_told_one_device_hands_over_to_no_other(desk, lap, tmp_path):
    phone = Computer(tmp_path / "phone")
    pair_by_hand(desk, phone, "phone")
    cut_off(desk, KeyPlaces, "write_key", 1, "demote", "--to", "lap", "--yes", before=True)
    done = desk.crystal("demote", "--to", "phone", "--yes")
    assert (done.code, "lap was already chosen as home" in done.err) == (2, True), done
    assert "crystal demote --to lap" in done.err


PROMOTING: list[tuple[Any, str, int]] = [
    (KeyPlaces, "write_key", 1),
    (KeyPlaces, "write_token", 1),
    (relay_peers, "remove_peer", 1),
    (handover, "set_value", 1),
]


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize(("room", "name", "nth"), PROMOTING, ids=[name for _, name, _ in PROMOTING])
def test_promote_goes_on_where_it_was_cut_off(desk, lap, room, name, nth, before):
    desk.ok("demote", "--to", "lap", "--yes")
    lap.ok("config", "set", "device", "lappy")
    cut_off(lap, room, name, nth, "promote", "--yes", before=before)
    lap.ok("promote", "--yes")
    with lap.machine() as machine:
        assert (machine.config.role, machine.config.device) == ("home", "lap")
    assert not (lap.home / ".ldm" / "memory" / "mirror.db").exists()
    settle(desk, lap)


@pytest.mark.parametrize("way", ["again", "plain"])
@pytest.mark.parametrize("name", ["take_mirror", "set_value"])
def test_a_lost_home_is_replaced_though_it_was_cut_off(desk, lap, relay, name, way):
    with desk.machine() as machine:
        words = " ".join(paper_words(relay_keys(machine).root))
    secrets = f"{words}\n{relay.token('the new home', 'home', account=account_of(desk))}\n"
    cut_off(lap, handover, name, 1, "promote", "--paper-key", "--yes", before=True, stdin=secrets)
    if way == "again":
        lap.ok("promote", "--paper-key", "--yes", stdin=secrets)
    else:
        lap.ok("promote", "--yes")
    assert lap.json("devices")["devices"] == []
    lap.poll()
    assert lap.texts() == ALL, "what was said at the desk is known from the mirror alone"


@pytest.mark.parametrize("variable", ["CRYSTAL_RELAY_KEY", "CRYSTAL_RELAY_TOKEN"])
def test_home_does_not_move_while_a_secret_comes_from_a_place_that_crystal_does_not_write(desk, lap, variable):
    with desk.machine() as machine:
        root = relay_keys(machine).root.hex()
    token = (desk.home / ".ldm" / "memory" / "relay.token").read_text().strip()
    desk.env[variable] = root if variable.endswith("KEY") else token
    done = desk.crystal("demote", "--to", "lap", "--yes")
    assert done.code == 3
    assert variable in done.err
    assert desk.crystal("relay", "poll").code == 0, "nothing was told, so it is home as before"
