"""Claims of capture/source.py: every answer is of one moment, and the owner of the database notices nothing."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from crystal.capture import source
from crystal.capture.safe_open import ANYWHERE
from crystal.capture.source import DatabaseChangedError, opened_database
from crystal.errors import UnavailableError
from crystal.transcript.snapshot import SourceError
from tests.support.examples import part_of

WRITES = 2_000
MODES = ("wal", "delete", "truncate")


@contextlib.contextmanager
def owner(path: Path, mode: str) -> Iterator[apsw.Connection]:
    connection = apsw.Connection(str(path))
    connection.execute(
        f"PRAGMA journal_mode = {mode}; PRAGMA synchronous = off; PRAGMA wal_autocheckpoint = 9"
    ).fetchall()
    yield connection
    connection.close()


WRITER = """
import apsw, sys
path, mode, writes = sys.argv[1:]
owner = apsw.Connection(path)
owner.execute(f"PRAGMA journal_mode = {mode}; PRAGMA synchronous = off; PRAGMA wal_autocheckpoint = 9").fetchall()
for number in range(int(writes)):
    values = (number, "x" * (number * 37 % 9000))
    with owner:
        owner.execute("INSERT INTO left VALUES (?, ?)", values)
        owner.execute("INSERT INTO right VALUES (?, ?)", values)
"""
"""Another process, whose writes any lock of a reader would make fail at once."""


@pytest.mark.parametrize("mode", part_of(MODES))
def test_answers_are_of_one_moment_while_the_owner_writes_undisturbed(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "a.db"
    answers: list[int] = []
    with owner(path, mode) as connection:
        connection.execute("CREATE TABLE left (n, text); CREATE TABLE right (n, text)").fetchall()
    command = [sys.executable, "-c", WRITER, str(path), mode, str(WRITES)]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as writer:
        while writer.poll() is None:
            with contextlib.suppress(UnavailableError), opened_database(path, ANYWHERE) as rows:
                [(count, length)] = rows("SELECT count(*), sum(length(text)) FROM left")
                [other] = rows("SELECT count(*), sum(length(text)) FROM right")
                assert other == (count, length)
                assert length in (None, sum(number * 37 % 9000 for number in range(count)))
                answers.append(count)
        assert (writer.returncode, writer.stderr and writer.stderr.read()) == (0, b"")
    with opened_database(path, ANYWHERE) as rows:
        assert list(rows("SELECT count(*) FROM left")) == [(WRITES,)]
    assert answers == sorted(answers)


@pytest.mark.parametrize("mode", part_of(MODES))
def test_what_is_committed_is_read_and_what_is_not_is_not(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "a.db"
    with owner(path, mode) as connection:
        connection.execute("CREATE TABLE t (n); INSERT INTO t VALUES (1)").fetchall()
        connection.execute("BEGIN IMMEDIATE; INSERT INTO t VALUES (2)").fetchall()
        with contextlib.suppress(UnavailableError), opened_database(path, ANYWHERE) as rows:
            assert list(rows("SELECT n FROM t")) == [(1,)]
        connection.execute("COMMIT").fetchall()
        with opened_database(path, ANYWHERE) as rows:
            assert list(rows("SELECT n FROM t")) == [(1,), (2,)]


def test_a_transaction_that_begins_while_it_is_opened_is_not_read_by_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, rested = tmp_path / "a.db", source._written_at_rest
    with owner(path, "delete") as connection:
        connection.execute("CREATE TABLE t (n, text); PRAGMA cache_size = 1; PRAGMA cache_spill = 1").fetchall()

        def begun(*opened: Any) -> int:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT INTO t VALUES (?, ?)", [(n, "x" * 3_000) for n in range(50)])
            time.sleep(3 * source.REST_NS / 1e9)  # the owner is held up in the middle of its writes
            return rested(*opened)

        monkeypatch.setattr(source, "_written_at_rest", begun)
        with pytest.raises(UnavailableError), opened_database(path, ANYWHERE) as rows:
            rows("SELECT count(*) FROM t")
        connection.execute("COMMIT").fetchall()


def test_a_log_that_was_moved_into_the_database_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with owner(path, "wal") as connection:
        connection.execute("CREATE TABLE t (n); INSERT INTO t VALUES (1)").fetchall()
        with opened_database(path, ANYWHERE) as rows:
            assert list(rows("SELECT n FROM t")) == [(1,)]
            connection.execute("INSERT INTO t VALUES (2)").fetchall()
            assert list(rows("SELECT n FROM t")) == [(1,)]
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            with pytest.raises(DatabaseChangedError):
                rows("SELECT n FROM t")


def test_nothing_is_written(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with owner(path, "wal") as connection:
        connection.execute("CREATE TABLE t (n)").fetchall()
        before = {file.name: file.read_bytes() for file in tmp_path.glob("a.db*")}
        with opened_database(path, ANYWHERE) as rows, pytest.raises(SourceError, match="readonly"):
            rows("INSERT INTO t VALUES (1)")
        assert {file.name: file.read_bytes() for file in tmp_path.glob("a.db*")} == before


def test_more_is_sorted_than_sqlite_holds_in_its_cache(tmp_path: Path) -> None:
    path, numbers = tmp_path / "a.db", range(3000)
    with owner(path, "wal") as connection:
        connection.execute("CREATE TABLE t (n, data)").fetchall()
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(number, bytes(4000)) for number in numbers])
    with opened_database(path, ANYWHERE) as rows:
        assert [number for number, _ in rows("SELECT n, data FROM t ORDER BY n DESC")] == [*reversed(numbers)]


def test_what_is_no_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    path.write_bytes(b"no database" * 100)
    with opened_database(path, ANYWHERE) as rows, pytest.raises(SourceError, match=r"a\.db"):
        rows("SELECT 1 FROM t")


@pytest.mark.parametrize("mode", part_of(MODES))
def test_an_owner_that_locks_everyone_out_is_read_all_the_same(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "a.db"
    connection = apsw.Connection(str(path))
    # In this mode a log has no shared memory beside it.
    connection.execute(f"PRAGMA locking_mode = exclusive; PRAGMA journal_mode = {mode}").fetchall()
    connection.execute("CREATE TABLE t (n); INSERT INTO t VALUES (1); BEGIN EXCLUSIVE").fetchall()
    assert not path.with_name("a.db-shm").exists()
    other = apsw.Connection(str(path))
    with pytest.raises(apsw.BusyError):
        other.execute("SELECT n FROM t").fetchall()
    with opened_database(path, ANYWHERE) as rows:
        assert list(rows("SELECT n FROM t")) == [(1,)]
    connection.execute("INSERT INTO t VALUES (2); COMMIT").fetchall()
    with opened_database(path, ANYWHERE) as rows:
        assert list(rows("SELECT n FROM t")) == [(1,), (2,)]
    connection.close()


@pytest.mark.slow
def test_a_database_that_was_cut_is_named_and_never_read_as_if_it_was_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with owner(path, "delete") as connection:
        connection.execute("CREATE TABLE left (n, text)").fetchall()
        connection.executemany("INSERT INTO left VALUES (?, ?)", [(number, "x" * 900) for number in range(20)])
    whole = path.read_bytes()
    for size in range(200, len(whole), 500):
        path.write_bytes(whole[:size])
        with pytest.raises(SourceError, match=f"is cut off: it has {size:,} of {len(whole):,} bytes"):
            list(rows_of(path))
    path.write_bytes(whole)
    assert len(rows_of(path)) == 20


def rows_of(path: Path) -> list[tuple[Any, ...]]:
    with opened_database(path, ANYWHERE) as rows:
        return list(rows("SELECT * FROM left"))


def test_a_log_of_another_database_is_named_and_harms_nothing(tmp_path: Path) -> None:
    path, stranger = tmp_path / "a.db", tmp_path / "b.db"
    with owner(path, "wal") as connection:
        connection.execute("CREATE TABLE t (n); INSERT INTO t VALUES (1)").fetchall()
    with owner(stranger, "wal") as connection:
        connection.execute("CREATE TABLE u (n); INSERT INTO u VALUES (9)").fetchall()
        path.with_name("a.db-wal").write_bytes(stranger.with_name("b.db-wal").read_bytes())
    before = path.read_bytes()
    with opened_database(path, ANYWHERE) as rows, pytest.raises(SourceError, match=r"a\.db"):
        rows("SELECT n FROM t")
    assert path.read_bytes() == before
    path.with_name("a.db-wal").unlink()
    with opened_database(path, ANYWHERE) as rows:
        assert list(rows("SELECT n FROM t")) == [(1,)]
