"""The mirror: what goes on after an interruption, a loss, a backup, a wrong clock."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from crystal.errors import DamagedError
from crystal.store import Store
from crystal.store.health import checks
from crystal.store.sync import mirror
from crystal.sync.errors import RelayUnavailableError
from tests.support.embedding_store import Dice
from tests.support.mirror_world import assert_equal, drop, embed, tell, world
from tests.support.store_factory import NOW, add_turn, open_store

__all__ = ["world"]

HOUR = 3_600_000
ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.slow
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


@pytest.mark.slow
def test_who_reads_while_a_mirror_is_built_anew_keeps_what_he_reads(world):
    device = world.device()
    for at in range(40):
        add_turn(world.store, f"old turn {at}")
    world.both(device)
    with Store.open_existing(device.path) as reader, reader.reading():
        assert reader.value("SELECT count(*) FROM chunks") == 40
        inode = device.path.stat().st_ino
        wanted = device.memo.read_text().replace('"starts_over":false', '"starts_over":true')
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
        patch.setattr(checks, "quick_fault", lambda _: ("a page is damaged", True))
        with pytest.raises(DamagedError, match="a page is damaged"):
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
    world.relay.fail = lambda _: (_ for _ in ()).throw(RelayUnavailableError("down"))
    with pytest.raises(RelayUnavailableError):
        world.publish()
    world.relay.fail = lambda _: None
    add_turn(world.store, "one more")
    assert world.both(device).is_whole
    assert_equal(world, device)


@pytest.mark.slow
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


@pytest.mark.slow
def test_objects_that_nobody_lists_are_deleted_in_the_end(world):
    for at in range(40):
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


@pytest.mark.slow
def test_a_home_that_begins_again_with_nothing_empties_the_mirror(world):
    device = world.device()
    add_turn(world.store, "one")
    assert world.both(device).is_whole
    world.store.close()
    for path in world.folder.glob("crystal.db*"):
        path.unlink()
    world.store = open_store(world.folder)
    assert world.both(device).is_whole
    assert_equal(world, device)
    assert device.status().chunks == 0


@pytest.mark.slow
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
from crystal.sync.errors import NotAtRelayError
from crystal.sync.mirror.device import Mirror
from crystal.sync.mirror.publishing import publish
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
    from crystal.sync.mirror.publishing import manifest

    (tmp_path / "manifest").write_text(json.dumps(manifest(world.store)))
    assert run_until_done("fetch", tmp_path / "relay", device.path, tmp_path / "manifest") > 2
    assert_equal(world, device)
