"""What lies on the way: damaged, withheld and contradicting blobs, and the cases that come right by themselves."""

from __future__ import annotations

from pathlib import Path

import httpx
import orjson
import pytest

from crystal.store import Store
from crystal.store.capture import ledger
from crystal.store.health import checks
from crystal.store.sync import inbox, outbox, relay_peers
from crystal.store.sync.refusal_counts import refusals
from crystal.sync import poller
from crystal.sync.sending import seal_again
from tests.support.capture_machine import line
from tests.support.relay_fate import (
    DAY,
    archived,
    assert_settled,
    backup,
    clone,
    restore,
    rotate,
    texts,
    waiting,
)
from tests.support.relay_weather import refusing_puts
from tests.support.relay_world import Device, World

# -- what lies on the way ---------------------------------------------------------------------------------------------


def damage_bodies(how: object) -> object:
    def after(request: httpx.Request, response: httpx.Response) -> httpx.Response:
        body = response.read()
        if request.method == "GET" and response.headers.get("content-type") == "application/octet-stream":
            body = how(request, body)  # type: ignore[operator]
            kept = ("content-type", "crystal-relay-version")
            return httpx.Response(200, content=body, headers={name: response.headers[name] for name in kept})
        return httpx.Response(response.status_code, content=body, headers=response.headers)

    return after


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["flip", "cut", "swap", "replay"])
def test_a_damaged_blob_is_set_aside_named_and_comes_right(world: World, kind: str) -> None:
    device, other = world.device("laptop"), world.device("tower")
    device.say("a", line("one"))
    device.say("a", line("two"))
    other.say("b", line("fine"))
    device.deliver()
    other.deliver()
    old = [outbox.sealed_blob(device.store, 1, 1), outbox.sealed_blob(other.store, 1, 1)]
    stream = outbox.streams(device.store)[0].stream.hex()

    def how(request: httpx.Request, body: bytes) -> bytes:
        if f"{stream}/blobs/2" not in request.url.path:
            return body
        flipped = bytearray(body)
        flipped[300] ^= 1
        return {"flip": bytes(flipped), "cut": body[:-40], "swap": old[1] or b"", "replay": old[0] or b""}[kind]

    world.home.weather.after = damage_bodies(how)  # type: ignore[assignment]
    report = world.home.poll()
    assert texts(world.home.store) == ["fine", "one"]
    assert report.stuck == 1
    assert len(refusals(world.home.store)) == 1
    known = inbox.find_stream(world.home.store, bytes.fromhex(stream))
    assert known is not None
    assert (known.detail or "").startswith("number 2: ")
    assert world.home.missing() == {bytes.fromhex(stream): [2]}
    world.home.weather.after = lambda request, response: response
    assert_settled(world, after=3)


@pytest.mark.slow
def test_a_blob_that_rots_at_the_relay_is_sent_again(world: World, device: Device) -> None:
    device.say("a", line("one"))
    device.deliver()
    world.relay.rot()
    world.home.poll()
    assert texts(world.home.store) == []
    assert_settled(world, after=4)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "at"), [(1, 300), (2, 300), (1, 0), (2, 0)])
def test_a_blob_that_was_damaged_before_it_was_sent_is_made_again(
    world: World, device: Device, number: int, at: int
) -> None:
    for text in ("one", "two", "three"):
        device.say("a", line(text))
    rot(device, number, at)
    device.deliver()
    world.home.poll()
    assert_settled(world, after=8)
    assert texts(world.home.store) == ["one", "three", "two"]


def test_a_damaged_blob_is_made_again_when_those_beside_it_are_sealed_again(world: World, device: Device) -> None:
    for text in ("one", "two", "three"):
        device.say("a", line(text))
    rot(device, 2)
    seal_again(device.store, device.link(), outbox.streams(device.store)[0], 1, 1, "rotated")
    device.deliver()
    world.home.poll()
    assert texts(world.home.store) == ["one", "three", "two"]


def rot(device: Device, number: int, at: int = 300) -> None:
    """Flip a bit of a blob in the outbox: the relay itself refuses one that does not begin as a blob does."""
    sealed = bytearray(outbox.sealed_blob(device.store, 1, number) or b"")
    sealed[at] ^= 1
    device.store.execute("UPDATE outbox SET sealed = ? WHERE seq = ?", (bytes(sealed), number))


@pytest.mark.slow
def test_a_withheld_tail_is_known_at_both_ends(world: World, device: Device) -> None:
    device.say("a", line("one"))
    world.settle(1)
    device.say("a", line("two"))
    device.say("a", line("three"))
    device.deliver()
    conversation = outbox.streams(device.store)[0].stream

    def withhold(request: httpx.Request, response: httpx.Response) -> httpx.Response:
        body = response.read()
        if request.method == "GET" and response.headers.get("content-type") == "application/json":
            fields = orjson.loads(body)
            for one in fields.get("streams", []):
                if one["stream"] == conversation.hex():
                    one.update(head=1, count=0, bytes=0, acked=1)
            if "blobs" in fields and conversation.hex() in request.url.path:
                fields["blobs"] = []
                fields["head"] = 1
            return httpx.Response(200, json=fields, headers={"crystal-relay-version": "1"})
        return httpx.Response(response.status_code, content=body, headers=response.headers)

    world.home.weather.after = withhold
    world.home.poll()
    assert world.home.missing() == {conversation: [2, 3]}
    device.deliver()
    assert waiting(device) == 2
    world.home.weather.after = lambda request, response: response
    assert_settled(world, after=2)


@pytest.mark.slow
def test_a_relay_that_contradicts_everywhere_is_not_fed_for_ever(world: World, device: Device) -> None:
    device.say("a", line("one"))
    device.weather.after = refusing_puts(409, "blob-conflict")
    assert device.deliver().problem
    assert len(outbox.streams(device.store)) < 12
    device.weather.after = lambda request, response: response
    assert_settled(world, after=4)


@pytest.mark.slow
def test_a_segment_is_taken_again_without_a_trace(world: World, device: Device) -> None:
    """The same lines over another stream: nothing is added, nothing is refused."""
    device.say("a", line("one"), b"\n", line("two"))
    world.settle(1)
    device.send_all()
    assert_settled(world, after=3)
    state = ledger.all_states(world.home.store, "laptop")[0]
    assert {row.generation for row in checks.ledger_rows(world.home.store, state.id)} == {0}


def test_cuts_may_fall_on_blank_lines(world: World, device: Device, tmp_path: Path) -> None:
    device.say("a", line("one"), b"\n")
    copy = backup(device, tmp_path / "early.db")
    device.say("a", b"  \n", line("two"))
    device.say("a", line("three"))
    world.settle(1)
    restore(device, copy)
    device.say("a", line("four"))
    assert_settled(world, after=3)
    state = ledger.all_states(world.home.store, "laptop")[0]
    assert {row.generation for row in checks.ledger_rows(world.home.store, state.id)} == {0}
    assert archived(world.home.machine, "laptop") == archived(device.machine, "laptop")


@pytest.mark.slow
def test_the_turn_of_a_long_past_does_not_hold_up_live_words(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poller, "PAST_TURN", 3)
    device, other = world.device("laptop"), world.device("tower")
    for number in range(12):
        device.say("a", line(f"n {number}"))
    world.settle(1)
    device.store.execute("DELETE FROM outbox")
    device.send_all()
    device.deliver()
    other.say("b", line("live"))
    other.deliver()
    seen: list[str] = []
    real = world.home.client.get

    def get(stream: bytes, seq: int) -> bytes:
        seen.append("live" if stream[:8] == other.peer().up_prefix else "past")
        return real(stream, seq)

    monkeypatch.setattr(world.home.client, "get", get)
    world.home.poll()
    assert seen.index("live") <= 9
    assert_settled(world, after=2)


@pytest.mark.slow
def test_nothing_is_acknowledged_before_it_is_durable(world: World, device: Device) -> None:
    for number in range(5):
        device.say("a", line(f"n {number}"))
    device.deliver()
    seen: list[int] = []

    def at_ack(request: httpx.Request) -> None:
        if request.url.path.endswith("/ack"):
            other = Store.open(world.home.store.path)
            seen.append(len(texts(other)))
            other.close()

    world.home.weather.before = at_ack
    world.home.poll()
    assert seen[-1] == 5
    assert world.home.store.value("PRAGMA synchronous") == 2
    assert device.store.value("PRAGMA synchronous") == 2


@pytest.mark.slow
def test_a_stream_that_failed_is_tried_again_though_nothing_changes(world: World, device: Device) -> None:
    device.say("a", line("one"))
    device.deliver()
    name = outbox.streams(device.store)[0].stream.hex()

    def fails(request: httpx.Request) -> None:
        if f"{name}/blobs" in request.url.path:
            raise httpx.ReadTimeout("slow")

    world.home.weather.before = fails
    report = world.home.poller().poll()
    assert report.waiting == 1
    world.home.weather.before = lambda request: None
    world.home.poller().poll()
    assert texts(world.home.store) == ["one"]


@pytest.mark.slow
def test_a_removed_device_leaves_what_it_said(world: World, device: Device) -> None:
    device.say("a", line("one"))
    world.settle(2)
    peer = relay_peers.find_peer(world.home.store, "laptop")
    with world.home.store.transaction():
        relay_peers.remove_peer(world.home.store, peer.id)
    assert texts(world.home.store) == ["one"]
    assert relay_peers.all_peers(world.home.store) == []


@pytest.mark.slow
def test_a_device_from_before_a_rotation_uses_the_keys_that_it_has(world, device, tmp_path):
    device.say("a", line("one"))
    world.settle(1)
    copy = backup(device, tmp_path / "device.db")
    rotate(world, "laptop")
    world.settle(2)
    restore(device, copy)
    device.say("a", line("two"))
    assert_settled(world, after=4)
    assert device.peer().generation == 2


@pytest.mark.slow
def test_a_home_from_before_a_rotation_knows_its_own_keys(world: World, device: Device, tmp_path: Path) -> None:
    device.say("a", line("one"))
    world.settle(1)
    copy = backup(world.home, tmp_path / "home.db")
    rotate(world, "laptop")
    device.say("a", line("two"))
    world.settle(3)
    restore(world.home, copy)
    device.say("a", line("three"))
    assert_settled(world, after=4)
    assert relay_peers.find_peer(world.home.store, "laptop").accepted_from == 2


@pytest.mark.slow
def test_a_device_whose_lines_only_home_keeps_gives_them_to_the_next_home(world: World) -> None:
    """What a device sent without keeping it comes back with its lines when it is home itself."""
    device = world.device("laptop", local_memory=False)
    device.say("a", line("one"), line("two"))
    world.settle(2)
    from crystal.model.capture import Segment, SegmentPiece, Watermark
    from crystal.sync.arrival import Arrivals, arrive
    from crystal.sync.wire import SentSegment

    home, store = world.home, device.store
    state = ledger.all_states(home.store, "laptop")[0]
    clean = archived(home.machine, "laptop")["a", 0]
    size = len(clean)
    first = clean.index(b"\n")
    lines = ((0, clean[:first]), (first + 1, clean[first + 1 : -1]))
    piece = SegmentPiece(0, size, "captured", None, clean, bytes(32), lines)
    mark = Watermark("a", size)
    sent = SentSegment(Segment(state.origin, state.path, Watermark("a"), mark, (piece,)), {}, "past")
    from crystal.ingest.ingest import prepare

    arrivals = Arrivals(store, device.machine.home, lambda agent: device.machine.home / "agents" / agent / "memory")
    before = ledger.all_states(store)[0].mark
    for _ in range(2):
        with store.transaction():
            arrive(arrivals, sent, prepare(sent.segment), b"s" * 16, now=1, written={})
    assert texts(store) == ["one", "two"]
    assert ledger.all_states(store)[0].mark == before
    device.machine.assert_sound()


@pytest.mark.slow
def test_a_clock_that_goes_back_delays_no_check_of_the_relay(world: World, device: Device) -> None:
    device.machine.now += 3650 * DAY
    device.say("a", line("one"))
    device.deliver()
    device.machine.now -= 3650 * DAY
    stream = outbox.streams(device.store)[0].stream
    world.relay.wipe()
    device.deliver()
    assert [one.count for one in device.client.streams().streams if one.stream == stream] == [1]
    assert_settled(world, after=2)


def test_what_a_copy_says_where_another_was_private_is_kept(world: World, device: Device) -> None:
    device.say("a", line("shared"))
    world.settle(1)
    other = clone(world, device, "laptop-copy")
    device.machine.private_projects = ("/hush",)
    device.say("a", line("of the first, private", cwd="/hush"))
    device.deliver()
    world.home.poll()
    other.say("a", line("of the second, open", cwd="/open"))
    device.say("a", line("later", cwd="/code"))
    assert_settled(world, after=4)
    assert texts(world.home.store) == ["later", "of the second, open", "shared"]


@pytest.mark.slow
def test_what_is_private_here_stays_so_when_a_restored_device_sends_it_openly(world, device, tmp_path):
    device.say("a", line("shared"))
    copy = backup(device, tmp_path / "device.db")
    device.machine.private_projects = ("/hush",)
    device.say("a", line("private words", cwd="/hush"), line("open words"))
    world.settle(2)
    device.machine.private_projects = ()
    restore(device, copy)
    device.sweep()
    world.settle(4)
    assert texts(world.home.store) == ["open words", "shared"]
    assert waiting(device) == 0
