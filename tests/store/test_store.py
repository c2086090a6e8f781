"""The store: opened safely, upgraded forward, refused untouched, and its errors in our words."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import re
import sqlite3
import stat
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import apsw
import pytest

from crystal.errors import (
    CrystalError,
    ForeignStoreError,
    NewerStoreError,
    NotConfiguredError,
    StoreBusyError,
    StoreDamagedError,
    StoreFullError,
)
from crystal.store import Store, driver, texts, upgrade
from crystal.store.capture.ledger import UNPLACED
from crystal.store.health.checks import damage
from crystal.store.health.salvage import salvage
from crystal.store.private_record import Recorder
from tests.support.fresh_store import copy_schema

pytestmark = pytest.mark.usefixtures("_each_migration")


def schema(path: Path) -> list[tuple[str, str]]:
    """Everything that was created, by name."""
    store = Store.open_existing(path)
    try:
        return store.rows("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name")  # type: ignore[return-value]
    finally:
        store.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory" / "crystal.db"


def test_a_new_store_is_private_and_set_up_as_promised(path: Path) -> None:
    with Store.open(path) as store:
        assert store.value("PRAGMA journal_mode") == "wal"
        assert store.value("PRAGMA synchronous") == 2
        assert store.value("PRAGMA secure_delete") == 1
        assert store.value("PRAGMA foreign_keys") == 1
        assert store.value("SELECT vec_version()")
        names = {path: stat.S_IMODE(path.stat().st_mode) for path in path.parent.iterdir()}
        assert set(names.values()) == {0o600}
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_every_setting_of_a_connection_is_made_whatever_sqlite_was_built_with(path, monkeypatch):
    wanted = {"foreign_keys": 1, "secure_delete": 1, "synchronous": 2, "cache_size": -32768, "temp_store": 2}

    def built_otherwise(*arguments: object, **named: object) -> apsw.Connection:
        db = apsw.Connection(*arguments, **named)  # type: ignore[arg-type]
        for name in wanted:
            db.pragma(name, 0)
        return db

    monkeypatch.setattr(driver, "apsw", SimpleNamespace(**{**vars(apsw), "Connection": built_otherwise}))
    path.parent.mkdir()
    db = driver.connect(path)
    assert {name: db.pragma(name) for name in wanted} == wanted
    db.close()


def test_the_tables_that_users_of_the_system_know_are_there(path: Path) -> None:
    with Store.open(path) as store:
        store.execute(
            "INSERT INTO embedding_generations (provider, model, dimension, created_at) VALUES ('a', 'b', 2, 0)"
        )
    names = {name for name, _ in schema(path)}
    assert names >= set("chunks memories capture_state sources source_collections source_files turns segments".split())


def test_migrations_are_numbered_without_gaps() -> None:
    assert [number for number, _ in upgrade.steps()] == list(range(1, upgrade.newest() + 1))


@pytest.mark.slow
def test_every_older_schema_becomes_exactly_the_fresh_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Store.open(tmp_path / "fresh.db").close()
    fresh = schema(tmp_path / "fresh.db")
    every = upgrade.steps()
    for upto in range(1, len(every)):
        old = tmp_path / f"old{upto}.db"
        monkeypatch.setattr(upgrade, "steps", lambda upto=upto: every[:upto])
        Store.open(old).close()
        monkeypatch.setattr(upgrade, "steps", lambda: every)
        Store.open(old).close()
        assert schema(old) == fresh


def test_an_upgrade_copies_the_store_first_and_a_failed_one_changes_nothing(path, monkeypatch):
    with Store.open(path) as store:
        store.execute("INSERT INTO meta VALUES ('word', 'kept')")
    every = upgrade.steps()
    last = upgrade.newest()
    later = last + 1
    monkeypatch.setattr(upgrade, "newest", lambda: max(number for number, _ in upgrade.steps()))
    monkeypatch.setattr(
        upgrade, "steps", lambda: (*every, (later, "CREATE TABLE more (x); INSERT INTO nowhere VALUES (1)"))
    )
    with pytest.raises(apsw.SQLError):
        Store.open(path)
    monkeypatch.setattr(upgrade, "steps", lambda: every)
    with Store.open(path) as store:
        assert store.value("SELECT value FROM meta WHERE key = 'word'") == "kept"
        assert store.row("SELECT 1 FROM sqlite_master WHERE name = 'more'") is None
    backup = path.with_name(f"{path.name}.v{last}.backup")
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    copy = sqlite3.connect(backup)
    assert copy.execute("SELECT value FROM meta WHERE key = 'word'").fetchone() == ("kept",)
    copy.close()


@pytest.mark.parametrize("content", [b"not a database", b"SQLite format 3\x00" + bytes(200), b"\x00" * 4096])
def test_a_foreign_file_is_refused_untouched(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    for opened in (Store.open, Store.open_existing):
        with pytest.raises(ForeignStoreError, match="not a crystal store"):
            opened(path)
    assert path.read_bytes() == content
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_another_programs_database_is_refused_untouched(path: Path) -> None:
    path.parent.mkdir(parents=True)
    theirs = sqlite3.connect(path)
    theirs.execute("CREATE TABLE chunks (id)")
    theirs.commit()
    theirs.close()
    before = path.read_bytes()
    with pytest.raises(ForeignStoreError):
        Store.open(path)
    assert path.read_bytes() == before


def test_a_store_with_any_damaged_field_in_its_header_can_be_written_or_says_so(path: Path) -> None:
    with Store.open(path) as store:
        store.execute("INSERT INTO meta VALUES ('word', 'kept')")
        store.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    whole = path.read_bytes()
    for at, size in ((16, 2), *((at, 1) for at in range(18, 24)), *((at, 4) for at in range(24, 100, 4))):
        for value in (bytes(size), b"\xff" * size, b"\0" * (size - 1) + b"\x03"):
            path.write_bytes(whole[:at] + value + whole[at + size :])
            with contextlib.suppress(StoreDamagedError, ForeignStoreError), Store.open(path) as store:
                store.execute("UPDATE meta SET value = value || '.' WHERE key = 'word'")


@pytest.mark.parametrize(
    ("sql", "raised"),
    [
        ("CREATE TABLE newer (id INTEGER PRIMARY KEY)", NewerStoreError),
        ("ALTER TABLE turns ADD COLUMN newer TEXT", NewerStoreError),
        ("SELECT 1", StoreDamagedError),  # it is of this schema: the number alone has changed
    ],
)
def test_a_newer_store_and_one_that_only_says_so_are_refused_untouched(path: Path, sql: str, raised: type) -> None:
    with Store.open(path) as store:
        store.db.execute(sql).fetchall()
        store.execute(f"PRAGMA user_version = {upgrade.newest() + 1}")
    before = path.read_bytes()
    for opened in (Store.open, Store.open_existing):
        with pytest.raises(raised, match="schema") as refused:
            opened(path)
        assert "crystal verify --repair" in refused.value.hint
        if raised is NewerStoreError:  # a name that forgetting looks for: the file holds what is forgotten later
            assert "crystal.db.damaged-newer && " in refused.value.hint.replace(path.name, "crystal.db")
    assert path.read_bytes() == before


def test_each_migration_changes_a_definition_by_which_a_newer_store_is_known() -> None:
    before: dict[str, tuple[str, str]] = {}
    with contextlib.closing(apsw.Connection(":memory:")) as db:
        texts.register(db)
        for number, _ in upgrade.steps():
            upgrade._apply(db, number)
            found = upgrade._definitions(db)
            assert found != before or number in (9, 10)
            before = found


def test_rows_without_a_place_of_an_older_store_are_known_as_such(path: Path) -> None:
    path.parent.mkdir()
    with contextlib.closing(apsw.Connection(str(path))) as db:
        texts.register(db)
        for number, _ in upgrade.steps()[:30]:
            upgrade._apply(db, number)
        state = "(device, transcript, agent, session_id, path, generation, updated_at)"
        db.execute(f"INSERT INTO capture_state {state} VALUES ('lap', 't', 'a', 's', '/t', 2000000, 0)")
        row = "(transcript, generation, start, stop, state, rule, captured_at)"
        for generation in (2_000_000, 0):
            db.execute(f"INSERT INTO segments {row} VALUES (1, ?, 0, 1, 'skipped', 'r', 0)", (generation,))
    with Store.open(path) as store:
        assert store.rows("SELECT generation FROM segments ORDER BY id") == [(UNPLACED,), (0,)]
        assert store.rows("SELECT generation FROM capture_state") == [(UNPLACED,)]


def test_reading_a_store_that_is_not_there_makes_none(path: Path) -> None:
    with pytest.raises(NotConfiguredError):
        Store.open_existing(path)
    assert not path.parent.exists()


def test_a_reader_cannot_write(path: Path) -> None:
    Store.open(path).close()
    with Store.open_existing(path) as store, pytest.raises(CrystalError):
        store.execute("INSERT INTO meta VALUES ('a', 'b')")


def test_a_transaction_that_fails_leaves_nothing(path: Path) -> None:
    with Store.open(path) as store:
        with pytest.raises(KeyError), store.transaction():  # noqa: PT012 (the transaction must see the failure)
            store.execute("INSERT INTO meta VALUES ('a', 'b')")
            raise KeyError
        assert store.value("SELECT count(*) FROM meta") == 0


def test_a_busy_store_says_so(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "BUSY_TIMEOUT_MS", 20)
    with Store.open(path) as one, Store.open(path) as two, one.transaction():
        with pytest.raises(StoreBusyError) as caught:
            two.execute("BEGIN IMMEDIATE")
        assert caught.value.hint


def test_a_damaged_store_says_so(path: Path) -> None:
    with Store.open(path) as store:
        store.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray(path.read_bytes())
    data[4096 * 2 :] = os.urandom(len(data) - 4096 * 2)
    path.write_bytes(bytes(data))
    with pytest.raises(StoreDamagedError) as caught:
        _read_all(path)
    assert caught.value.exit_code == 6


@pytest.mark.slow
def test_a_letter_changed_in_any_definition_is_damage_and_no_traceback(path, monkeypatch):
    """Such a definition is valid SQL: SQLite's own checks pass, and only a statement that uses the name fails."""
    monkeypatch.setattr(upgrade, "_apply", copy_schema)  # it is compared with a fresh schema two hundred times
    dice = random.Random(7)
    with Store.open(path) as store:
        definitions = store.rows("SELECT name, type, sql FROM sqlite_schema WHERE sql IS NOT NULL AND sql LIKE '%(%'")
    sound = path.read_bytes()
    for name, kind, sql in definitions:
        words = re.sub("--.*", lambda comment: "-" * len(comment[0]), sql)
        at = dice.choice([place.start() for place in re.finditer(r"(?<=[a-z])[a-z](?=[a-z])", words)])
        path.write_bytes(sound)
        with contextlib.closing(apsw.Connection(str(path))) as db:
            db.execute("PRAGMA writable_schema = ON")
            changed = f"{sql[:at]}{'q' if sql[at] != 'q' else 'x'}{sql[at + 1 :]}"
            db.execute("UPDATE sqlite_schema SET sql = ? WHERE name = ?", (changed, name))
        assert damage(path), (kind, name, changed)
        with pytest.raises(StoreDamagedError), Store.open_existing(path) as store:
            store.rows("SELECT no_such_column FROM sessions")
    path.write_bytes(sound)
    assert damage(path) is None
    with Store.open(path) as store, pytest.raises(apsw.SQLError):  # a bug keeps its traceback
        store.rows("SELECT no_such_column FROM sessions")


def _read_all(path: Path) -> None:
    with Store.open(path) as store:
        for (name,) in store.rows("SELECT name FROM sqlite_master WHERE type = 'table'"):
            store.rows(f"SELECT * FROM {name}")
        store.execute("REINDEX")


def test_a_full_disk_says_so(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(path) as store:
        pages = store.value("PRAGMA page_count")
        store.value(f"PRAGMA max_page_count = {pages}")
        rows = [(str(number), "x" * 1000) for number in range(2000)]
        with pytest.raises(StoreFullError, match=f"^the disk of {path.parent} is full$"), store.transaction():
            store.execute_many("INSERT INTO meta VALUES (?, ?)", rows)
        assert store.value("SELECT count(*) FROM meta") == 0
    monkeypatch.setattr(driver, "_is_full", lambda _: True)
    with pytest.raises(StoreFullError, match=r"^the disk of ") as refused, driver.translated(path):
        raise apsw.IOError("disk I/O error")
    assert "then run the command again" in str(refused.value.hint)


def test_a_disk_that_is_full_while_the_record_is_compared_says_so(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(recorder: Recorder, **_: bool) -> None:
        recorder._db.execute("ROLLBACK")  # SQLite does so by itself
        raise apsw.FullError("database or disk is full")

    monkeypatch.setattr(Recorder, "_reconcile", fill)
    with pytest.raises(StoreFullError):
        Store.open(path, path.with_name("private.jsonl"))


def _open(path: str) -> int:
    with Store.open(Path(path)) as store:
        return int(store.value("PRAGMA user_version"))


@pytest.mark.slow
def test_eight_processes_that_make_the_store_at_once_make_one(path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(8) as pool:
        assert pool.map(_open, [str(path)] * 8) == [upgrade.newest()] * 8


@pytest.mark.slow
def test_deleted_text_leaves_no_byte_in_the_file(path: Path) -> None:
    from crystal.store.search.space import delete_chunks
    from tests.support.store_factory import add_turn

    with Store.open(path) as store:
        for number in range(50):
            add_turn(store, text=f"filler {number}")
        add_turn(store, text="the zirconium codeword")
        with store.transaction():
            assert delete_chunks(store, [store.value("SELECT id FROM chunks WHERE text LIKE '%zirconium%'")]) == 1
        store.value("PRAGMA wal_checkpoint(TRUNCATE)")
    assert b"zirconium" not in path.read_bytes()


@pytest.mark.parametrize("size", [upgrade.PAGE_SIZE, upgrade.OLD_PAGE_SIZE])
def test_a_lost_header_is_mended_whatever_the_size_of_the_pages(path: Path, tmp_path: Path, size: int) -> None:
    with mock.patch.object(upgrade, "PAGE_SIZE", size), Store.open(path) as store, store.transaction():
        assert store.value("PRAGMA page_size") == size
        for at in range(500):
            store.execute("INSERT INTO costs VALUES (?, 0, 'summary', ?, '', 0, 0, 0)", (at, f"provider {at}" * 9))
    data = path.read_bytes()
    path.write_bytes(os.urandom(100) + data[100:])
    with Store.open(tmp_path / "new.db") as store:
        assert salvage(path, tmp_path, store).rows["costs"] == 500
        assert store.value("SELECT count(*) FROM costs") == 500
