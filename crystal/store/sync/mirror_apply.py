"""A device's mirror.db: applying what home published, and the progress of that.

The file has the schema of every store, so that everything that reads a store reads it too. Ids are home's. Each object
is applied in one transaction together with its place in the list; applying one again changes nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import apsw

from crystal.store.connection import Store, translated
from crystal.store.notes import read_note, write_note
from crystal.store.search import vectors
from crystal.store.search.space import delete_chunks, empty_log
from crystal.store.sync.mirror import count_rows
from crystal.store.sync.mirror_content import COLUMNS, KINDS, Content, Row, VectorSpace
from crystal.store.texts import packed

COPY_PAGES = 2_000
_LEFT_OUT = "left_out"


@dataclass(frozen=True, slots=True)
class Applied:
    """The progress of a mirror: everything up to ``position`` is in it; the rest is of the newest complete manifest."""

    position: int = 0
    mark: bytes = b""
    epoch: bytes | None = None
    version: int | None = None
    published_at: int | None = None
    counts: Mapping[str, int] | None = None


def open_mirror(path: Path) -> Store:
    """Open a mirror for applying; create it if there is none. Home checks the foreign keys, not this file."""
    store = Store.open(path)
    for backup in path.parent.glob(f"{path.name}.v*.backup"):  # forgotten content must not remain in it
        backup.unlink(missing_ok=True)
    store.execute("PRAGMA foreign_keys = 0")
    return store


def applied(store: Store) -> Applied:
    """Return the progress of a mirror."""
    row = store.row("SELECT position, mark, epoch, version, published_at, counts FROM mirror_applied")
    if row is None:
        return Applied()
    found = Applied(*row)
    return replace(found, counts=None if row[5] is None else json.loads(row[5]))


def apply(store: Store, content: Content, since: Applied, dropped: Mapping[str, int] | None = None) -> bool:
    """Apply one object and note its place, in one transaction. False if another process was faster.

    ``dropped`` says how many rows of each table were left out of it; it is stored.

    Raises:
        StoreFull, StoreBusy: Nothing happened; try again later.
    """
    with store.transaction():
        if applied(store).position != since.position:
            return False
        for kind, keys in content.gone.items():
            _delete(store, kind, keys)
        for table, rows in content.rows.items():
            if table == "chunks":
                _put_chunks(store, rows, content.texts)
            elif table == "chunk_origins":
                _put_origins(store, rows)
            else:
                _put(store, table, rows)
        store.execute_many(
            "INSERT OR REPLACE INTO documents (agent, path, content) VALUES (?, ?, ?)",
            [(one.agent, one.path, one.content) for one in content.documents],
        )
        if content.space is not None and (content.vectors or content.refused):
            _put_vectors(store, content.space, content.vectors, content.refused)
        store.execute(
            "INSERT INTO mirror_applied (id, position, mark) VALUES (1, ?1, ?2)"
            " ON CONFLICT DO UPDATE SET position = ?1, mark = ?2",
            (content.last, content.marks[-8:]),
        )
        if dropped and any(dropped.values()):
            before = left_out(store)
            total = {table: before.get(table, 0) + count for table, count in dropped.items()}
            write_note(store, _LEFT_OUT, json.dumps(total))
        return True


def left_out(store: Store) -> dict[str, int]:
    """Return how many rows of each table were left out of all objects so far, at most."""
    return dict(json.loads(read_note(store, _LEFT_OUT) or "{}"))


# ------------------------------------------------------------------------------------------------------------ rows


def _put(store: Store, table: str, rows: Sequence[Row]) -> None:
    columns = COLUMNS[table]
    store.execute_many(
        f"INSERT OR REPLACE INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})", rows
    )


def _put_origins(store: Store, rows: Sequence[Row]) -> None:
    columns = COLUMNS["chunk_origins"]
    sets = ", ".join(f"{column} = ?{at}" for at, column in enumerate(columns[1:], 2))
    store.execute_many(f"UPDATE chunks SET {sets} WHERE id = ?1", rows)


def _put_chunks(store: Store, rows: Sequence[Row], texts: Sequence[str]) -> None:
    """Insert chunks with their words; replace the words of an existing chunk if they differ."""
    columns = COLUMNS["chunks"]
    known = _texts(store, [row[0] for row in rows])
    fresh = [(row, text) for row, text in zip(rows, texts, strict=True) if row[0] not in known]
    store.execute_many(
        f"INSERT INTO chunks ({', '.join(columns)}, body, text_sha256) VALUES ({', '.join('?' * len(columns))}, ?, ?)",
        ((*row, packed(text), hashlib.sha256(text.encode()).digest()) for row, text in fresh),
    )
    store.execute_many("INSERT INTO chunks_fts (rowid, text) VALUES (?, ?)", ((row[0], text) for row, text in fresh))
    sets = ", ".join(f"{column} = ?{at}" for at, column in enumerate(columns[1:], 2))
    for row, text in zip(rows, texts, strict=True):
        if row[0] in known:
            if known[row[0]] != text:
                _replace_words(store, row[0], known[row[0]], text)
            store.execute(f"UPDATE chunks SET {sets} WHERE id = ?1", row)


def _texts(store: Store, ids: Sequence[int]) -> dict[int, str]:
    newest = store.value("SELECT max(id) FROM chunks") or 0
    found: dict[int, str] = {}
    for ident in ids:
        if ident <= newest and (text := store.value("SELECT text FROM chunks WHERE id = ?", (ident,))) is not None:
            found[ident] = text
    return found


def _replace_words(store: Store, ident: int, old: str, text: str) -> None:
    _unindex(store, ident, old)
    sha = hashlib.sha256(text.encode()).digest()
    store.execute("UPDATE chunks SET body = ?, text_sha256 = ? WHERE id = ?", (packed(text), sha, ident))
    store.execute("INSERT INTO chunks_fts (rowid, text) VALUES (?, ?)", (ident, text))


def _unindex(store: Store, ident: int, text: str) -> None:
    store.execute("INSERT INTO chunks_fts (chunks_fts, rowid, text) VALUES ('delete', ?, ?)", (ident, text))


def _delete(store: Store, kind: str, keys: Sequence[Any]) -> None:
    if kind in ("chunk", "text"):
        delete_chunks(store, keys)
    elif kind == "document":
        store.execute_many("DELETE FROM documents WHERE agent || '/' || path = ?", [(key,) for key in keys])
    elif kind == "copy":
        store.execute_many(
            "DELETE FROM turn_copies WHERE session = ? AND turn = ?", [tuple(key.split(":", 1)) for key in keys]
        )
    elif kind == "private":
        store.execute_many("DELETE FROM private_lines WHERE uuid = ?", [(key,) for key in keys])
    else:
        store.execute_many(f"DELETE FROM {KINDS[kind]} WHERE id = ?", [(key,) for key in keys])


# --------------------------------------------------------------------------------------------------------- vectors


def _put_vectors(store: Store, space: VectorSpace, found: Sequence[tuple[int, bytes]], refused: Sequence[int]) -> None:
    generation = vectors.adopt_generation(store, space.id, space.provider, space.model, space.dimension)
    settle = "UPDATE chunks SET vector_generation = max(vector_generation, ?) WHERE id = ? RETURNING 1"
    there = [one for one in found if store.value(settle, (generation, one[0])) is not None]
    vectors.write_vectors(store, generation, there)
    store.execute_many(
        "UPDATE chunks SET vector_generation = ? WHERE id = ? AND vector_generation <= 0",
        [(-generation, ident) for ident in refused],
    )


# ------------------------------------------------------------------------------------------------------------- end


def finish(store: Store, epoch: bytes, version: int, published_at: int, serving: VectorSpace | None) -> None:
    """Note that a manifest was applied completely; its model's vectors serve from now on, others are deleted."""
    known = {generation.id for generation in vectors.generations(store)}
    with store.transaction():
        if serving is not None and serving.id in known:
            vectors.serve(store, serving.id)
        store.execute(
            "INSERT INTO mirror_applied (id, position, mark, epoch, version, published_at, counts)"
            " VALUES (1, 0, x'', ?1, ?2, ?3, ?4) ON CONFLICT DO UPDATE SET epoch = ?1, version = ?2, published_at = ?3,"
            " counts = ?4",
            (epoch, version, published_at, json.dumps(count_rows(store))),
        )
    if serving is not None and serving.id in known:
        for generation in known - {serving.id}:
            vectors.drop_generation(store, generation)
    empty_log(store)


def refresh(store: Store, epoch: bytes, version: int, published_at: int) -> None:
    """Note that nothing has changed at home since."""
    store.execute("UPDATE mirror_applied SET epoch = ?, version = ?, published_at = ?", (epoch, version, published_at))


def copy_over(source: Path, target: Path) -> None:
    """Copy the content of ``source`` into ``target`` in one transaction: readers keep the old state until it commits.

    A rename would put the new file beside the old file's log, which SQLite would take for the new one's.
    """
    with translated(target), contextlib.closing(apsw.Connection(str(source))) as old, Store.open(target) as new:
        with new.db.backup("main", old, "main") as copy:
            while not copy.done:
                copy.step(COPY_PAGES)
        empty_log(new)
