"""The mirror: what is refused, from a relay, an old home, or a home of another version."""

import base64
import json

import pytest

from crystal.errors import DamagedError
from crystal.store.sync.mirror_content import ObjectRows, VectorSpace
from crystal.sync.envelope.blob import open_blob
from crystal.sync.envelope.link import keys_of_link
from crystal.sync.envelope.refusals import WrongKeyError
from crystal.sync.mirror.content import pack, unpack
from crystal.sync.mirror.listing import parse_manifest
from crystal.sync.mirror.publishing import roll_key, take_device_report
from tests.support.mirror_world import assert_equal, bytes_of, world
from tests.support.store_factory import add_turn
from tests.support.table import each_row

__all__ = ["world"]


@pytest.mark.slow
def test_a_manifest_of_an_older_document_is_not_taken(world):
    device = world.device()
    add_turn(world.store, "one")
    old = world.publish()
    add_turn(world.store, "two")
    world.both(device)
    device.take(old, 1)
    device.take(old, world.serial)
    assert device.fetch(world.relay).is_whole
    assert_equal(world, device)


@pytest.mark.slow
@pytest.mark.parametrize("spoil", ["flip", "cut", "swap", "empty", "grow"])
def test_a_damaged_object_is_refused_named_and_tried_again(world, spoil):
    device = world.device()
    add_turn(world.store, "one")
    world.both(device)
    add_turn(world.store, "two")
    world.publish()
    first = next(iter(world.relay.kept.values()))
    spoils = {
        "flip": lambda data: data[:200] + bytes([data[200] ^ 1]) + data[201:],
        "cut": lambda data: data[:-1],
        "swap": lambda _: first,
        "empty": lambda _: b"",
        "grow": lambda data: data + b"\0",
    }
    world.relay.spoil = lambda _ident, data: spoils[spoil](data)
    before = bytes_of(device)
    report = world.sync(device)
    assert (report.is_whole, report.code) == (False, "sha256")
    assert device.status().problem
    assert device.path.read_bytes() in before
    world.relay.spoil = lambda _ident, data: data
    assert world.sync(device).is_whole
    assert device.status().problem is None
    assert_equal(world, device)


@pytest.mark.slow
def test_an_object_that_home_listed_and_did_not_seal_so_is_refused(world):
    """Even with the right hash: key, place and stream are checked by the envelope."""
    device = world.device()
    add_turn(world.store, "one")
    body = dict(world.publish())
    for change in (
        {"keys": []},
        {"stream": base64.b64encode(bytes(16)).decode()},
        {"objects": [[*body["objects"][0][:2], 7, *body["objects"][0][3:]]]},
    ):
        fresh = world.device(repr(change)[:12].strip("{'"))
        fresh.take({**body, **change}, 1)
        report = fresh.fetch(world.relay)
        assert not report.is_whole
        assert report.code in ("key", "stream", "seq")
    assert world.sync(device).is_whole


def test_a_revoked_device_opens_nothing_that_came_after(world):
    add_turn(world.store, "before")
    old = parse_manifest(world.publish())
    roll_key(world.store, world.dice.randbytes, world.now)
    add_turn(world.store, "after")
    new = parse_manifest(world.publish())
    assert set(old.links) < set(new.links)
    newest = new.entries[-1]
    blob = world.relay.kept[newest.object_id]
    with pytest.raises(WrongKeyError):
        open_blob(blob, old.keys().get, channel=2, stream=new.stream, seq=newest.number, prev=None)
    keys = keys_of_link(new.links[-1])
    assert open_blob(blob, keys, channel=2, stream=new.stream, seq=newest.number, prev=None).payload


@each_row("change", [{"format": 1}, {"objects": [[1]]}, {"stream": "zz"}, {"keys": ["x"]}, {"published_at": -1}, {"serving": [1]},
     {"\ud800": 1}, {"stream": "\ud800"},
     {"objects": [[2, "AAAAAAAAAAA", 1, "A" * 43, 5], [1, "AAAAAAAAAAA", 1, "A" * 43, 5]]}])  # fmt: skip
def test_a_manifest_that_says_nothing_known_is_refused(world, change):
    add_turn(world.store, "one")
    body = world.publish()
    with pytest.raises(DamagedError):
        world.device().take({**body, **change}, 1)
    assert not world.device().memo.exists()


@each_row("data", [b"", b"MIR1", b"[]", b"{}", b'{"format": 9}', b'{"format": 3}', b"\xff" * 100])
def test_content_that_is_none_is_refused(data):
    with pytest.raises(DamagedError):
        unpack(data)


def test_content_is_the_same_after_packing():
    content = ObjectRows(3, b"m" * 16, {"private": [("uuid \u2028 数",)], "vector": [(5, "00FF0180"), (6, None)]},
                      {"chunk": [1], "private": ["1e5"]}, VectorSpace(2, "p", "m", 4))  # fmt: skip
    assert unpack(pack(content)) == content
    for cut in range(0, len(pack(content)), 7):
        with pytest.raises(DamagedError):
            unpack(pack(content)[:cut])


@each_row("told", ["x", ["x"], 5, {"bad": 5}, {"bad": "zz"}, {"bad": [{}]}])
def test_what_no_device_tells_of_its_mirror_is_passed_over(world, told):
    take_device_report(world.store, told, now=1)


@each_row("change", [{"rows": {"turn": [[1]]}}, {"rows": {"other": [[1]]}}, {"marks": "AA=="}, {"marks": ""}, {"first": "1"},
     {"rows": {"vector": [[1], ["00"]]}}, {"rows": {"vector": [["1"], [None]]}}, {"space": None}, {"space": [1, "p"]},
     {"space": [1, "p", "m", 0]}, {"rows": {"private": [["a"], ["b"]]}}, {"gone": []}])  # fmt: skip
def test_content_with_something_else_in_a_field_is_refused(change):
    content = ObjectRows(3, b"m" * 8, {"vector": [(5, "00FF0180")]}, {}, VectorSpace(2, "p", "m", 4))
    with pytest.raises(DamagedError):
        unpack(json.dumps({**json.loads(pack(content)), **change}).encode())
