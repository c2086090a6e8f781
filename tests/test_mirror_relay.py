"""The mirror over the real relay and its real client."""

from __future__ import annotations

import pytest

from crystal.relay.client import RelayClient
from crystal.relay.errors import RelayDenied
from crystal.relay.mirror import on_told
from tests.mirror_world import World, assert_equal
from tests.relay_world import RelaySite
from tests.store_factory import Meaning, add_turn, embed_all

URL = "http://127.0.0.1:8600"


@pytest.fixture
def world(tmp_path):
    site = RelaySite(tmp_path / "site")
    (tmp_path / "machine").mkdir()
    world = World.make(tmp_path / "machine")
    world.site = site
    world.relay = RelayClient(URL, site.token("home", "home"), transport=site.transport())
    yield world
    world.store.close()
    world.relay.close()
    site.stop()


def test_a_device_reads_what_home_published_and_can_change_none_of_it(world):
    client = RelayClient(URL, world.site.token("device", "objects:read"), transport=world.site.transport())
    device = world.device()
    for round_trip in range(3):
        for at in range(10):
            add_turn(world.store, f"the car {round_trip} {at}")
        embed_all(world.store, Meaning())
        world.publish()
        device.take(world.manifest, world.serial)
        assert device.fetch(client).is_whole
        assert_equal(world, device)
    (first, *_) = world.relay.objects()
    with pytest.raises(RelayDenied):
        client.delete_object(first.object_id)
    with pytest.raises(RelayDenied):
        client.put_object(b"0" * 16, b"mine")
    client.close()


def test_a_relay_that_lost_its_disk_is_filled_again(world):
    device = world.device()
    add_turn(world.store, "one")
    world.publish()
    world.site.wipe()
    world.relay.close()
    world.relay = RelayClient(URL, world.site.token("again", "home"), transport=world.site.transport())
    device.take(world.manifest, world.serial)
    report = device.fetch(world.relay)
    assert (report.is_whole, report.code) == (False, "missing")
    on_told(world.store, device.told(), now=world.now, random=world.dice.randbytes)
    assert world.both(device).is_whole
    assert_equal(world, device)
