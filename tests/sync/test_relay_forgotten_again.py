"""Machines that lost something, documents that come late: every machine learns what is forgotten again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crystal.store.forget.forgetting import add_tombstones
from crystal.store.sync import relay_forgotten
from crystal.sync import forgotten
from tests.support.capture_machine import NOW, line
from tests.support.killed import killed_at
from tests.support.relay_fate import backup, clone, reopen, restore, revoke, rotate
from tests.support.relay_tombstones import confirmed, tombstone, uids
from tests.support.relay_world import Device, World

pytestmark = pytest.mark.slow


def test_a_device_put_back_from_before_learns_of_everything_again(world: World) -> None:
    one, two = world.device("laptop"), world.device("tower")
    one.say("a", line("plum", ident="u-1"), line("pear", ident="u-2"))
    world.settle(1)
    copy = backup(one, world.folder / "old.db")
    two.forget(tombstone(1, "u-1"))
    world.settle(2)
    assert uids(one.store) == {tombstone(1).uid}
    restore(one, copy)
    one.say("a", line("plum again", ident="u-1"))
    world.settle(3)
    assert uids(one.store) >= {tombstone(1).uid}
    assert confirmed(one)


def test_a_home_put_back_from_before_learns_from_its_devices(world: World) -> None:
    one, two = world.device("laptop"), world.device("tower")
    world.settle(1)
    copy = backup(world.home, world.folder / "old.db")
    one.forget(tombstone(1, "u-1"))
    with world.home.store.transaction():
        add_tombstones(world.home.store, [tombstone(2, "u-2")], NOW)
    world.settle(3)
    assert len(uids(two.store)) == 2
    restore(world.home, copy)
    assert uids(world.home.store) == set()
    with world.home.store.transaction():  # numbers that were given out before mean others now
        add_tombstones(world.home.store, [tombstone(number, "u-x") for number in (3, 4, 5)], NOW)
    world.settle(5)
    everything = {tombstone(number).uid for number in range(1, 6)}
    assert uids(world.home.store) == uids(one.store) == uids(two.store) == everything
    assert confirmed(one)
    assert confirmed(two)


def test_what_only_a_device_that_is_gone_had_said_comes_back_from_the_others(world: World) -> None:
    one, two = world.device("laptop"), world.device("tower")
    world.settle(1)
    copy = backup(world.home, world.folder / "old.db")
    one.forget(tombstone(1, "u-1"))
    world.settle(3)
    restore(world.home, copy)
    revoke(world, "laptop")
    world.settle(10)  # a device that has nothing to say is heard every six hours
    assert uids(world.home.store) == uids(two.store) == {tombstone(1).uid}


def test_what_home_has_receipted_and_never_told_back_is_sealed_again(world: World) -> None:
    one = world.device("laptop")
    one.forget(tombstone(1, "u-1"))
    world.settle(1)
    with world.home.store.transaction():  # somebody skipped it, or the like
        world.home.store.execute("DELETE FROM tombstones")
    with one.store.transaction():
        relay_forgotten.clear_confirmations(one.store)
    world.pass_time(7 * 3_600_000)
    world.settle(4)
    assert uids(world.home.store) == {tombstone(1).uid}
    assert confirmed(one)


def test_copies_of_a_device_both_learn(world: World) -> None:
    one = world.device("laptop")
    one.say("a", line("plum", ident="u-1"))
    world.settle(1)
    other = clone(world, one, "copy")
    one.forget(tombstone(1, "u-1"))
    other.forget(tombstone(2, "u-2"))
    world.settle(6)
    assert uids(world.home.store) >= {tombstone(1).uid, tombstone(2).uid}
    assert uids(one.store) == uids(other.store) == uids(world.home.store)


def test_rotated_keys_carry_what_waits(world: World) -> None:
    one = world.device("laptop")
    one.say("a", line("pear", ident="u-2"))
    one.forget(tombstone(1, "u-1"))
    rotate(world, "laptop")
    world.home.tell()
    world.settle(4)
    assert uids(world.home.store) == {tombstone(1).uid}
    assert confirmed(one)


def test_a_relay_that_loses_everything_loses_no_forgetting(world: World) -> None:
    one, two = world.device("laptop"), world.device("tower")
    one.forget(tombstone(1, "u-1"))
    one.deliver()
    world.relay.wipe()
    world.settle(4)
    assert uids(world.home.store) == uids(two.store) == {tombstone(1).uid}


def told(world: World, number: int) -> forgotten.TombstoneBatch:
    """What home says to its first device when it knows so many."""
    with world.home.store.transaction():
        add_tombstones(world.home.store, [tombstone(at, f"u-{at}") for at in range(1, number + 1)], NOW)
    read = forgotten.read_tombstone_batch(forgotten.forgotten_for(world.home.store, world.home.peers()[0]))
    assert read is not None
    return read


def take(device: Device, *ones: forgotten.TombstoneBatch) -> None:
    for one in ones:
        with device.store.transaction():
            forgotten.take_from_home(device.store, device.peer(), one, now=NOW, as_of=NOW)


def test_documents_that_come_late_twice_or_not_at_all_change_nothing(world: World) -> None:
    one = world.device("laptop")
    first, second = told(world, 2), told(world, 3)
    take(one, second, first, second, second)
    progress = relay_forgotten.read_tombstone_progress(one.store)
    assert progress is not None
    assert progress.number == 3
    assert len(uids(one.store)) == 3
    world.settle(2)
    assert relay_forgotten.behind(world.home.store, world.home.peers()[0].told) is None


def test_a_crash_while_a_document_is_taken_leaves_all_or_nothing(world: World) -> None:
    one = world.device("laptop")
    world.settle(1)
    words = told(world, 3)
    for step in range(1, 100):
        with killed_at(one.store, step) as run:
            take(one, words)
        if not run.is_killed:
            break
        reopen(one)
        progress = relay_forgotten.read_tombstone_progress(one.store)
        assert (len(uids(one.store)), 0 if progress is None else progress.number) == (0, 0)
    assert step > 10
    assert len(uids(one.store)) == 3


def test_a_device_that_claims_what_it_cannot_have_is_told_anew_and_nobody_else_is(world: World) -> None:
    one, two = world.device("laptop"), world.device("tower")
    one.forget(tombstone(1, "u-1"))
    world.settle(3)
    progress = relay_forgotten.read_tombstone_progress(one.store)
    assert progress is not None
    with one.store.transaction():
        relay_forgotten.write_tombstone_progress(one.store, replace(progress, number=999, mark="0" * 16))
    one.say("a", line("pear", ident="u-2"))
    one.deliver()
    world.home.poll()
    told = {peer.name: forgotten.forgotten_for(world.home.store, peer) for peer in world.home.peers()}
    assert told["tower"] is None
    assert told["laptop"] is not None
    assert (told["laptop"]["lost"], told["laptop"]["from"]) == (True, 0)
    world.settle(3)
    assert uids(one.store) == uids(two.store) == {tombstone(1).uid}
    assert confirmed(one)


@pytest.mark.parametrize("said", [None, 3, [], ["a"], ["a", "b"], [-1, "c"], [True, "c"], [1, 2], [1 << 60, "c"]])
def test_what_a_heartbeat_says_is_read_strictly(world: World, said: object) -> None:
    world.device("laptop")
    peer = replace(world.home.peers()[0], told={"forgotten": said})
    assert forgotten.forgotten_for(world.home.store, peer) is None
    assert relay_forgotten.behind(world.home.store, peer.told) is None
