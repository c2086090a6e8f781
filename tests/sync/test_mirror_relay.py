"""The mirror over the real relay and its real client."""

from types import SimpleNamespace

import numpy as np
import pytest

from crystal.app import maintenance
from crystal.app.sync.device import _keep_mirror
from crystal.search.index import folder_of
from crystal.search.index.open_index import Absent, open_index
from crystal.store.search import vectors
from crystal.store.search.scope import where
from crystal.store.search.space import delete_chunks
from crystal.store.sync.mirror_apply import open_mirror
from crystal.sync.client import RelayClient
from crystal.sync.errors import RelayDeniedError
from crystal.sync.mirror.publishing import take_device_report
from tests.support.mirror_world import World, assert_equal
from tests.support.over_httpx import OverHttpx
from tests.support.relay_world import RelaySite
from tests.support.store_factory import NOW, Meaning, add_turn, chunk_id, embed_all

pytestmark = pytest.mark.slow

URL = "http://127.0.0.1:8600"


@pytest.fixture
def world(tmp_path):
    site = RelaySite(tmp_path / "site")
    (tmp_path / "machine").mkdir()
    world = World.make(tmp_path / "machine")
    world.site = site
    world.relay = RelayClient(URL, site.token("home", "home"), transport=OverHttpx(site.transport()))
    yield world
    world.store.close()
    world.relay.close()
    site.stop()


def test_a_device_reads_what_home_published_and_can_change_none_of_it(world):
    client = RelayClient(URL, world.site.token("device", "objects:read"), transport=OverHttpx(world.site.transport()))
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
    with pytest.raises(RelayDeniedError):
        client.delete_object(first.object_id)
    with pytest.raises(RelayDeniedError):
        client.put_object(b"0" * 16, b"mine")
    client.close()


def test_a_relay_that_lost_its_disk_is_filled_again(world):
    device = world.device()
    add_turn(world.store, "one")
    world.publish()
    world.site.wipe()
    world.relay.close()
    world.relay = RelayClient(URL, world.site.token("again", "home"), transport=OverHttpx(world.site.transport()))
    device.take(world.manifest, world.serial)
    report = device.fetch(world.relay)
    assert (report.is_whole, report.code) == (False, "missing")
    take_device_report(world.store, device.told(), now=world.now)
    assert world.both(device).is_whole
    assert_equal(world, device)


def index_of(device):
    """Bring the index of a device's mirror up to date; gives its documents, which are those of the mirror."""
    with open_mirror(device.path) as store:
        maintenance.index(store, NOW, 1e12)
        with store.reading():
            index = open_index(store, folder_of(store.path))
            assert not isinstance(index, Absent), index
            assert index.documents == store.value("SELECT count(*) FROM chunks")
            ids = sorted(index.take("id", np.flatnonzero(index.mask(where("1")))).tolist())
            assert ids == [ident for (ident,) in store.rows("SELECT id FROM chunks ORDER BY id")]
            serving = vectors.serving_generation(store)
            assert serving is None or index.has_vectors(serving.id)
            return index


def test_the_index_of_a_mirror_follows_and_forgets(world):
    device = world.device()
    for round_trip in range(4):
        for at in range(10):
            add_turn(world.store, f"the car {round_trip} {at}")
        uuid = add_turn(world.store, f"xyzzyplugh{round_trip}")
        embed_all(world.store, Meaning())
        assert world.both(device).is_whole
        assert index_of(device).frequency(f"xyzzyplugh{round_trip}") == 1
        with world.store.transaction():
            delete_chunks(world.store, [chunk_id(world.store, uuid)])
        if round_trip == 2:  # it is built anew, beside the one that is searched
            wanted = device.memo.read_text().replace('"starts_over":false', '"starts_over":true')
            assert '"starts_over":true' in wanted
            device.memo.write_text(wanted)
        assert world.both(device).is_whole
        assert index_of(device).find([1]).tolist() != [-1]
        data = b"".join(path.read_bytes() for path in device.path.parent.rglob("*") if path.is_file())
        assert b"xyzzyplugh" not in data


def test_a_mirror_whose_index_cannot_be_written_is_delivered_all_the_same(world, monkeypatch):
    device = world.device()
    add_turn(world.store, "one")
    assert world.both(device).is_whole
    (device.path.parent / "index").write_text("in the way")
    _keep_mirror(SimpleNamespace(places=SimpleNamespace(data_dir=device.path.parent)))
    device.path.write_bytes(b"no database any more")
    _keep_mirror(SimpleNamespace(places=SimpleNamespace(data_dir=device.path.parent)))


def test_a_mirror_that_is_let_go_leaves_nothing_of_its_index(world):
    device = world.device()
    add_turn(world.store, "xyzzyplugh")
    assert world.both(device).is_whole
    index_of(device)
    assert list(folder_of(device.path).glob("*.part"))
    device.discard()
    assert not (device.path.parent / "index").exists()
    device.discard()
