"""What was forgotten goes from the outbox, and from messages that are not whole yet."""

from __future__ import annotations

import contextlib
import json

import pytest

from crystal.errors import NotConfiguredError
from crystal.store.forget.forgetting import add_tombstones
from crystal.store.sync import inbox, outbox
from crystal.sync.envelope.packing import PayloadKind
from crystal.sync.sending import put_message
from tests.support.capture_machine import NOW, line
from tests.support.killed import killed_at
from tests.support.relay_fate import reopen, rotate, texts
from tests.support.relay_tombstones import archive_of, sealed_words, tombstone, uids
from tests.support.relay_world import World
from tests.support.said_rows import said


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_message_of_many_parts_is_sealed_again_as_a_whole(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crystal.sync.envelope.blob.PART_BYTES", 3_000)
    one = world.device("laptop")
    one.say("a", line("x" * 9_000, ident="u-1"), line("plum " * 4_000, ident="u-2"), line("y" * 9_000, ident="u-3"))
    one.forget(tombstone(1, "u-2"))
    one.clean()
    assert b"plum" not in sealed_words(one)
    world.settle(2)
    assert {row[0] for row in said(world.home.store)} == {"u-1", "u-3"}


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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
        with killed_at(one.store, step) as run:
            one.clean()
        if not run.is_killed:
            break
        reopen(one)
    assert b"plum" not in sealed_words(one)
    world.settle(2)
    assert texts(world.home.store) == ["before"]
    assert_settled_but(world, "u-2")


def assert_settled_but(world: World, *gone: str) -> None:
    for device in world.devices:
        assert outbox.backlog(device.store).blobs == 0
    assert world.home.missing() == {}
    assert not {row[0] for row in said(world.home.store)} & set(gone)


@pytest.mark.slow
def test_what_was_sealed_again_with_new_keys_is_cleaned(world: World) -> None:
    one = world.device("laptop")
    one.say("a", line("plum", ident="u-2"))
    one.forget(tombstone(1, "u-2"))
    rotate(world, "laptop")
    world.home.tell()
    one.deliver()  # sealed again elsewhere, by another process
    one.clean()
    assert b"plum" not in sealed_words(one)


@pytest.mark.slow
def test_a_memory_that_waits_is_sealed_again_as_nothing(world: World) -> None:
    one = world.device("laptop")
    words = {"v": 1, "kind": "memory", "memory": {"id": "mem-0123456789ab", "text": "plum"}}
    with one.store.transaction():
        put_message(one.store, one.link(), json.dumps(words).encode(), kind=PayloadKind.CONTROL, lane="live", now=NOW)
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
    with pytest.raises(NotConfiguredError):
        box.clean()
    one.secrets.update(secrets)
    box.clean()
    assert b"plum" not in sealed_words(one)
    assert b"pear" in sealed_words(one)


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_parts_in_the_clear_go_when_something_is_forgotten_and_come_again(world, monkeypatch):
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
