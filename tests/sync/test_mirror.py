"""The mirror: what travels, what is refused, what goes on after an interruption, and what it costs."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from crystal.store import Store
from crystal.store.capture.privacy import add_private_lines, is_private_line
from crystal.store.health import checks
from crystal.store.search.vectors import ensure_generation, pending_chunks, promote, put_vectors
from crystal.store.sync import mirror
from crystal.store.sync.mirror_content import Content, VectorSpace
from crystal.sync.envelope import keys_of_link, open_blob
from crystal.sync.envelope.refusals import WrongKey
from crystal.sync.errors import RelayUnavailable
from crystal.sync.mirror import (
    ManifestUnreadable,
    MirrorDamaged,
    MirrorRollback,
    on_told,
    roll_key,
    upkeep,
)
from crystal.sync.mirror.content import ContentUnreadable, pack, unpack
from crystal.sync.mirror.listing import parse_manifest
from tests.support.embedding_store import Dice
from tests.support.mirror_world import World, assert_equal
from tests.support.ranked_by import search
from tests.support.store_factory import NOW, Meaning, add_turn, embed_all

HOUR = 3_600_000
ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def world(tmp_path):
    world = World.make(tmp_path)
    yield world
    world.store.close()


def embed(store: Store, model: Dice) -> None:
    generation = ensure_generation(store, model.provider, model.model, model.dimension, NOW)
    waiting = pending_chunks(store, generation, 10_000)
    put_vectors(store, generation, [(ident, model.embed_query(text)) for ident, _, text in waiting])
    promote(store, generation)


def drop(store: Store, uuid: str) -> None:
    with store.transaction():
        checks.drop_turns(store, [store.value("SELECT id FROM turns WHERE uuid = ?", (uuid,))])
        checks.rebuild_keywords(store)


def tell(world: World, device) -> None:
    on_told(world.store, device.told(), now=world.now, random=world.dice.randbytes)


def bytes_of(device) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(device.path.parent.iterdir()))


# ---------------------------------------------------------------------------------------------------- what travels


def test_everything_travels_and_the_answers_are_homes(world):
    device = world.device()
    for at in range(30):
        add_turn(world.store, f"the car number {at} needs money", session=f"s{at % 3}", tool="Bash" if at % 2 else None)
    add_turn(world.store, "again", session="fork", uuid="u000003")
    embed_all(world.store, Meaning())
    world.store.execute(
        "INSERT INTO memories VALUES (1, 'mem-0123456789ab', 'tabs', 'preference', 'indent', NULL, 'active', 'cli',"
        " 'cc-test', 'desk', NULL, 1, 2)"
    )
    with world.store.transaction():
        add_private_lines(world.store, ["secret-uuid", "1e5"])
    assert world.both(device).is_whole
    assert_equal(world, device)
    with Store.open_existing(device.path) as there:
        for question in ("car", '"number 7"', "vehicle cash", "again"):
            home = search(world.store, Meaning(), question, now=NOW)
            copy = search(there, Meaning(), question, now=NOW)
            assert (copy.mode, copy.hits, copy.notes) == (home.mode, home.hits, home.notes)


def test_nothing_new_means_no_manifest_and_no_upload(world):
    add_turn(world.store, "once")
    assert world.publish() is not None
    sent = world.relay.sent
    assert world.publish() is None
    assert world.relay.sent == sent


def test_rows_do_not_wait_for_vectors(world):
    device, model = world.device(), Dice()
    embed(world.store, model)
    for at in range(5):
        add_turn(world.store, f"turn {at}")
    world.both(device)
    assert device.status().chunks == 5
    embed(world.store, model)
    world.both(device)
    assert_equal(world, device)


def test_another_model_serves_only_when_all_its_vectors_are_there(world):
    device = world.device()
    for at in range(8):
        add_turn(world.store, f"turn {at}")
    embed(world.store, Dice("old"))
    world.both(device)
    embed(world.store, Dice("new", 600))
    world.both(device)
    assert_equal(world, device)
    with Store.open_existing(device.path) as there:
        assert there.rows("SELECT model FROM embedding_generations") == [("new",)]


def test_vectors_travel_as_they_are_stored(world):
    device = world.device()
    add_turn(world.store, "one")
    embed(world.store, Dice("wide", 1536))
    world.both(device)
    assert world.relay.sent < 4_000
    with Store.open_existing(device.path) as there:
        (mine,) = there.rows("SELECT embedding FROM chunks_vec_1")
        (home,) = world.store.rows("SELECT embedding FROM chunks_vec_1")
        assert mine == home


def test_a_renamed_device_sends_no_texts_again(world):
    device = world.device()
    for at in range(60):
        add_turn(world.store, f"{at} " + os.urandom(400).hex())
    world.both(device)
    sent = world.relay.sent
    world.store.execute("UPDATE chunks SET device = 'laptop'")
    world.store.execute("UPDATE sessions SET device = 'laptop'")
    world.both(device)
    assert world.relay.sent - sent < 4_000 < 60 * 400
    assert_equal(world, device)


def test_twenty_new_chunks_cost_less_than_100_kilobytes(world):
    device, model = world.device(), Dice("wide", 1536)
    for at in range(60):
        add_turn(
            world.store, f"{at} " + " ".join(f"{at * 7 % 97}word{n * at % 53}" for n in range(150)), session=f"s{at}"
        )
    embed(world.store, model)
    world.both(device)
    for run in range(12):
        sent, fetched = world.relay.sent, world.relay.fetched
        for at in range(20):
            add_turn(world.store, f"{run} {at} " + " ".join(f"{at}{n * 31 % 89}" for n in range(300)), session="now")
        embed(world.store, model)
        world.both(device)
        assert world.relay.fetched - fetched < 100_000
        assert world.relay.sent - sent < 100_000
    assert_equal(world, device)


def test_small_objects_become_large_ones_and_the_list_stays_short(world, monkeypatch):
    monkeypatch.setattr(upkeep, "FAN", 8)
    monkeypatch.setattr(upkeep, "NEWEST", 8)
    near = world.device("near")
    for at in range(150):
        add_turn(world.store, f"turn {at}")
        body = world.publish()
        fetched = world.relay.fetched
        world.sync(near)
        assert world.relay.fetched - fetched < 3_000  # what is new, and nothing that was merged
    assert len(mirror.listed(world.store)) < 32
    assert len(body["objects"]) < 32
    assert_equal(world, near)
    device = world.device()
    assert world.sync(device).is_whole
    assert_equal(world, device)


# ------------------------------------------------------------------------------------------------------ forgetting


def test_what_is_forgotten_is_gone_from_mirror_and_relay(world):
    device = world.device()
    secret = add_turn(world.store, "the launch code is plumtree zebra")
    for at in range(20):
        add_turn(world.store, f"turn {at}")
    embed(world.store, Dice("d", 64))
    vector = bytes(world.store.value("SELECT embedding FROM chunks_vec_1 WHERE rowid = 1"))
    world.both(device)
    assert b"plumtree" in bytes_of(device)
    assert vector in bytes_of(device)
    before = set(world.relay.kept)
    drop(world.store, secret)
    world.both(device)
    assert_equal(world, device)
    left = bytes_of(device)
    assert b"plumtree" not in left
    assert vector not in left
    assert not before & set(world.relay.kept)  # the object that had it was deleted at once
    late = world.device("late")
    assert world.sync(late).is_whole
    assert b"plumtree" not in bytes_of(late)


def test_a_private_line_of_another_machine_is_known(world, monkeypatch):
    from crystal.app.context import default_paths
    from crystal.app.sync.private_lines import take_private

    device = world.device()
    add_turn(world.store, "words")
    with world.store.transaction():
        add_private_lines(world.store, ["hidden"])
    monkeypatch.setenv("CRYSTAL_DATA_DIR", str(device.path.parent))
    with Store.open(default_paths().db) as own:
        take_private(own, default_paths())
        assert not is_private_line(own, "hidden")
        world.both(device)
        take_private(own, default_paths())
        assert is_private_line(own, "hidden")
        assert not is_private_line(own, "u000000")


# --------------------------------------------------------------------------------------------------------- refused


def test_an_older_manifest_is_a_rollback(world):
    device = world.device()
    add_turn(world.store, "one")
    old = world.publish()
    add_turn(world.store, "two")
    world.both(device)
    with pytest.raises(MirrorRollback, match="version 1 is older than 2") as error:
        device.take(old, world.serial + 1)
    assert error.value.code == "rollback"
    assert error.value.exit_code == 5
    with pytest.raises(MirrorRollback, match="document 1 is older"):
        device.take(world.manifest, 1)
    assert device.status().code == "rollback"
    device.fetch(world.relay)
    assert device.status().code == "rollback"  # it stays named until home says something newer
    assert_equal(world, device)
    add_turn(world.store, "three")
    world.both(device)
    assert device.status().problem is None


def test_an_epoch_that_has_ended_does_not_come_back(world):
    device = world.device()
    add_turn(world.store, "one")
    old = world.publish()
    world.sync(device)
    on_told(world.store, {"epoch": old["epoch"], "version": 9}, now=world.now, random=world.dice.randbytes)
    world.both(device)
    assert world.manifest["epoch"] != old["epoch"]
    with pytest.raises(MirrorRollback, match="has ended"):
        device.take(old, world.serial + 1)


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


def test_an_object_that_home_listed_and_did_not_seal_so_is_refused(world):
    """Even with the right hash: key, place and stream are checked by the envelope."""
    device = world.device()
    add_turn(world.store, "one")
    body = dict(world.publish())
    for change in (
        {"keys": []},
        {"stream": "00" * 16},
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
    with pytest.raises(WrongKey):
        open_blob(blob, old.keys().get, channel=2, stream=new.stream, seq=newest.number, prev=None)
    keys = keys_of_link(new.links[-1])
    assert open_blob(blob, keys, channel=2, stream=new.stream, seq=newest.number, prev=None).payload


@pytest.mark.parametrize(
    "change",
    [{"format": 1}, {"objects": [[1]]}, {"epoch": "zz"}, {"keys": ["x"]}, {"version": -1}, {"serving": [1]},
     {"objects": [[2, "AAAAAAAAAAA", 1, "A" * 43, 5], [1, "AAAAAAAAAAA", 1, "A" * 43, 5]]}],
)  # fmt: skip
def test_a_manifest_that_says_nothing_known_is_refused(world, change):
    add_turn(world.store, "one")
    body = world.publish()
    with pytest.raises(ManifestUnreadable):
        world.device().take({**body, **change}, 1)
    assert not world.device().memo.exists()


@pytest.mark.parametrize("data", [b"", b"MIR1", b"[]", b"{}", b'{"format": 9}', b'{"format": 3}', b"\xff" * 100])
def test_content_that_is_none_is_refused(data):
    with pytest.raises(ContentUnreadable):
        unpack(data)


def test_content_is_the_same_after_packing():
    content = Content(3, b"m" * 16, {"private": [("uuid \u2028 数",)], "vector": [(5, "00FF0180"), (6, None)]},
                      {"chunk": [1], "private": ["1e5"]}, VectorSpace(2, "p", "m", 4))  # fmt: skip
    assert unpack(pack(content)) == content
    for cut in range(0, len(pack(content)), 7):
        with pytest.raises(ContentUnreadable):
            unpack(pack(content)[:cut])


@pytest.mark.parametrize(
    "change",
    [{"rows": {"turn": [[1]]}}, {"rows": {"other": [[1]]}}, {"marks": "AA=="}, {"marks": ""}, {"first": "1"},
     {"rows": {"vector": [[1], ["00"]]}}, {"rows": {"vector": [["1"], [None]]}}, {"space": None}, {"space": [1, "p"]},
     {"space": [1, "p", "m", 0]}, {"rows": {"private": [["a"], ["b"]]}}, {"gone": []}],
)  # fmt: skip
def test_content_with_something_else_in_a_field_is_refused(change):
    content = Content(3, b"m" * 8, {"vector": [(5, "00FF0180")]}, {}, VectorSpace(2, "p", "m", 4))
    with pytest.raises(ContentUnreadable):
        unpack(json.dumps({**json.loads(pack(content)), **change}).encode())


# ----------------------------------------------------------------------------------------------------- interrupted


def test_a_first_sync_goes_on_in_another_process_and_shows_nothing_before_it_is_whole(world, monkeypatch):
    device = world.device()
    for at in range(12):
        add_turn(world.store, f"turn {at}")
        world.publish()
    device.take(world.manifest, world.serial)
    for at in range(11):
        stops = iter([False, True])
        report = device.fetch(world.relay, should_stop=lambda stops=stops: next(stops))
        assert (report.objects, report.left, report.is_whole) == (1, 11 - at, False)
        assert not device.path.exists()
        assert device.status().is_building
        device = world.device()
    fetched = world.relay.fetched
    assert device.fetch(world.relay).objects == 1
    assert world.relay.fetched - fetched < 3_000
    assert_equal(world, device)


def test_who_reads_while_a_mirror_is_built_anew_keeps_what_he_reads(world):
    device = world.device()
    for at in range(40):
        add_turn(world.store, f"old turn {at}")
    world.both(device)
    with Store.open_existing(device.path) as reader, reader.reading():
        assert reader.value("SELECT count(*) FROM chunks") == 40
        inode = device.path.stat().st_ino
        wanted = device.memo.read_text().replace('"starts_over": false', '"starts_over": true')
        device.memo.write_text(wanted)
        add_turn(world.store, "new turn")
        assert world.both(device).is_whole
        assert reader.value("SELECT count(*) FROM chunks") == 40
        with Store.open_existing(device.path) as other:
            assert other.value("SELECT count(*) FROM chunks") == 41
        assert device.path.stat().st_ino == inode
    assert not device.building.exists()
    assert_equal(world, device)


def test_a_log_that_a_deleted_mirror_left_does_no_harm(world):
    device = world.device()
    add_turn(world.store, "one")
    world.both(device)
    device.path.unlink()
    device.path.with_name("mirror.db-wal").write_bytes(b"stale" * 1000)
    assert world.both(device).is_whole
    assert_equal(world, device)


def test_a_mirror_that_is_damaged_is_not_put_in_place(world, monkeypatch):
    device = world.device()
    add_turn(world.store, "one")
    device.take(world.publish(), 1)
    with monkeypatch.context() as patch:
        patch.setattr(checks, "quick_fault", lambda _: "a page is damaged")
        with pytest.raises(MirrorDamaged, match="a page is damaged"):
            device.fetch(world.relay)
    assert not device.path.exists()
    add_turn(world.store, "two")
    world.serial = 1
    assert world.both(device).is_whole
    assert_equal(world, device)


def test_a_relay_that_fails_loses_nothing(world):
    device = world.device()
    for at in range(5):
        add_turn(world.store, f"turn {at}")
    world.relay.fail = lambda _: (_ for _ in ()).throw(RelayUnavailable("down"))
    with pytest.raises(RelayUnavailable):
        world.publish()
    world.relay.fail = lambda _: None
    add_turn(world.store, "one more")
    assert world.both(device).is_whole
    assert_equal(world, device)


def test_a_wiped_relay_is_filled_again(world):
    device, late = world.device(), world.device("late")
    for at in range(5):
        add_turn(world.store, f"turn {at}")
        world.both(device)
    world.relay.kept.clear()
    assert world.publish() is None  # asked again in some hours
    report = world.sync(late)
    assert report.code == "missing"
    tell(world, late)
    assert world.both(late).is_whole
    assert_equal(world, late)
    world.relay.kept.clear()
    world.now += 7 * HOUR
    fresh = world.device("fresh")
    assert world.both(fresh).is_whole


def test_a_home_restored_from_a_backup_is_followed(world, tmp_path):
    device = world.device()
    add_turn(world.store, "one")
    world.both(device)
    world.store.execute("VACUUM INTO ?", (str(tmp_path / "backup"),))
    add_turn(world.store, "two, lost with the disk")
    world.both(device)
    world.store.close()
    for path in world.folder.glob("crystal.db*"):
        path.unlink()
    (tmp_path / "backup").rename(world.folder / "crystal.db")
    world.store = Store.open(world.folder / "crystal.db")
    add_turn(world.store, "three")
    tell(world, device)
    assert world.both(device).is_whole
    assert_equal(world, device)
    assert device.status().problem is None


def test_objects_that_nobody_lists_are_deleted_in_the_end(world):
    for at in range(70):
        add_turn(world.store, f"turn {at}")
        world.publish()
    world.relay.kept[b"0" * 16] = b"of a publisher that was killed"
    world.now += 7 * HOUR
    world.publish()
    world.now += 30 * HOUR
    world.publish()
    listed = {one.sha256[:16] for one in mirror.listed(world.store)}
    assert set(world.relay.kept) == listed


def test_two_fetch_at_once_and_one_of_them_works(world):
    device = world.device()
    add_turn(world.store, "one")
    world.publish()
    device.take(world.manifest, world.serial)
    reports = []
    world.relay.fail = lambda _: reports.append(world.device().fetch(world.relay))
    assert device.fetch(world.relay).is_whole
    assert [report.objects for report in reports] == [0]


def test_where_nothing_is_published_nothing_is_noted(world):
    for at in range(5):
        drop(world.store, add_turn(world.store, f"turn {at}"))
    assert world.store.rows("SELECT * FROM mirror_rows") == []


def test_the_spec_names_the_files(world):
    device = world.device()
    add_turn(world.store, "one")
    world.both(device)
    assert {path.name for path in device.path.parent.iterdir()} == {"mirror.db", "mirror.json", "mirror.db.lock"}
    if sys.platform != "win32":
        assert {path.stat().st_mode & 0o077 for path in device.path.parent.iterdir()} == {0}
    device.discard()
    assert {path.name for path in device.path.parent.iterdir()} <= {"mirror.db.lock"}


def test_a_clock_that_was_wrong_stops_nothing(world):
    device = world.device()
    add_turn(world.store, "one")
    world.now += 10 * 365 * 24 * HOUR
    world.both(device)
    world.now -= 10 * 365 * 24 * HOUR
    world.relay.kept.clear()
    late = world.device("late")
    assert world.sync(late).code == "missing"
    tell(world, late)
    assert world.both(late).is_whole
    assert world.manifest["published_at"] <= world.now
    assert_equal(world, late)


def test_many_deletions_hold_the_write_lock_shortly(world):
    for at in range(60):
        add_turn(world.store, f"turn {at}")
        world.publish()
    with world.store.transaction():
        world.store.execute("WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)"
                            " INSERT INTO chunks (start, body, text_sha256, source, role, agent, device)"
                            " SELECT 0, 'x', x'00', 'file', 'source', 'a', 'd' FROM n")  # fmt: skip
    world.publish()
    world.store.execute("DELETE FROM chunks WHERE source = 'file'")
    start = time.thread_time()
    world.publish()
    assert time.thread_time() - start < 5
    device = world.device()
    world.sync(device)
    assert device.status().chunks == 60


CHILD = """
import json, os, sys
from pathlib import Path
from crystal.sync.errors import NotAtRelay
from crystal.sync.mirror import Mirror, publish
from crystal.store import Store

class Relay:
    def put_object(self, ident, data):
        temporary = Path(sys.argv[2], f"{ident.hex()}.{os.getpid()}")
        temporary.write_bytes(data)
        temporary.replace(Path(sys.argv[2], ident.hex()))
    def get_object(self, ident):
        return Path(sys.argv[2], ident.hex()).read_bytes()
    def delete_object(self, ident):
        Path(sys.argv[2], ident.hex()).unlink(missing_ok=True)
    def objects(self):
        return ()

print("ready", flush=True)
if sys.argv[1] == "publish":
    with Store.open(Path(sys.argv[3])) as store:
        publish(store, Relay(), now=int(sys.argv[4]), random=os.urandom)
else:
    mirror = Mirror(Path(sys.argv[3]))
    mirror.take(json.loads(Path(sys.argv[4]).read_text()), 1)
    mirror.fetch(Relay())
print("done", flush=True)
"""


@pytest.mark.slow
def test_killed_again_and_again_home_and_device_come_to_an_end(world, tmp_path):
    """SIGKILL, in real processes; each run that is killed lives a little longer than the one before."""
    for at in range(3000):
        add_turn(world.store, f"turn {at} " + os.urandom(900).hex(), session=f"s{at % 9}")
    embed(world.store, Dice("d", 256))
    (tmp_path / "relay").mkdir()
    device = world.device()

    def run_until_done(*words: object) -> int:
        for kills in range(60):
            child = subprocess.Popen(
                [sys.executable, "-c", CHILD, *map(str, words)],
                stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
            )  # fmt: skip
            assert child.stdout.readline() == "ready\n"
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(0.02 + kills * 0.03)
            child.kill()
            said, _ = child.communicate()
            if said == "done\n":
                return kills
        raise AssertionError("it never came to an end")

    assert run_until_done("publish", tmp_path / "relay", world.store.path, NOW) > 2
    from crystal.sync.mirror import manifest

    (tmp_path / "manifest").write_text(json.dumps(manifest(world.store)))
    assert run_until_done("fetch", tmp_path / "relay", device.path, tmp_path / "manifest") > 2
    assert_equal(world, device)
