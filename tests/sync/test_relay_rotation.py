"""Keys that are revoked, rotated, wrong or gone: what they block, and that nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from crystal.store import problems
from crystal.store.sync import inbox, outbox, relay_peers
from crystal.store.sync.refusal_counts import refusals
from tests.support.capture_machine import line
from tests.support.killed import killed_at
from tests.support.relay_fate import (
    assert_settled,
    clone,
    everything,
    reopen,
    revoke,
    rotate,
    texts,
    waiting,
)
from tests.support.relay_world import World
from tests.support.said_rows import said

# -- keys -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_revoked_device_is_refused_and_named_and_nobody_else_notices(world: World) -> None:
    device, other = world.device("laptop"), world.device("tower")
    device.say("a", line("before"))
    other.say("b", line("one"))
    world.settle(1)
    revoke(world, "laptop")
    device.say("a", line("after"))
    other.say("b", line("two"))
    device.deliver()
    other.deliver()
    report = world.home.poll()
    assert texts(world.home.store) == ["before", "one", "two"]
    assert report.stuck == 0, "nothing of it is fetched"
    (refused,) = refusals(world.home.store)
    assert (refused.code, refused.streams) == ("revoked", 2), "what it says, and that it lives"
    world.settle(2)
    assert waiting(other) == 0
    assert waiting(device) == 1


@pytest.mark.slow
def test_after_a_rotation_the_old_keys_open_nothing(world: World) -> None:
    device, other = world.device("laptop"), world.device("tower")
    device.say("a", line("one"))
    world.settle(1)
    thief = clone(world, device, "thief")
    world.devices.remove(thief)
    rotate(world, "laptop")
    device.say("a", line("two"))
    device.deliver()
    world.home.poll()
    assert "two" in texts(world.home.store), "both are accepted until the first word under the new ones"
    device.deliver()
    world.home.poll()
    peer = relay_peers.find_peer(world.home.store, "laptop")
    assert peer.accepted_from == peer.generation == 2, "also when nothing new is said"
    thief.say("z", line("stolen words"))
    thief.deliver()
    world.home.poll()
    assert "stolen words" not in texts(world.home.store)
    device.say("a", line("three"))
    other.say("b", line("four"))
    world.settle(2)
    thief.machine.store.close()
    assert said(world.home.store) == everything(world)
    assert waiting(device) == waiting(other) == 0
    assert {one.generation for one in outbox.streams(device.store) if one.closed_at is None} == {2}
    assert {one.generation for one in outbox.streams(world.home.store) if one.closed_at is None} >= {2}


@pytest.mark.slow
@pytest.mark.parametrize("step", [37, pytest.param(3, marks=pytest.mark.slow)])
def test_a_crash_anywhere_in_a_rotation_loses_nothing(tmp_path: Path, step: int) -> None:
    crash_at, done = 1, False
    while not done:
        world = World(tmp_path / f"w{crash_at}")
        device = world.device("laptop")
        device.say("a", line("one"))
        world.settle(1)
        rotate(world, "laptop")
        device.say("a", line("two"))
        world.home.poll()
        with killed_at(device.store, crash_at) as run:
            device.deliver()
        done = not run.is_killed
        reopen(device)
        assert_settled(world, after=3)
        assert relay_peers.find_peer(world.home.store, "laptop").accepted_from == 2
        world.home.machine.assert_sound()
        world.close()
        crash_at += step
    assert crash_at > 20


@pytest.mark.slow
def test_a_wrong_key_blocks_that_device_only_and_loses_nothing(world: World) -> None:
    device, other = world.device("laptop"), world.device("tower")
    right = device.secrets[1]
    device.secrets[1] = bytes(32)
    device.say("a", line("sealed wrongly"))
    other.say("b", line("fine"))
    device.deliver()
    other.deliver()
    assert world.home.poll().stuck == 2
    assert texts(world.home.store) == ["fine"]
    wrong = [one.code for one in inbox.all_streams(world.home.store) if one.state == "wrong-key"]
    assert wrong == ["key", "key"], "the conversation, and the heartbeat"
    prefix = device.peer().up_prefix
    assert sum(one.count for one in world.home.client.streams().streams if one.stream[:8] == prefix) > 0
    device.secrets[1] = right
    assert waiting(device) == 1


@pytest.mark.slow
def test_a_key_that_is_gone_is_named_and_what_is_said_is_kept_and_sent_when_it_is_back(world, device):
    device.say("a", line("sealed"))
    secrets = dict(device.secrets)
    device.secrets.clear()
    device.say("a", line("said without a key"))
    device.say("b", line("a new session without a key"))
    assert waiting(device) == 1
    assert texts(device.store) == ["a new session without a key", "said without a key", "sealed"]
    assert [one.part for one in problems.list_problems(device.store)] == ["relay"]
    device.secrets.update(secrets)
    device.say("a", line("sealed again"))
    assert_settled(world, after=2)
    assert texts(world.home.store) == ["a new session without a key", "said without a key", "sealed", "sealed again"]
    assert problems.list_problems(device.store) == []


@pytest.mark.slow
def test_a_key_that_is_gone_is_named_and_nothing_moves_where_nothing_is_kept_here(world: World) -> None:
    from crystal.errors import NotConfiguredError

    device = world.device("laptop", local_memory=False)
    secrets = dict(device.secrets)
    device.secrets.clear()
    path = device.machine.transcript("a")
    path.write_bytes(line("waits"))
    with pytest.raises((NotConfiguredError, AssertionError)):
        device.sweep()
    assert waiting(device) == 0
    device.secrets.update(secrets)
    device.sweep()
    world.settle(2)
    assert texts(world.home.store) == ["waits"]
    assert waiting(device) == 0
