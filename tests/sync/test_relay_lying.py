"""A relay that answers 201 and keeps nothing: both ends say so, and nothing is lost."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from crystal.app.sync.device_registry import read_registry
from crystal.store.problems import find_problem
from crystal.sync.losses import LOST, LOST_MIRROR
from tests.support.capture_machine import line
from tests.support.command import Done
from tests.support.lying_relay import lying_relay
from tests.support.pairing_boxes import ROOT, Pairs
from tests.support.relay_commands import check_json, deliver, joined, on, pairs, poll, say, site, waiting
from tests.support.relay_fate import assert_settled, texts
from tests.support.relay_world import Device, Weather, World
from tests.support.two_machines import Computer, RelayProcess

pytestmark = pytest.mark.slow

__all__ = ["on", "pairs", "site"]
On = Callable[..., Done]


class Liar(httpx.BaseTransport):
    """Confirms every PUT that is meant, and forgets it."""

    def __init__(self, inner: Callable[[], httpx.BaseTransport], meant: str) -> None:
        self.inner, self.meant = inner, re.compile(meant)
        self.swallowed = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        found = self.meant.search(request.url.path)
        if request.method != "PUT" or not found:
            return self.inner().handle_request(request)
        self.swallowed += 1
        body = request.read()
        named = {"id": found[1], "size": len(body)}
        if "/blobs/" in request.url.path:
            named = {"seq": int(request.url.path.rpartition("/")[2]), "tag": body[-32:].hex()}
        headers = {"content-type": "application/json", "crystal-relay-version": "1"}
        return httpx.Response(201, headers=headers, content=json.dumps({**named, "result": "created"}).encode())


BLOBS, OBJECTS = r"/blobs/(\d+)$", r"/v1/objects/([0-9a-f]{32})$"


def lie(way: Weather, meant: str) -> Callable[[], None]:
    """Let the relay lie on one way; gives what ends it."""
    honest = way.inner
    way.inner = lambda: Liar(honest, meant)
    return lambda: setattr(way, "inner", honest)


def test_a_device_says_what_the_relay_confirmed_and_does_not_have(world: World, device: Device) -> None:
    end = lie(device.weather, BLOBS)
    for number in range(3):
        device.say("a", line(f"words {number}"))
    words = "the relay confirmed 3 messages but does not have them; they are sent again"
    for times in (1, 2, 3):
        report = device.deliver()
        problem = find_problem(device.store, LOST)
        assert problem is not None
        if times == 1:
            assert report.noticed == [words], "its own heartbeat was not sent before"
        assert problem.tries == times
        world.home.poll()
        world.pass_time(3_700_000)
    end()
    device.deliver()
    world.settle(2)
    assert find_problem(device.store, LOST) is None, "it is over as soon as nothing is missing"
    assert texts(world.home.store) == ["words 0", "words 1", "words 2"]
    assert_settled(world)


def test_an_honest_relay_is_never_accused(world: World, device: Device) -> None:
    for number in range(4):
        device.say("a", line(f"words {number}"))
        assert device.deliver().noticed == []
        if number % 2:
            world.home.poll()
        world.pass_time(700_000)
    world.settle(3)
    assert find_problem(device.store, LOST) is None
    assert find_problem(world.home.store, LOST) is None


def test_home_says_it_and_the_device_too(pairs: Pairs, on: On) -> None:
    joined(pairs)
    say(pairs, "note")
    deliver(pairs)
    end = lie(pairs.home_way, BLOBS)
    assert "does not have" not in on(pairs.home, "relay", "poll").err
    polled = on(pairs.home, "relay", "poll")
    assert "the relay confirmed 1 message but does not have it; it is sent again" in polled.err
    status = on(pairs.home, "relay", "status")
    assert (status.code, "lost       the relay confirmed 1 message" in status.out) == (6, True)
    told = check_json("crystal relay status", on(pairs.home, "relay", "status", "--json"))
    assert [one["times"] for one in told["lost"]] == [1]
    end()
    on(pairs.home, "relay", "poll")
    assert on(pairs.home, "relay", "poll").code == 0
    assert on(pairs.home, "relay", "status").code == 0
    deliver(pairs)
    assert waiting(pairs) == 0, "and nothing of it was lost"


def test_the_device_names_it_in_its_status(pairs: Pairs, on: On) -> None:
    joined(pairs)
    say(pairs, "note", "note")
    lie(pairs.home_way, BLOBS)
    synced = on(pairs.device, "relay", "sync")
    assert "the relay confirmed 2 messages but does not have them; they are sent again" in synced.err
    status = on(pairs.device, "relay", "status")
    assert (status.code, "lost       the relay confirmed 2 messages" in status.out) == (6, True)
    assert all(len(line) <= 200 for line in status.out.splitlines())


def test_home_names_a_device_of_which_the_relay_has_kept_nothing_since_the_pairing(pairs: Pairs, on: On) -> None:
    joined(pairs)
    say(pairs, "note")
    end = lie(pairs.device_way, BLOBS)
    deliver(pairs)
    poll(pairs)
    assert on(pairs.home, "relay", "status").code == 0, "a machine that was just paired may be slow"
    with pairs.home.open() as machine:
        machine.store.execute("UPDATE relay_peers SET paired_at = paired_at - 3600000")
    status = on(pairs.home, "relay", "status")
    assert (status.code, "unheard    laptop: nothing has arrived since it was paired" in status.out) == (1, True)
    told = check_json("crystal relay status", on(pairs.home, "relay", "status", "--json"))
    assert told["unheard"] == ["laptop"]
    assert "nothing has arrived from laptop" in on(pairs.home, "doctor").out
    end()
    deliver(pairs)
    poll(pairs)
    assert "unheard" not in on(pairs.home, "relay", "status").out


def test_at_a_socket_both_ends_say_so_and_all_arrives_when_the_relay_keeps_again(
    desk: Computer, relay: RelayProcess, tmp_path: Path
) -> None:
    lap = Computer(tmp_path / "lap", {"CRYSTAL_DEVICE": "lap"})
    with lying_relay(relay.url) as liar:
        desk.ok("config", "set", "relay.url", liar.url)
        lap.ok("init", "--yes")
        lap.ok("relay", "join", stdin=desk.ok("relay", "pair", "--offline", "--name", "lap"))
        lap.ok("relay", "sync")
        desk.ok("relay", "poll")
        liar.lies = True
        lap.say("aaaaaaaa-1111-4111-8111-111111111111", line("said to a liar"))
        with desk.machine() as machine:
            machine.store.execute("UPDATE relay_peers SET sent = NULL")  # as after six hours
        for computer, word in ((lap, "sync"), (desk, "poll")):
            computer.ok("sync")
            told = [computer.crystal("relay", word).err for _ in range(2)]
            assert "but does not have" in told[1], told
            status = computer.crystal("relay", "status")
            assert (status.code, "lost       the relay confirmed" in status.out) == (6, True), status
            assert "relay loses: the relay confirmed" in computer.crystal("doctor").out
        assert (liar.swallowed > 3, desk.texts()) == (True, [])
        liar.lies = False
        for _ in range(3):
            lap.ok("relay", "sync")
            desk.ok("relay", "poll")
        assert desk.texts() == ["said to a liar"]
        assert [one.crystal("relay", "status").code for one in (lap, desk)] == [0, 0]


def test_a_mirror_that_vanishes_is_named_and_uploaded_again(pairs: Pairs, on: On) -> None:
    joined(pairs)
    assert on(pairs.home, "remember", "the lamp is made of amber").code == 0
    end = lie(pairs.home_way, OBJECTS)
    poll(pairs)
    with pairs.home.open() as machine:
        machine.store.execute("UPDATE mirror_home SET looked_at = 0")
    poll(pairs)
    with pairs.home.open() as machine:
        problem = find_problem(machine.store, LOST_MIRROR)
        assert problem is not None
        assert "of the mirror but does not have" in problem.message
    end()
    for _ in range(2):
        poll(pairs)
        with pairs.home.open() as machine:  # half an hour later
            machine.store.execute("UPDATE mirror_home SET looked_at = 0")
    poll(pairs)
    with pairs.home.open() as machine:
        assert find_problem(machine.store, LOST_MIRROR) is None
    with pairs.client() as client:
        assert client.objects()


def test_a_list_of_devices_that_the_relay_lost_is_put_there_again(pairs: Pairs) -> None:
    joined(pairs)
    poll(pairs)
    tokens = dict(pairs.site.tokens)
    pairs.site.wipe()
    assert tokens == pairs.site.tokens
    poll(pairs)
    with pairs.client() as client:
        assert [one.link.name for one in read_registry(client, ROOT)] == ["laptop"]
