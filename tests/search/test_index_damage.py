"""The derived index: what is deleted is in no file, and what is damaged is made anew."""

import contextlib
import os
import stat

import numpy as np
import pytest

from crystal.search.index import bring_up_to_date, folder_of, index_parts
from crystal.search.index.index_files import IndexDamagedError
from crystal.search.index.open_index import Absent, open_index
from crystal.search.index.refresh import check, drop
from crystal.store.search import index_log
from crystal.store.search.scope import where
from crystal.store.sync.mirror_apply import copy_over
from tests.support.index_checks import (
    all_bytes,
    assert_says_what_the_store_says,
)
from tests.support.index_store import NOW, WORDS, IndexStore, vector

# ------------------------------------------------------------------------------------------------------ forgetting


@pytest.mark.slow
def test_what_is_deleted_is_in_no_file_any_more(world):
    world.add(300, session=1)
    (secret,) = world.add(text="xyzzyplugh", branch="frobozzbranch", session=1)
    world.embed()
    world.refresh()
    world.add(5)
    world.refresh()
    assert b"xyzzyplugh" in all_bytes(world.folder)
    world.delete([secret])
    assert world.open().find([secret]).tolist() == [-1]
    world.refresh()
    assert b"xyzzyplugh" not in all_bytes(world.folder)
    assert b"frobozzbranch" not in all_bytes(world.folder)


def test_nothing_stays_of_a_memory_that_another_took_the_place_of(world, tmp_path):
    world.add(text="xyzzyplugh")
    world.refresh()
    with IndexStore(tmp_path / "other") as other:
        other.add(text="plain")
        source = other.store.path
    copy_over(source, world.store.path)  # as a mirror is renewed
    assert isinstance(open_index(world.store, world.folder), Absent)
    bring_up_to_date(world.store, now=NOW)
    assert world.open().documents == 1
    assert b"xyzzyplugh" not in all_bytes(world.folder)


def test_files_are_private(world):
    world.add(5)
    world.refresh()
    assert stat.S_IMODE(world.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(world.folder.parent.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in world.folder.iterdir()} == {0o600}
    assert folder_of(world.store.path) == world.folder


def test_files_of_former_lists_go_after_a_while(world):
    world.add(5)
    world.refresh()
    for minute in range(1, 6):
        world.add(1)
        world.refresh(NOW + minute * 120_000)
    assert len(list(world.folder.iterdir())) <= 3
    drop(world.store, world.folder)
    assert list(world.folder.iterdir()) == []
    assert isinstance(open_index(world.store, world.folder), Absent)


def test_without_an_index_writing_notes_nothing(world):
    world.add(5)
    assert world.store.value("SELECT count(*) FROM index_log") == 0


# ---------------------------------------------------------------------------------------------------------- damage


def test_a_damaged_file_is_noticed_and_made_anew(world):
    world.add(120)
    world.embed()
    world.refresh()
    for path in sorted(world.folder.iterdir()):
        whole = path.read_bytes()
        content = next(at for at in range(len(whole) // 2, len(whole)) if whole[at])  # what aligns arrays is zero
        for at in {0, 64, content, len(whole) - 200, len(whole) - 1}:
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
            assert isinstance(open_index(world.store, world.folder), Absent)
        path.write_bytes(whole[: len(whole) // 2])
        assert isinstance(open_index(world.store, world.folder), Absent)
        bring_up_to_date(world.store, now=NOW)
        assert_says_what_the_store_says(world, world.open(), is_fresh=True)
        assert check(world.store, world.folder) == []


@pytest.mark.slow
def test_a_file_that_is_gone_is_made_anew(world):
    world.add(50)
    world.embed()
    world.refresh()
    for path in sorted(world.folder.iterdir()):
        path.unlink()
        assert isinstance(open_index(world.store, world.folder), Absent)
        assert not bring_up_to_date(world.store, now=NOW)
        assert_says_what_the_store_says(world, world.open(), is_fresh=True)


def test_a_file_that_was_only_touched_is_kept(world):
    world.add(50)
    world.refresh()
    (path,) = world.folder.iterdir()
    os.utime(path, (1, 1))
    assert world.open().documents == 50  # a copied or restored one is read once, and used
    assert not bring_up_to_date(world.store, now=NOW)
    assert [file.mtime_ns for file in index_log.parts(world.store)] == [10**9]
    assert list(world.folder.iterdir()) == [path]


def test_a_changed_file_of_the_same_size_with_another_time_is_not_used(world):
    world.add(50)
    world.refresh()
    (path,) = world.folder.iterdir()
    whole = path.read_bytes()
    for at in (70, len(whole) // 2, len(whole) - 40):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        os.utime(path, (at, at))
        index_parts._opened.clear()
        assert isinstance(open_index(world.store, world.folder), Absent)


@pytest.mark.slow
def test_no_wrong_byte_that_keeps_its_time_does_more_than_damage(world):
    world.add(60)
    generation = world.embed()
    world.refresh()
    query = np.frombuffer(vector(5), np.float32)
    for path in sorted(world.folder.iterdir()):
        whole, found = path.read_bytes(), path.stat()
        for at in range(0, len(whole), max(1, len(whole) // 400)):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
            os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
            index_parts._opened.clear()
            index = open_index(world.store, world.folder)
            if isinstance(index, Absent):
                continue
            with contextlib.suppress(IndexDamagedError):
                index.scores([([word], 1.0) for word in WORDS], None)
            with contextlib.suppress(IndexDamagedError):
                index.beginning("a", 3)
            with contextlib.suppress(IndexDamagedError):
                index.nearest(generation, query, 10, None)
            with contextlib.suppress(IndexDamagedError):
                index.mask(where("id > 0"))
        path.write_bytes(whole)
        os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def test_another_format_is_made_anew(world, monkeypatch):
    world.add(10)
    world.refresh()
    world.store.execute("UPDATE index_state SET format = 0")
    assert isinstance(open_index(world.store, world.folder), Absent)
    assert not bring_up_to_date(world.store, now=NOW)
    assert world.open().documents == 10


def test_one_that_is_far_behind_is_not_used(world, monkeypatch):
    world.add(10)
    world.refresh()
    monkeypatch.setattr("crystal.search.index.MAX_FRESH", 4)
    world.add(5)
    found = open_index(world.store, world.folder)
    assert isinstance(found, Absent)
    assert found.reason == "it is behind by 5 chunks"
