"""What was deleted is in no page of the file, and everything else is as it was."""

from __future__ import annotations

import random
from array import array
from pathlib import Path

import apsw
import pytest

from crystal.store import Store
from crystal.store.forget import scrub as module
from crystal.store.forget.scrub import scrub
from tests.support.forgetting_machine import reading


def filled(folder: Path, dice: random.Random) -> Store:
    """A store whose pages were split and merged many times, with marked rows deleted in the end."""
    store = Store.open(folder / "crystal.db")
    store.execute("CREATE TABLE said (id INTEGER PRIMARY KEY, text TEXT)")
    numbers = dice.sample(range(10_000), 600)
    for at in range(0, 600, 50):
        with store.transaction():
            for number in numbers[at : at + 50]:
                words = f"{'quokka' if number % 3 else 'wombat'}{number} " * dice.randrange(1, 160)
                store.execute("INSERT INTO said VALUES (?, ?)", (number, words))
    with store.transaction():
        store.execute("DELETE FROM said WHERE text LIKE 'quokka%'")
    return store


def test_nothing_that_was_deleted_is_left_and_all_else_stays(tmp_path: Path) -> None:
    with filled(tmp_path, random.Random(7)) as store:
        store.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        assert b"quokka" in (tmp_path / "crystal.db").read_bytes(), "SQLite clears it by itself now"
        kept = store.rows("SELECT id, text FROM said ORDER BY id")
        with Store.open(tmp_path / "crystal.db") as other:
            other.rows("SELECT count(*), sum(length(text)) FROM said")  # its pages are of before
            assert scrub(store)
            with other.transaction():
                other.execute("INSERT INTO said VALUES (-1, 'numbat')")
        assert store.rows("SELECT id, text FROM said WHERE id > 0 ORDER BY id") == kept
        assert store.rows("PRAGMA integrity_check") == [("ok",)]
        assert scrub(store)
    assert all(b"quokka" not in path.read_bytes() for path in tmp_path.glob("crystal*"))


def test_while_somebody_reads_it_is_left_to_later(tmp_path: Path) -> None:
    with filled(tmp_path, random.Random(8)) as store:
        with reading(store.path):
            assert not scrub(store)
        assert scrub(store)
    assert all(b"quokka" not in path.read_bytes() for path in tmp_path.glob("crystal*"))


def test_a_writer_waits_for_some_pages_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    walk, clear = module._pages, module._clear
    slices: list[int] = []
    walks: list[int] = []
    with filled(tmp_path, random.Random(9)) as store, Store.open(tmp_path / "crystal.db") as other:

        def walking(db: apsw.Connection, path: Path) -> array[int]:
            if not slices:
                with other.transaction():  # not kept waiting
                    other.execute("INSERT INTO said VALUES (?, 'numbat')", (-1 - len(walks),))
            walks.append(1)
            return walk(db, path)

        def clearing(path: Path, pages: array[int], size: int) -> None:
            slices.append(len(pages))
            clear(path, pages, size)

        monkeypatch.setattr(module, "_pages", walking)
        monkeypatch.setattr(module, "SLICE", 10)
        monkeypatch.setattr(module, "SHORT", 0.0)
        monkeypatch.setattr(module, "_clear", clearing)
        assert not scrub(store), "somebody wrote during every walk"
        assert len(walks) == module.ATTEMPTS
        assert not slices
        monkeypatch.setattr(module, "_pages", walk)
        assert scrub(store)
        assert len(slices) > 1
        assert max(slices) <= 10
        assert store.rows("PRAGMA integrity_check") == [("ok",)]
        assert store.value("SELECT count(*) FROM said WHERE text = 'numbat'") == module.ATTEMPTS
    assert all(b"quokka" not in path.read_bytes() for path in tmp_path.glob("crystal*"))


def test_a_short_walk_is_made_while_writers_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    walk, walks = module._pages, []
    with filled(tmp_path, random.Random(10)) as store, Store.open(tmp_path / "crystal.db") as other:

        def walking(db: apsw.Connection, path: Path) -> array[int]:
            walks.append(1)
            if len(walks) == 1:
                with other.transaction():
                    other.execute("INSERT INTO said VALUES (-1, 'numbat')")
            return walk(db, path)

        monkeypatch.setattr(module, "_pages", walking)
        monkeypatch.setattr(module, "SHORT", 1e9)
        assert scrub(store)
        assert len(walks) == 2
    assert all(b"quokka" not in path.read_bytes() for path in tmp_path.glob("crystal*"))
