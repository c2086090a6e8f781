"""Apply home's published objects to a device's mirror.db, and record the progress.

The file has the schema of every store, so that all code that reads a store can read it. Ids are home's. Each object
is applied in one transaction together with its position; applying it again changes nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from crystal.store.connection import GIVEN, Store
from crystal.store.driver import translated
from crystal.store.search import vectors
from crystal.store.search.space import delete_chunks, empty_log
from crystal.store.sync.mirror_content import KINDS, ObjectRows, Row, VectorSpace
from crystal.store.text_blocks import put_texts
from crystal.store.texts import text_hash

COPY_PAGES = 2_000


@dataclass(frozen=True, slots=True)
class MirrorProgress:
    """The progress of a mirror, which contains everything up to ``position``.

    ``published_at`` is the time of the newest complete manifest.
    """

    position: int = 0
    mark: bytes = b""
    published_at: int | None = None


def open_mirror(path: Path) -> Store:
    """Open a mirror for applying, or create it. Home checks the foreign keys, not this file."""
    store = Store.open(path)
    for backup in path.parent.glob(f"{path.name}.v*.backup"):  # forgotten content must not remain in it
        backup.unlink(missing_ok=True)
    store.execute("PRAGMA foreign_keys = 0")
    return store


def applied(store: Store) -> MirrorProgress:
    """Return the progress of a mirror."""
    return next(iter(store.select(MirrorProgress, "mirror_applied")), MirrorProgress())


def apply(store: Store, content: ObjectRows, since: MirrorProgress) -> bool:
    """Apply one object and record its position, in one transaction. Return False if another process was faster.

    Raises:
        StoreFullError, StoreBusyError: Nothing was changed; try again later.
    """
    with store.transaction():
        if applied(store).position != since.position:
            return False
        for kind, keys in content.gone.items():
            _delete(store, kind, keys)
        for kind in KINDS:
            if content.rows.get(kind):
                _PUT.get(kind, _put)(store, kind, content)
        store.execute(
            "INSERT INTO mirror_applied (id, position, mark) VALUES (1, ?1, ?2)"
            " ON CONFLICT DO UPDATE SET position = ?1, mark = ?2",
            (content.last, content.marks[-8:]),
        )
        return True


# --------------------------------------------------------------------------------------------------------- looking up


def sessions_there(mirror: Store, ids: Collection[int]) -> dict[int, Row]:
    """Return sessions in their transfer form, by id."""
    columns = ", ".join(KINDS["session"].columns)
    rows = mirror.rows(f"SELECT {columns} FROM sessions WHERE id IN {GIVEN}", (ids,))
    return {int(row[0]): row for row in rows}


def folders_there(mirror: Store) -> dict[int, str]:
    """Return folders of projects, by id."""
    return dict(mirror.rows("SELECT id, cwd FROM projects"))


def ids_there(mirror: Store, table: str, ids: Collection[int]) -> set[int]:
    """Return those of the ids that a table has."""
    assert table in ("turns", "memories")
    return set(mirror.all(int, f"SELECT id FROM {table} WHERE id IN {GIVEN}", (ids,)))


# ------------------------------------------------------------------------------------------------------------ rows


def _put(store: Store, kind: str, content: ObjectRows) -> None:
    columns = KINDS[kind].columns
    store.execute_many(
        f"INSERT OR REPLACE INTO {KINDS[kind].table} ({', '.join(columns)}) VALUES ({_marks(columns)})",
        content.rows[kind],
    )


def _put_texts(store: Store, kind: str, content: ObjectRows) -> None:
    """Insert chunks with their words; replace a chunk whose words have changed."""
    *columns, _ = KINDS[kind].columns
    rows = content.rows[kind]
    known = _texts(store, [row[0] for row in rows])
    delete_chunks(store, [row[0] for row in rows if known.get(row[0], row[-1]) != row[-1]])
    fresh = [row for row in rows if known.get(row[0]) != row[-1]]
    store.execute_many(
        f"INSERT INTO chunks ({', '.join(columns)}, body, text_sha256) VALUES ({_marks(columns)}, x'', ?)",
        ((*row[:-1], text_hash(row[-1])) for row in fresh),
    )
    put_texts(store, [(row[0], row[-1]) for row in fresh])
    _update(store, columns, [row[:-1] for row in rows if known.get(row[0]) == row[-1]])


def _put_origins(store: Store, kind: str, content: ObjectRows) -> None:
    """Update chunks whose words are unchanged."""
    _update(store, KINDS[kind].columns, content.rows[kind])


def _update(store: Store, columns: Sequence[str], rows: Sequence[Row]) -> None:
    sets = ", ".join(f"{column} = ?{at}" for at, column in enumerate(columns[1:], 2))
    store.execute_many(f"UPDATE chunks SET {sets} WHERE id = ?1", rows)


def _texts(store: Store, ids: Sequence[int]) -> dict[int, str]:
    return dict(store.rows(f"SELECT id, text FROM chunks WHERE id IN {GIVEN}", (ids,)))


def _put_vectors(store: Store, kind: str, content: ObjectRows) -> None:
    """Store vectors of existing chunks, and mark the chunks that the model refuses."""
    space = content.space
    assert space is not None
    generation = vectors.adopt_generation(store, space.id, space.provider, space.model, space.dimension)
    found = [(chunk, bytes.fromhex(vector)) for chunk, vector in content.rows[kind] if vector is not None]
    settle = "UPDATE chunks SET vector_generation = max(vector_generation, ?) WHERE id = ? RETURNING 1"
    there = [one for one in found if store.value(settle, (generation, one[0])) is not None]
    vectors.write_rounded(store, generation, there)
    store.execute_many(
        "UPDATE chunks SET vector_generation = ? WHERE id = ? AND vector_generation <= 0",
        [(-generation, chunk) for chunk, vector in content.rows[kind] if vector is None],
    )


_PUT: dict[str, Callable[[Store, str, ObjectRows], None]] = {
    "text": _put_texts,
    "chunk": _put_origins,
    "vector": _put_vectors,
}
"""Functions that apply rows of a kind that cannot simply be replaced."""


def _delete(store: Store, kind: str, keys: Sequence[Any]) -> None:
    if KINDS[kind].table == "chunks":
        delete_chunks(store, keys)
    else:
        table = KINDS[kind].table
        condition = KINDS[kind].condition.replace("t.", f"{table}.").replace("r.key", "?1")
        store.execute_many(f"DELETE FROM {table} WHERE {condition}", [(key,) for key in keys])


def _marks(columns: Sequence[str]) -> str:
    return ", ".join("?" * len(columns))


# ------------------------------------------------------------------------------------------------------------- end


def finish(store: Store, published_at: int, serving: VectorSpace | None) -> None:
    """Record that a manifest was applied completely; its model's vectors serve from now on, others are deleted."""
    known = {generation.id for generation in vectors.generations(store)}
    with store.transaction():
        if serving is not None and serving.id in known:
            vectors.serve(store, serving.id)
        store.execute(
            "INSERT INTO mirror_applied (id, position, mark, published_at) VALUES (1, 0, x'', ?1)"
            " ON CONFLICT DO UPDATE SET published_at = ?1",
            (published_at,),
        )
    if serving is not None and serving.id in known:
        for generation in known - {serving.id}:
            vectors.drop_generation(store, generation)
    empty_log(store)


def refresh(store: Store, published_at: int) -> None:
    """Record that nothing has changed at home since the last manifest."""
    store.execute("UPDATE mirror_applied SET published_at = ?", (published_at,))


def copy_over(source: Path, target: Path) -> None:
    """Copy ``source`` into ``target`` in one transaction: readers see the old content until it commits.

    A rename would put the new file beside the old file's log, which SQLite would use for the new file.
    """
    with translated(target), contextlib.closing(apsw.Connection(str(source))) as old, Store.open(target) as new:
        with new.db.backup("main", old, "main") as copy:
            while not copy.done:
                copy.step(COPY_PAGES)
        empty_log(new)
