"""``crystal migrate``: databases that lie where crystal's own belongs, or belong where crystal's own lies."""

from __future__ import annotations

import json
import os
from pathlib import Path

import apsw

from crystal.app.migrate.found import find_stores
from tests.support import memory_stores as stores
from tests.support.command import crystal
from tests.support.exports import remember
from tests.support.migrating import MEMORIES, TEXTS, hits, make_memory_crystal, numbers, took


def test_memory_crystals_database_makes_way_for_crystals_own(home: Path) -> None:
    path = home / ".ldm" / "memory" / "crystal.db"
    stores.memory_crystal(path, TEXTS, memories=MEMORIES)
    before = path.read_bytes()
    assert json.loads(crystal("migrate", "--json").out)["stores"][0]["new"] == 5
    assert crystal("migrate", "memory-crystal", "--dry-run").code == 0
    assert path.read_bytes() == before
    assert numbers(took("memory-crystal")) == (6, 5, 0, 1)
    assert path.with_name("memory-crystal.db").read_bytes() == before
    assert [one.path.name for one in find_stores()] == ["memory-crystal.db"]
    assert numbers(took("memory-crystal")) == (6, 0, 5, 1)


def test_a_database_that_made_way_before_is_not_replaced(home: Path) -> None:
    path = home / ".ldm" / "memory" / "crystal.db"
    stores.memory_crystal(path, TEXTS, memories=MEMORIES)
    before, older = path.read_bytes(), path.with_name("memory-crystal.db")
    older.write_bytes(b"older")
    done = crystal("migrate", "memory-crystal", "--yes")
    assert (done.code, "exists already" in done.err) == (2, True)
    assert (older.read_bytes(), path.read_bytes()) == (b"older", before)


def test_legacy_is_taken_over_and_leaves_a_link(home: Path) -> None:
    path = make_memory_crystal(home)
    before = path.read_bytes()
    done = took("legacy")
    assert done["new"] == 5
    assert path.is_symlink()
    assert os.path.realpath(path) == done["moved_to"]
    assert path.with_name("crystal.db.before-crystal").read_bytes() == before
    db = apsw.Connection(str(path))
    assert db.execute("SELECT count(*) FROM chunks").get == 4
    again = took("legacy")
    assert (numbers(again), again["moved_to"]) == ((6, 0, 5, 1), None)


def test_crystals_own_memory_moves_out_of_the_legacy_folder(home: Path) -> None:
    legacy = home / ".openclaw" / "memory-crystal"
    legacy.mkdir(parents=True)
    remember(home, ("about the zeppelin", "yes"))
    assert (legacy / "crystal.db").exists()
    (legacy / "config-of-mine.txt").write_text("kept", encoding="utf-8")
    sessions = crystal("sessions", "--json").out
    assert crystal("migrate", "legacy", "--dry-run").code == 0
    assert not (legacy / "crystal.db").is_symlink()
    assert took("legacy")["read"] > 0
    assert (legacy / "crystal.db").is_symlink()
    assert (home / ".ldm" / "memory" / "config-of-mine.txt").read_text(encoding="utf-8") == "kept"
    assert crystal("sessions", "--json").out == sessions
    assert hits("zeppelin")
    assert crystal("verify").code == 0
