"""The derived index: it says what the store says, whatever happened to either."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import stat
import tempfile
import threading
from pathlib import Path

import apsw
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crystal.model.recall import Filters
from crystal.search.index import bring_up_to_date, folder_of, parts, step
from crystal.search.index.files import IndexDamaged
from crystal.search.index.plan import merges
from crystal.search.index.reader import Absent, open_index
from crystal.search.index.refresh import check, drop, refresh
from crystal.search.index.terms import camel_parts, document_words, query_terms
from crystal.store import Store
from crystal.store.search import index_log, vectors
from crystal.store.search.scope import Scope, scope_of
from crystal.store.search.words import tokenizer
from crystal.store.sync.mirror_apply import copy_over
from tests.support.index_store import DIMENSION, NOW, WORDS, IndexStore, rebuild, reference, vector


@pytest.fixture
def world(tmp_path):
    one = IndexStore(tmp_path)
    yield one
    one.close()


def terms_of(world, *texts):
    return [(query_terms(world.store, text), 1.0 + 0.5 * at) for at, text in enumerate(texts)]


def live(index):
    mask = index.mask(Scope())
    return np.ones(index.size, np.bool_) if mask is None else mask


def by_chunk(index, numbers):
    ids = index.take("id", np.arange(index.size)).tolist()
    there = live(index)
    return {ident: float(numbers[at]) for at, ident in enumerate(ids) if there[at]}


def assert_says_what_the_store_says(world, index, *, is_fresh):
    """Documents, attributes, words, scores and vectors agree with the store."""
    store, ids = world.store, world.ids()
    there = live(index)
    every = np.arange(index.size)
    assert sorted(index.take("id", every)[there].tolist()) == ids
    assert index.documents == len(ids)
    places = index.find(ids)
    for name in ("role", "agent", "device", "branch", "source", "subagent", "session", "start"):
        rows = dict(store.rows(f"SELECT id, {name} FROM chunks"))
        nothing = 0 if name in ("session", "start") else ""
        assert index.take(name, places).tolist() == [rows[ident] or nothing for ident in ids]
    for terms in (terms_of(world, "walk"), terms_of(world, "alpha beta", "FindMostRecent 東京", "4711", "september")):
        own, padded = index.scores(terms, None)
        expected_own, expected_padded = reference(world, index, terms, ids=ids)
        assert by_chunk(index, own) == pytest.approx(expected_own, abs=1e-4)
        if is_fresh:
            assert by_chunk(index, padded) == pytest.approx(expected_padded, abs=1e-4)
        half = np.zeros(index.size, np.bool_)
        half[every % 2 == 0] = True
        few = np.zeros(index.size, np.bool_)
        few[every % 29 == 3] = True
        for mask in (half & there, few & there):
            one, other = index.scores(terms, mask)
            assert np.allclose(one, np.where(mask, own, 0.0), atol=1e-5)
            assert np.allclose(other, np.where(mask, padded, 0.0), atol=1e-5)
    for generation in vectors.generations(store):
        assert_same_vectors(world, index, generation.id, ids)


def assert_same_vectors(world, index, generation, ids):
    assert index.has_vectors(generation)
    query = np.frombuffer(vector(5), np.float32)
    expected = dict(vectors.nearest(world.store, generation, query.tobytes(), 4096))
    found, cosines = index.nearest(generation, query, 4096, None)
    got = dict(zip(index.take("id", found).tolist(), cosines.tolist(), strict=True))
    assert got.keys() == expected.keys()
    assert all(abs(got[ident] - expected[ident]) < 0.02 for ident in got)
    assert list(got.values()) == sorted(got.values(), reverse=True)
    asked = index.cosines(generation, query, index.find(ids))
    known = {ident: cosine for ident, cosine in zip(ids, asked.tolist(), strict=True) if not math.isnan(cosine)}
    assert known == pytest.approx(got)


# ------------------------------------------------------------------------------------------------------- agreement


def test_a_new_index_says_what_the_store_says(world):
    world.add(200)
    world.embed()
    world.refresh()
    assert world.open().documents == 200
    assert_says_what_the_store_says(world, world.open(), is_fresh=True)


def test_an_empty_store_has_an_empty_index(world):
    world.refresh()
    index = world.open()
    assert (index.size, index.documents) == (0, 0)
    assert index.mask(Scope()) is None
    assert index.frequency("alpha") == 0
    assert index.beginning("a", 5) == []
    assert [len(one) for one in index.scores([(["alpha"], 1.0)], None)] == [0, 0]
    assert len(index.find([1, 2])) == 2


ACTIONS = st.lists(
    st.sampled_from(["add", "add_many", "change", "move", "delete", "embed", "embed_some", "refresh", "switch"]),
    min_size=1,
    max_size=14,
)


@settings(max_examples=15)
@given(ACTIONS, st.integers(0, 2**31))
def test_whatever_happens_the_index_says_what_the_store_says(actions, seed):
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(IndexStore(Path(folder), seed)) as world:
        world.add(20)
        world.embed()
        world.refresh()
        model = "dice"
        for action in actions:
            ids = world.ids()
            some = world.dice.sample(ids, min(len(ids), 3))
            if action == "add":
                world.add(2)
            elif action == "add_many":
                world.add(60)
            elif action == "change":
                for ident in some:
                    world.change(ident, world.text())
            elif action == "move":
                for ident in some:
                    world.store.execute("UPDATE chunks SET branch = 'other', agent = 'moved' WHERE id = ?", (ident,))
            elif action == "delete":
                world.delete(some)
            elif action == "embed":
                world.embed(model=model)
            elif action == "embed_some":
                world.embed(ids[-5:], model=model)
            elif action == "switch":
                model = "dice" if model != "dice" else "other model"
                generation = world.embed(model=model)
                vectors.promote(world.store, generation)
            else:
                world.refresh()
            if action in ("embed", "switch") and len(vectors.generations(world.store)) != 1:
                world.refresh()
            with world.store.reading():
                index = open_index(world.store, world.folder)
                if not isinstance(index, Absent) and all(
                    index.has_vectors(one.id) for one in vectors.generations(world.store)
                ):
                    assert_says_what_the_store_says(world, index, is_fresh=False)
        world.refresh()
        assert not bring_up_to_date(world.store, now=NOW)
        assert world.store.value("SELECT count(*) FROM index_log") == 0
        assert check(world.store, world.folder) == []
        with world.store.reading():
            assert_says_what_the_store_says(world, world.open(), is_fresh=True)


@pytest.mark.parametrize(
    "filters",
    [
        Filters(role="user"),
        Filters(role="subagent"),
        Filters(role="tool"),
        Filters(source="file"),
        Filters(agent="cc", device="lap"),
        Filters(branch="fix/ä"),
        Filters(session="session-2"),
        Filters(since=NOW + 20 * 86_400_000),
        Filters(before=NOW + 20 * 86_400_000, role="assistant"),
        Filters(since=-(2**80)),
        Filters(before=2**80),
        Filters(project="crystal"),
    ],
)
def test_a_mask_is_what_the_condition_says(world, filters):
    world.store.execute("INSERT INTO projects (id, cwd, name) VALUES (1, '/crystal', 'crystal')")
    world.add(80)
    world.add(20, project=1)
    world.refresh()
    world.add(20)
    world.delete(world.ids()[:3])
    turn = world.store.value("SELECT turn FROM chunks WHERE session = 1 LIMIT 1")
    world.store.execute("INSERT INTO turn_copies (session, turn) VALUES (2, ?)", (turn,))
    scope = scope_of(world.store, filters)
    assert not scope.is_empty
    assert all(one.kind != "sql" for one in scope.conditions)
    expected = {ident for (ident,) in world.store.rows(f"SELECT id FROM chunks WHERE {scope.sql}", scope.values)}
    for one in (scope, Scope(scope.sql, scope.values), scope & Scope("id % 2 = 0")):
        index = world.open()
        mask = index.mask(one)
        found = set(index.take("id", np.flatnonzero(mask)).tolist())
        assert found == ({ident for ident in expected if ident % 2 == 0} if one.sql.endswith("0") else expected)


def test_neighbours_are_those_of_the_same_conversation(world):
    first = [world.add(text=f"word{n}", session=1, ts=NOW + n, subagent=None)[0] for n in range(4)]
    other = [world.add(text=f"word{n}", session=1, ts=NOW + n, subagent="explore")[0] for n in range(2)]
    alone = world.add(2, text="word", session=None)
    world.refresh()
    index = world.open()
    places = index.find([*first, *other, *alone])
    assert index.take("prev", places).tolist() == [-1, *places[:3], -1, places[4], -1, -1]
    assert index.take("next", places).tolist() == [*places[1:4], -1, places[5], -1, -1, -1]


def test_beginnings_come_most_frequent_first(world):
    world.add(3, text="prefix")
    world.add(2, text="preface prefix")
    world.add(1, text="presto")
    world.refresh()
    world.add(4, text="presto")
    index = world.open()
    assert index.beginning("pre", 2) == [("prefix", 5), ("presto", 5)]
    assert [word for word, _ in index.beginning("pre", 9)] == ["prefix", "presto", "prefac"]
    assert index.beginning("xyz", 3) == []
    assert index.frequency("presto") == 5


# ------------------------------------------------------------------------------------------------------ forgetting


def all_bytes(folder):
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


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
        for at in {0, 7, 64, len(whole) // 3, len(whole) // 2, len(whole) - 200, len(whole) - 15, len(whole) - 1}:
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
            assert isinstance(open_index(world.store, world.folder), Absent)
        path.write_bytes(whole[: len(whole) // 2])
        assert isinstance(open_index(world.store, world.folder), Absent)
        bring_up_to_date(world.store, now=NOW)
        assert_says_what_the_store_says(world, world.open(), is_fresh=True)
        assert check(world.store, world.folder) == []


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
    path.touch()
    assert isinstance(open_index(world.store, world.folder), Absent)
    bring_up_to_date(world.store, now=NOW)
    assert world.open().documents == 50
    assert list(world.folder.iterdir()) == [path]


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
            parts._opened.clear()
            index = open_index(world.store, world.folder)
            if isinstance(index, Absent):
                continue
            with contextlib.suppress(IndexDamaged):
                index.scores([([word], 1.0) for word in WORDS], None)
            with contextlib.suppress(IndexDamaged):
                index.beginning("a", 3)
            with contextlib.suppress(IndexDamaged):
                index.nearest(generation, query, 10, None)
            with contextlib.suppress(IndexDamaged):
                index.mask(Scope("id > 0"))
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


# ---------------------------------------------------------------------------------------------- interrupted, at once


class Killed(BaseException):
    """The process ends here."""


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
                        with contextlib.suppress(IndexDamaged):
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


def test_two_that_refresh_at_once_do_no_harm(world):
    world.add(100)
    world.refresh()
    world.add(50)
    other = step.Step(world.store, world.folder, NOW, lambda: False)
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


@given(st.lists(st.integers(0, 70_000), max_size=60))
def test_merging_leaves_few_parts_and_loses_none(sizes):
    for _ in range(20):
        groups = merges(sizes, most=65_536)
        members = [at for group in groups for at in group]
        assert len(members) == len(set(members))
        assert all(len(group) > 1 and sum(sizes[at] for at in group) <= 65_536 for group in groups)
        total = sum(sizes)
        kept = [size for at, size in enumerate(sizes) if at not in members]
        sizes = kept + [sum(sizes[at] for at in group) for group in groups]
        assert sum(sizes) == total
        if not groups:
            break
    assert not groups
    assert sum(0 < size < 512 for size in sizes) <= 1
    assert sum(512 <= size < 4_096 for size in sizes) < 8


def document_terms(store, text, ts):
    """All words under which a document is found."""
    words = document_words(tokenizer(store), text, ts)
    return [*words.header, *words.text, *words.parts]


@given(st.text(), st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)))
def test_any_text_has_words(text, ts):
    with contextlib.closing(apsw.Connection(":memory:")) as db:
        store = Store(Path("memory"), db)
        assert all(isinstance(word, str) for word in document_terms(store, text, ts))
        assert all(word in document_terms(store, text, ts) for word in query_terms(store, text))


def test_words_of_a_document(world):
    words = document_terms(world.store, "FindMostRecentSession walked 東京都 x 京 München", 1_683_504_000_000)
    assert words == [
        *["8", "mai", "2023", "mondai"],
        *["findmostrecentsess", "walk", "東京", "京都", "x", "京", "munchen"],
        *["find", "most", "recent", "session"],
        "都",  # the last of a run: every other character begins a pair
    ]
    assert camel_parts("HTTPServer parseJSONFile aB getURL2x plain UPPER") == [
        "parse",
        "JSON",
        "File",
        "a",
        "B",
        "get",
        "URL",
    ]
    assert camel_parts("a" * 200_000) == []


def test_rebuilding_gives_the_same(world):
    world.add(100)
    world.embed()
    world.refresh()
    before, _ = world.open().scores([(["alpha"], 1.0)], None)
    rebuild(world)
    after, _ = world.open().scores([(["alpha"], 1.0)], None)
    assert np.array_equal(before, after)
