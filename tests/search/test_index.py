"""The derived index: it says what the store says, whatever happened to either."""

import contextlib
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.model.recall import Filters
from crystal.search.index import bring_up_to_date, step
from crystal.search.index.open_index import Absent, open_index
from crystal.search.index.refresh import check
from crystal.store.search import vectors
from crystal.store.search.scope import SearchScope, scope_of, where
from tests.support.examples import examples
from tests.support.index_checks import (
    assert_says_what_the_store_says,
)
from tests.support.index_store import DIMENSION, NOW, IndexStore


@pytest.mark.slow
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
    assert index.mask(SearchScope()) is None
    assert index.frequency("alpha") == 0
    assert index.beginning("a", 5) == []
    assert [len(one) for one in index.scores([(["alpha"], 1.0)], None)] == [0, 0]
    assert len(index.find([1, 2])) == 2


def test_only_the_index_of_a_large_store_has_a_copy_of_its_vectors(world, monkeypatch):
    monkeypatch.setattr(step, "MAX_STORED", 100)
    world.add(100)
    world.embed()
    world.refresh()
    (file,) = world.folder.glob("vectors-*")
    small = file.stat().st_size
    assert small < 1024
    world.add(1)
    world.embed()
    world.refresh()
    (file,) = world.folder.glob("vectors-*")
    assert file.stat().st_size > small + 101 * DIMENSION // 4


ACTIONS = st.lists(
    st.sampled_from(["add", "add_many", "change", "move", "delete", "embed", "embed_some", "refresh", "switch"]),
    min_size=1,
    max_size=14,
)


@pytest.mark.slow
@examples(8)
@given(ACTIONS, st.integers(0, 2**31), st.sampled_from([0, 40, step.MAX_STORED]))
def test_whatever_happens_the_index_says_what_the_store_says(actions, seed, stored):
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.closing(IndexStore(Path(folder), seed)) as world,
        mock.patch.object(step, "MAX_STORED", stored),
    ):
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


@pytest.mark.slow
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
    for one in (scope, where(scope.sql, *scope.values), scope & where("id % 2 = 0")):
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
    assert np.diff(places)[[0, 1, 2, 4]].tolist() == [1] * 4
    assert index.take("first", places).tolist() == [1, 0, 0, 0, 1, 0, 1, 1]
    others = [sign * (first[0] + (1 << bits)) for bits in (16, 32, 40) for sign in (1, -1)]
    assert index.find(others).tolist() == [-1] * 6


def test_attributes_come_in_the_order_of_the_question(world):
    said = [world.add(text=f"word{n}", role=role)[0] for n, role in enumerate(("user", "assistant", "thinking"))]
    world.refresh()
    said += world.add(text="later", role="user")
    index = world.open()
    for ids in (said, said[::-1], [said[3], said[0], said[2], said[1]], []):
        found = index.columns(("id", "role", "is_user", "is_assistant"), index.find(ids))
        assert found["id"].tolist() == ids
        assert found["is_user"].tolist() == [role == "user" for role in found["role"]]
        assert found["is_assistant"].tolist() == [ident == said[1] for ident in ids]


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
