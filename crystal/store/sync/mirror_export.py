"""What the home machine publishes next, and the rows of what it has decided to publish.

Deciding and reading are two steps. ``decide`` fixes, in one short transaction, which rows the next position covers;
``export`` reads their present content, at once, after a crash, or much later when objects are merged: the latest state
of a row is always right, because every change of it is noted and published again in a later position.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from crystal.store.connection import Store
from crystal.store.search.vectors import serving_generation, table_of, vector_of
from crystal.store.sync.mirror import FORGOTTEN, Home, Listed, Random, home, space_of
from crystal.store.sync.mirror_content import COLUMNS, KINDS, Content, Document

RAW_BYTES = 6 << 20
"""Approximate bytes of one object before sealing; what does not fit comes with the next position."""

ROW_BYTES, TURN_BYTES, CHUNK_BYTES = 100, 240, 120
NOTES, CHUNKS, TURNS, WAITING = 4_000, 8_000, 8_000, 4_000
WIDE_DIMENSION = 512
"""Vectors of more numbers are sent as half floats."""

ReadDocument = Callable[[str], bytes | None]

_SIZES = {
    "project": "SELECT octet_length(cwd) + coalesce(octet_length(git_root), 0) FROM projects WHERE id = ?",
    "session": "SELECT 200 + coalesce(octet_length(title), 0) * 2 FROM sessions WHERE id = ?",
    "memory": "SELECT octet_length(text) + coalesce(octet_length(key), 0) FROM memories WHERE id = ?",
    "private": "SELECT octet_length(?)",
    "turn": "SELECT 250 FROM turns WHERE id = ?",
    "text": "SELECT 100 + octet_length(text) FROM chunks WHERE id = ?",
    "chunk": "SELECT 100 FROM chunks WHERE id = ?",
    "copy": "SELECT octet_length(?)",
    "document": "SELECT size FROM mirror_files WHERE name = ?",
}

# -------------------------------------------------------------------------------------------------------- deciding


@dataclass(slots=True)
class _Step:
    """A position that is being decided."""

    position: int
    budget: int
    notes: list[tuple[str, Any]] = field(default_factory=list)
    chunks_upto: int = 0
    turns_upto: int = 0
    vectors: list[tuple[int, int]] = field(default_factory=list)


def decide(store: Store, random: Random, now: int, raw_bytes: int = RAW_BYTES) -> bool:
    """Decide what the next position covers, and record it. False if there is nothing to publish."""
    with store.transaction():
        at = home(store)
        if at is None:
            return False
        at = _follow_serving(store, at)
        step = _Step(at.position + 1, raw_bytes, chunks_upto=at.chunks_upto, turns_upto=at.turns_upto)
        _take_notes(store, at, step)
        _take_chunks(store, at, step)
        vectors_upto = _take_vectors(store, at, step)
        is_nothing = not step.notes and (step.chunks_upto, step.turns_upto) == (at.chunks_upto, at.turns_upto)
        if is_nothing and not step.vectors and vectors_upto == at.vectors_upto:
            return False
        store.execute(
            "UPDATE mirror_home SET position = ?, chunks_upto = ?, turns_upto = ?, vectors_upto = ?",
            (step.position, step.chunks_upto, step.turns_upto, vectors_upto),
        )
        store.execute(
            "INSERT INTO mirror_objects (last, first, marks, made_at, chunks_after, chunks_upto, turns_after,"
            " turns_upto, generation, vectors) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                step.position, step.position, random(8), now, at.chunks_upto, step.chunks_upto, at.turns_upto,
                step.turns_upto, at.generation, json.dumps(step.vectors),
            ),
        )  # fmt: skip
        return True


def _follow_serving(store: Store, at: Home) -> Home:
    """Queue all vectors again if another model serves now."""
    serving = serving_generation(store)
    generation = 0 if serving is None else serving.id
    if generation != at.generation:
        store.execute("UPDATE mirror_home SET generation = ?, vectors_upto = 0, is_changed = 1", (generation,))
        store.execute("DELETE FROM mirror_waiting")
        found = home(store)
        assert found is not None
        return found
    return at


def _take_notes(store: Store, at: Home, step: _Step) -> None:
    for kind in KINDS:
        keys = store.rows("SELECT key FROM mirror_rows WHERE position = 0 AND kind = ? LIMIT ?", (kind, NOTES))
        for (key,) in keys:
            if step.budget <= 0:
                return
            size = store.value(_SIZES[kind], (key,))
            store.execute("DELETE FROM mirror_rows WHERE kind = ? AND key = ? AND position = 0", (kind, key))
            if _is_unpublished(at, kind, key):
                continue  # the later range that contains it carries its state at that time
            step.budget -= ROW_BYTES + (size or 0)
            step.notes.append((kind, key))
            if size is None:
                _mark_forgotten(store, kind, key)
            store.execute("INSERT INTO mirror_rows VALUES (?, ?, ?)", (kind, key, step.position))


def _is_unpublished(at: Home, kind: str, key: Any) -> bool:
    return (kind in ("chunk", "text") and key > at.chunks_upto) or (kind == "turn" and key > at.turns_upto)


def _mark_forgotten(store: Store, kind: str, key: Any) -> None:
    """Mark objects that hold words of a deleted row to be built again without them."""
    kinds = {"session": ["session"], "memory": ["memory"], "document": ["document"], "chunk": ["chunk", "text"]}
    places = "SELECT position FROM mirror_rows WHERE kind = ? AND key = ? AND position > 0"
    for one in kinds.get(kind, ()):
        for (position,) in store.rows(places, (one, key)):
            store.execute(
                "UPDATE mirror_objects SET stale = ? WHERE sha256 IS NOT NULL AND last ="
                " (SELECT last FROM mirror_objects WHERE last >= ? ORDER BY last LIMIT 1)",
                (FORGOTTEN, position),
            )
    if kind == "chunk":
        store.execute(
            "UPDATE mirror_objects SET stale = ? WHERE sha256 IS NOT NULL AND chunks_after < ? AND chunks_upto >= ?",
            (FORGOTTEN, key, key),
        )


def _take_chunks(store: Store, at: Home, step: _Step) -> None:
    """Take new chunks with their turns, in the order of their ids, as many as fit."""
    if step.budget <= 0:
        return
    in_step = at.vectors_upto == at.chunks_upto
    vector_bytes = _vector_bytes(store, at.generation) if in_step else 0
    rows = store.rows(
        "SELECT id, turn, octet_length(text) FROM chunks WHERE id > ? ORDER BY id LIMIT ?", (at.chunks_upto, CHUNKS)
    )
    taken = 0
    for ident, turn, length in rows:
        turns = max(0, (turn or 0) - step.turns_upto)
        if taken and (step.budget <= 0 or step.turns_upto + turns > at.turns_upto + TURNS):
            return
        step.chunks_upto, step.turns_upto, taken = ident, step.turns_upto + turns, taken + 1
        step.budget -= CHUNK_BYTES + length + vector_bytes + turns * TURN_BYTES
    if len(rows) < CHUNKS and step.budget > 0:  # all of them: later turns have no chunk
        newest = store.value("SELECT max(id) FROM turns WHERE id <= ?", (at.turns_upto + TURNS,)) or 0
        if newest > step.turns_upto:
            step.budget -= (newest - step.turns_upto) * TURN_BYTES
            step.turns_upto = newest
        elif (further := store.value("SELECT min(id) FROM turns WHERE id > ?", (step.turns_upto,))) is not None:
            step.turns_upto = further


def _vector_bytes(store: Store, generation: int) -> int:
    space = space_of(store, generation)
    return 0 if space is None else space.dimension * (2 if space.dimension > WIDE_DIMENSION else 4)


def _take_vectors(store: Store, at: Home, step: _Step) -> int:
    """Take the vectors of the chunks that have been published, and remember the chunks that have none yet."""
    each = _vector_bytes(store, at.generation)
    if not each:
        return at.vectors_upto
    table = _rowids(at.generation)
    waited = store.rows(
        f"SELECT w.chunk FROM mirror_waiting w LEFT JOIN chunks c ON c.id = w.chunk LEFT JOIN {table} r"
        " ON r.rowid = w.chunk WHERE c.id IS NULL OR r.rowid IS NOT NULL OR c.vector_generation = ? LIMIT ?",
        (-at.generation, WAITING),
    )
    for (chunk,) in waited:
        if step.budget <= 0:
            return at.vectors_upto
        store.execute("DELETE FROM mirror_waiting WHERE chunk = ?", (chunk,))
        _extend(step.vectors, chunk)
        step.budget -= each + 10
    in_step = at.vectors_upto == at.chunks_upto  # then the chunks' budget had space for their vectors
    rows = store.rows(
        f"SELECT c.id, r.rowid IS NULL AND c.vector_generation IS NOT ? FROM chunks c LEFT JOIN {table} r"
        " ON r.rowid = c.id WHERE c.id > ? AND c.id <= ? ORDER BY c.id LIMIT ?",
        (-at.generation, at.vectors_upto, step.chunks_upto, CHUNKS),
    )
    upto = at.vectors_upto
    for chunk, waits in rows:
        if step.budget <= 0 and not in_step:
            return upto
        upto = chunk
        if waits:
            store.execute("INSERT OR IGNORE INTO mirror_waiting (chunk) VALUES (?)", (chunk,))
        else:
            _extend(step.vectors, chunk)
            step.budget -= 0 if in_step else each + 10
    return upto if len(rows) == CHUNKS else step.chunks_upto


def _extend(ranges: list[tuple[int, int]], chunk: int) -> None:
    """Add an id to ranges that grow at their end."""
    if ranges and ranges[-1][1] == chunk - 1:
        ranges[-1] = (ranges[-1][0], chunk)
    else:
        ranges.append((chunk, chunk))


def _rowids(generation: int) -> str:
    return f"{table_of(generation)}_rowids"


def note_document(store: Store, name: str, size: int, mtime_ns: int, sha256: bytes, *, is_other: bool) -> None:
    """Note the state of a file, and that it is to be published if its content changed. Inside a transaction."""
    store.execute("INSERT OR REPLACE INTO mirror_files VALUES (?, ?, ?, ?)", (name, size, mtime_ns, sha256))
    if is_other:
        store.execute("INSERT OR IGNORE INTO mirror_rows VALUES ('document', ?, 0)", (name,))


def note_document_gone(store: Store, name: str) -> None:
    """Note that a file does not exist any more. Inside a transaction."""
    store.execute("DELETE FROM mirror_files WHERE name = ?", (name,))
    store.execute("INSERT OR IGNORE INTO mirror_rows VALUES ('document', ?, 0)", (name,))


def documents_seen(store: Store) -> dict[str, tuple[int, int, bytes]]:
    """Return the files that were published, or wait to be: size, modification time, hash."""
    rows = store.rows("SELECT name, size, mtime_ns, sha256 FROM mirror_files")
    return {name: (size, mtime, bytes(sha)) for name, size, mtime, sha in rows}


# --------------------------------------------------------------------------------------------------------- reading


def export(store: Store, run: Sequence[Listed], read_document: ReadDocument) -> Content:
    """Read the present content of a range of positions.

    Args:
        store: The store.
        run: Neighbours of the list, in order: one, or several that are to be merged.
        read_document: Returns a file by its name, None if it is gone.
    """
    content = Content(run[0].first, b"".join(one.marks for one in run))
    with store.reading():
        _export_notes(store, run, content, read_document)
        bounds = (run[0].turns_after, run[-1].turns_upto)
        content.rows["turns"] = [
            *_select(store, "turns", "id > ? AND id <= ? ORDER BY id", bounds),
            *content.rows.get("turns", ()),
        ]
        bounds = (run[0].chunks_after, run[-1].chunks_upto)
        _add_chunks(store, content, "id > ? AND id <= ? ORDER BY id", bounds)
        _export_vectors(store, run, content)
    content.rows = {table: rows for table, rows in content.rows.items() if rows}
    return content


def union(run: Sequence[Listed], level: int) -> Listed:
    """Return what a range of the list covers together."""
    newest = run[-1].generation
    ranges = sorted({one for each in run if each.generation == newest for one in each.vectors})
    joined: list[tuple[int, int]] = []
    for low, high in ranges:
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
        else:
            joined.append((low, high))
    return Listed(
        run[-1].last, run[0].first, b"".join(one.marks for one in run), 0, None, 0, 0, level, 0, 0,
        run[0].chunks_after, run[-1].chunks_upto, run[0].turns_after, run[-1].turns_upto, newest, tuple(joined), 0,
    )  # fmt: skip


def _export_notes(store: Store, run: Sequence[Listed], content: Content, read_document: ReadDocument) -> None:
    first, last = run[0].first, run[-1].last
    noted: dict[str, list[Any]] = {}
    for kind, key in store.rows(
        "SELECT DISTINCT kind, key FROM mirror_rows r WHERE position BETWEEN ?1 AND ?2 AND NOT EXISTS"
        " (SELECT 1 FROM mirror_rows n WHERE n.kind = r.kind AND n.key = r.key AND n.position > ?2)",
        (first, last),
    ):
        noted.setdefault(kind, []).append(key)
    for kind, keys in noted.items():
        if kind == "document":
            _add_documents(content, keys, read_document)
        elif kind == "text":
            inside = (run[0].chunks_after, run[-1].chunks_upto)
            _add_chunks(store, content, "id = ?", *((key,) for key in keys if not inside[0] < key <= inside[1]))
        else:
            _add_rows(store, run, content, kind, keys)


def _add_rows(store: Store, run: Sequence[Listed], content: Content, kind: str, keys: list[Any]) -> None:
    table = KINDS[kind]
    where = "session = ? AND turn = ?" if kind == "copy" else "uuid = ?" if kind == "private" else "id = ?"
    for key in keys:
        found = _select(store, table, where, key.split(":") if kind == "copy" else (key,))
        if not found:
            content.gone.setdefault(kind, []).append(key)
        elif not _is_in_range(run, kind, key):
            content.rows.setdefault(table, []).extend(found)


def _is_in_range(run: Sequence[Listed], kind: str, key: Any) -> bool:
    if kind == "turn":
        return bool(run[0].turns_after < key <= run[-1].turns_upto)
    return kind == "chunk" and bool(run[0].chunks_after < key <= run[-1].chunks_upto)


def _add_documents(content: Content, names: Iterable[str], read_document: ReadDocument) -> None:
    for name in names:
        data = read_document(name)
        if data is None:
            content.gone.setdefault("document", []).append(name)
        else:
            agent, _, path = name.partition("/")
            content.documents.append(Document(agent, path, data))


def _add_chunks(store: Store, content: Content, where: str, *values: Sequence[Any]) -> None:
    columns = ", ".join(COLUMNS["chunks"])
    for one in values:
        for *row, text in store.rows(f"SELECT {columns}, text FROM chunks WHERE {where}", one):
            content.rows.setdefault("chunks", []).append(row)
            content.texts.append(text)


def _export_vectors(store: Store, run: Sequence[Listed], content: Content) -> None:
    at = home(store)
    covered = union(run, 0)
    content.space = None if at is None else space_of(store, at.generation)
    if at is None or content.space is None or covered.generation != at.generation:
        return  # of a model that does not serve any more; those of the serving one come in a later position
    table = table_of(at.generation)
    for low, high in covered.vectors:
        for (ident,) in store.rows(f"SELECT rowid FROM {table}_rowids WHERE rowid BETWEEN ? AND ?", (low, high)):
            vector = vector_of(store, at.generation, ident)
            if vector is not None:
                content.vectors.append((ident, vector))
        refused = "SELECT id FROM chunks WHERE id BETWEEN ? AND ? AND vector_generation = ?"
        content.refused += [ident for (ident,) in store.rows(refused, (low, high, -at.generation))]


def _select(store: Store, table: str, where: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
    name = "chunks" if table == "chunk_origins" else table
    return store.rows(f"SELECT {', '.join(COLUMNS[table])} FROM {name} WHERE {where}", values)
