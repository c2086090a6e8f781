"""A relay that lists junk, and a stolen token that writes it: home's folder grows by no more than the budget."""

from __future__ import annotations

import json
import os
import random
import socket
import struct
import threading
import time
from dataclasses import dataclass, field

import pytest

from crystal.store.sync import inbox, relay_peers
from crystal.store.sync.refusal_counts import NOBODY, refusals
from crystal.sync import triage
from crystal.sync.arrival import Arrivals
from crystal.sync.client import RelayClient
from crystal.sync.envelope.blob import Channel
from crystal.sync.envelope.link import link_keys
from crystal.sync.keys.derive import device_secret
from crystal.sync.opening import PollReport
from crystal.sync.poller import Poller
from crystal.sync.taking import MessageHandler
from tests.support.capture_machine import line
from tests.support.hostile_relay import Hostile, answer, hostile
from tests.support.relay_fate import assert_settled, texts
from tests.support.relay_server import sealed
from tests.support.relay_world import ROOT, World


@dataclass
class Junk:
    """A relay that lists whatever streams a test wants, each full of junk of a known key."""

    streams: list[bytes]
    key_ids: dict[bytes, bytes] = field(default_factory=dict)
    size: int = 2000
    count: int = 3
    random: random.Random = field(default_factory=lambda: random.Random(1))
    guard: threading.Lock = field(default_factory=threading.Lock)

    def blob(self, stream: bytes, seq: int) -> bytes:
        """A blob as that of its device looks from outside, another one each time."""
        inside = self.size - 148
        key_id = self.key_ids.get(stream[:8], bytes(16))
        head = struct.pack(
            ">4sBBBB16s16sQ32s32sI", b"CRB1", 1, 1, 1, 0, key_id, stream, seq, bytes(32), bytes(32), inside
        )
        with self.guard:
            return head + self.random.randbytes(inside + 32)

    def __call__(self, connection: socket.socket, relay: Hostile) -> None:
        """Answer one request (a script of ``hostile``)."""
        path = relay.asked[-1].split(b" ")[1].decode()
        connection.sendall(self.reply(path))

    def reply(self, path: str) -> bytes:
        """The answer to a request."""
        parts = path.partition("?")[0].split("/")
        if path.startswith("/v1/streams") and len(parts) == 3:
            listed = [self._info(one) for one in self.streams]
            return answer(json.dumps({"change": random.randrange(1 << 30), "streams": listed}).encode())
        if parts[-1] == "blobs":
            after = int(path.partition("after=")[2].partition("&")[0] or 0)
            blobs = [
                {"seq": seq, "size": self.size, "tag": os.urandom(32).hex()} for seq in range(after + 1, self.count + 1)
            ]
            body = {"blobs": blobs[:1], "head": self.count, "acked": 0, "expired_upto": 0}
            return answer(json.dumps(body).encode())
        if parts[-2] == "blobs":
            return answer(self.blob(bytes.fromhex(parts[3]), int(parts[-1])), kind=b"application/octet-stream")
        return answer(b"", status=b"204 No Content")

    def _info(self, stream: bytes) -> dict[str, object]:
        counts = {"head": self.count, "acked": 0, "count": self.count, "bytes": self.count * self.size}
        return {"stream": stream.hex(), "expired_upto": 0, **counts}


def streams_of(prefix: bytes, count: int) -> list[bytes]:
    return [prefix + number.to_bytes(8, "big") for number in range(1, count + 1)]


def key_id_of(peer: relay_peers.Peer) -> bytes:
    return link_keys(device_secret(ROOT, peer.device_id, 1), "up").key_id


def poll(world: World, url: str) -> PollReport:
    home = world.home
    home.machine.now += 3_600_000  # whatever rests is tried again
    arrivals = Arrivals(home.store, home.machine.home, lambda agent: home.machine.home / "agents" / agent / "memory")
    with RelayClient(url, "token") as client:
        return Poller(
            home.store,
            client,
            MessageHandler(arrivals, "cc-home"),
            home.senders,
            lambda: home.machine.now,
        ).poll()


def folder_bytes(world: World) -> int:
    return sum(path.stat().st_size for path in world.home.machine.home.rglob("*") if path.is_file())


def test_streams_of_nobody_and_of_revoked_devices_are_counted_and_not_fetched(world: World) -> None:
    laptop, phone = world.device("laptop").peer(), world.device("phone").peer()
    ident = relay_peers.find_peer(world.home.store, "phone").id
    relay_peers.set_revoked(world.home.store, ident, world.home.machine.now)
    junk = Junk([*streams_of(b"nobody..", 500), *streams_of(phone.up_prefix, 30), *streams_of(laptop.down_prefix, 30)])
    with hostile(junk) as relay:
        poll(world, relay.url)
        asked = len(relay.asked)
        poll(world, relay.url)
    assert (asked, len(relay.asked)) == (1, 2), "only the list was asked for"
    assert [(one.peer, one.code, one.streams, one.blobs) for one in refusals(world.home.store)] == [
        (NOBODY, "unknown", 500, 1500),
        (ident, "revoked", 30, 90),
    ]
    assert inbox.all_streams(world.home.store) == []


def grows(world: World, count: int, polls: int, size: int) -> tuple[int, float]:
    """By how many bytes home's folder grows, and how long the slowest poll takes."""
    peers = [world.device(f"device{number}").peer() for number in range(3)]
    keys = {peer.up_prefix: key_id_of(peer) for peer in peers}
    listed = [stream for peer in peers for stream in streams_of(peer.up_prefix, count // 4)]
    junk = Junk([*listed, *streams_of(b"nobody..", count - len(listed))], keys, size)
    poll_empty(world)
    before, slowest = folder_bytes(world), 0.0
    with hostile(junk) as relay:
        for _ in range(polls):
            began = time.monotonic()
            poll(world, relay.url)
            slowest = max(slowest, time.monotonic() - began)
    return folder_bytes(world) - before, slowest


def poll_empty(world: World) -> None:
    """Let the write-ahead log have its size before anything is compared."""
    with hostile(Junk([])) as relay:
        poll(world, relay.url)
    world.home.store.execute("PRAGMA wal_checkpoint(TRUNCATE)")


@pytest.mark.slow
def test_junk_in_every_stream_of_every_device_is_counted_and_not_kept(world, monkeypatch):
    monkeypatch.setattr(triage, "MAX_UNPROVEN_TRIES", 20)
    monkeypatch.setattr(inbox, "MAX_UNPROVEN_STREAMS", 16)
    grown, _ = grows(world, 2000, 12, 12_000)
    assert grown < 4_600_000, "the write-ahead log, which has a size of its own"
    assert len(inbox.all_streams(world.home.store)) <= 3 * 16
    assert len(refusals(world.home.store)) < 12
    assert {one.code for one in refusals(world.home.store)} >= {"unknown", "untried", "tag"}


@pytest.mark.slow
def test_fifty_thousand_streams_of_junk(world: World) -> None:
    grown, slowest = grows(world, 50_000, 4, 60_000)
    print(f"grown by {grown:,} bytes, slowest poll {slowest:.1f} s")
    assert grown < 32 << 20
    assert slowest < 60


@pytest.mark.slow
def test_a_stolen_token_cannot_keep_the_device_from_being_heard(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """At an honest relay: junk in hundreds of streams of the device's own prefix, before it ever spoke."""
    monkeypatch.setattr(triage, "MAX_UNPROVEN_TRIES", 20)
    monkeypatch.setattr(inbox, "MAX_UNPROVEN_STREAMS", 16)
    laptop = world.device("laptop")
    for stream in streams_of(laptop.peer().up_prefix, 150):
        laptop.client.put(stream, 1, sealed(1, stream=stream))
    laptop.say("a", line("words"))
    for _ in range(14):
        laptop.deliver()
        world.home.poll()
        world.pass_time(3_700_000)
    assert texts(world.home.store) == ["words"]
    laptop.say("a", line("more words"))
    world.settle(2)
    assert texts(world.home.store) == ["more words", "words"]
    assert len(inbox.all_streams(world.home.store)) <= 16 + 2


@pytest.mark.slow
def test_what_no_key_opens_now_is_taken_when_the_key_is_back(world: World) -> None:
    """A known device whose key cannot be read for a while: nothing is acknowledged, and nothing is lost."""
    laptop = world.device("laptop")
    laptop.say("a", line("before"))
    world.settle(1)
    senders = world.home.senders
    world.home.senders = dict  # type: ignore[assignment,method-assign]
    laptop.say("a", line("after"))
    for _ in range(3):
        laptop.deliver()
        world.home.poll()
        world.pass_time(3_700_000)
    assert texts(world.home.store) == ["before"]
    assert {one.code for one in refusals(world.home.store)} == {"key"}
    world.home.senders = senders  # type: ignore[method-assign]
    world.settle(2)
    assert texts(world.home.store) == ["after", "before"]
    assert_settled(world)


@pytest.mark.slow
def test_what_cannot_be_taken_yet_waits_at_the_relay_and_is_taken_when_it_can(world, monkeypatch):
    """A genuine blob that cannot be taken yet is not lost."""
    laptop = world.device("laptop")
    laptop.say("a", line("words"))
    laptop.deliver()
    known = MessageHandler.read

    def refuse(*_: object) -> None:
        from crystal.sync.wire import InvalidRecordError

        raise InvalidRecordError("the message is of a version that this crystal does not know")

    monkeypatch.setattr(MessageHandler, "read", refuse)
    world.home.poll()
    assert [(one.code, one.blobs) for one in refusals(world.home.store)] == [("record", 1)]
    monkeypatch.setattr(MessageHandler, "read", known)
    assert texts(world.home.store) == []
    world.settle(2)
    assert texts(world.home.store) == ["words"]
    assert_settled(world)


@pytest.mark.slow
def test_a_relay_that_answers_slowly_cannot_hold_a_poll_for_ever(world: World) -> None:
    peer = world.device("laptop").peer()
    junk = Junk(streams_of(peer.up_prefix, 300), {peer.up_prefix: key_id_of(peer)})

    def slow(connection: socket.socket, relay: Hostile) -> None:
        world.home.machine.now += 4_000  # four seconds for each answer
        junk(connection, relay)

    with hostile(slow) as relay:
        poll(world, relay.url)
    assert len(relay.asked) < 20
    (untried,) = [one for one in refusals(world.home.store) if one.code == "untried"]
    assert untried.streams > 290


@pytest.mark.slow
def test_junk_from_a_relay_fills_no_device_either(world: World) -> None:
    laptop = world.device("laptop")
    before = len(inbox.all_streams(laptop.store))
    junk = Junk(streams_of(laptop.peer().down_prefix, 400))
    with hostile(junk) as relay, RelayClient(relay.url, "token") as client:
        laptop.client = client
        for _ in range(2):
            laptop.deliver()
    assert len(inbox.all_streams(laptop.store)) == before


@pytest.mark.slow
def test_documents_that_a_relay_has_others_of_leave_no_rows(world: World) -> None:
    """A relay that answers 409 to everything makes home begin a stream each time; the old ones go."""
    from crystal.store.sync import outbox

    world.device("laptop")
    conflict = answer(b'{"code": "blob-conflict"}', status=b"409 Conflict", kind=b"application/problem+json")

    def script(connection: socket.socket, relay: Hostile) -> None:
        is_list = b"GET /v1/streams" in relay.asked[-1]
        connection.sendall(answer(b'{"change": 1, "streams": []}') if is_list else conflict)

    with hostile(script) as relay, RelayClient(relay.url, "token") as client:
        world.home.client = client
        for _ in range(10):
            world.home.poll()
            world.pass_time(3_700_000)
    assert len([one for one in outbox.streams(world.home.store) if one.channel == Channel.RECEIPTS]) == 1
