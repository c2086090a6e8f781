"""Store former versions of memories: one row for each former text, category and status."""

from __future__ import annotations

from collections.abc import Sequence

from crystal.model.recall import FormerMemory
from crystal.store.connection import GIVEN, Store

_FORMER = "h.text, h.category, h.status, h.from_at, h.until_at"


def history_of(store: Store, uid: str) -> list[FormerMemory]:
    """Return the former versions of a memory, latest first."""
    sql = f"SELECT {_FORMER} FROM memory_history h JOIN memories m ON m.id = h.memory WHERE m.uid = ?"
    return store.all(FormerMemory, f"{sql} ORDER BY h.id DESC", (uid,))


def all_history(store: Store) -> dict[str, list[FormerMemory]]:
    """Return the former versions of each memory, oldest first, by its id."""
    found: dict[str, list[FormerMemory]] = {}
    sql = f"SELECT m.uid, {_FORMER} FROM memory_history h JOIN memories m ON m.id = h.memory ORDER BY h.id"
    for uid, *former in store.rows(sql):
        found.setdefault(uid, []).append(FormerMemory(*former))
    return found


def former_in_rows(store: Store, rows: Sequence[int]) -> list[FormerMemory]:
    """Return the former versions in these rows, in the order of ``rows``."""
    sql = f"SELECT {_FORMER} FROM memory_history h WHERE h.id IN {GIVEN} ORDER BY h.id"
    return store.all(FormerMemory, sql, (rows,))
