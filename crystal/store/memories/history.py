"""Former versions of memories: one row for each former text, category and status."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from crystal.model.recall import FormerMemory, Remembered
from crystal.store.connection import Store

_COLUMNS = "h.text, h.category, h.status, h.from_at, h.until_at"


def history_of(store: Store, uid: str) -> list[FormerMemory]:
    """Return the former versions of a memory, latest first."""
    sql = f"SELECT {_COLUMNS} FROM memory_history h JOIN memories m ON m.id = h.memory WHERE m.uid = ?"
    rows = store.rows(f"{sql} ORDER BY h.id DESC", (uid,))
    return [FormerMemory(*row) for row in rows]


def all_history(store: Store) -> dict[str, list[FormerMemory]]:
    """Return the former versions of each memory, oldest first, by its id."""
    found: dict[str, list[FormerMemory]] = {}
    sql = f"SELECT m.uid, {_COLUMNS} FROM memory_history h JOIN memories m ON m.id = h.memory ORDER BY h.id"
    for uid, *former in store.rows(sql):
        found.setdefault(uid, []).append(FormerMemory(*former))
    return found


def former_in_rows(store: Store, rows: Sequence[int]) -> list[FormerMemory]:
    """Return the former versions in these rows, in their order."""
    sql = f"SELECT {_COLUMNS} FROM memory_history h WHERE h.id IN (SELECT value FROM json_each(?)) ORDER BY h.id"
    return [FormerMemory(*row) for row in store.rows(sql, (json.dumps(list(rows)),))]


def note_history(store: Store, row: int, old: Remembered, new: Remembered) -> None:
    """Keep the former version of a memory if its text, category or status has changed. Inside a transaction."""
    if (old.text, old.category, old.status) == (new.text, new.category, new.status):
        return
    ident = store.value(
        "INSERT INTO memory_history (memory, text, category, status, from_at, until_at) VALUES (?1, ?2, ?3, ?4,"
        " coalesce((SELECT max(until_at) FROM memory_history WHERE memory = ?1), ?5), ?6) RETURNING id",
        (row, old.text, old.category, old.status, old.created_at, new.updated_at),
    )
    store.changed_memories.setdefault(old.id, []).append(int(ident))


def replace_history(store: Store, row: int, former: Iterable[FormerMemory]) -> None:
    """Replace the history of a memory by this one, oldest first. Inside a transaction."""
    store.execute("DELETE FROM memory_history WHERE memory = ?", (row,))
    store.execute_many(
        "INSERT INTO memory_history (memory, text, category, status, from_at, until_at) VALUES (?, ?, ?, ?, ?, ?)",
        [(row, one.text, one.category, one.status, one.from_at, one.until_at) for one in former],
    )
