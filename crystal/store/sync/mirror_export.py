"""Choose what home publishes next, and read its rows.

Deciding and reading are two steps. ``decide`` fixes, in one short transaction, which rows the next position covers.
``export`` reads their present content: immediately, after a crash, or much later when objects are merged. The latest
state of a row is always right, because every change of it is recorded and published again in a later position.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from crystal.store.connection import Store
from crystal.store.search.vectors import serving_generation, table_of
from crystal.store.sync.mirror import FORGOTTEN, Listed, Published, Random, home, space_of
from crystal.store.sync.mirror_content import KINDS, ObjectRows, Row, VectorSpace

RAW_BYTES = 6 << 20
"""Approximate bytes of one object before sealing; the rest follows in the next position."""

ROW_BYTES = 100
NOTES = 8_000
"""Maximum number of rows of one kind in a position."""

# -------------------------------------------------------------------------------------------------------- deciding


def decide(store: Store, random: Random, now: int, raw_bytes: int = RAW_BYTES) -> bool:
    """Decide what the next position covers, and record it. Return False if there is nothing to publish."""
    with store.transaction():
        at = home(store)
        if at is None:
            return False
        space = _follow_serving(store, at)
        position = at.position + 1
        if not _take_notes(store, position, raw_bytes, 0 if space is None else 2 * space.dimension):
            return False
        store.execute("UPDATE mirror_home SET position = ?", (position,))
        store.execute(
            "INSERT INTO mirror_objects (last, first, marks, made_at) VALUES (?1, ?1, ?2, ?3)",
            (position, random(8), now),
        )
        return True


def _follow_serving(store: Store, at: Published) -> VectorSpace | None:
    """Return the model whose vectors are sent; queue all its vectors if it began to serve since the last call."""
    serving = serving_generation(store)
    generation = 0 if serving is None else serving.id
    if generation != at.generation:
        store.execute("UPDATE mirror_home SET generation = ?, is_changed = 1", (generation,))
        store.execute("DELETE FROM mirror_rows WHERE kind = 'vector'")
        if generation:
            store.execute(
                "INSERT INTO mirror_rows SELECT 'vector', c.id, 0 FROM chunks c WHERE c.source <> 'file'"
                f" AND (c.vector_generation = ?1 OR c.id IN (SELECT rowid FROM {table_of(generation)}_rowids))"
                " AND NOT EXISTS (SELECT 1 FROM mirror_rows WHERE kind = 'text' AND key = +c.id AND position = 0)",
                (-generation,),
            )
    return space_of(store, generation)


def _take_notes(store: Store, position: int, budget: int, vector_bytes: int) -> bool:
    """Assign as many recorded changes to a position as fit. Return True if there were any."""
    is_any = False
    for name, kind in KINDS.items():
        extra = ROW_BYTES + (vector_bytes if name in ("text", "vector") else 0)
        rows = store.rows(
            f"SELECT r.key, t.{kind.columns[0]} IS NULL, coalesce({kind.size}, 0) FROM mirror_rows r"
            f" LEFT JOIN {kind.table} t ON {kind.condition} WHERE r.kind = ? AND r.position = 0 ORDER BY r.key LIMIT ?",
            (name, NOTES),
        )
        taken = []
        for key, is_gone, size in rows:
            if budget <= 0:
                break
            budget -= extra + size
            taken.append((name, key))
            if is_gone and kind.has_words:
                _mark_forgotten(store, name, key)
        store.execute_many("DELETE FROM mirror_rows WHERE kind = ? AND key = ? AND position = 0", taken)
        store.execute_many("INSERT INTO mirror_rows VALUES (?, ?, ?)", [(*one, position) for one in taken])
        is_any = is_any or bool(taken)
        if budget <= 0 or len(rows) == NOTES:  # a row of a later kind may refer to a row of this kind that is left
            break
    return is_any


def _mark_forgotten(store: Store, kind: str, key: object) -> None:
    """Mark objects that contain a deleted row's words, to be rebuilt without them."""
    store.execute(
        "UPDATE mirror_objects SET stale = ? WHERE sha256 IS NOT NULL AND last IN (SELECT (SELECT min(o.last) FROM"
        " mirror_objects o WHERE o.last >= r.position) FROM mirror_rows r WHERE (r.kind = ?2 OR (r.kind = 'vector' AND"
        " ?2 = 'text')) AND r.key = ?3 AND r.position > 0)",
        (FORGOTTEN, kind, key),
    )


# --------------------------------------------------------------------------------------------------------- reading


def export(store: Store, run: Sequence[Listed]) -> ObjectRows:
    """Read the present content of one object, or of several neighbours to be merged."""
    content = ObjectRows(run[0].first, b"".join(one.marks for one in run))
    with store.reading():
        for name, kind in KINDS.items():
            columns = ", ".join(f"t.{column}" for column in kind.columns)
            rows = _noted(store, run, f"r.key, {columns}", f"LEFT JOIN {kind.table} t ON {kind.condition}", (name,))
            found: list[Row] = [row[1:] for row in rows if row[1] is not None]
            if found and name != "vector":
                content.rows[name] = found
            if len(found) < len(rows):
                content.gone[name] = [row[0] for row in rows if row[1] is None]
        _export_vectors(store, run, content)
    return content


def _noted(store: Store, run: Sequence[Listed], columns: str, join: str, kinds: Sequence[str]) -> list[tuple[Any, ...]]:
    """Read the rows recorded in a range of positions, except those that a later object has."""
    marks = ", ".join("?" * len(kinds))
    return store.rows(
        f"SELECT {columns} FROM (SELECT DISTINCT kind, key FROM mirror_rows WHERE position BETWEEN ? AND ? AND kind IN"
        f" ({marks})) r {join} WHERE NOT EXISTS (SELECT 1 FROM mirror_rows n WHERE n.kind = r.kind AND n.key = r.key"
        " AND n.position > ?) ORDER BY r.key",
        (run[0].first, run[-1].last, *kinds, run[-1].last),
    )


def _export_vectors(store: Store, run: Sequence[Listed], content: ObjectRows) -> None:
    """Add the vectors of the serving model."""
    at = home(store)
    content.space = None if at is None else space_of(store, at.generation)
    if at is None or content.space is None:
        return
    stored = f"(SELECT hex(embedding) FROM {table_of(at.generation)} WHERE rowid = c.id)"
    columns, join = f"DISTINCT c.id, c.vector_generation, {stored}", "JOIN chunks c ON c.id = r.key"
    rows = _noted(store, run, columns, join, ("text", "vector"))
    found: list[Row] = [
        (chunk, vector) for chunk, state, vector in rows if vector is not None or state == -at.generation
    ]
    if found:
        content.rows["vector"] = found
