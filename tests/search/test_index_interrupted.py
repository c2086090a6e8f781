"""The derived index: killed anywhere, built in steps, refreshed by several at once."""

import contextlib
import multiprocessing
import threading

import numpy as np
import pytest

from crystal.search.index import bring_up_to_date, step
from crystal.search.index.index_files import IndexDamagedError
from crystal.search.index.open_index import Absent, open_index
from crystal.search.index.refresh import check, refresh
from crystal.store import Store
from crystal.store.search import index_log, vectors
from tests.support.index_checks import (
    assert_says_what_the_store_says,
)
from tests.support.index_store import DIMENSION, NOW, IndexStore


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.slow
def test_killed_anywhere_the_next_run_goes_on(tmp_path, monkeypatch):
    place = 0
    while True:
        folder = tmp_path / str(place)
        folder.mkdir()
        world = IndexStore(folder, 1)
        world.add(40)
        world.embed()
        world.refresh()
        world.delete(world.ids()[:2])
        world.add(20)
        world.embed()
        left = place
        real = {name: getattr(step, name) for name in ("write_file", "merge_parts", "build_part", "build_arrays")}

        def dying(real):
            def run(*values, **named):
                nonlocal left
                left -= 1
                if left < 0:
                    raise Killed
                return real(*values, **named)

            return run

        for name, function in real.items():
            monkeypatch.setattr(step, name, dying(function))
        killed = False
        try:
            world.refresh()
        except Killed:
            killed = True
        monkeypatch.undo()
        with world.store.reading():
            assert_says_what_the_store_says(world, world.open(), is_fresh=False)
        world.refresh()
        with world.store.reading():
            assert_says_what_the_store_says(world, world.open(), is_fresh=True)
        world.close()
        if not killed:
            break
        place += 1
    assert place >= 3


@pytest.mark.slow
def test_a_build_goes_on_where_it_stopped(world, monkeypatch):
    monkeypatch.setattr(step, "MIN_AT_ONCE", 10)
    world.add(55)
    world.embed()
    runs = 0
    while bring_up_to_date(world.store, now=NOW, budget_seconds=0.0):
        runs += 1
        if runs < 4:
            assert open_index(world.store, world.folder) == Absent("it is being made")
        world.add(1)
        if runs > 40:
            world.refresh()
    assert runs >= 5
    world.refresh()
    assert_says_what_the_store_says(world, world.open(), is_fresh=True)


@pytest.mark.slow
def test_searches_go_on_while_the_index_changes(world, tmp_path):
    world.add(200)
    world.embed()
    world.refresh()
    stop = threading.Event()
    problems = []
    opened = []

    def search():
        try:
            with Store.open_existing(world.store.path) as store:
                while not stop.is_set():
                    with store.reading():
                        index = open_index(store, world.folder)
                        if isinstance(index, Absent):
                            continue
                        opened.append(1)
                        ids = {ident for (ident,) in store.rows("SELECT id FROM chunks")}
                        own, _ = index.scores([(["alpha"], 1.0)], None)
                        found = set(index.take("id", np.flatnonzero(own)).tolist())
                        assert found <= ids
                        assert index.documents == len(ids)
                        with contextlib.suppress(IndexDamagedError):
                            near, _ = index.nearest(1, np.ones(DIMENSION, np.float32), 10, None)
                            assert set(index.take("id", near).tolist()) <= ids
        except BaseException as error:  # noqa: BLE001 - told to the one who waits
            problems.append(error)

    threads = [threading.Thread(target=search) for _ in range(2)]
    for thread in threads:
        thread.start()
    for turn in range(12):
        world.add(30)
        world.embed()
        if turn % 3 == 0:
            world.delete(world.ids()[::7])
        world.refresh(NOW + turn * 100_000)
    stop.set()
    for thread in threads:
        thread.join()
    assert problems == []
    assert opened
    assert_says_what_the_store_says(world, world.open(), is_fresh=True)


@pytest.mark.slow
def test_two_that_refresh_at_once_do_no_harm(world):
    world.add(100)
    world.refresh()
    world.add(50)
    other = step.IndexStep(world.store, world.folder, NOW, lambda: False)
    real = index_log.change

    def first(*values):
        index_log.change = real
        world.refresh()
        return real(*values)

    index_log.change = first
    try:
        assert other.take() is False
    finally:
        index_log.change = real
    assert_says_what_the_store_says(world, world.open(), is_fresh=True)
    assert {path.stem for path in world.folder.iterdir()} == index_log.listed(world.store)


def refreshes_without_end(path, folder):
    with Store.open(path) as store:
        while True:
            refresh(store, folder, now=NOW)


@pytest.mark.slow
def test_processes_that_are_killed_leave_nothing_wrong(world):
    world.add(100)
    world.embed()
    world.refresh()
    spawn = multiprocessing.get_context("spawn")
    for _ in range(5):
        process = spawn.Process(target=refreshes_without_end, args=(world.store.path, world.folder))
        process.start()
        deadline = 20 + world.dice.randrange(60)
        while deadline:
            deadline -= 1
            world.add(5)
            world.embed()
            world.delete(world.dice.sample(world.ids(), 3))
        process.kill()
        process.join()
        with world.store.reading():
            assert_says_what_the_store_says(world, world.open(), is_fresh=False)
    world.refresh(NOW + 10**9)
    assert_says_what_the_store_says(world, world.open(), is_fresh=True)
    assert check(world.store, world.folder) == []


@pytest.mark.slow
def test_more_than_fits_one_step_is_taken_in_steps(world, monkeypatch):
    monkeypatch.setattr(step, "FRESH_AT_ONCE", 7)
    world.add(10)
    world.embed()
    world.refresh()
    world.add(40)
    world.embed()
    world.delete(world.ids()[:4])
    runs = 0
    while bring_up_to_date(world.store, now=NOW, budget_seconds=0.0):
        runs += 1
        with world.store.reading():
            assert_says_what_the_store_says(world, world.open(), is_fresh=False)
    assert runs >= 5
    assert world.store.value("SELECT count(*) FROM index_log") == 0
    assert_says_what_the_store_says(world, world.open(), is_fresh=True)


@pytest.mark.slow
def test_few_vectors_of_a_large_part_wait_in_the_log(world, monkeypatch):
    monkeypatch.setattr(step, "SMALL_PART", 10)
    ids = world.add(100)
    world.refresh()
    world.embed(ids[:2])
    assert not bring_up_to_date(world.store, now=NOW)
    assert world.store.value("SELECT count(*) FROM index_log") == 2
    assert_says_what_the_store_says(world, world.open(), is_fresh=True)
    world.embed(ids[2:20])
    bring_up_to_date(world.store, now=NOW)
    assert world.store.value("SELECT count(*) FROM index_log") == 0
    world.embed(ids[20:22])
    world.refresh()
    assert_says_what_the_store_says(world, world.open(), is_fresh=True)
    world.embed()
    world.refresh()
    assert world.store.value("SELECT count(*) FROM index_log") == 0
    assert_says_what_the_store_says(world, world.open(), is_fresh=True)


def test_a_number_of_a_model_that_comes_back_means_the_new_model(world):
    world.add(30)
    first = world.embed(model="one")
    world.refresh()
    vectors.drop_generation(world.store, first)
    assert world.embed(model="another") == first
    assert not world.open().has_vectors(first)
    world.refresh()
    assert_says_what_the_store_says(world, world.open(), is_fresh=True)
