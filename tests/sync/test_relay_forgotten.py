"""What one machine forgets, every machine learns, once and for good, and nothing that is under way brings it back."""

from __future__ import annotations

import json

import pytest

from crystal.errors import NotConfiguredError
from crystal.store.forget.forgetting import add_tombstones, tombstones_after
from crystal.store.sync import inbox, outbox, relay_forgotten
from crystal.sync import forgotten
from crystal.sync.envelope.packing import PayloadKind
from crystal.sync.sending import put_message
from crystal.sync.tombstones import words_of
from crystal.sync.wire import InvalidRecordError
from tests.support.capture_machine import NOW, line
from tests.support.killed import killed_at
from tests.support.relay_fate import reopen, revoke, texts
from tests.support.relay_tombstones import archive_of, confirmed, tombstone, uids
from tests.support.relay_world import World
from tests.support.table import each_row

DAY = 86_400_000


@pytest.mark.slow
def test_home_and_every_device_learn_what_one_forgets_and_say_so(world: World) -> None:
    one, two = world.device("laptop"), world.device("tower")
    one.forget(tombstone(1, "u-1"), tombstone(2, kind="memory", memories=["mem-0123456789ab"]))
    assert relay_forgotten.count_unconfirmed(one.store) == (1, NOW)
    world.settle(3)
    for store in (world.home.store, one.store, two.store):
        assert len(uids(store)) == 2
    assert {one.device for _, one in tombstones_after(world.home.store, 0, 9)} == {"laptop"}
    assert confirmed(one)
    assert confirmed(two)
    for peer in world.home.peers():
        assert relay_forgotten.behind(world.home.store, peer.told) is None


@pytest.mark.slow
def test_what_is_sealed_before_and_after_a_forgetting_comes_to_home_without_it(world: World) -> None:
    one = world.device("laptop")
    one.say("a", line("before", ident="u-1"), line("secret plum", ident="u-2"), line("after", ident="u-3"))
    one.forget(tombstone(1, "u-2"))
    one.clean()
    world.settle(2)
    assert texts(world.home.store) == ["after", "before"]


@pytest.mark.slow
def test_an_old_blob_that_comes_after_the_tombstone_brings_nothing_back(world: World) -> None:
    one, two = world.device("laptop"), world.device("tower")
    one.say("a", line("before", ident="u-1"), line("secret plum", ident="u-2"))
    two.forget(tombstone(1, "u-2"))
    two.deliver()
    world.home.poll()
    world.settle(2)
    assert texts(world.home.store) == ["before"]
    assert b"plum" not in b"".join(archive_of(world))


@pytest.mark.slow
def test_a_tombstone_that_nobody_could_seal_waits(world: World) -> None:
    one = world.device("laptop")
    with one.store.transaction():
        add_tombstones(one.store, [tombstone(1, "u-1")], NOW)
    secrets = dict(one.secrets)
    one.secrets.clear()
    with pytest.raises(NotConfiguredError), one.store.transaction():
        forgotten.put_forgotten(one.store, one.link(), NOW)
    one.secrets.update(secrets)
    world.settle(2)
    assert uids(world.home.store) == uids(one.store)
    assert confirmed(one)


@pytest.mark.slow
def test_a_crash_between_any_two_statements_loses_and_doubles_nothing(world: World) -> None:
    one = world.device("laptop")
    for step in range(1, 60):
        with killed_at(one.store, step) as run:
            one.forget(tombstone(1, "u-1"))
        if not run.is_killed:
            break
        reopen(one)
        assert uids(one.store) == set()
        assert outbox.backlog(one.store).blobs == 0
    else:
        raise AssertionError("it never came to an end")
    assert step > 5
    world.settle(2)
    assert uids(world.home.store) == uids(one.store) == {tombstone(1).uid}


@pytest.mark.slow
def test_a_revoked_device_makes_nobody_forget(world: World) -> None:
    one, two = world.device("laptop"), world.device("tower")
    two.say("b", line("kept", ident="u-9"))
    world.settle(2)
    revoke(world, "laptop")
    one.forget(tombstone(1, "u-9"))
    world.settle(2)
    assert uids(world.home.store) == uids(two.store) == set()
    assert texts(world.home.store) == ["kept"]


@pytest.mark.slow
def test_a_revoked_device_is_told_of_nothing(world: World) -> None:
    one, two = world.device("laptop"), world.device("tower")
    world.settle(2)
    revoke(world, "laptop")
    two.forget(tombstone(1, "u-9"))
    world.settle(2)
    assert uids(world.home.store) == {tombstone(1).uid}
    assert uids(one.store) == set()


@pytest.mark.slow
def test_a_device_cannot_take_away_what_will_be_said(world: World) -> None:
    one = world.device("laptop")
    one.forget(tombstone(1, kind="before", until_at=NOW + 900 * DAY))
    world.settle(1)
    now = world.home.machine.now
    (found,) = tombstones_after(world.home.store, 0, 9)
    assert found[1].until_at is not None
    assert found[1].until_at <= now


@pytest.mark.slow
def test_a_message_that_makes_no_sense_stops_its_stream_alone(world: World) -> None:
    one, two = world.device("laptop"), world.device("tower")
    words = {"v": 1, "kind": "forget", "tombstones": [{"uid": "no"}]}
    with one.store.transaction():
        put_message(one.store, one.link(), json.dumps(words).encode(), kind=PayloadKind.CONTROL, lane="live", now=NOW)
    two.forget(tombstone(2, "u-2"))
    world.settle(2)
    assert uids(world.home.store) == {tombstone(2).uid}
    assert "damaged" in {stream.state for stream in inbox.all_streams(world.home.store)}


@pytest.mark.slow
def test_what_home_forgets_reaches_a_device_that_was_away_for_months(world: World) -> None:
    one = world.device("laptop")
    world.settle(1)
    with world.home.store.transaction():
        add_tombstones(world.home.store, [tombstone(number, f"u-{number}") for number in range(1, 40)], NOW)
    world.home.poll()
    world.pass_time(120 * DAY)
    world.relay.expire()
    world.settle(3)
    assert uids(one.store) == uids(world.home.store)
    assert confirmed(one)


@pytest.mark.slow
def test_very_many_travel_in_bounded_documents(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forgotten, "MAX_TOLD", 60_000)
    one = world.device("laptop")
    world.settle(1)
    with world.home.store.transaction():
        for number in range(1, 11):
            lines = [f"{number:04d}-{at:06d}" for at in range(1_000)]
            add_tombstones(world.home.store, [tombstone(number, *lines)], NOW)
    peer = world.home.peers()[0]
    told = forgotten.forgotten_for(world.home.store, peer)
    assert told is not None
    assert 0 < told["upto"] < 10
    assert len(json.dumps(told)) < 70_000
    world.settle(8)
    assert uids(one.store) == uids(world.home.store)
    assert one.store.value("SELECT count(*) FROM private_lines") == 10_000


@pytest.mark.slow
def test_one_of_very_many_lines_is_confirmed_when_all_its_parts_are_back(world: World) -> None:
    one, two = world.device("laptop"), world.device("tower")
    lines = [f"u-{number}" for number in range(3_500)]
    one.forget(tombstone(1, *lines, sessions=["a", "b"]))
    world.settle(3)
    assert two.store.value("SELECT count(*) FROM private_lines") == 3_500
    assert world.home.store.value("SELECT count(*) FROM private_lines") == 3_500
    assert confirmed(one)
    count = len(uids(world.home.store))
    world.settle(3)
    assert len(uids(world.home.store)) == count == 4, "nothing goes round and round"


@pytest.mark.slow
def test_a_document_that_does_not_follow_is_left_and_asked_for_again(world: World) -> None:
    one = world.device("laptop")
    world.settle(1)
    told = {"from": 3, "upto": 4, "mark": "ab", "lost": False, "tombstones": []}
    read = forgotten.read_tombstone_batch(told)
    assert read is not None
    with one.store.transaction():
        forgotten.take_from_home(one.store, one.peer(), read, now=NOW, as_of=NOW)
    assert relay_forgotten.progress_with(one.store, forgotten.pairing_of(one.peer())).number == 0
    assert not one.peer().sent, "the next heartbeat is sent in any case"


@each_row(
    "told",
    [
        7,
        [],
        {},
        {"from": 0, "upto": 0, "mark": "", "lost": 0, "tombstones": []},
        {"lost": False, "from": 2, "upto": 1, "mark": "", "tombstones": []},
        {"lost": False, "from": -1, "upto": 1, "mark": "", "tombstones": []},
        {"lost": False, "from": 0, "upto": 1, "mark": "", "tombstones": [{}]},
        {"lost": False, "from": 0, "upto": 1, "mark": "", "tombstones": [words_of(tombstone(1))]},
    ],
)
def test_what_home_says_is_read_strictly(told: object) -> None:
    with pytest.raises(InvalidRecordError):
        forgotten.read_tombstone_batch(told)
