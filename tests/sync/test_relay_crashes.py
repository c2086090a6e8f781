"""Crashes, full disks and two pollers at once: nothing is lost and nothing doubled."""

from __future__ import annotations

from dataclasses import replace

import httpx
import pytest

from crystal.errors import UnavailableError
from crystal.store import Store
from crystal.store.capture import ledger
from crystal.store.sync import inbox
from crystal.sync.envelope.blob import Channel
from tests.support.capture_machine import line
from tests.support.examples import part_of
from tests.support.killed import killed_at
from tests.support.relay_fate import (
    assert_settled,
    faults,
    reopen,
    texts,
)
from tests.support.relay_world import Device, World

# -- crashes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [97, pytest.param(5, marks=pytest.mark.slow)])
@pytest.mark.parametrize("side", part_of(["device", "home"]))
def test_a_crash_at_any_statement_loses_and_doubles_nothing(tmp_path, side, step, monkeypatch):
    monkeypatch.setattr("crystal.sync.envelope.blob.PART_BYTES", 900)
    crash_at, is_killed = 1, True
    while is_killed:
        world = World(tmp_path / f"{side}{crash_at}")
        device = world.device("laptop")
        device.say("a", line("one"), line("two"))
        device.say("b", line("x" * 3000))
        device.say("a", line("three"))
        hands = world.home if side == "home" else device
        if side == "home":
            device.deliver()
        with killed_at(hands.machine.store, crash_at) as run:
            if side == "device":
                device.say("c", line("four"))
                device.deliver()
                device.deliver()
            else:
                world.home.poll()
        is_killed = run.is_killed
        reopen(hands)
        device.sweep()
        assert_settled(world, after=3)
        world.home.machine.assert_sound()
        assert faults(world) == []
        world.close()
        crash_at += step


@pytest.mark.slow
def test_committed_but_not_acknowledged_is_not_taken_twice(world: World, device: Device) -> None:
    device.say("a", line("one"))
    device.deliver()

    def no_ack(request: httpx.Request) -> None:
        if request.url.path.endswith("/ack"):
            raise httpx.ConnectError("gone")

    world.home.weather.before = no_ack
    with pytest.raises(UnavailableError):
        world.home.poll()
    assert texts(world.home.store) == ["one"]
    world.home.weather.before = lambda request: None
    assert_settled(world, after=2)


@pytest.mark.slow
def test_a_full_disk_at_home_stops_nothing_for_good(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from crystal.errors import StoreFullError

    device = world.device("laptop")
    device.say("a", line("one"))
    device.deliver()

    def full(*_: object, **__: object) -> object:
        raise StoreFullError("no space")

    with monkeypatch.context() as patch:
        patch.setattr("crystal.ingest.ingest.archive.append", full)
        with pytest.raises(StoreFullError):
            world.home.poll()
    assert texts(world.home.store) == []
    assert [one.last_seq for one in inbox.all_streams(world.home.store) if one.channel != Channel.HEARTBEAT] == [0]
    assert_settled(world, after=2)


@pytest.mark.slow
def test_a_full_disk_on_the_device_moves_no_watermark(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from crystal.errors import StoreFullError

    device = world.device("laptop")
    device.machine.transcript("a").write_bytes(line("one"))

    def full(*_: object, **__: object) -> None:
        raise StoreFullError("no space")

    with monkeypatch.context() as patch:
        patch.setattr("crystal.sync.sending.outbox.put_blob", full)
        with pytest.raises(StoreFullError):
            device.sweep()
    assert ledger.all_states(device.store) == []
    device.sweep()
    assert_settled(world, after=2)


@pytest.mark.slow
def test_two_pollers_at_once_are_harmless(world: World) -> None:
    import threading

    device, other = world.device("laptop"), world.device("tower")
    for number in range(30):
        device.say(f"s{number % 3}", line(f"n {number}"))
        other.say("t", line(f"m {number}"))
    device.deliver()
    other.deliver()
    problems_met: list[BaseException] = []

    def poll() -> None:
        store = Store.open(world.home.store.path)
        try:
            home = world.home
            machine = replace(home.machine, store=store)
            second = type(home).__new__(type(home))
            second.machine, second.relay, second.at_once = machine, home.relay, 4
            second.weather, second.client = home.weather, home.client
            second.poller().poll()
        except BaseException as error:  # noqa: BLE001
            problems_met.append(error)
        finally:
            store.close()

    threads = [threading.Thread(target=poll) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems_met == []
    known = inbox.all_streams(world.home.store)
    assert [(one.state, one.detail) for one in known if one.state != "ok"] == []
    assert sorted(one.last_seq for one in known if one.channel == 1) == [30, 30]
    assert_settled(world, after=2)
