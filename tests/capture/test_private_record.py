"""The record of what is private: durable before the database commits, and stronger than an older database."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from crystal.errors import CrystalError
from crystal.store import Store
from crystal.store.capture import privacy
from crystal.store.private_record import PrivateRecord, read_record
from crystal.store.search import space


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return tmp_path / "private.jsonl"


def opened(record: Path, name: str = "crystal.db") -> Store:
    return Store.open(record.with_name(name), record)


def written(record: Path) -> PrivateRecord:
    found = read_record(record)
    assert found is not None
    return found


def add_lines(store: Store, *uuids: str) -> None:
    with store.transaction():
        privacy.add_private_lines(store, uuids)


def test_it_tells_what_the_tables_tell(record: Path) -> None:
    with opened(record) as store:
        assert (written(record).marks, written(record).lines) == ({}, set())
        privacy.open_mark(store, None, "off", 10)
        assert written(record).marks == {(None, "off", 10, None): None}
        privacy.close_mark(store, None, "off", 20)
        add_lines(store, "a", "b")
        add_lines(store, "b")
    found = written(record)
    assert (found.marks, found.lines, found.complete) == ({(None, "off", 10, None): 20}, {"a", "b"}, True)
    assert len(record.read_bytes().split()) == 5


def test_what_is_undone_in_the_database_is_not_written(record: Path) -> None:
    with opened(record) as store:
        with contextlib.suppress(KeyboardInterrupt), store.transaction():
            privacy.add_private_lines(store, ["undone"])
            raise KeyboardInterrupt
        add_lines(store, "kept")
    assert written(record).lines == {"kept"}


def test_what_cannot_be_recorded_is_not_committed(record: Path) -> None:
    with opened(record) as store:
        record.unlink()
        record.mkdir()
        with pytest.raises(CrystalError, match=r"private\.jsonl"):
            add_lines(store, "a")
        assert not privacy.has_private_lines(store)
        record.rmdir()
        add_lines(store, "b")
        assert privacy.is_private_line(store, "b")


def _torn(record: Path) -> None:
    record.write_bytes(record.read_bytes() + b'["line","tor')


def _strange(record: Path) -> None:
    rows = rb'["line","\ud800"]', b"[]", b'["mark",1,2]', b'["line"]', b"\xff", b"[" * 5000, b'["new-kind","x"]'
    record.write_bytes(record.read_bytes() + b"\n".join(rows) + b"\n")


@pytest.mark.slow
@pytest.mark.parametrize("harm", [_torn, _strange])
def test_what_cannot_be_understood_of_it_costs_nothing_else(record: Path, harm: Callable[[Path], None]) -> None:
    with opened(record) as store:
        add_lines(store, "a")
    harm(record)
    with opened(record) as store:
        add_lines(store, "b")
    assert written(record).lines == {"a", "b"}
    with opened(record, "another.db") as store:
        assert privacy.is_private_line(store, "a")


def test_an_older_database_takes_in_what_it_does_not_know(record: Path) -> None:
    with opened(record) as store:
        privacy.open_mark(store, "s", "off", 10)
    old = record.with_name("crystal.db").read_bytes()
    with opened(record) as store:
        privacy.close_mark(store, "s", "off", 20)
        privacy.open_mark(store, None, "off", 30)
        add_lines(store, "a")
        expected = privacy.marks(store)
    record.with_name("crystal.db").write_bytes(old)
    with opened(record) as store:
        assert privacy.marks(store) == expected
        assert privacy.is_private_line(store, "a")


def test_a_database_of_an_older_crystal_writes_all_that_it_knows(record: Path) -> None:
    with Store.open(record.with_name("crystal.db")) as store:
        privacy.open_mark(store, None, "off", 10)
        add_lines(store, "a")
    with opened(record):
        pass
    found = written(record)
    assert (list(found.marks), found.lines, found.complete) == ([(None, "off", 10, None)], {"a"}, True)


def test_it_goes_on_after_the_database_was_rewritten(record: Path) -> None:
    with opened(record) as store:
        assert space.rewrite(store)
        add_lines(store, "u1")
    assert written(record).lines == {"u1"}
