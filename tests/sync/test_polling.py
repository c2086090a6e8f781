"""What the home machine tells: one document for each device at the relay, and no device in the way of another."""

from __future__ import annotations

import threading
from contextlib import ExitStack

import pytest

from crystal.app.relay_links import relay_client
from crystal.app.sync.device import BUSY, RELAY_LOCK, deliver_relay
from crystal.capture.lock import try_lock
from crystal.store.problems import list_problems
from crystal.store.sync.relay_peers import all_peers
from crystal.sync.client import RelayClient
from crystal.sync.errors import RelayFullError
from tests.support.capture_machine import line
from tests.support.two_machines import Computer, pair_by_hand

FIRST = "11111111-1111-4111-8111-111111111111"


def down_streams(desk: Computer) -> dict[str, list[tuple[int, int]]]:
    """For each device, how many blobs wait for it in each stream, and the newest number."""
    with desk.machine() as machine, relay_client(machine) as client:
        listed = client.streams().streams
        return {
            peer.name: sorted((one.count, one.head) for one in listed if one.stream[:8] == peer.down_prefix)
            for peer in all_peers(machine.store, "device")
        }


@pytest.mark.slow
def test_a_device_that_is_away_finds_one_document_of_each_kind(desk, tmp_path):
    lap = Computer(tmp_path / "lap")
    pair_by_hand(desk, lap, "lap")
    for number in range(4):
        desk.say(FIRST, line(f"said at the desk, {number}"))
        desk.ok("sync")
        desk.poll()
    found = down_streams(desk)["lap"]
    assert [count for count, _ in found] == [1, 1], "receipts and manifest, each the newest only"
    assert max(head for _, head in found) > 1
    lap.deliver()
    assert "said at the desk, 3" in lap.ok("search", "desk 3")


@pytest.mark.slow
def test_a_person_waits_for_another_process_that_uses_the_relay(desk, tmp_path, monkeypatch):
    lap = Computer(tmp_path / "lap")
    pair_by_hand(desk, lap, "lap")
    lap.say(FIRST, line("said on the lap"))
    with lap.machine() as machine, try_lock(machine.places.data_dir / RELAY_LOCK) as held:
        assert held is not None
        assert deliver_relay(machine).problem == BUSY, "a worker does not wait"
        monkeypatch.setattr("crystal.app.sync.device.BUSY_SECONDS", 0.1)
        assert lap.deliver().problem == BUSY
    monkeypatch.undo()
    with lap.machine() as machine, ExitStack() as other:
        other.enter_context(try_lock(machine.places.data_dir / RELAY_LOCK))
        release = threading.Timer(0.3, other.close)
        release.start()
        assert lap.deliver().problem is None
        release.join()


@pytest.mark.slow
def test_a_device_that_cannot_be_told_does_not_keep_the_others_from_hearing(desk, tmp_path, monkeypatch):
    lap, phone = Computer(tmp_path / "lap"), Computer(tmp_path / "phone")
    pair_by_hand(desk, lap, "lap")
    pair_by_hand(desk, phone, "phone")
    with desk.machine() as machine:
        prefix = all_peers(machine.store, "device")[0].down_prefix
    put = RelayClient.put

    def full_for_one(self, stream, *arguments, **more):
        if stream[:8] == prefix:
            raise RelayFullError("the stream is full", code="stream-full")
        return put(self, stream, *arguments, **more)

    monkeypatch.setattr(RelayClient, "put", full_for_one)
    outcome = desk.poll()
    assert outcome.problems == ("lap could not be told: the stream is full",)
    assert down_streams(desk)["phone"]
    monkeypatch.undo()
    assert desk.poll().problems == ()
    assert down_streams(desk)["lap"]


@pytest.mark.slow
def test_a_mirror_that_cannot_be_published_is_named_and_costs_no_receipt(desk, tmp_path, monkeypatch):
    lap = Computer(tmp_path / "lap")
    pair_by_hand(desk, lap, "lap")
    lap.say(FIRST, line("said on the lap"))
    lap.ok("sync")

    def full(self, *_, **__):
        raise RelayFullError("the account is full", code="account-full")

    monkeypatch.setattr(RelayClient, "put_object", full)
    outcome = desk.poll()
    assert outcome.report.turns == 1
    assert outcome.problems == ("the mirror could not be published: the account is full",)
    with desk.machine() as machine:
        assert [one.part for one in list_problems(machine.store)] == ["mirror"]
    lap.deliver()
    assert lap.json("status")["relay"]["outbox"]["blobs"] == 0
    monkeypatch.undo()
    assert desk.poll().problems == ()
    with desk.machine() as machine:
        assert list_problems(machine.store) == []
