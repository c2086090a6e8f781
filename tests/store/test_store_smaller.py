"""Texts are stored compressed and vectors as bytes: what an older crystal wrote becomes that, and nothing is lost."""

from __future__ import annotations

import contextlib
import hashlib
from array import array
from pathlib import Path

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.errors import StoreDamagedError
from crystal.store import Store, connection, upgrade
from crystal.store.health import checks
from crystal.store.search import index_source, space, vectors
from crystal.store.texts import pack_block, packed, reference, register
from crystal.store.vector_bytes import rounded

TEXTS = ["short", "a longer text with words that are said again and again, again and again", "Ä " * 90, ""]
DIMENSION, COUNT = 64, 2_500

pytestmark = pytest.mark.usefixtures("_each_migration")


def vector_of(ident: int) -> bytes:
    return array("f", (1.0 / (1 + (ident * 7 + at) % 11) for at in range(DIMENSION))).tobytes()


def write_old(path: Path, monkeypatch: pytest.MonkeyPatch, deleted: int = 0) -> None:
    """Write a store as the schema before this one has it."""
    number = next(number for number, sql in upgrade.steps() if upgrade.REWRITES in sql)
    older = tuple(step for step in upgrade.steps() if step[0] < number)
    with monkeypatch.context() as patch:
        patch.setattr(upgrade, "steps", lambda: older)
        with Store.open(path) as store, store.transaction():
            store.execute("INSERT INTO embedding_generations VALUES (1, 'dice', 'a', ?, 0, 1)", (DIMENSION,))
            store.execute(f"CREATE VIRTUAL TABLE chunks_vec_1 USING vec0(embedding float[{DIMENSION}])")
            store.execute("CREATE VIEW chunks_vec AS SELECT rowid AS id, embedding FROM chunks_vec_1")
            store.execute("INSERT INTO index_state (id, format, made_at) VALUES (1, 1, 0)")
            for ident in range(1, COUNT + 1):
                text = f"{TEXTS[ident % len(TEXTS)]} mark{ident}"
                store.execute(
                    "INSERT INTO chunks (id, start, text, text_sha256, source, role, agent, device, vector_generation)"
                    " VALUES (?, 0, ?, ?, 'conversation', 'user', 'cc', 'desk', 1)",
                    (ident, text, hashlib.sha256(text.encode()).digest()),
                )
                store.execute("INSERT INTO chunks_vec_1 (rowid, embedding) VALUES (?, ?)", (ident, vector_of(ident)))
            store.execute("DELETE FROM chunks WHERE id <= ?", (deleted,))
            store.execute("DELETE FROM chunks_vec_1 WHERE rowid <= ?", (deleted,))
            store.execute("DELETE FROM index_log")


@given(st.lists(st.one_of(st.sampled_from([*TEXTS, "x" * 100_000]), st.text(max_size=300)), max_size=8))
def test_any_texts_are_what_they_were_alone_and_together(texts: list[str]) -> None:
    with contextlib.closing(apsw.Connection(":memory:")) as db:
        register(db)
        db.execute("CREATE TABLE text_blocks (id INTEGER PRIMARY KEY, body)")
        db.execute("INSERT INTO text_blocks VALUES (7, ?)", (pack_block(texts),))
        for at, text in enumerate(texts):
            bodies = (packed(text), reference(7, at))
            assert list(db.execute("SELECT text_of(?), text_of(?)", bodies)) == [(text, text)]
        assert list(db.execute("SELECT text_of(?)", (reference(7, len(texts)),))) == [("",)]
        assert list(db.execute("SELECT text_of(?)", (reference(8, 0),))) == [("",)]


@pytest.mark.slow
def test_an_older_store_has_the_same_texts_words_and_neighbours(tmp_path, monkeypatch):
    path = tmp_path / "crystal.db"
    write_old(path, monkeypatch)
    before = path.stat().st_size
    with Store.open(path) as store:
        texts = dict(store.rows("SELECT id, text FROM chunks"))
        assert texts == {ident: f"{TEXTS[ident % len(TEXTS)]} mark{ident}" for ident in range(1, COUNT + 1)}
        assert store.value("SELECT count(*) FROM chunks WHERE typeof(body) = 'blob'") > COUNT // 4
        assert store.value("SELECT count(*) FROM index_log") == 0
        assert checks.database_faults(store) == []
        assert not list(checks.vector_faults(store))
        kept = dict(index_source.vectors(store, 1, range(1, COUNT + 1)))
        assert kept == {ident: rounded([vector_of(ident)], DIMENSION)[0] for ident in range(1, COUNT + 1)}
        assert vectors.nearest(store, 1, vector_of(5), 1)[0][1] > 0.999
        vectors.delete_vectors(store, [7])
        vectors.write_rounded(store, 1, [(7, kept[9])])
        assert dict(index_source.vectors(store, 1, [7])) == {7: kept[9]}
        assert space.is_due(store)
        space.give_back(store)
        assert not space.is_due(store)
        assert path.stat().st_size < 0.7 * before
        assert dict(store.rows("SELECT id, text FROM chunks")) == texts


@pytest.mark.slow
def test_neighbours_are_right_where_the_first_block_of_vectors_is_gone(tmp_path, monkeypatch):
    write_old(tmp_path / "crystal.db", monkeypatch, deleted=1_500)
    with Store.open(tmp_path / "crystal.db") as store:
        left = range(1_501, COUNT + 1)
        kept = dict(index_source.vectors(store, 1, left))
        assert kept == {ident: rounded([vector_of(ident)], DIMENSION)[0] for ident in left}
        assert vectors.nearest(store, 1, vector_of(1_505), 1)[0][1] > 0.999
        store.execute("UPDATE chunks_vec_1_vector_chunks00 SET vectors = substr(vectors, 1, 99)")
        with pytest.raises(StoreDamagedError):
            list(index_source.blocks_of_vectors(store, 1, left))


@pytest.mark.slow
def test_a_damaged_text_is_told_by_its_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "crystal.db"
    write_old(path, monkeypatch)
    with Store.open(path) as store:
        store.execute("UPDATE chunks SET body = x'01ff' WHERE id = 3")
        store.execute("UPDATE chunks SET body = x'07ff' WHERE id = 4")
        assert store.rows("SELECT text FROM chunks WHERE id IN (3, 4)") == [("",), ("",)]
        assert checks.chunks_with_wrong_hash(store) == [3, 4]


class Killed(Exception):
    """What stands for the end of the process."""


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.store.test_store_smaller.COUNT", 12)


@pytest.mark.slow
def test_an_upgrade_that_is_killed_at_any_statement_is_made_by_the_next_one(few, tmp_path, monkeypatch):
    old, path = tmp_path / "old.db", tmp_path / "crystal.db"
    write_old(old, monkeypatch)
    connect, number, done = connection.connect, 0, False
    while not done:
        number += 1 if number < 40 else 4  # each statement that rewrites, and of the newer schemas every fourth
        path.write_bytes(old.read_bytes())
        left = [number]

        def trace(_cursor: object, _sql: str, _bindings: object, left: list[int] = left) -> bool:
            left[0] -= 1
            if left[0] == 0:
                raise Killed
            return True

        def killed(at: Path, trace: object = trace) -> object:
            db = connect(at)
            db.exec_trace = trace
            return db

        with monkeypatch.context() as patch:
            patch.setattr(connection, "connect", killed)
            try:
                Store.open(path).close()
                done = True
            except Killed:
                pass
        with Store.open(path) as store:
            assert dict(store.rows("SELECT id, text FROM chunks")) == {
                ident: f"{TEXTS[ident % len(TEXTS)]} mark{ident}" for ident in range(1, COUNT + 1)
            }
            assert len(dict(index_source.vectors(store, 1, range(1, COUNT + 1)))) == COUNT
            assert store.value("SELECT count(*) FROM sqlite_schema WHERE name GLOB 'moving_*'") == 0
            assert checks.database_faults(store) == []
    assert number > 20
