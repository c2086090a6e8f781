"""Run the queries of ``crystal verify``, and repair derived data."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from pathlib import Path

import apsw

from crystal.errors import StoreDamagedError
from crystal.model.capture import Chunk
from crystal.model.named_tuple import NamedTuple
from crystal.store.capture.privacy import is_key
from crystal.store.connection import GIVEN, Store
from crystal.store.driver import changed_definition, changed_definition_in
from crystal.store.json_columns import json_faults
from crystal.store.memories import memories
from crystal.store.search import vectors
from crystal.store.search.space import delete_chunks
from crystal.store.texts import text_hash
from crystal.store.upgrade import one_line
from crystal.store.work.index import TABLES

PROGRESS_STEPS = 1_000
"""Number of SQLite's virtual machine steps between two checks of the time."""


class LedgerRow(NamedTuple):
    """One row of the byte ledger. ``offset`` and ``length`` locate its frame in the archive; 0 if not captured."""

    id: int
    generation: int
    start: int
    stop: int
    state: str
    rule: str | None
    raw_hash: bytes | None
    offset: int
    length: int
    clean_hash: bytes | None


LEDGER_ROW = (
    "id, generation, start, stop, state, rule, raw_hash, coalesce(archive_offset, 0), coalesce(archive_length, 0),"
    " clean_hash"
)
"""The columns of a ``LedgerRow`` in ``segments``."""


def sqlite_version() -> str:
    """Return the version of the SQLite that the driver bundles."""
    return apsw.sqlite_lib_version()


def ledger_rows(store: Store, transcript: int) -> list[LedgerRow]:
    """Return all rows of one transcript, by generation and position."""
    return store.all(
        LedgerRow,
        f"SELECT {LEDGER_ROW} FROM segments WHERE transcript = ? ORDER BY generation, start",
        (transcript,),
    )


def database_faults(store: Store) -> list[str]:
    """Return the errors of SQLite's own checks and of the schema."""
    faults = [str(text) for (text,) in store.rows("PRAGMA integrity_check(20)") if text != "ok"]
    faults += [*filter(None, [changed_definition_in(store.db)]), *json_faults(store)]
    orphans = store.rows("PRAGMA foreign_key_check")
    if orphans:
        faults.append(f"{len(orphans)} rows of {orphans[0][0]} point at rows that are gone")
    return faults


def quick_fault(store: Store, seconds: float = float("inf")) -> tuple[str | None, bool]:
    """Search for faults in pages and indexes, then in texts, for ``seconds`` each.

    If the file is too large for that, small tables are checked first, and each of the two checks of texts gets a third
    of the time: they then check only a sample.

    Returns:
        The first fault or None, and whether every page was checked in time.
    """
    deadline = time.monotonic() + seconds
    store.db.set_progress_handler(lambda: time.monotonic() > deadline, PROGRESS_STEPS)
    fault, is_whole = None, True
    try:
        fault = next(_faults_within(store), None) or _implausible(store)
    except apsw.SQLError as error:
        fault = one_line(error)
    except apsw.InterruptError:
        is_whole = False
    finally:
        store.db.set_progress_handler(None)
    seconds = seconds if is_whole else seconds / 3
    fault = fault or changed_definition_in(store.db)
    fault = fault or _undecodable(store, time.monotonic() + seconds)
    if fault is None and chunks_with_wrong_hash(store, time.monotonic() + seconds):
        fault = "a text in table chunks is not what was stored"
    return fault, is_whole


def _faults_within(store: Store) -> Iterator[str]:
    """Yield the faults that SQLite finds. Only a check of a single table compares it with its indexes."""
    tables = [f"integrity_check({name})" for name in _tables(store)]
    for check in (*tables[: -len(_LARGE)], "quick_check(1)", *tables[-len(_LARGE) :]):
        yield from (str(text) for (text,) in store.rows(f"PRAGMA {check}") if text != "ok")


def _tables(store: Store) -> list[str]:
    """Return the names of the tables, those with a row for each text last."""
    found = [str(name) for (name,) in store.rows("SELECT name FROM pragma_table_list WHERE type = 'table'")]
    return sorted((name for name in found if "_fts_" not in name), key=lambda name: (name in _LARGE, name))


def damage(path: Path) -> str | None:
    """Check a whole database and return what makes it unusable, or None. Changes nothing.

    An inverted index that disagrees with the chunks is no damage: it is rebuilt from them.
    """
    try:
        with Store.open_untouched(path) as store:
            found = [str(text) for (text,) in store.rows("PRAGMA integrity_check(20)") if text != "ok"]
            real = [text for text in found if "inverted index" not in text]
            changed = real[0] if real else changed_definition(path)
            return changed or _undecodable(store, float("inf")) or _implausible(store)
    except StoreDamagedError as error:
        return error.message.removeprefix(f"{path}: ")
    except apsw.SQLError as error:
        return one_line(error)


def _undecodable(store: Store, deadline: float) -> str | None:
    """Return the first unreadable row found before the deadline, or None. Newest rows first, large tables last."""
    for table in _tables(store):
        try:
            for _ in store.db.execute(f"SELECT * FROM {table}" + " ORDER BY 1 DESC" * (table in _LARGE)):
                if time.monotonic() > deadline:
                    return None
        except UnicodeDecodeError:
            return f"a text in table {table} cannot be decoded"
        except apsw.Error as error:
            return f"table {table}: {error}"
    return None


_LARGE = ("chunks", "turns")


def _implausible(store: Store) -> str | None:
    """Return a text that crystal cannot have written, or None."""
    key = store.value("SELECT value FROM meta WHERE key = 'hash_key'")
    if key is not None and not is_key(key):
        return "the key of its hashes is damaged"
    return next(json_faults(store), None)


def chunks_with_wrong_hash(store: Store, deadline: float = float("inf")) -> list[int]:
    """Return the chunks whose text does not match its hash, newest first; stops at the deadline."""
    found = []
    for ident, text, sha in store.stream("SELECT id, text, text_sha256 FROM chunks ORDER BY id DESC"):
        found += [int(ident)] if text_hash(text) != sha else []
        if time.monotonic() > deadline:
            break
    return sorted(found)


_BARE = "NOT EXISTS (SELECT 1 FROM chunks c WHERE c.turn = t.id)"


def count_turns_without_chunks(store: Store) -> int:
    """Return the number of turns without a chunk."""
    return int(store.value(f"SELECT count(*) FROM turns t WHERE {_BARE}"))


class StoredTurn(NamedTuple):
    """A turn in the store: its row id, its role, and its chunks."""

    id: int
    role: str
    chunks: list[Chunk]


def turns_of_row(store: Store, row: int) -> dict[tuple[str, int], StoredTurn]:
    """Return the turns that were captured with a ledger row, by uuid and part."""
    found: dict[tuple[str, int], StoredTurn] = {}
    for uuid, part, ident, role, start, text in store.rows(
        "SELECT t.uuid, t.part, t.id, t.role, c.start, c.text FROM turns t JOIN chunks c ON c.turn = t.id"
        " WHERE t.segment = ?",
        (row,),
    ):
        found.setdefault((uuid, part), StoredTurn(ident, role, [])).chunks.append(Chunk(start, text))
    return found


def has_turn(store: Store, uuid: str, part: int) -> bool:
    """Return True if a turn is stored."""
    return store.has("SELECT 1 FROM turns WHERE uuid = ? AND part = ?", (uuid, part))


def has_text(store: Store, text: str) -> bool:
    """Return True if a chunk has exactly this text."""
    return store.has("SELECT 1 FROM chunks WHERE text_sha256 = ?", (text_hash(text),))


def turns_with_ids(store: Store, uuids: Collection[str]) -> list[int]:
    """Return the row ids of the turns of lines."""
    sql = f"SELECT id FROM turns WHERE uuid IN {GIVEN}"
    return store.all(int, sql, (uuids,)) if uuids else []


def newest_row_of(store: Store, uuid: str) -> int | None:
    """Return the newest ledger row that has turns of a line, or None."""
    return store.find(int, "SELECT max(segment) FROM turns WHERE uuid = ?", (uuid,))


def drop_turns(store: Store, turns: list[int]) -> None:
    """Delete turns with their chunks and vectors, to write them again from the archive. In a transaction."""
    for turn in turns:
        _drop_chunks(store, "turn = ?", (turn,))
        store.execute("DELETE FROM turn_copies WHERE turn = ?", (turn,))
        store.execute("DELETE FROM turns WHERE id = ?", (turn,))


def _drop_chunks(store: Store, where: str, values: tuple[object, ...] = ()) -> None:
    delete_chunks(store, store.all(int, f"SELECT id FROM chunks WHERE {where}", values))


_ORPHANS = (
    (
        "UPDATE turns SET segment = NULL WHERE segment NOT IN (SELECT id FROM segments WHERE transcript IN"
        " (SELECT id FROM capture_state))"
    ),
    "DELETE FROM segments WHERE transcript NOT IN (SELECT id FROM capture_state)",
    "UPDATE turns SET project = NULL WHERE project NOT IN (SELECT id FROM projects)",
    "UPDATE chunks SET project = NULL WHERE project NOT IN (SELECT id FROM projects)",
    "UPDATE sessions SET project = NULL WHERE project NOT IN (SELECT id FROM projects)",
    "UPDATE memories SET project = NULL WHERE project NOT IN (SELECT id FROM projects)",
    "DELETE FROM memory_history WHERE memory NOT IN (SELECT id FROM memories)",
    *(f"DELETE FROM {table} WHERE turn NOT IN (SELECT id FROM turns)" for table in TABLES),
    "UPDATE work_calls SET result = NULL, exit = NULL WHERE result NOT IN (SELECT id FROM turns)",
    "DELETE FROM turn_copies WHERE session NOT IN (SELECT id FROM sessions) OR turn NOT IN (SELECT id FROM turns)",
)


def mend_orphans(store: Store) -> bool:
    """Delete rows that refer to missing rows; the archive restores their text. Return False if there are none."""
    if not store.rows("PRAGMA foreign_key_check"):
        return False
    with store.transaction():
        for sql in _ORPHANS:
            store.execute(sql)
        drop_turns(store, store.all(int, "SELECT id FROM turns WHERE session NOT IN (SELECT id FROM sessions)"))
        for column, table in (("turn", "turns"), ("session", "sessions"), ("memory", "memories")):
            _drop_chunks(store, f"{column} IS NOT NULL AND {column} NOT IN (SELECT id FROM {table})")
    return True


def mend_memories(store: Store) -> int:
    """Rebuild the chunks of memories that differ from the memory's text; return the number of these memories."""
    wrong = memories.memories_with_other_chunks(store)
    for uid in wrong:
        with store.transaction():
            row = memories.row_of(store, uid)
            _drop_chunks(store, "memory = ?", (row,))
            memories.write_chunks_again(store, uid)
    return len(wrong)


def broken_turns(store: Store) -> dict[int, list[int]]:
    """Return the turns with damaged or missing text, by the ledger row that captured them."""
    wrong = f"id IN (SELECT turn FROM chunks WHERE id IN {GIVEN})"
    sql = f"SELECT segment, id FROM turns t WHERE segment IS NOT NULL AND ({wrong} OR {_BARE}) ORDER BY id"
    found: dict[int, list[int]] = {}
    for row, turn in store.rows(sql, (chunks_with_wrong_hash(store),)):
        found.setdefault(row, []).append(turn)
    return found


class VectorFaults(NamedTuple):
    """Faults of one embedding generation: vectors without their chunk, and chunks without their vector.

    ``lost`` counts vectors that are not where sqlite-vec's own tables say; only a new table repairs that.
    """

    generation: int
    stray: tuple[int, ...]
    missing: tuple[int, ...]
    lost: int


def vector_faults(store: Store) -> Iterator[VectorFaults]:
    """Yield the generations in which vectors and chunks disagree."""
    for generation in vectors.generations(store):
        table = vectors.table_of(generation.id)
        stray = store.rows(f"SELECT rowid FROM {table}_rowids WHERE rowid NOT IN (SELECT id FROM chunks)")
        missing = store.rows(
            f"SELECT id FROM chunks WHERE vector_generation = ? AND id NOT IN (SELECT rowid FROM {table}_rowids)",
            (generation.id,),
        )
        lost = _count_lost(store, table, generation.dimension)
        if stray or missing or lost:
            yield VectorFaults(generation.id, tuple(row[0] for row in stray), tuple(row[0] for row in missing), lost)


def _count_lost(store: Store, table: str, dimension: int) -> int:
    """Count the vectors whose id is not at the block and offset that sqlite-vec's table of rows records."""
    blocks = {
        block: memoryview(ids).cast("q") if len(ids) == 8 * size and length == dimension * size else ()
        for block, size, ids, length in store.rows(
            f"SELECT c.chunk_id, c.size, c.rowids, length(v.vectors) FROM {table}_chunks AS c"
            f" LEFT JOIN {table}_vector_chunks00 AS v ON v.rowid = c.chunk_id"
        )
    }
    places = store.rows(f"SELECT rowid, chunk_id, chunk_offset FROM {table}_rowids")
    return sum(ident != next(iter(blocks.get(block, ())[at : at + 1]), None) for ident, block, at in places)


def mend_vectors(store: Store, faults: VectorFaults) -> None:
    """Delete stray vectors; put chunks without their vector back into the queue."""
    table = vectors.table_of(faults.generation)
    with store.transaction():
        store.execute_many(f"DELETE FROM {table} WHERE rowid = ?", [(ident,) for ident in faults.stray])
        store.execute_many(
            "UPDATE chunks SET vector_generation = 0 WHERE id = ?", [(ident,) for ident in faults.missing]
        )


def place_frame(store: Store, row: int, offset: int, length: int) -> None:
    """Record the new place of a ledger row's lines in the archive. In a transaction."""
    store.execute("UPDATE segments SET archive_offset = ?, archive_length = ? WHERE id = ?", (offset, length, row))


def restart(store: Store, transcript: int) -> None:
    """Reset a transcript to its first byte, as if its file had been replaced; uuids prevent duplicates."""
    store.execute(
        "UPDATE capture_state SET generation = generation + 1, offset = 0, tail_hash = x'' WHERE id = ?", (transcript,)
    )


def known_archives(store: Store) -> set[str]:
    """Return the archive files that the ledger names, relative to the LDM home."""
    return set(store.all(str, "SELECT archive FROM capture_state WHERE archive IS NOT NULL"))
