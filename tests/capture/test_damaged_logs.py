"""Claims about every agent's database with a write-ahead log: damage is named, and what SQLite reads is read."""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

import apsw
import pytest

from crystal.app.capture_engine import make_capture
from crystal.app.context import open_machine
from crystal.capture import snapshots
from crystal.capture.safe_open import ANYWHERE
from crystal.capture.source import opened_source
from crystal.errors import CrystalError
from crystal.transcript.snapshot import Snapshot
from tests.support import agent_samples as samples
from tests.support.command import crystal
from tests.support.examples import part_of
from tests.support.table import each_row
from tests.transcript.test_broken_records import COLUMNS, read
from tests.transcript.test_damaged_rows import texts_of

PAGE, FRAME, HEAD = 1024, 1048, 32
Files = dict[str, bytes]
"""The contents of a database and of the files beside it, by their suffix."""


def databases(harness: str, folder: Path) -> Iterator[tuple[str, Files]]:
    """Yield (path, files) of an agent's databases: half of the rows are in the log alone, a transaction each."""
    for number, (sample, name) in enumerate(samples.sample_files(harness)):
        if sample.suffix != samples.DATABASE_SUFFIX:
            continue
        path = folder / f"{number}.db"
        with contextlib.closing(apsw.Connection(str(path))) as owner:
            owner.execute(f"PRAGMA page_size = {PAGE}; PRAGMA journal_mode = wal; PRAGMA wal_autocheckpoint = 0")
            owner.execute(sample.read_text("utf-8")).fetchall()
            kept = list(taken_out(owner))
            owner.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            for sql, row in kept:
                owner.execute(sql, row)
            yield name, {"": path.read_bytes(), **{end: beside(path, end).read_bytes() for end in ("-wal", "-shm")}}


def taken_out(owner: apsw.Connection) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Take half of the rows out of all tables, and yield what puts each back."""
    for (table,) in owner.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0").fetchall():
        with contextlib.suppress(apsw.SQLError):  # a table without numbers of rows stays as it is
            for number, *row in owner.execute(f'SELECT rowid, * FROM "{table}"').fetchall()[1::2]:
                owner.execute(f'DELETE FROM "{table}" WHERE rowid = {number}')
                yield f'INSERT INTO "{table}" VALUES ({", ".join("?" * len(row))})', tuple(row)


def beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def put(path: Path, files: Files) -> None:
    path.parent.mkdir(exist_ok=True)
    for old in path.parent.iterdir():
        old.unlink()
    for suffix, data in files.items():
        beside(path, suffix).write_bytes(data)


def said_by_crystal(harness: str, path: Path, name: str) -> tuple[Counter[str], bool]:
    """Return what is read, and whether something is named as damaged."""
    with opened_source(path, "database", ANYWHERE, {}) as found:
        source = Snapshot(PurePath("/home/me", name), b"", found.rows, {})
        source.damaged = found.damaged
        _, said, broken = read(harness, source)
        return texts_of(harness, said), bool(broken or source.damaged)


def said_by_sqlite(harness: str, path: Path, name: str) -> Counter[str] | None:
    """Return what is read if SQLite opens the database itself; None if it cannot."""
    try:
        with contextlib.closing(apsw.Connection(str(path))) as owner:
            return texts_of(harness, read(harness, samples.snapshot_of(owner, name))[1])
    except (CrystalError, apsw.Error, UnicodeDecodeError):
        return None


def damages(files: Files, choose: random.Random, times: int) -> Iterator[tuple[str, Files]]:
    """Yield (what it is, the files) of a damaged database."""
    whole, log = files[""], files["-wal"]
    yield "no log", {"": whole}
    yield "an empty log", {"": whole, "-wal": b""}
    yield "no shared memory", {"": whole, "-wal": log}
    yield "broken shared memory", files | {"-shm": b"\xff" * len(files["-shm"])}
    for _ in range(times):
        at, cut = choose.randrange(len(log)), choose.randrange(PAGE, len(whole))
        yield f"torn at {at}", {"": whole, "-wal": log[:at]}
        yield f"flipped at {at}", {"": whole, "-wal": log[:at] + bytes([log[at] ^ 4]) + log[at + 1 :]}
        yield f"zeros at {at}", {"": whole, "-wal": log[:at] + bytes(len(log[at : at + 300])) + log[at + 300 :]}
        yield f"database cut at {cut}", {"": whole[:cut], "-wal": log}
        yield f"both cut at {cut} and {at}", {"": whole[:cut], "-wal": log[:at]}
        yield f"zeros in the database at {cut}", files | {"": whole[:cut] + bytes(700) + whole[cut + 700 :]}


def has_commit_behind(log: bytes, at: int) -> bool:
    """Return whether a transaction ends behind the frame that a place is in."""
    first = HEAD + (max(at - HEAD, 0) // FRAME + 1) * FRAME if at >= HEAD else HEAD
    return any(any(log[start + 4 : start + 8]) for start in range(first, len(log) - FRAME + 1, FRAME))


@pytest.mark.slow
@each_row("harness", list(COLUMNS))
def test_what_a_log_has_is_read_as_far_as_sqlite_reads_it_or_named(
    harness: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder, choose = tmp_path_factory.mktemp("logs"), random.Random(harness)
    made = [(name, files) for name, files in databases(harness, folder) if len(files["-wal"]) > 2 * FRAME]
    _, stranger = next(databases("zed" if harness == "goose" else "goose", tmp_path_factory.mktemp("another")))
    for name, files in made:
        mine, own = folder / "crystal" / "a.db", folder / "sqlite" / "a.db"
        put(mine, files)
        whole, _ = said_by_crystal(harness, mine, name)
        strange = [("the log of another database", files | {"-wal": stranger["-wal"]})]
        for what, damaged in (*damages(files, choose, len(part_of(range(8), 2))), *strange):
            put(mine, damaged)
            put(own, damaged)
            before = state_of(mine.parent)
            expected = said_by_sqlite(harness, own, name)
            try:
                said, is_named = said_by_crystal(harness, mine, name)
            except CrystalError:
                said, is_named = Counter(), True
            assert state_of(mine.parent) == before, (name, what)
            assert is_named or said == expected, (name, what)
            if what.startswith(("flipped", "zeros at")) and said != whole:
                assert is_named or not has_commit_behind(files["-wal"], int(what.split()[-1]) + 300), (name, what)
            assert is_named or said == whole or what.split()[0] not in ("database", "broken"), (name, what)


def state_of(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}


def filled(owner: apsw.Connection, first: int) -> None:
    for number in range(first, first + 9):
        owner.execute("INSERT INTO t VALUES (?, ?)", (number, "x" * 900))


def told(path: Path) -> tuple[list[int], list[str]]:
    with opened_source(path, "database", ANYWHERE, {}) as source:
        return [number for (number,) in source.rows("SELECT n FROM t")], [one.message for one in source.damaged]


def test_a_log_is_read_up_to_the_damage_which_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with contextlib.closing(apsw.Connection(str(path))) as owner:
        owner.execute("PRAGMA journal_mode = wal; PRAGMA wal_autocheckpoint = 0; CREATE TABLE t (n, text)").fetchall()
        filled(owner, 0)
        files = {"": path.read_bytes(), "-wal": beside(path, "-wal").read_bytes()}
        assert told(path) == ([*range(9)], [])
    log = files["-wal"]
    middle, frame = len(log) // 2, 4096 + 24
    copy = tmp_path / "copy" / "a.db"
    put(copy, files | {"-wal": log[:middle] + b"\0" * 9 + log[middle + 9 :]})
    read, [named] = told(copy)
    assert read == [*range(len(read))]
    assert 0 < len(read) < 9
    lost = len(log) - HEAD - (middle - HEAD) // frame * frame - frame
    assert named == f"{copy}-wal is damaged: its last {lost:,} bytes cannot be read"
    put(copy, files | {"-wal": b"\0" + log[1:]})
    with pytest.raises(CrystalError, match="no such table"):
        told(copy)


def test_what_an_older_log_or_a_transaction_that_was_taken_back_left_is_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with contextlib.closing(apsw.Connection(str(path))) as owner:
        owner.execute("PRAGMA journal_mode = wal; PRAGMA wal_autocheckpoint = 0; CREATE TABLE t (n, text)").fetchall()
        filled(owner, 0)
        owner.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
        owner.execute("INSERT INTO t VALUES (9, '')")
        assert told(path) == ([*range(10)], [])
        owner.execute(
            "PRAGMA wal_checkpoint(TRUNCATE); PRAGMA cache_size = 1; PRAGMA cache_spill = 1; BEGIN"
        ).fetchall()
        for _ in range(20):
            filled(owner, 10)
        owner.execute("ROLLBACK; INSERT INTO t VALUES (10, '')").fetchall()
        assert beside(path, "-wal").stat().st_size > 3 * 4096
        assert told(path) == ([*range(11)], [])


def test_a_database_that_was_cut_beside_its_log_is_named(tmp_path: Path) -> None:
    path = tmp_path / "own" / "a.db"
    path.parent.mkdir()
    with contextlib.closing(apsw.Connection(str(path))) as owner:
        owner.execute("PRAGMA journal_mode = wal; PRAGMA wal_autocheckpoint = 0; CREATE TABLE t (n, text)").fetchall()
        filled(owner, 0)
        owner.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        owner.execute("INSERT INTO t VALUES (9, '')")
        files = {"": path.read_bytes(), "-wal": beside(path, "-wal").read_bytes()}
    put(path, files | {"": files[""][:-8192]})
    with pytest.raises(CrystalError, match=f"is cut off: it has {len(files['']) - 8192:,} bytes"):
        told(path)


def sample_with_log(home: Path, harness: str = "goose") -> tuple[Path, tuple[str, tuple[Any, ...]]]:
    """Lay out an agent's sample, half of its rows in the log alone; return its database, and what wrote the last."""
    samples.lay_out(harness, home)
    [path] = [home / name for sample, name in samples.sample_files(harness) if sample.suffix == samples.DATABASE_SUFFIX]
    with contextlib.closing(apsw.Connection(str(path))) as owner:
        owner.execute("PRAGMA journal_mode = wal; PRAGMA wal_autocheckpoint = 0").fetchall()
        *kept, last = list(taken_out(owner))
        owner.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        for sql, row in (*kept, last):
            owner.execute(sql, row)
        files = {end: beside(path, end).read_bytes() for end in ("", "-wal")}
    for end, data in files.items():  # as it was before the owner closed it
        beside(path, end).write_bytes(data)
    return path, last


def test_a_torn_last_transaction_is_none_and_what_the_owner_writes_then_is_captured(home: Path, ready: None) -> None:
    path, last = sample_with_log(home)
    log = beside(path, "-wal")
    log.write_bytes(log.read_bytes()[:-300])
    assert crystal("backfill").err == ""
    before = samples.captured()[1]
    assert 0 < len(before) < len(samples.expected("goose")[1])
    assert "unreadable" not in crystal("agents", "--json").out.replace('"unreadable": 0', "")
    assert crystal("verify").code == 0
    with contextlib.closing(apsw.Connection(str(path))) as owner:  # SQLite takes it back, too
        owner.execute(*last)
        assert crystal("sync").code == 0
    assert samples.captured() == samples.expected("goose")


def test_the_same_damage_is_named_at_each_sweep_and_read_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert crystal("init", "--yes", "--no-import").code == 0
    path, _ = sample_with_log(home)
    log = beside(path, "-wal")
    data = bytearray(log.read_bytes())
    data[HEAD + 200] ^= 1
    log.write_bytes(data)
    long_ago = time.time() - 1000
    os.utime(path, (long_ago, long_ago))
    opened = list[Path]()
    monkeypatch.setattr(snapshots, "opened_source", lambda *given: opened.append(given[0]) or opened_source(*given))

    def sweep() -> list[str]:
        opened.clear()
        with open_machine() as machine:
            tally = make_capture(machine).sweep()
        return [str(named).partition(", and ")[0] for named in (tally.problems or {}).values()]

    [first] = sweep()
    assert "cannot be read" in first
    assert (path in opened, sweep(), path in opened) == (True, [first], False)
    with monkeypatch.context() as tomorrow:
        tomorrow.setattr("crystal.capture.damage.AGAIN_MS", 0)
        os.utime(path, (long_ago, long_ago + 1))
        assert (sweep(), path in opened) == ([first], True)
        assert (sweep(), path in opened) == ([first], True)
    with contextlib.closing(apsw.Connection(str(path))) as owner:
        owner.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    assert (sweep(), path in opened) == ([], True)
