"""What was deleted is in no page of the file, and everything else is as it was."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import apsw
import pytest

from crystal.errors import UnavailableError
from crystal.forgetting.execute.execute import Finisher, rewrite
from crystal.store import Store
from crystal.store.search import space
from tests.support.capture_machine import NOW
from tests.support.forgetting_ground import ground
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


@pytest.mark.slow
def test_nothing_that_was_deleted_is_left_and_all_else_stays(tmp_path: Path) -> None:
    with filled(tmp_path, random.Random(7)) as store:
        store.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        assert b"quokka" in (tmp_path / "crystal.db").read_bytes(), "SQLite clears it by itself now"
        kept = store.rows("SELECT id, text FROM said ORDER BY id")
        with Store.open(tmp_path / "crystal.db") as other:
            other.rows("SELECT count(*), sum(length(text)) FROM said")  # its pages are of before
            rewrite(store)
            with other.transaction():
                other.execute("INSERT INTO said VALUES (-1, 'numbat')")
        assert store.rows("SELECT id, text FROM said WHERE id > 0 ORDER BY id") == kept
        assert store.rows("PRAGMA integrity_check") == [("ok",)]
        rewrite(store)
    assert all(b"quokka" not in path.read_bytes() for path in tmp_path.glob("crystal*"))


@pytest.mark.slow
def test_while_somebody_reads_it_is_left_to_later(tmp_path: Path) -> None:
    with filled(tmp_path, random.Random(8)) as store:
        with reading(store.path), pytest.raises(UnavailableError, match="is reading it"):
            rewrite(store)
        rewrite(store)
    assert all(b"quokka" not in path.read_bytes() for path in tmp_path.glob("crystal*"))


@pytest.mark.slow
def test_without_disk_space_it_is_left_to_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with filled(tmp_path, random.Random(9)) as store:
        kept = store.rows("SELECT id, text FROM said ORDER BY id")
        usage = shutil.disk_usage(tmp_path)._replace(free=1_000)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
        with pytest.raises(UnavailableError, match="no space"):
            rewrite(store)
        assert store.rows("SELECT id, text FROM said ORDER BY id") == kept


def test_while_the_mirror_is_read_no_database_is_rewritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = ground(tmp_path / "own", sessions=1, turns=2)
    rewritten: list[str] = []

    def note(store: Store) -> bool:
        rewritten.append(store.path.name)
        return True

    monkeypatch.setattr(space, "rewrite", note)
    with Store.open(tmp_path / "mirror.db") as mirror:
        with reading(mirror.path):
            mirror.execute("CREATE TABLE said (text)")
            assert Finisher(found.grounds, mirror, NOW).run(None) == ["mirror.db: another process is reading it"]
        assert rewritten == []
        assert Finisher(found.grounds, mirror, NOW).run(None) == []
    assert rewritten == [found.machine.store.path.name, "mirror.db"]
