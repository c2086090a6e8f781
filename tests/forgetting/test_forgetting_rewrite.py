"""What was deleted is in no page of the file, and everything else is as it was."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import apsw
import pytest

from crystal.errors import UnavailableError
from crystal.forgetting.execute import execute
from crystal.forgetting.execute.execute import Finisher, clear_database
from crystal.store import Store
from crystal.store.forget import unused_bytes
from tests.support.capture_machine import NOW
from tests.support.forgetting_ground import ground
from tests.support.forgetting_machine import reading


def filled(folder: Path, dice: random.Random) -> Store:
    """A store whose pages were split and merged many times, with marked rows deleted in the end."""
    store = Store.open(folder / "crystal.db")
    store.execute("CREATE TABLE said (id INTEGER PRIMARY KEY, text TEXT)")
    store.execute("CREATE INDEX said_text ON said (text)")
    store.execute("CREATE TABLE named (name TEXT PRIMARY KEY) WITHOUT ROWID")
    numbers = dice.sample(range(10_000), 600)
    for at in range(0, 600, 50):
        with store.transaction():
            for number in numbers[at : at + 50]:
                words = f"{'quokka' if number % 3 else 'wombat'}{number} " * dice.randrange(
                    1, dice.choice([9, 160, 900])
                )
                store.execute("INSERT INTO said VALUES (?, ?)", (number, words))
                store.execute("INSERT INTO named VALUES (?)", (words[:200],))
    with store.transaction():
        store.execute("DELETE FROM said WHERE text LIKE 'quokka%'")
        store.execute("DELETE FROM named WHERE name LIKE 'quokka%'")
    return store


def rows_of(store: Store) -> list[object]:
    return [store.rows("SELECT * FROM said WHERE id > 0"), store.rows("SELECT * FROM named"),
            store.rows("PRAGMA integrity_check")]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 2, 4, 7])
def test_nothing_that_was_deleted_is_left_and_all_else_stays(tmp_path: Path, seed: int) -> None:
    with filled(tmp_path, random.Random(seed)) as store:
        store.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        assert b"quokka" in (tmp_path / "crystal.db").read_bytes(), "SQLite clears it by itself now"
        kept = rows_of(store)
        with Store.open(tmp_path / "crystal.db") as other:
            rows_of(other)  # its pages are of before
            clear_database(store)
            for number in range(-600, 0):
                other.execute("INSERT INTO said VALUES (?, ?)", (number, f"numbat{number}" * (-number)))
            other.rows("PRAGMA incremental_vacuum(1000)")
            assert rows_of(store) == rows_of(other) == kept
    assert all(b"quokka" not in path.read_bytes() for path in tmp_path.glob("crystal*"))


class Killed(BaseException):
    """The process ends here."""


class FailingFile:
    """A file that takes so many writes."""

    def __init__(self, file: apsw.VFSFile, writes: int) -> None:
        self._file, self._left = file, writes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - APSW's name
        if self._left == 0:
            raise Killed
        self._left -= 1
        self._file.xWrite(data, offset)


@pytest.mark.slow
def test_a_process_killed_at_any_write_leaves_all_rows_and_the_next_run_continues(tmp_path: Path) -> None:
    with filled(tmp_path, random.Random(7)) as store:
        store.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        kept = rows_of(store)
        opened, killed = apsw.VFSFile, 0
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(apsw, "VFSFile", lambda *values: FailingFile(opened(*values), 7))
            while killed < 1_000:
                try:
                    clear_database(store)
                    break
                except Killed:
                    killed += 1
                    assert rows_of(store) == kept
        assert 10 < killed < 1_000
        assert rows_of(store) == kept
    assert all(b"quokka" not in path.read_bytes() for path in tmp_path.glob("crystal*"))


@pytest.mark.slow
def test_while_somebody_reads_it_is_left_to_later(tmp_path: Path) -> None:
    with filled(tmp_path, random.Random(8)) as store:
        with reading(store.path), pytest.raises(UnavailableError, match="is reading it"):
            clear_database(store)
        clear_database(store)
    assert all(b"quokka" not in path.read_bytes() for path in tmp_path.glob("crystal*"))


@pytest.mark.slow
def test_without_disk_space_it_is_left_to_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with filled(tmp_path, random.Random(9)) as store:
        kept = store.rows("SELECT id, text FROM said ORDER BY id")
        usage = shutil.disk_usage(tmp_path)._replace(free=1_000)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
        monkeypatch.setattr(unused_bytes, "can_clear", lambda _: False)  # by SQLite alone
        with pytest.raises(UnavailableError, match="no space"):
            clear_database(store)
        assert store.rows("SELECT id, text FROM said ORDER BY id") == kept


def test_while_the_mirror_is_read_no_database_is_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = ground(tmp_path / "own", sessions=1, turns=2)
    cleared: list[str] = []

    def note(store: Store, _: object) -> bool:
        cleared.append(store.path.name)
        return True

    monkeypatch.setattr(unused_bytes, "clear_unused", note)
    monkeypatch.setattr(execute, "LOG_MS", 10)
    with Store.open(tmp_path / "mirror.db") as mirror:
        with reading(mirror.path):
            mirror.execute("CREATE TABLE said (text)")
            assert Finisher(found.grounds, mirror, NOW).run(None) == ["mirror.db: another process is reading it"]
        assert cleared == []
        assert Finisher(found.grounds, mirror, NOW).run(None) == []
    assert cleared == [found.machine.store.path.name, "mirror.db"]
