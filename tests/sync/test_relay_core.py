"""The relay's core: whatever happens on the way, home has what the devices said, once, and says exactly what it lacks."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from crystal.store.capture import ledger
from crystal.store.health import checks
from crystal.store.sync import outbox, past
from tests.support.capture_machine import line
from tests.support.relay_fate import (
    DAY,
    archived,
    assert_settled,
    backfill,
    texts,
    waiting,
)
from tests.support.relay_world import Device, World
from tests.support.said_rows import said

# -- ordinary days ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_devices_say_is_at_home_row_for_row(world: World) -> None:
    one, two = world.device("laptop"), world.device("tower")
    one.say("a", line("first"), line("second", role="assistant"))
    two.say("b", line("third"))
    one.say("a", line("fourth"))
    assert_settled(world, after=2)
    assert len(said(world.home.store)) == 4
    assert {row[11] for row in said(world.home.store)} == {"laptop", "tower"}


@pytest.mark.slow
def test_the_archive_at_home_is_the_devices_archive_byte_for_byte(world: World, device: Device) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" * 2
    device.say("a", line("plain"), b"\n", line(f"my token {secret} here"), b"  \n", line("after it"))
    device.say("a", b"{broken json\n", line("more \u00e9\u4e2d"))
    device.say("b", line("another"))
    assert_settled(world, after=2)
    assert archived(world.home.machine, "laptop") == archived(device.machine, "laptop")
    assert (world.home.machine.home / "agents/cc-laptop/memory/transcripts/a.jsonl.zst").read_bytes() == (
        device.machine.home / "agents/cc-laptop/memory/transcripts/a.jsonl.zst"
    ).read_bytes()


@pytest.mark.slow
def test_a_line_of_many_parts_arrives_as_one(world: World, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crystal.sync.envelope.blob.PART_BYTES", 3000)
    device.say("a", line("small"), line("x" * 40_000), line("small again"))
    assert waiting(device) > 10
    assert_settled(world, after=2)
    assert world.home.store.value("SELECT count(*) FROM relay_fragments") == 0


@pytest.mark.slow
def test_a_line_of_a_hundred_megabytes_arrives(world: World, device: Device) -> None:
    device.say("a", line("y" * (100 << 20)))
    assert waiting(device) > 14
    assert_settled(world, after=2)


@pytest.mark.slow
def test_a_receipt_lets_go_of_exactly_what_home_has(world: World, device: Device) -> None:
    device.say("a", line("one"))
    device.deliver()
    device.say("a", line("two"))
    world.home.poll()
    assert waiting(device) == 2
    device.deliver()
    assert waiting(device) == 1
    assert device.store.value("SELECT count(*) FROM outbox") == 2, "kept for a home that may be restored"
    device.deliver()
    world.home.poll()
    world.pass_time(15 * DAY)
    device.deliver()
    assert device.store.value("SELECT count(*) FROM outbox") == 1, "the receipt of the last one is fresh"
    world.pass_time(15 * DAY)
    device.deliver()
    assert device.store.value("SELECT count(*) FROM outbox") == 0


@pytest.mark.slow
def test_a_device_without_a_memory_of_its_own_sends_all_the_same(world: World) -> None:
    device = world.device("laptop", local_memory=False)
    device.say("a", line("one"), line("two"))
    world.settle(2)
    assert texts(world.home.store) == ["one", "two"]
    assert texts(device.store) == []
    assert waiting(device) == 0


def test_an_ended_session_ends_at_home_and_only_its_devices_can_end_it(world: World) -> None:
    from crystal.sync.sink import tell_ended

    device, other = world.device("laptop"), world.device("tower")
    device.say("a", line("one"))
    world.settle(1)
    tell_ended(other.store, other.link(), "a", 5, other.machine.now)
    world.settle(1)
    assert world.home.store.value("SELECT ended_at FROM sessions") is None
    tell_ended(device.store, device.link(), "a", 7, device.machine.now)
    world.settle(1)
    assert world.home.store.value("SELECT ended_at FROM sessions") == 7
    device.say("a", line("it goes on"))
    world.settle(1)
    assert world.home.store.value("SELECT ended_at FROM sessions") is None


@pytest.mark.slow
def test_private_segments_leave_no_word_and_no_hole(world: World, device: Device) -> None:
    device.machine.private_sessions = ("hush*",)
    device.say("hush-1", line("nobody hears"), line("this"))
    device.say("open", line("heard"))
    world.settle(2)
    assert texts(world.home.store) == ["heard"]
    state = ledger.state_of(world.home.store, "laptop", "hush-1")
    assert state is not None
    assert {row.state for row in checks.ledger_rows(world.home.store, state.id)} == {"private"}


# -- the past, and orders ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_past_comes_behind_the_present_and_fills_its_hole(world: World, device: Device) -> None:
    path = device.machine.transcript("a")
    path.write_bytes(b"".join(line(f"old {number}") for number in range(5)))
    device.store.execute("DELETE FROM capture_roots")
    device.sweep()
    device.say("a", line("new"))
    world.settle(1)
    assert texts(world.home.store) == ["new"]
    backfill(device)
    assert_settled(world, after=2)
    assert len(texts(world.home.store)) == 6
    assert archived(world.home.machine, "laptop") == archived(device.machine, "laptop")


@pytest.mark.slow
def test_live_and_past_may_come_in_any_order(world: World, device: Device) -> None:
    path = device.machine.transcript("a")
    path.write_bytes(b"".join(line(f"old {number}") for number in range(5)))
    device.store.execute("DELETE FROM capture_roots")
    device.sweep()
    device.say("a", line("new"))
    backfill(device)
    live = next(one for one in outbox.streams(device.store) if one.lane == "live")

    def held_back(request: httpx.Request) -> None:
        if live.stream.hex() in request.url.path:
            raise httpx.ConnectError("held back")

    world.home.weather.before = held_back
    device.deliver()
    world.home.poll()
    assert "new" not in texts(world.home.store)
    world.home.machine.assert_sound()
    world.home.weather.before = lambda request: None
    assert_settled(world, after=2)


@pytest.mark.slow
def test_a_replaced_file_is_a_generation_of_its_own(world: World, device: Device) -> None:
    device.say("a", line("one"), line("two"))
    path = device.machine.transcript("a")
    path.write_bytes(line("other one") + line("two more"))
    device.sweep()
    assert_settled(world, after=2)
    assert archived(world.home.machine, "laptop") == archived(device.machine, "laptop")


@pytest.mark.slow
def test_everything_sent_again_from_the_archive_is_what_was_sent_live(world: World, device: Device) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" * 2
    device.machine.private_projects = ("/home/dev/secret",)
    device.say(
        "a",
        line("plain", ident=None),
        line(f"token {secret} and {secret}"),
        line("hidden", cwd="/home/dev/secret"),
        line("no id, after a secret", uuid=None),
        b"\n",
        line(f"{secret}", uuid=None),
        b'{"type":"summary","summary":"x"}\n',
        line("no id at the end", uuid=None),
    )
    direct = said(device.store)
    device.store.execute("DELETE FROM outbox")
    device.store.execute("DELETE FROM relay_out")
    device.send_all()
    world.settle(3)
    assert said(world.home.store) == direct
    assert_settled(world)
    assert archived(world.home.machine, "laptop") == archived(device.machine, "laptop")


@pytest.mark.slow
def test_the_past_waits_in_small_numbers_and_says_private_lines_once(world, device, monkeypatch):
    monkeypatch.setattr("crystal.sync.past.MAX_WAITING", 3)
    device.machine.private_projects = ("/home/dev/secret",)
    device.say("a", line("hidden", cwd="/home/dev/secret"), line("hidden too", cwd="/home/dev/secret"))
    for number in range(8):
        device.say("a", line(f"n {number}"))
    world.settle(2)
    device.send_all()
    for _ in range(5):
        device.deliver()  # home does not answer
    lane = [one for one in outbox.streams(device.store) if one.lane == "past"]
    assert sum(one.last_seq for one in lane) <= 4
    world.settle(10)
    assert past.read_place(device.store) is None
    assert_settled(world)


@pytest.mark.slow
def test_long_and_odd_names_of_an_honest_device_arrive(world: World) -> None:
    """What an honest device can capture, home can read."""
    good = world.device("good")
    folder = good.machine.root / "p" / ("s" * 250) / "subagents"
    folder.mkdir(parents=True)
    odd = folder / ("agent-" + "x" * 230 + ".jsonl")
    odd.write_bytes(line("long names"))
    strange = Path(str(good.machine.root / "p").encode().decode() + "/od\udcff\udcfed.jsonl")
    strange.write_bytes(line("odd names"))
    good.sweep()
    assert_settled(world, after=2)
    assert texts(world.home.store) == ["long names", "odd names"]
