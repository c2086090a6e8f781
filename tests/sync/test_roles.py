"""Roles: a home that moves, is lost, or is left, with real machines and a real relay; nothing is lost on the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from crystal.app.relay_links import relay_client
from crystal.config.edit import set_value
from crystal.store.sync.relay_peers import all_peers
from tests.support.capture_machine import line
from tests.support.two_machines import Computer, account_of, pair_by_hand

pytestmark = pytest.mark.slow

FIRST = "11111111-1111-4111-8111-111111111111"
SECOND = "21111111-1111-4111-8111-111111111111"
THIRD = "31111111-1111-4111-8111-111111111111"


@pytest.fixture
def desk(desk: Computer) -> Computer:
    """A home machine with something in its memory."""
    desk.say(FIRST, line("said at the desk"))
    desk.ok("sync")
    return desk


def everything(*computers: Computer) -> list[list[str]]:
    return [computer.texts() for computer in computers]


def test_a_machine_that_joins_brings_its_past(desk, tmp_path):
    lap = Computer(tmp_path / "lap")
    lap.say(SECOND, line("said before joining"))
    lap.ok("init", "--yes", "--agent-id", "cc-lap")
    lap.ok("backfill")
    pair_by_hand(desk, lap, "lap")
    lap.say(THIRD, line("said after joining"))
    lap.ok("sync")
    desk.poll()
    assert desk.texts() == ["said after joining", "said at the desk", "said before joining"]
    assert desk.crystal("verify").code == 0


def test_home_moves_to_a_device_with_all_that_it_remembers(desk, tmp_path):
    lap, phone = Computer(tmp_path / "lap"), Computer(tmp_path / "phone")
    pair_by_hand(desk, lap, "lap")
    pair_by_hand(desk, phone, "phone")
    phone.say(SECOND, line("said on the phone"))
    phone.ok("sync")
    desk.poll()
    phone.say(SECOND, line("said on the phone while home moved"))
    phone.ok("sync")
    desk.ok("demote", "--to", "lap", "--yes")
    phone.say(SECOND, line("said on the phone while nobody was home"))
    phone.ok("sync")
    lap.ok("promote", "--yes")
    desk.say(FIRST, line("said at the desk as a device"))
    desk.ok("sync")
    outcome = lap.poll()
    assert (outcome.report.stuck, outcome.report.waiting) == (0, 0)
    assert lap.texts() == [
        "said at the desk",
        "said at the desk as a device",
        "said on the phone",
        "said on the phone while home moved",
        "said on the phone while nobody was home",
    ]
    phone.deliver()
    desk.deliver()
    mirror = phone.json("status")["relay"]["mirror"]
    page = (Path(__file__).parents[2] / "docs" / "reference" / "json.md").read_text("utf-8")
    assert all(f"`relay.mirror.{key}`" in page for key in mirror)
    assert mirror["complete"]
    for computer in (phone, desk):
        relay = computer.json("status")["relay"]
        assert relay["outbox"]["blobs"] == 0, "the new home's receipts cover what the old one never gave"
        assert relay["home"]["name"] == "lap"
    for computer in (lap, desk, phone):
        assert computer.crystal("verify").code == 0


def test_demote_asks_for_an_heir_and_promote_for_a_handing_over(desk, tmp_path):
    lap = Computer(tmp_path / "lap")
    pair_by_hand(desk, lap, "lap")
    done = desk.crystal("demote", "--yes")
    assert done.code == 2
    assert "crystal demote --to NAME (lap)" in done.err
    done = lap.crystal("promote", "--yes")
    assert done.code == 2
    assert "has not handed over" in done.err
    assert desk.crystal("promote", "--yes").code == 2


def test_a_lost_home_is_replaced_from_the_paper_key(desk, tmp_path, relay):
    lap, phone = Computer(tmp_path / "lap"), Computer(tmp_path / "phone")
    pair_by_hand(desk, lap, "lap")
    pair_by_hand(desk, phone, "phone")
    pair_by_hand(desk, Computer(tmp_path / "barn"), "barn")
    for name, computer in (("lap", lap), ("phone", phone)):
        computer.say(SECOND if name == "lap" else THIRD, line(f"said on the {name}"))
        computer.ok("sync")
    desk.poll()
    lap.deliver()  # the mirror is all that is left of what was said at the desk
    desk.ok("devices", "revoke", "barn", "--yes")  # and then it is lost, before its next poll
    words = desk.ok("relay", "key", "--paper", "--yes")  # as it is printed, with its numbers
    token = relay.token("the new home", "home", account=account_of(desk))
    out = lap.ok("promote", "--paper-key", "--yes", stdin=f"{words}\n{token}\n")
    assert "the lost home can no longer use the relay" in out
    assert "devices: phone;" in out
    assert "revoked as before: barn" in out
    again = lap.ok("promote", "--paper-key", "--yes", stdin=f"{words}\n{token}\n")
    assert "devices: phone;" in again, "it is no device of its own"
    listed = lap.ok("devices")
    assert ("barn", True) in [(line.split()[0], "REVOKED" in line) for line in listed.splitlines()]
    phone.say(THIRD, line("said on the phone after the loss"))
    phone.ok("sync")
    for _ in range(4):
        phone.deliver()
        lap.poll()
    assert lap.texts() == [
        "said at the desk",
        "said on the lap",
        "said on the phone",
        "said on the phone after the loss",
    ]
    assert not (lap.home / ".ldm" / "memory" / "mirror.db").exists()
    phone.deliver()
    assert "said at the desk" in phone.ok("search", "desk"), "the new home's mirror has it too"
    assert phone.json("status")["relay"]["outbox"]["blobs"] == 0
    assert lap.crystal("verify").code == 0
    phone.say(THIRD, line("said on the phone when the desk is found again"))
    phone.ok("sync")
    desk.say(FIRST, line("said at the desk when it is found again"))
    desk.ok("sync")
    refused = desk.crystal("relay", "poll").err
    assert "answered 401" in refused, "it takes nothing that is for the new home"
    assert "if another machine is home now: crystal demote --force" in refused
    assert "if one is home already: --force" in desk.crystal("demote", "--yes").err
    desk.ok("demote", "--force", "--yes")
    with desk.machine() as machine:
        assert [peer.name for peer in all_peers(machine.store, "device")] == ["barn"], "its token may still be revoked"
    for name in ("relay.key", "relay.token"):  # relay join --replace puts them aside
        (desk.home / ".ldm" / "memory" / name).unlink()
    pair_by_hand(lap, desk, "desk")
    desk.ok("relay", "sync")
    lap.poll()
    assert lap.texts() == [
        "said at the desk",
        "said at the desk when it is found again",
        "said on the lap",
        "said on the phone",
        "said on the phone after the loss",
        "said on the phone when the desk is found again",
    ]
    assert lap.crystal("verify").code == 0


def test_a_lost_home_is_shut_out_though_its_own_token_was_given(desk, tmp_path):
    lap, phone = Computer(tmp_path / "lap"), Computer(tmp_path / "phone")
    pair_by_hand(desk, lap, "lap")
    pair_by_hand(desk, phone, "phone")
    desk.poll()
    words = desk.ok("relay", "key", "--paper", "--yes")
    token = (desk.home / ".ldm" / "memory" / "relay.token").read_text("utf-8").strip()
    lap.ok("promote", "--paper-key", "--yes", stdin=f"{words}\n{token}\n")
    phone.say(SECOND, line("said on the phone after the loss"))
    phone.ok("sync")
    assert "answered 401" in desk.crystal("relay", "poll").err
    for _ in range(2):
        phone.deliver()
        lap.poll()
    assert "said on the phone after the loss" in lap.texts()
    assert "devices: phone;" in lap.ok("promote", "--paper-key", "--yes", stdin=f"{words}\n{token}\n")
    wrong = lap.crystal("promote", "--paper-key", "--yes", stdin=f"{'abandon ' * 23}art\n{token}\n")
    assert wrong.code == 5, "the relay refuses the token, and the key of this home is another"


def test_a_device_without_a_memory_of_its_own_keeps_all_when_it_leaves(desk, tmp_path):
    lap = Computer(tmp_path / "lap")
    pair_by_hand(desk, lap, "lap", "--no-local-memory")
    lap.say(SECOND, line("said on the lap"))
    lap.ok("sync")
    assert lap.texts() == []
    done = lap.crystal("demote", "--yes")
    assert done.code == 2
    assert "has not confirmed 1 sealed blobs" in done.err
    lap.ok("demote", "--force", "--yes")
    assert lap.texts() == ["said on the lap"]
    assert lap.json("status")["relay"] is None
    assert lap.crystal("verify").code == 0


def test_a_device_without_a_memory_of_its_own_can_become_home(desk, tmp_path):
    lap = Computer(tmp_path / "lap")
    pair_by_hand(desk, lap, "lap", "--no-local-memory")
    lap.say(SECOND, line("committed at home"))
    lap.ok("sync")
    desk.poll()
    lap.deliver()
    lap.say(SECOND, line("not yet at home"))
    lap.ok("sync")
    desk.ok("demote", "--to", "lap", "--yes")
    lap.ok("promote", "--yes")
    desk.ok("sync")
    lap.poll()
    assert lap.texts() == ["committed at home", "not yet at home", "said at the desk"]
    assert lap.crystal("verify").code == 0


def test_a_home_without_devices_becomes_standalone(desk):
    assert "standalone" in desk.ok("demote", "--yes")
    assert desk.json("status")["relay"] is None
    assert "standalone already" in desk.crystal("demote").err  # nothing is asked when there is nothing to give up


def test_init_refuses_what_does_not_go_together(desk, tmp_path):
    other = Computer(tmp_path / "other")
    assert other.crystal("init", "--yes", "--relay", "https://relay.example").code == 2
    assert other.crystal("init", "--yes", "--no-local-memory").code == 2
    done = other.crystal("init", "--yes", "--role", "home")
    assert done.code == 3
    assert "no relay is set" in done.err
    done = desk.crystal("init", "--yes", "--role", "device")
    assert done.code == 2
    assert "crystal demote" in done.err
    assert not (other.home / ".ldm" / "memory" / "relay.key").exists()


def test_init_as_home_refuses_a_token_that_the_relay_does_not_know(tmp_path, relay):
    other = Computer(tmp_path / "other")
    bad = relay.token("gone", "home")[:-9] + "00000000"
    done = other.crystal("init", "--yes", "--role", "home", "--relay", relay.url, "--token-stdin", stdin=bad + "\n")
    assert done.code == 5
    assert not (other.home / ".ldm" / "memory" / "relay.key").exists()


def test_what_was_private_on_one_machine_stays_out_on_the_others(desk, tmp_path):
    lap = Computer(tmp_path / "lap")
    pair_by_hand(desk, lap, "lap")
    secret = line("said while capture was off", ident="99999999-9999-4999-8999-999999999999")
    desk.ok("--off")
    desk.say(SECOND, secret)
    desk.ok("sync")
    desk.ok("--on")
    desk.poll()
    lap.deliver()
    lap.say(THIRD, secret, line("said on the lap"))  # a fork of that session, copied to the laptop
    lap.ok("sync")
    assert lap.texts() == ["said on the lap"]
    desk.poll()
    assert desk.texts() == ["said at the desk", "said on the lap"]


def test_a_relay_that_refuses_is_told_from_one_that_is_silent(desk, tmp_path):
    lap = Computer(tmp_path / "lap")
    pair_by_hand(desk, lap, "lap")
    with desk.machine() as machine, relay_client(machine) as client:
        client.revoke_token(all_peers(machine.store, "device")[0].token_id or "")
    done = lap.crystal("relay", "sync")
    assert (done.code, "error" in done.err) == (5, True)
    with lap.machine() as machine:
        set_value(machine.places.config_file, "relay.url", "http://127.0.0.1:9")
    assert lap.crystal("relay", "sync").code == 4


def test_a_device_whose_key_cannot_be_read_goes_on_capturing_and_says_so(desk, tmp_path):
    lap = Computer(tmp_path / "lap")
    pair_by_hand(desk, lap, "lap")
    key = lap.home / ".ldm" / "memory" / "relay.key"
    good = key.read_bytes()
    key.write_bytes(b"garbled\n")
    key.chmod(0o600)
    lap.say(SECOND, line("said without a key"))
    done = lap.crystal("sync")
    assert "said without a key" in lap.texts()
    assert "relay.key" in done.err
    assert any(one["part"] == "relay" for one in lap.json("status")["problems"])
    key.write_bytes(good)
    lap.ok("sync")
    desk.poll()
    assert "said without a key" in desk.texts()
    assert not any(one["part"] == "relay" for one in lap.json("status")["problems"])
