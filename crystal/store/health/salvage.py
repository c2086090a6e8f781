"""Copy the readable parts of a damaged crystal.db into a new one.

The tables that derive from the archive (turns, chunks, keywords, vectors) are not copied but rebuilt. A table is
read in the order of its key from both ends, so that one unreadable page costs only its own rows.
"""

from __future__ import annotations

import itertools
import shutil
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import apsw

from crystal.config.harnesses import HARNESSES
from crystal.store import upgrade
from crystal.store.capture.privacy import is_key
from crystal.store.connection import GIVEN, Store
from crystal.store.json_columns import JSON_COLUMNS, drop_damaged_notes, misfits

_STREAMS = tuple("relay_out outbox relay_in relay_claims relay_fragments relay_skips relay_files".split())
"""Tables that must be consistent with each other: all are salvaged, or none."""

_DERIVED = frozenset(
    "turns turn_copies chunks text_blocks source_collections source_files sources embedding_generations problems"
    " hook_runs refusals index_state index_parts index_log mirror_home mirror_keys mirror_objects mirror_rows"
    " mirror_trash mirror_applied work_calls work_lines work_errors archive_words".split()
)
"""Tables that are rebuilt, or start empty."""

_DERIVED_NOTES = ("forgotten_file", "private_record", "memory_record_size", "work_cursor")
"""Keys in ``meta`` of comparisons between the tables and a file, which must be repeated."""
_PAGE_KINDS = (2, 5, 10, 13)
_MAX_PAGES = 2000
"""First bytes of the pages of tables and indexes, and the maximum number of pages that are looked at."""
_AFTER_SIZE = b"\x02\x02\x00\x40\x20\x20"
"""The bytes of a header that follow the size of the pages."""
_REPEATED = (9, 31)
"""Numbers of the migrations that changed values of rows, not tables; they may be repeated."""


@dataclass(slots=True)
class Salvage:
    """The result of a salvage.

    Attributes:
        rows: How many rows were read, by table.
        partly: Tables of which not all rows could be read.
        lost_notes: Keys in ``meta`` whose value was damaged.
    """

    rows: dict[str, int] = field(default_factory=dict)
    partly: list[str] = field(default_factory=list)
    lost_notes: set[str] = field(default_factory=set)

    def is_whole(self, *tables: str) -> bool:
        """Return True if every row of these tables was read."""
        return all(table in self.rows and table not in self.partly for table in tables)


def salvage(damaged: Path, scratch: Path, store: Store) -> Salvage:
    """Copy the readable rows of a damaged database into a new store.

    Args:
        damaged: The file; its log beside it is read too. Neither is changed.
        scratch: A folder for a copy of both, which the caller deletes.
        store: A new store.
    """
    db = _opened_copy(damaged, scratch)
    if db is None:
        return Salvage(partly=_tables(store))
    store.execute("PRAGMA foreign_keys = 0")
    try:
        with store.transaction():
            found = _copy(db, store)
    finally:
        db.close()
        store.execute("PRAGMA foreign_keys = 1")
    return found


def _copy(db: apsw.Connection, store: Store) -> Salvage:
    found = Salvage()
    for table in _tables(store):
        _copy_table(db, store, table, found)
    if not found.is_whole(*_STREAMS):
        for table in reversed(_STREAMS):
            store.execute(f"DELETE FROM {table}")
    if not found.is_whole("capture_state"):  # else skipped transcripts would count as new
        for table in ("capture_roots", "snapshot_records", "snapshot_stamps"):
            store.execute(f"DELETE FROM {table}")
    columns = store.rows("PRAGMA table_info(meta)")
    for row in itertools.chain(*(_rows_to_damage(db, "meta", columns, f"key {order}") for order in ("ASC", "DESC"))):
        if row is not None and row[0] not in _DERIVED_NOTES:
            store.execute("INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT DO NOTHING", row)
    found.lost_notes = drop_damaged_notes(store)
    steps = dict(upgrade.steps())
    store.db.execute("".join(map(steps.__getitem__, _REPEATED)))  # the copied rows may have an older schema's values
    if not is_key(store.value("SELECT value FROM meta WHERE key = 'hash_key'")):
        # No hash of the ledger can be compared, so every transcript would count as replaced.
        for table in ("segments", "capture_state", "capture_roots", "snapshot_records", "snapshot_stamps"):
            store.execute(f"DELETE FROM {table}")
        store.execute("DELETE FROM meta WHERE key = 'hash_key'")
    _drop_damaged(store, found)
    store.execute(
        "UPDATE sessions SET summarized_turn = CASE WHEN summarized_turn = last_turn THEN -1 ELSE 0 END,"
        " logged_turn = CASE WHEN logged_turn = last_turn THEN -1 ELSE 0 END, last_turn = 0"
    )
    return found


def _drop_damaged(store: Store, found: Salvage) -> None:
    """Delete salvaged rows that crystal cannot have written, and rows that refer to missing ones."""
    # A damaged id cannot be used: the record beside the archive has the memory with its real id.
    store.execute("DELETE FROM memories WHERE uid NOT GLOB ?", ("mem-" + "[0-9a-f]" * 12,))
    # The file beside the archive has each tombstone whole. A damaged connection must be paired again: its remaining
    # numbers prevent old messages from being accepted twice.
    for column in JSON_COLUMNS:
        wrong = misfits(store, column)
        store.execute(f"DELETE FROM {column.table} WHERE rowid IN {GIVEN}", (wrong,))
        if wrong and column.table == "relay_peers":
            found.partly.append(column.table)
    # An unknown harness means damage: the name of the archive file contains the right one.
    store.execute(f"DELETE FROM capture_state WHERE harness NOT IN {GIVEN}", ([*HARNESSES],))
    _drop_orphans(store)


def _tables(store: Store) -> list[str]:
    """Return the tables that the archive cannot restore."""
    found = store.rows("SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' ORDER BY name")
    return [name for (name,) in found if name not in {"meta", *_DERIVED} and not name.startswith("sqlite_")]


def finish_sessions(store: Store) -> None:
    """Mark current summaries as current again, and delete sessions without turns. Inside a transaction."""
    store.execute("UPDATE sessions SET summarized_turn = last_turn WHERE summarized_turn = -1")
    store.execute("UPDATE sessions SET logged_turn = last_turn WHERE logged_turn = -1")
    store.execute(
        "DELETE FROM sessions WHERE id NOT IN (SELECT session FROM turns)"
        " AND id NOT IN (SELECT session FROM turn_copies)"
    )


def _drop_orphans(store: Store) -> None:
    """Delete salvaged rows that refer to rows which could not be read. Inside a transaction."""
    while orphans := store.rows("PRAGMA foreign_key_check"):
        for table, rowid, *_ in orphans:
            if rowid is None:
                store.execute(f"DELETE FROM {table}")  # no row ids: a small table, received again
            else:
                store.execute(f"DELETE FROM {table} WHERE rowid = ?", (rowid,))


def _opened_copy(damaged: Path, scratch: Path) -> apsw.Connection | None:
    """Open a copy with a valid header; return None if nothing can be read."""
    if not damaged.is_file() or damaged.stat().st_size < upgrade.PAGE_SIZE:
        return None
    copy = scratch / "copy.db"
    shutil.copyfile(damaged, copy)
    log = damaged.with_name(damaged.name + "-wal")
    if log.is_file():
        shutil.copyfile(log, copy.with_name(copy.name + "-wal"))
    _mend_header(copy)
    db = apsw.Connection(str(copy))
    try:
        db.execute("PRAGMA writable_schema = ON")  # so that one damaged entry of the schema does not stop the reading
        db.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    except (apsw.Error, UnicodeDecodeError):
        db.close()
        return None
    return db


def _mend_header(path: Path) -> None:
    """Restore the first 100 bytes of a crystal.db, which are the same in every store."""
    with path.open("r+b") as file:
        header = file.read(100)
        is_ours = header[60:64] <= struct.pack(">I", upgrade.MAX_VERSION) and header[68:72] == struct.pack(
            ">I", upgrade.APPLICATION_ID
        )
        size = int.from_bytes(header[16:18], "big")
        is_known = size in (upgrade.PAGE_SIZE, upgrade.OLD_PAGE_SIZE)
        if is_ours and is_known and header.startswith(upgrade.HEADER) and header[18:24] == _AFTER_SIZE:
            return
        size = _page_size(file, path.stat().st_size)
        pages = path.stat().st_size // size
        file.seek(0)
        file.write(upgrade.HEADER + struct.pack(">H", size) + _AFTER_SIZE)
        file.write(
            struct.pack(">IIIIIIIIIIII", 1, pages, 0, 0, 1, 4, 0, 0, 1, upgrade.newest(), 0, upgrade.APPLICATION_ID)
        )
        file.write(bytes(20) + struct.pack(">II", 1, 3_054_000))


def _page_size(file: BinaryIO, end: int) -> int:
    """Return the size of the pages of a store: only small pages begin in the middle of large ones."""
    starts = range(upgrade.PAGE_SIZE, end, upgrade.OLD_PAGE_SIZE)
    starts = starts[:: len(starts) // _MAX_PAGES + 1]
    found = 0
    for at in starts:
        file.seek(at)
        found += file.read(1)[0] in _PAGE_KINDS
    return upgrade.PAGE_SIZE if 8 * found > len(starts) else upgrade.OLD_PAGE_SIZE


def _copy_table(db: apsw.Connection, store: Store, table: str, found: Salvage) -> None:
    ours = store.rows(f"PRAGMA table_info({table})")
    theirs = _columns_of(db, table)
    columns = [row for row in ours if row[1] in theirs]
    if not columns:
        found.partly.append(table)
        return
    names = [str(row[1]) for row in columns]
    keys = sorted((row[5], row[1]) for row in ours if row[5])
    key = str(keys[0][1]) if keys else "rowid"
    insert = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
    found.rows[table] = 0
    is_whole = True
    for order in ("ASC", "DESC"):
        for row in _rows_to_damage(db, table, columns, f"{key} {order}"):
            if row is None:
                is_whole = False
                continue
            try:
                store.db.execute(insert, row)
            except apsw.ConstraintError:
                is_whole = False
                if order == "DESC":  # the end of the rows that were read from the beginning
                    break
            else:
                found.rows[table] += 1
        if is_whole:
            return
    found.partly.append(table)


def _columns_of(db: apsw.Connection, table: str) -> set[str]:
    """Return the readable columns of a table."""
    try:
        return {str(row[1]) for row in db.execute(f"PRAGMA table_info({table})")}
    except (apsw.Error, UnicodeDecodeError):
        return set()


def _rows_to_damage(
    db: apsw.Connection, table: str, columns: list[tuple[Any, ...]], order: str
) -> Iterator[list[Any] | None]:
    """Yield the rows of a table; None for an undecodable row, and None at the end if damage stopped the reading."""
    asked = [f"CAST({name} AS BLOB)" if kind == "TEXT" else str(name) for _, name, kind, *_ in columns]
    try:
        for row in db.execute(f"SELECT {', '.join(asked)} FROM {table} ORDER BY {order}"):
            yield _decoded(row, columns)
    except apsw.Error:
        yield None


def _decoded(row: tuple[Any, ...], columns: list[tuple[Any, ...]]) -> list[Any] | None:
    values = list(row)
    for at, (_, name, kind, *_) in enumerate(columns):
        if kind == "TEXT" and values[at] is not None:
            try:
                values[at] = values[at].decode()
            except UnicodeDecodeError:
                if name != "path":  # a path may be stored as bytes
                    return None
    return values


_COUNTED = {
    "sessions": ("session", "sessions"),
    "turns": ("turn", "turns"),
    "memories": ("memory", "memories"),
    "private_marks": ("time in which capture was off", "times in which capture was off"),
    "private_lines": ("line left out as private or forgotten", "lines left out as private or forgotten"),
    "tombstones": ("note of what was forgotten", "notes of what was forgotten"),
    "relay_peers": ("connection to another machine", "connections to other machines"),
}
"""Singular and plural for the rows of a table."""


def what_is_there(store: Store) -> list[str]:
    """Describe what a rebuilt store contains."""
    words = []
    for table, (one, several) in _COUNTED.items():
        where = " WHERE reason <> 'forgotten'" if table == "private_marks" else ""
        count = int(store.value(f"SELECT count(*) FROM {table}{where}"))
        if count or table in ("sessions", "turns"):
            words.append(f"{count:,} {one if count == 1 else several}")
    return words


def device_of_agent(store: Store, agent: str) -> str | None:
    """Return the device that sends under an agent's name; None for this machine, or if unknown."""
    return store.find(
        str, "SELECT p.name FROM relay_agents a JOIN relay_peers p ON p.id = a.peer WHERE a.agent = ?", (agent,)
    )
