"""What one machine forgets, every machine learns, once and for good, and nothing that is under way brings it back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from crystal.errors import NotConfigured
from crystal.store import Store
from crystal.store.forget.forgetting import Tombstone, add_tombstones, parts, tombstones_after
from crystal.store.sync import inbox, outbox, relay_forgotten
from crystal.sync import forgotten
from crystal.sync.envelope import Kind
from crystal.sync.sending import kept_messages, put_message
from crystal.sync.taking import read_words
from crystal.sync.tombstones import messages, read_tombstones, words_of
from crystal.sync.wire import BadRecord
from tests.support.capture_machine import NOW, line
from tests.support.relay_fate import Crash, backup, clone, faults, reopen, restore, revoke, rotate, texts
from tests.support.relay_world import Device, World, said

DAY = 86_400_000


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    assert faults(world) == []
    world.close()


def tombstone(number: int, *lines: str, kind: str = "lines", until_at: int | None = None, **more: object) -> Tombstone:
    value: dict[str, object] = {"lines": list(lines), **more}
    return Tombstone(f"{number:032x}", kind, value, until_at, NOW, "somewhere")  # type: ignore[arg-type]


def uids(store: Store) -> set[str]:
    return {one.uid for _, one in tombstones_after(store, 0, 10_000)}


def confirmed(device: Device) -> bool:
    return relay_forgotten.unheard(device.store)[0] == 0


def sealed_words(device: Device) -> bytes:
    """Everything that the outbox holds, in the clear."""
    link = device.link()
    streams = outbox.streams(device.store)
    return b"".join(
        message.payload
        for stream in streams
        if stream.lane != "latest"
        for message in kept_messages(device.store, link, stream)
    )


# -- words ------------------------------------------------------------------------------------------------------------


def test_a_tombstone_is_the_same_after_travelling() -> None:
    ones = [
        tombstone(1, "a", "b", sessions=["s"]),
        tombstone(2, "a", kind="session", session="s", until_at=NOW),
        tombstone(3, kind="project", folders=["/home/dev/é"], until_at=NOW),
        tombstone(4, "x", kind="before", until_at=NOW),
        tombstone(5, kind="memory", memories=["mem-0123456789ab"], sessions=[]),
    ]
    (payload,) = messages(ones)
    assert json.loads(payload)["v"] == 1
    read = read_words(payload).fields["tombstones"]
    assert [words_of(one) for one in read] == [words_of(one) for one in ones]


def test_one_with_many_names_travels_in_parts_that_are_the_same_wherever_they_are_made() -> None:
    lines = [f"line-{number}" for number in range(2_500)]
    whole = tombstone(7, *lines, kind="session", session="s", until_at=NOW)
    cut = parts(whole)
    assert cut == parts(whole)
    assert sum(len(one.lines) for one in cut) == 2_500
    assert [one.kind for one in cut] == ["session", "lines", "lines"]
    assert [one.until_at for one in cut] == [NOW, None, None]
    assert cut[0].value["session"] == "s"
    assert [name for one in cut for name in one.lines] == lines
    assert len({one.uid for one in cut} | {whole.uid}) == 4
    assert all(parts(one) == [one] for one in cut), "a part is not cut again"


def test_folders_and_memories_of_many_keep_their_scope() -> None:
    folders = [f"/home/{number}" for number in range(1_500)]
    cut = parts(tombstone(8, "a", kind="project", folders=folders, until_at=NOW))
    assert [(one.kind, one.until_at) for one in cut] == [("project", NOW), ("project", NOW)]
    memories = [f"mem-{number:012x}" for number in range(1_200)]
    assert {one.kind for one in parts(tombstone(9, kind="memory", memories=memories))} == {"memory"}


def test_a_message_names_at_most_a_thousand_things() -> None:
    ones = [tombstone(number, *(f"{number}-{at}" for at in range(400))) for number in range(1, 12)]
    packed = list(messages(ones))
    assert len(packed) == 6
    assert all(read_words(payload).kind == "forget" for payload in packed)
    too_many = {"v": 1, "kind": "forget", "tombstones": [words_of(one) for one in ones[:3]]}
    with pytest.raises(BadRecord, match="more than 1,000"):
        read_words(json.dumps(too_many).encode())


@pytest.mark.parametrize(
    "row",
    [
        None,
        [],
        "x",
        {},
        {"uid": "0" * 31},
        {"uid": "G" * 32},
        {"uid": 7},
        {"kind": "all"},
        {"kind": ["lines"]},
        {"value": []},
        {"value": {"lines": "a"}},
        {"value": {"lines": [1]}},
        {"value": {"lines": [""]}},
        {"value": {"lines": ["a\0b"]}},
        {"value": {"lines": ["\ud800"]}},
        {"value": {"lines": ["x" * 8_193]}},
        {"value": {"session": 4}},
        {"kind": "session"},
        {"until_at": -1},
        {"until_at": 1 << 60},
        {"until_at": True},
        {"until_at": "now"},
        {"made_at": None},
        {"made_at": 1.5},
    ],
)
def test_what_is_no_tombstone_is_refused(row: object) -> None:
    good = words_of(tombstone(1, "a"))
    bad = {**good, **row} if isinstance(row, dict) and row else row
    with pytest.raises(BadRecord):
        read_tombstones([good, bad], "laptop")
    with pytest.raises(BadRecord):
        read_tombstones(bad if not isinstance(bad, list) else {}, "laptop")


def test_a_tombstone_says_nothing_of_the_words(world: World) -> None:
    device = world.device("laptop")
    device.say("a", line("the velvet aardvark", ident="u-1"))
    device.forget(tombstone(1, "u-1"))
    (payload,) = messages([tombstone(1, "u-1")])
    assert b"aardvark" not in payload


# -- from a device to home, and to the others -------------------------------------------------------------------------


def test_home_and_every_device_learn_what_one_forgets_and_say_so(world: World) -> None:
    one, two = world.device("laptop"), world.device("tower")
    one.forget(tombstone(1, "u-1"), tombstone(2, kind="memory", memories=["mem-0123456789ab"]))
    assert relay_forgotten.unheard(one.store) == (1, NOW)
    world.settle(3)
    for store in (world.home.store, one.store, two.store):
        assert len(uids(store)) == 2
    assert {one.device for _, one in tombstones_after(world.home.store, 0, 9)} == {"laptop"}
    assert confirmed(one)
    assert confirmed(two)
    for peer in world.home.peers():
        assert relay_forgotten.behind(world.home.store, peer.told) is None


def test_what_is_sealed_before_and_after_a_forgetting_comes_to_home_without_it(world: World) -> None:
    one = world.device("laptop")
    one.say("a", line("before", ident="u-1"), line("secret plum", ident="u-2"), line("after", ident="u-3"))
    one.forget(tombstone(1, "u-2"))
    one.clean()
    world.settle(2)
    assert texts(world.home.store) == ["after", "before"]


def test_an_old_blob_that_comes_after_the_tombstone_brings_nothing_back(world: World) -> None:
    one, two = world.device("laptop"), world.device("tower")
    one.say("a", line("before", ident="u-1"), line("secret plum", ident="u-2"))
    two.forget(tombstone(1, "u-2"))
    two.deliver()
    world.home.poll()
    world.settle(2)
    assert texts(world.home.store) == ["before"]
    assert b"plum" not in b"".join(archive_of(world))


def archive_of(world: World) -> list[bytes]:
    from tests.support.relay_fate import archived

    return [text for device in world.devices for text in archived(world.home.machine, device.machine.device).values()]


def test_a_tombstone_that_nobody_could_seal_waits(world: World) -> None:
    one = world.device("laptop")
    with one.store.transaction():
        add_tombstones(one.store, [tombstone(1, "u-1")], NOW)
    secrets = dict(one.secrets)
    one.secrets.clear()
    with pytest.raises(NotConfigured), one.store.transaction():
        forgotten.put_forgotten(one.store, one.link(), NOW)
    one.secrets.update(secrets)
    world.settle(2)
    assert uids(world.home.store) == uids(one.store)
    assert confirmed(one)


def test_a_crash_between_any_two_statements_loses_and_doubles_nothing(world: World) -> None:
    one = world.device("laptop")
    for step in range(1, 60):
        count = 0

        def die(*_: object, step: int = step) -> bool:
            nonlocal count
            count += 1
            if count == step:
                raise Crash
            return True

        one.store.db.exec_trace = die
        try:
            one.forget(tombstone(1, "u-1"))
        except Crash:
            one.store.db.exec_trace = None
            reopen(one)
            assert uids(one.store) == set()
            assert outbox.backlog(one.store).blobs == 0
            continue
        one.store.db.exec_trace = None
        break
    else:
        raise AssertionError("it never came to an end")
    assert step > 5
    world.settle(2)
    assert uids(world.home.store) == uids(one.store) == {tombstone(1).uid}


def test_a_revoked_device_makes_nobody_forget(world: World) -> None:
    one, two = world.device("laptop"), world.device("tower")
    two.say("b", line("kept", ident="u-9"))
    world.settle(2)
    revoke(world, "laptop")
    one.forget(tombstone(1, "u-9"))
    world.settle(2)
    assert uids(world.home.store) == uids(two.store) == set()
    assert texts(world.home.store) == ["kept"]


def test_a_revoked_device_is_told_of_nothing(world: World) -> None:
    one, two = world.device("laptop"), world.device("tower")
    world.settle(2)
    revoke(world, "laptop")
    two.forget(tombstone(1, "u-9"))
    world.settle(2)
    assert uids(world.home.store) == {tombstone(1).uid}
    assert uids(one.store) == set()


def test_a_device_cannot_take_away_what_will_be_said(world: World) -> None:
    one = world.device("laptop")
    one.forget(tombstone(1, kind="before", until_at=NOW + 900 * DAY))
    world.settle(1)
    now = world.home.machine.now
    (found,) = tombstones_after(world.home.store, 0, 9)
    assert found[1].until_at is not None
    assert found[1].until_at <= now


def test_a_message_that_makes_no_sense_stops_its_stream_alone(world: World) -> None:
    one, two = world.device("laptop"), world.device("tower")
    words = {"v": 1, "kind": "forget", "tombstones": [{"uid": "no"}]}
    with one.store.transaction():
        put_message(one.store, one.link(), json.dumps(words).encode(), kind=Kind.CONTROL, lane="live", now=NOW)
    two.forget(tombstone(2, "u-2"))
    world.settle(2)
    assert uids(world.home.store) == {tombstone(2).uid}
    assert "damaged" in {stream.state for stream in inbox.all_streams(world.home.store)}


# -- from home to devices ---------------------------------------------------------------------------------------------


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


def test_a_document_that_does_not_follow_is_left_and_asked_for_again(world: World) -> None:
    one = world.device("laptop")
    world.settle(1)
    told = {"from": 3, "upto": 4, "mark": "ab", "lost": False, "tombstones": []}
    read = forgotten.read_told(told)
    assert read is not None
    with one.store.transaction():
        assert forgotten.take_from_home(one.store, one.peer(), read, now=NOW, as_of=NOW) == 0
    assert relay_forgotten.begin_stand(one.store, forgotten.pairing_of(one.peer())).number == 0
    assert not one.peer().sent, "the next heartbeat is sent in any case"


@pytest.mark.parametrize(
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
    with pytest.raises(BadRecord):
        forgotten.read_told(told)


# -- backups, copies, other homes -------------------------------------------------------------------------------------


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
        relay_forgotten.forget_heard(one.store)
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


# -- the outbox -------------------------------------------------------------------------------------------------------


def test_what_waits_is_sealed_again_without_the_lines(world: World) -> None:
    one = world.device("laptop")
    one.say("a", line("before", ident="u-1"), line("secret plum", ident="u-2"), line("after", ident="u-3"))
    one.say("b", line("elsewhere", ident="u-4"))
    one.forget(tombstone(1, "u-2"))
    assert b"plum" in sealed_words(one)
    one.clean()
    assert b"plum" not in sealed_words(one)
    blobs = outbox.backlog(one.store).blobs
    one.clean()
    assert outbox.backlog(one.store).blobs == blobs, "doing it again changes nothing"
    world.settle(2)
    assert texts(world.home.store) == ["after", "before", "elsewhere"]
    assert outbox.backlog(one.store).blobs == 0
    assert world.home.missing() == {}


def test_a_message_of_many_parts_is_sealed_again_as_a_whole(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crystal.sync.envelope.blob.PART_BYTES", 3_000)
    one = world.device("laptop")
    one.say("a", line("x" * 9_000, ident="u-1"), line("plum " * 4_000, ident="u-2"), line("y" * 9_000, ident="u-3"))
    one.forget(tombstone(1, "u-2"))
    one.clean()
    assert b"plum" not in sealed_words(one)
    world.settle(2)
    assert {row[0] for row in said(world.home.store)} == {"u-1", "u-3"}


def test_what_is_confirmed_goes_from_the_outbox(world: World) -> None:
    one = world.device("laptop")
    one.say("a", line("plum", ident="u-2"))
    one.say("b", line("pear", ident="u-3"))
    one.deliver()
    world.home.poll()
    one.deliver()
    assert b"plum" in sealed_words(one)
    one.forget(tombstone(1, "u-2"))
    one.clean()
    assert b"plum" not in sealed_words(one)
    assert b"pear" in sealed_words(one)
    world.settle(2)
    assert uids(world.home.store) >= {tombstone(1).uid}


def test_home_that_has_taken_the_old_blobs_takes_the_new_ones_for_the_same(world: World) -> None:
    one = world.device("laptop")
    one.say("a", line("before", ident="u-1"), line("plum", ident="u-2"), line("after", ident="u-3"))
    one.deliver()
    world.home.poll()  # taken, and the device has not heard of it
    one.forget(tombstone(1, "u-2"))
    one.clean()
    one.say("a", line("later", ident="u-4"))
    world.settle(3)
    assert {row[0] for row in said(world.home.store)} >= {"u-1", "u-3", "u-4"}
    assert world.home.store.value("SELECT count(*) FROM relay_files") == 0, "no version of the file beside the other"


def test_blobs_with_the_words_do_not_stay_at_the_relay(world: World) -> None:
    one = world.device("laptop")
    one.say("a", line("plum", ident="u-2"))
    one.deliver()
    old = outbox.streams(one.store)[0].stream
    one.forget(tombstone(1, "u-2"))
    one.clean()
    world.settle(3)
    (info,) = [info for info in world.home.client.streams().streams if info.stream == old]
    assert info.count == 0


def test_a_crash_while_the_outbox_is_cleaned_leaves_all_or_nothing(world: World) -> None:
    one = world.device("laptop")
    one.say("a", line("before", ident="u-1"), line("plum", ident="u-2"))
    one.forget(tombstone(1, "u-2"))
    for step in range(1, 200, 3):
        count = 0

        def die(*_: object, step: int = step) -> bool:
            nonlocal count
            count += 1
            if count == step:
                raise Crash
            return True

        one.store.db.exec_trace = die
        try:
            one.clean()
        except Crash:
            one.store.db.exec_trace = None
            reopen(one)
            continue
        one.store.db.exec_trace = None
        break
    assert b"plum" not in sealed_words(one)
    world.settle(2)
    assert texts(world.home.store) == ["before"]
    assert_settled_but(world, "u-2")


def assert_settled_but(world: World, *gone: str) -> None:
    for device in world.devices:
        assert outbox.backlog(device.store).blobs == 0
    assert world.home.missing() == {}
    assert not {row[0] for row in said(world.home.store)} & set(gone)


def test_what_was_sealed_again_with_new_keys_is_cleaned(world: World) -> None:
    one = world.device("laptop")
    one.say("a", line("plum", ident="u-2"))
    one.forget(tombstone(1, "u-2"))
    rotate(world, "laptop")
    world.home.tell()
    one.deliver()  # sealed again elsewhere, by another process
    one.clean()
    assert b"plum" not in sealed_words(one)


def test_a_memory_that_waits_is_sealed_again_as_nothing(world: World) -> None:
    one = world.device("laptop")
    words = {"v": 1, "kind": "memory", "memory": {"id": "mem-0123456789ab", "text": "plum"}}
    with one.store.transaction():
        put_message(one.store, one.link(), json.dumps(words).encode(), kind=Kind.CONTROL, lane="live", now=NOW)
    one.say("a", line("pear", ident="u-1"))
    one.forget(tombstone(1, kind="memory", memories=["mem-0123456789ab"]))
    one.clean()
    assert b"plum" not in sealed_words(one)
    world.settle(2)
    assert texts(world.home.store) == ["pear"]
    assert all(stream.state in ("ok", "left") for stream in inbox.all_streams(world.home.store))


def test_without_the_key_the_outbox_is_cleaned_when_it_is_back(world: World) -> None:
    one = world.device("laptop")
    one.say("a", line("pear", ident="u-1"), line("plum", ident="u-2"))
    one.forget(tombstone(1, "u-2"))
    box, secrets = one.outbox(), dict(one.secrets)
    one.secrets.clear()
    with pytest.raises(NotConfigured):
        box.clean()
    one.secrets.update(secrets)
    box.clean()
    assert b"plum" not in sealed_words(one)
    assert b"pear" in sealed_words(one)


def test_a_line_that_only_names_a_forgotten_one_stays(world: World) -> None:
    for local_memory in (True, False):
        one = world.device(f"laptop-{local_memory}", local_memory=local_memory)
        ident = f"u-2-{local_memory}"
        one.say(
            "a", line("plum", ident=ident), line(f"pear {local_memory}", ident=f"3-{local_memory}", parentUuid=ident)
        )
        one.forget(tombstone(1 + local_memory, ident))
        one.clean()
        assert b"plum" not in sealed_words(one)
    world.settle(2)
    assert texts(world.home.store) == ["pear False", "pear True"]


def test_the_past_is_sent_without_what_was_forgotten(world: World) -> None:
    one = world.device("laptop")
    capture = one.machine.capture()
    with one.machine.transcript("a").open("ab") as file:
        file.writelines([line("pear", ident="u-1"), line("plum", ident="u-2")])
    capture.sweep()
    with one.store.transaction():
        add_tombstones(one.store, [tombstone(1, "u-2")], NOW)
    one.send_all()
    world.settle(3)
    assert texts(world.home.store) == ["pear"]
    assert b"plum" not in b"".join(archive_of(world))


# -- parts of messages ------------------------------------------------------------------------------------------------


def test_parts_in_the_clear_go_when_something_is_forgotten_and_come_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crystal.sync.envelope.blob.PART_BYTES", 3_000)
    one, two = world.device("laptop"), world.device("tower")
    one.say("a", line("x" * 9_000, ident="u-1"), line("plum " * 4_000, ident="u-2"))
    sent = 0

    def cut_off(request: object) -> None:
        nonlocal sent
        if getattr(request, "method", "") == "PUT":
            sent += 1
            if sent > 5:
                raise ConnectionError

    one.weather.before = cut_off
    import contextlib

    with contextlib.suppress(ConnectionError):
        one.deliver()
    world.home.poll()
    assert world.home.store.value("SELECT count(*) FROM relay_fragments") == 5
    two.forget(tombstone(1, "u-2"))
    two.deliver()
    world.home.poll()
    assert world.home.store.value("SELECT count(*) FROM relay_fragments") == 0
    one.weather.before = lambda request: None
    world.settle(4)
    assert {row[0] for row in said(world.home.store)} == {"u-1"}
    assert_settled_but(world, "u-2")


# -- documents that are lost, doubled, old ----------------------------------------------------------------------------


def told(world: World, number: int) -> forgotten.TombstoneBatch:
    """What home says to its first device when it knows so many."""
    with world.home.store.transaction():
        add_tombstones(world.home.store, [tombstone(at, f"u-{at}") for at in range(1, number + 1)], NOW)
    read = forgotten.read_told(forgotten.forgotten_for(world.home.store, world.home.peers()[0]))
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
    stand = relay_forgotten.read_stand(one.store)
    assert stand is not None
    assert stand.number == 3
    assert len(uids(one.store)) == 3
    world.settle(2)
    assert relay_forgotten.behind(world.home.store, world.home.peers()[0].told) is None


def test_a_crash_while_a_document_is_taken_leaves_all_or_nothing(world: World) -> None:
    one = world.device("laptop")
    world.settle(1)
    words = told(world, 3)
    for step in range(1, 100):
        count = 0

        def die(*_: object, step: int = step) -> bool:
            nonlocal count
            count += 1
            if count == step:
                raise Crash
            return True

        one.store.db.exec_trace = die
        try:
            take(one, words)
        except Crash:
            one.store.db.exec_trace = None
            reopen(one)
            stand = relay_forgotten.read_stand(one.store)
            assert (len(uids(one.store)), 0 if stand is None else stand.number) == (0, 0)
            continue
        one.store.db.exec_trace = None
        break
    assert step > 10
    assert len(uids(one.store)) == 3


def test_a_device_that_claims_what_it_cannot_have_is_told_anew_and_nobody_else_is(world: World) -> None:
    one, two = world.device("laptop"), world.device("tower")
    one.forget(tombstone(1, "u-1"))
    world.settle(3)
    stand = relay_forgotten.read_stand(one.store)
    assert stand is not None
    with one.store.transaction():
        relay_forgotten.write_stand(one.store, replace(stand, number=999, mark="0" * 16))
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
