"""Outages and backups: a relay, a home or a device that forgot costs time, and no words."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from crystal.store import problems
from crystal.store.sync import inbox, outbox, relay_peers
from crystal.sync import delivery
from tests.support.capture_machine import line
from tests.support.relay_fate import (
    DAY,
    archived,
    assert_settled,
    backup,
    clone,
    restore,
    texts,
    waiting,
)
from tests.support.relay_weather import refusing_puts
from tests.support.relay_world import Device, World

pytestmark = pytest.mark.slow

# -- outages ----------------------------------------------------------------------------------------------------------


def test_an_outage_costs_nothing_but_time(world: World, device: Device) -> None:
    asked: list[int] = []

    def down(request: httpx.Request) -> None:
        asked.append(1)
        raise httpx.ConnectError("down")

    device.weather.before = down
    for number in range(5):
        device.say("a", line(f"n {number}"))
        device.deliver(skip_delay=False)
    assert len(asked) == 1, "the hooks of an outage do not ask again"
    problem = problems.find_problem(device.store, delivery.PART)
    assert problem is not None
    assert problem.retry_at is not None
    waits = []
    for _ in range(12):
        problem = problems.find_problem(device.store, delivery.PART)
        assert problem is not None
        assert problem.retry_at is not None
        waits.append(problem.retry_at - device.machine.now)
        world.pass_time(waits[-1] + 1)
        device.deliver(skip_delay=False)
    assert waits[-1] >= 1_000_000
    assert max(waits) <= 1.5 * delivery.MAX_WAIT_MS
    assert len(set(waits)) > 3, "jitter"
    device.weather.before = lambda request: None
    assert_settled(world, after=2)
    assert problems.find_problem(device.store, delivery.PART) is None


def test_a_relay_that_names_a_time_is_asked_then(world: World, device: Device) -> None:
    device.say("a", line("one"))
    device.weather.after = lambda request, response: httpx.Response(429, headers={"Retry-After": "1800"})
    assert device.deliver().problem
    problem = problems.find_problem(device.store, delivery.PART)
    assert problem is not None
    assert (problem.retry_at or 0) - device.machine.now == 1_800_000
    device.weather.after = lambda request, response: response
    assert_settled(world, after=2)


def test_a_wait_written_by_a_wrong_clock_ends(world: World, device: Device) -> None:
    device.say("a", line("one"))
    device.machine.now += 3650 * DAY
    device.weather.before = lambda request: (_ for _ in ()).throw(httpx.ConnectError("down"))
    device.deliver()
    device.weather.before = lambda request: None
    device.machine.now -= 3650 * DAY
    assert device.deliver(skip_delay=False).sent == 1


def test_a_full_relay_does_not_keep_a_device_from_hearing_home(world: World, device: Device) -> None:
    device.say("a", line("one"))
    device.deliver()
    world.home.poll()
    device.say("a", line("two"))
    device.weather.after = refusing_puts(507, "account-full")
    report = device.deliver()
    assert report.problem
    assert report.heard
    device.weather.after = lambda request, response: response
    assert_settled(world, after=2)


@pytest.mark.parametrize("when", ["before the poll", "after the poll", "after the receipt"])
def test_a_relay_that_loses_everything_loses_nothing(world: World, device: Device, when: str) -> None:
    device.say("a", line("one"))
    device.say("a", line("two"))
    device.deliver()
    if when != "before the poll":
        world.home.poll()
    if when == "after the receipt":
        device.deliver()
    world.relay.wipe()
    device.say("a", line("three"))
    assert_settled(world, after=4)


def test_a_blob_that_expired_unread_is_sent_again(world: World, device: Device) -> None:
    device.say("a", line("one"))
    device.say("a", line("two"))
    device.deliver()
    stream = outbox.streams(device.store)[0].stream
    world.pass_time(40 * DAY)
    world.relay.expire()
    assert device.client.blobs(stream, 0).expired_upto == 2
    world.home.poll()
    assert world.home.missing()[stream] == [1, 2]
    assert_settled(world, after=2)


def test_a_home_token_in_wrong_hands_deletes_nothing_for_good(world: World, device: Device) -> None:
    device.say("a", line("one"))
    device.say("a", line("two"))
    device.deliver()
    stream = outbox.streams(device.store)[0].stream
    world.home.client.ack(stream, 2)
    world.home.poll()
    assert world.home.missing() == {stream: [1, 2]}
    assert_settled(world, after=2)


# -- backups ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_wiped", [False, True])
def test_a_home_from_a_backup_gets_what_it_lost(world: World, device: Device, tmp_path: Path, is_wiped: bool) -> None:
    device.say("a", line("one"))
    world.settle(1)
    copy = backup(world.home, tmp_path / "home.db")
    device.say("a", line("two"))
    device.say("b", line("three"))
    world.settle(2)
    assert waiting(device) == 0
    restore(world.home, copy)
    assert texts(world.home.store) == ["one"]
    if is_wiped:
        world.relay.wipe()
    assert_settled(world, after=4)
    assert device.store.value("SELECT count(*) FROM relay_out WHERE lane = 'past'") == 0, "the outbox still had it"


@pytest.mark.parametrize("is_wiped", [False, True])
def test_what_the_outbox_has_no_more_comes_from_the_archive_once(world, device, tmp_path, is_wiped):
    device.say("a", line("one"))
    world.settle(1)
    copy = backup(world.home, tmp_path / "home.db")
    for number in range(4):
        device.say("a", line(f"n {number}"))
    world.settle(2)
    world.pass_time(20 * DAY)
    device.say("b", line("late"))
    world.settle(2)
    assert device.store.value("SELECT count(*) FROM outbox") < 4
    restore(world.home, copy)
    if is_wiped:
        world.relay.wipe()
    assert_settled(world, after=4)
    before = device.store.value("SELECT sum(last_seq) FROM relay_out WHERE lane = 'past'")
    assert before
    device.say("b", line("later"))
    world.settle(4)
    assert device.store.value("SELECT sum(last_seq) FROM relay_out WHERE lane = 'past'") == before, (
        "not again and again"
    )
    assert_settled(world)


def test_a_home_from_a_backup_whose_clock_went_back_is_heard(world: World, device: Device, tmp_path: Path) -> None:
    device.say("a", line("one"))
    world.settle(1)
    copy = backup(world.home, tmp_path / "home.db")
    world.home.machine.now += 3650 * DAY
    device.say("a", line("two"))
    world.settle(2)
    restore(world.home, copy)
    world.home.machine.now -= 3650 * DAY
    device.say("a", line("three"))
    assert_settled(world, after=4)


@pytest.mark.parametrize("is_wiped", [False, True])
def test_a_device_from_a_backup_goes_on_in_another_stream(world, device, tmp_path, is_wiped):
    device.say("a", line("one"))
    world.settle(1)
    copy = backup(device, tmp_path / "device.db")
    device.say("a", line("two"))
    device.say("a", line("three"))
    world.settle(2)
    restore(device, copy)
    if is_wiped:
        world.relay.wipe()
    device.say("a", line("four"))
    assert_settled(world, after=4)
    assert archived(world.home.machine, "laptop") == archived(device.machine, "laptop")


def test_two_copies_of_a_device_in_one_file_lose_and_double_nothing(world: World, device: Device) -> None:
    device.say("a", line("shared"))
    world.settle(1)
    device.say("a", line("shared, not sent"))
    other = clone(world, device, "laptop-copy")
    device.say("a", line("of the first"))
    other.say("a", line("of the second, longer than the other's"))
    device.say("b", line("b of the first"))
    other.say("a", line("of the second again", uuid=None))
    device.say("a", line("of the first again", uuid=None))
    assert_settled(world, after=5)
    assert relay_peers.all_peers(world.home.store)[0].forked_at is not None
    for round_ in range(3):
        device.say("a", line(f"first {round_}"))
        other.say("a", line(f"second {round_}"))
        world.settle(2)
    assert_settled(world)
    stuck = [one for one in inbox.all_streams(world.home.store) if one.state not in ("ok", "left")]
    assert stuck == []


@pytest.mark.parametrize("first", [0, 1])
def test_two_copies_over_a_relay_that_forgot_lose_nothing(world: World, device: Device, first: int) -> None:
    device.say("a", line("shared"))
    world.settle(1)
    other = clone(world, device, "laptop-copy")
    pair = (device, other) if first == 0 else (other, device)
    pair[0].say("a", line("x1"))
    pair[0].deliver()
    world.relay.wipe()
    pair[1].say("a", line("y1"))
    pair[1].say("a", line("y2"))
    pair[1].deliver()
    world.home.poll()
    pair[0].say("a", line("x2"))
    assert_settled(world, after=6)
    assert [one.state for one in inbox.all_streams(world.home.store) if one.state not in ("ok", "left")] == []
