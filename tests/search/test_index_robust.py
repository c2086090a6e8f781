"""The derived index where the disk is full, files are lost, and stores are put in the place of others."""

import errno
import os
import shutil
from types import SimpleNamespace

import apsw
import numpy as np
import pytest

from crystal.app import background, maintenance
from crystal.errors import UnavailableError
from crystal.search.index import bring_up_to_date, index_files, index_parts, refresh, step
from crystal.search.index.open_index import Absent, open_index
from crystal.search.index.refresh import check, drop
from crystal.store import Store
from crystal.store.search import index_log
from crystal.store.sync.mirror_apply import copy_over
from tests.support.index_checks import all_bytes, assert_says_what_the_store_says
from tests.support.index_store import NOW, IndexStore, rebuild

pytestmark = pytest.mark.skipif(os.name == "nt", reason="looks at blocks, modes and links")


# ------------------------------------------------------------------------------------------------------- full disks


def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.slow
def test_on_a_full_disk_nothing_is_lost_and_nothing_left(world, monkeypatch):
    world.add(30)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UnavailableError, match="No space left"):
        maintenance.index(world.store, NOW, 1e12)
    assert list(world.folder.iterdir()) == []
    monkeypatch.undo()
    world.refresh()
    world.add(30)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        world.refresh()
    monkeypatch.undo()
    assert {path.stem for path in world.folder.iterdir()} == index_log.listed(world.store)
    assert_says_what_the_store_says(world, world.open(), is_fresh=False)
    world.refresh()
    assert_says_what_the_store_says(world, world.open(), is_fresh=True)


@pytest.mark.parametrize("kind", ["full", "file"])
def test_what_cannot_be_written_is_not_worked_out(world, monkeypatch, kind):
    world.add(30)
    if kind == "full":
        usage = shutil.disk_usage(world.store.path.parent)._replace(free=1_000)
        monkeypatch.setattr(index_files.shutil, "disk_usage", lambda _: usage)
    else:
        world.folder.parent.write_text("in the way")
    monkeypatch.setattr(step, "build_part", lambda *_: pytest.fail("work that is lost"))
    with pytest.raises(OSError, match=r"No space left|exists"):
        bring_up_to_date(world.store, now=NOW)


# ----------------------------------------------------------------------------------------------------------- damage


@pytest.mark.slow
def test_wrong_bytes_that_keep_their_time_are_found_when_files_are_merged(world):
    world.add(60)
    world.embed()
    world.refresh()
    for name in ("document", "times", "posting_at", "word_at", "by_id", "session", "role"):
        (path,) = world.folder.glob("words-*.part")
        found, whole = path.stat(), bytearray(path.read_bytes())
        (file,) = [one for one in index_log.parts(world.store) if one.kind == "words"]
        place = index_files._directory(path, file)[1]["arrays"][name]
        whole[place["at"] : place["at"] + 64] = b"\xff" * 64
        path.write_bytes(whole)
        os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
        index_parts._opened.clear()
        world.delete(world.ids()[:1])
        world.add(2)
        world.embed()
        world.refresh()
        if not check(world.store, world.folder):
            continue  # it was put together without a symptom
    rebuild(world)
    assert_says_what_the_store_says(world, world.open(), is_fresh=True)


def test_damage_that_does_not_end_is_told_as_an_error_of_the_disk(world, monkeypatch):
    world.add(5)

    def broken(*_):
        raise IndexError("axis")

    monkeypatch.setattr(step, "build_part", broken)
    with pytest.raises(OSError, match="cannot be put together"):
        bring_up_to_date(world.store, now=NOW)
    with pytest.raises(UnavailableError):
        maintenance.index(world.store, NOW, 1e12)


def test_a_file_that_goes_while_it_is_checked_is_no_problem(world, monkeypatch):
    world.add(5)
    world.refresh()
    real = refresh.check_file

    def late(path, written):
        monkeypatch.setattr(refresh, "check_file", real)
        world.delete(world.ids()[:1])
        world.refresh()
        return real(path, written)

    monkeypatch.setattr(refresh, "check_file", late)
    assert check(world.store, world.folder) == []


def test_a_file_that_another_process_retires_while_it_is_looked_at_does_not_begin_the_index_anew(world, monkeypatch):
    world.add(5)
    world.refresh()
    real = refresh.is_same

    def late(path, written):
        monkeypatch.setattr(refresh, "is_same", real)
        world.delete(world.ids()[:1])
        world.refresh()
        return real(path, written)

    begun = []
    monkeypatch.setattr(refresh, "_begin", lambda *_: begun.append(True))
    monkeypatch.setattr(refresh, "is_same", late)
    world.add(5)
    world.refresh()
    assert not begun
    assert_says_what_the_store_says(world, world.open(), is_fresh=True)


def test_an_index_that_another_process_begins_anew_is_written_by_that_one(world, monkeypatch):
    world.add(30)
    real = step.write_file

    def late(*what):
        monkeypatch.setattr(step, "write_file", real)
        rebuild(world)
        return real(*what)

    with world.store.reading():
        state = index_log.read_state(world.store)
    assert state is None
    refresh._begin(world.store, world.folder, NOW)
    monkeypatch.setattr(step, "write_file", late)
    other = Store.open(world.store.path)
    try:
        refresh.refresh(other, world.folder, now=NOW)
    finally:
        other.close()
    assert_says_what_the_store_says(world, world.open(), is_fresh=True)


@pytest.mark.slow
def test_the_folder_may_go_while_a_process_has_it_open(world):
    world.add(30)
    world.embed()
    world.refresh()
    with world.store.reading():
        index = world.open()
        shutil.rmtree(world.folder.parent)
        own, _ = index.scores([(["alpha"], 1.0)])
        assert own.any()
    assert isinstance(open_index(world.store, world.folder), Absent)
    assert not bring_up_to_date(world.store, now=NOW)
    assert_says_what_the_store_says(world, world.open(), is_fresh=True)


def test_the_folder_may_be_a_link(world, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine.txt").write_text("of another program")
    (tmp_path / "index").symlink_to(elsewhere)
    world.add(30)
    world.refresh()
    assert_says_what_the_store_says(world, world.open(), is_fresh=True)
    drop(world.store, world.folder)
    assert [path.name for path in elsewhere.rglob("*") if path.is_file()] == ["mine.txt"]


# ------------------------------------------------------------------------------------------------------- forgetting


def test_what_a_killed_process_left_goes_with_what_is_deleted(world):
    world.add(30)
    (secret,) = world.add(text="xyzzyplugh")
    world.refresh()
    for path in list(world.folder.iterdir()):
        shutil.copy2(path, world.folder / f"words-0123456789abcdef.part{index_files.TEMPORARY}")
        shutil.copy2(path, world.folder / "words-fedcba9876543210.part")
    world.delete([secret])
    world.refresh()
    assert b"xyzzyplugh" not in all_bytes(world.folder)
    assert {path.stem for path in world.folder.iterdir()} == index_log.listed(world.store)


# -------------------------------------------------------------------------------------------------- taken for another


def test_an_index_made_anew_is_not_taken_for_the_one_before(world):
    world.add(10)
    world.refresh()
    before = index_log.read_state(world.store)
    (lost,) = world.add(text="xyzzyplugh")
    assert world.open().find([lost]).tolist() != [-1]
    stale = step.IndexStep(world.store, world.folder, NOW, lambda: False)
    real = index_log.change

    def first(*values):
        index_log.change = real
        world.delete([lost])
        rebuild(world)
        return real(*values)

    index_log.change = first
    try:
        with pytest.MonkeyPatch.context():
            assert stale.take() is False
    finally:
        index_log.change = real
    assert index_log.read_state(world.store) != before
    assert_says_what_the_store_says(world, world.open(), is_fresh=True)


def test_a_mirror_that_took_the_place_of_another_is_read_anew(world, tmp_path):
    world.add(10, text="plain")
    world.refresh()
    world.add(text="first")
    assert world.open().frequency("first") == 1
    with IndexStore(tmp_path / "other") as other:
        other.add(10, text="plain")
        source = other.store.path
    copy_over(source, world.store.path)
    world.refresh()
    world.add(text="second")
    index = world.open()
    assert index.frequency("first") == 0
    assert index.frequency("second") == 1


def test_a_store_put_back_from_a_copy_is_read_anew(world, tmp_path):
    world.add(10, text="plain")
    world.refresh()
    with apsw.Connection(str(tmp_path / "copy.db")) as copy, copy.backup("main", world.store.db, "main") as moving:
        moving.step()
    (first,) = world.add(text="first")
    assert world.open().frequency("first") == 1
    copy_over(tmp_path / "copy.db", world.store.path)
    assert world.add(text="second") == [first]
    index = world.open()
    assert (index.frequency("first"), index.frequency("second")) == (0, 1)
    assert np.count_nonzero(index.scores([(["second"], 1.0)])[0]) == 1
    world.refresh()
    assert_says_what_the_store_says(world, world.open(), is_fresh=True)


def test_another_store_of_the_same_name_is_read_anew(world, tmp_path):
    world.add(10, text="plain")
    world.embed()
    world.refresh()
    assert world.open().documents == 10
    world.close()
    with IndexStore(tmp_path / "other") as other:
        other.add(3, text="other")
        other.refresh()
        other.store.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (tmp_path / "other" / "crystal.db").replace(world.store.path)
    world.store = Store.open(world.store.path)
    assert isinstance(open_index(world.store, world.folder), Absent)
    world.refresh()
    assert_says_what_the_store_says(world, world.open(), is_fresh=True)


def test_a_lasting_problem_is_told_once(monkeypatch):
    def fails(*_):
        raise UnavailableError("the search index cannot be written: No space left on device")

    monkeypatch.setattr(background.maintenance, "index", fails)
    monkeypatch.setattr(background, "is_worth_while", lambda _: True)
    others = "_forget _retain _import _read_again _work _assist _log _embed _summarize _reflect _words _tidy"
    for name in others.split():
        monkeypatch.setattr(background, name, lambda *_, **__: None)
    machine = SimpleNamespace(store=None, now=lambda: NOW)
    assert len(background._enrich(machine, background.Round(float("inf"), lambda *_: None))) == 1
