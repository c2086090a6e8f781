"""Stores to search in, made once and kept: crystal's own, the plain way's, the bare vectors.

Crystal's are written with its own store functions. They lie in a folder named after the schema, so that a newer schema
makes its own; the other two do not depend on it. ``texts-N`` holds a store without vectors that others are copied of.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import numpy as np
from search_text import BATCH, END, SESSION, Batch, Clusters, Memories

from crystal.model.capture import Chunk, Origin, Project, Turn
from crystal.search.index import bring_up_to_date
from crystal.store import Store
from crystal.store.capture import turns
from crystal.store.driver import sqlite_vec_library
from crystal.store.search import vectors
from crystal.store.upgrade import newest, steps

PROVIDER, MODEL = "benchmark", "clustered"
SEED = 7
VECTORS_AT_ONCE = 5_000


@dataclass(frozen=True)
class Place:
    """The files of one memory: so many chunks, vectors of so many numbers (0: those of the embedded model)."""

    folder: Path
    chunks: int
    dimension: int

    @property
    def name(self) -> str:
        return f"{self.chunks}x{self.dimension or 'embedded'}"

    @property
    def top(self) -> Path:
        return self.folder / self.name

    @property
    def crystal(self) -> Path:
        return self.top / schema_name() / "crystal.db"

    @property
    def plain(self) -> Path:
        return self.top / "plain.db"

    @property
    def bare(self) -> Path:
        return self.top / "vectors.f32"

    def matrix(self) -> np.ndarray:
        """The bare vectors, row i being chunk i + 1's."""
        return np.memmap(self.bare, np.float32, "r", shape=(self.chunks, self.dimension))


def schema_name() -> str:
    """A name for the present schema, another one when a migration changes."""
    return "crystal-" + hashlib.sha256(repr(steps()).encode()).hexdigest()[:8]


def ready(place: Place, *, plain: bool = True) -> Place:
    """Make what is missing, and say how long it took."""
    place.top.mkdir(parents=True, exist_ok=True)
    _made(place.crystal, lambda path: _crystal(place, path))
    seconds = make_ready(place.crystal)
    if seconds > 1:
        print(f"made the index of {place.name}: {seconds:.1f} s", flush=True)
    if place.dimension:
        _made(place.bare, lambda path: _bare(place, path))
        if plain:
            _made(place.plain, lambda path: _plain(place, path))
    return place


def drop_texts(folder: Path) -> None:
    """Delete the stores without vectors."""
    for path in folder.glob("texts-*"):
        shutil.rmtree(path)


def _made(path: Path, make: Callable[[Path], None]) -> None:
    """Make a file unless it was finished before; the note beside it is written last."""
    note = path.with_name(path.name + ".made.json")
    if note.exists() and path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    for old in path.parent.glob(path.name + "*"):
        old.unlink()
    start = time.perf_counter()
    make(path)
    seconds = round(time.perf_counter() - start, 1)
    note.write_text(json.dumps({"seconds": seconds, "bytes": path.stat().st_size}))
    print(f"made {path.parent.name}/{path.name}: {seconds} s, {path.stat().st_size / 1e6:,.0f} MB", flush=True)


# --------------------------------------------------------------------------------------------------------- crystal


def texts(folder: Path, chunks: int) -> Path:
    """The store of so many chunks without vectors."""
    path = folder / f"texts-{chunks}" / schema_name() / "crystal.db"
    _made(path, lambda made: write_texts(made, chunks))
    return path


def write_texts(path: Path, chunks: int) -> None:
    """Write a store's sessions, turns and chunks with crystal's own functions."""
    memories = Memories(SEED)
    with Store.open(path) as store, store.importing():
        store.db.execute("PRAGMA synchronous = OFF")
        for batch in memories.batches(chunks):
            with store.transaction():
                for at in range(len(batch.sessions)):
                    add_session(store, batch, at)
    _settled(path)


def add_session(store: Store, batch: Batch, at: int) -> None:
    """Write one session of a batch."""
    project = batch.projects[at]
    cwd = f"/home/dev/project-{project}"
    origin = Origin("cc-desk", "desk", batch.sessions[at])
    said = []
    for place in range(at * SESSION, min((at + 1) * SESSION, len(batch.texts))):
        number, text = batch.number * BATCH + place, batch.texts[place]
        turn = Turn(
            uuid=f"{number:032x}",
            part=0,
            role=batch.roles[place],  # type: ignore[arg-type]
            text=text,
            offset=2_000 * place,
            timestamp=batch.times[place],
            cwd=cwd,
            branch=batch.branches[place],
        )
        said.append((turn, None, [Chunk(0, text)]))
    known = Project(cwd, cwd, None, f"project-{project}")
    turns.add_turns(store, origin, said, {cwd: known}, None)


def _crystal(place: Place, path: Path) -> None:
    older = _older(place)
    if older is not None:  # a migration must lead to the same store, in seconds
        shutil.copyfile(older, path)
        Store.open(path).close()
        for backup in path.parent.glob("*.backup"):
            backup.unlink()
        _settled(path)
        return
    shutil.copyfile(texts(place.folder, place.chunks), path)
    with Store.open(path) as store, store.importing():
        store.db.execute("PRAGMA synchronous = OFF")
        if place.dimension:
            generation = vectors.ensure_generation(store, PROVIDER, MODEL, place.dimension, END)
            for found in _numbered(place):
                vectors.put_vectors(store, generation, found)
        else:
            embed_all(store)
    _settled(path)


def _older(place: Place) -> Path | None:
    """The same store as an older schema's, the newest of them."""
    found: list[tuple[int, Path]] = []
    for path in place.top.glob("crystal-*/crystal.db"):
        with path.open("rb") as file:
            version = int.from_bytes(file.read(64)[60:], "big")
        if path.with_name("crystal.db.made.json").exists() and version < newest():
            found.append((version, path))
    return max(found, default=(0, None))[1]


def embed_all(store: Store) -> None:
    """Give every chunk its vector of the embedded model."""
    from crystal.embedding.chosen_embedder import make_embedder
    from crystal.embedding.pending import embed_pending

    embed_pending(store, make_embedder("embedded"), now=END, budget_seconds=1e6)


def make_ready(path: Path) -> float:
    """Bring what is derived from a store for searching up to date; gives the seconds. The one place that does it."""
    start = time.perf_counter()
    with Store.open(path) as store:
        while bring_up_to_date(store, now=END, budget_seconds=3_600):
            pass
    return time.perf_counter() - start


def _numbered(place: Place) -> Iterator[list[tuple[int, bytes]]]:
    clusters = Clusters(SEED, place.dimension)
    for start in range(0, place.chunks, BATCH):
        batch = clusters.batch(start // BATCH, min(BATCH, place.chunks - start))
        for at in range(0, len(batch), VECTORS_AT_ONCE):
            some = batch[at : at + VECTORS_AT_ONCE]
            yield [(start + at + row + 1, vector.tobytes()) for row, vector in enumerate(some)]


def _settled(path: Path) -> None:
    """Fold the log into the file, so that the file is all there is."""
    with closing(apsw.Connection(str(path))) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


# --------------------------------------------------------------------------------------------------- the other ways


def _bare(place: Place, path: Path) -> None:
    clusters = Clusters(SEED, place.dimension)
    with path.open("wb") as file:
        for start in range(0, place.chunks, BATCH):
            file.write(clusters.batch(start // BATCH, min(BATCH, place.chunks - start)).tobytes())


def plain_connection(path: Path) -> apsw.Connection:
    """The plain way's database: sqlite-vec loaded, nothing tuned but the cache, which better-sqlite3 has larger too."""
    db = apsw.Connection(str(path))
    db.execute("PRAGMA cache_size = -16000")
    db.enable_load_extension(True)
    db.load_extension(sqlite_vec_library())
    db.enable_load_extension(False)
    return db


PLAIN_SCHEMA = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = OFF;
CREATE TABLE chunks (id INTEGER PRIMARY KEY, text TEXT NOT NULL, role TEXT, session TEXT, project TEXT, branch TEXT,
                     created_at INTEGER);
CREATE INDEX chunks_created ON chunks(created_at);
CREATE VIRTUAL TABLE chunks_fts USING fts5(text, content='chunks', content_rowid='id', tokenize='porter unicode61');
CREATE VIRTUAL TABLE chunks_vec USING vec0(chunk_id INTEGER PRIMARY KEY, embedding float[{dimension}]
                                           distance_metric=cosine);
"""


def _plain(place: Place, path: Path) -> None:
    with closing(plain_connection(path)) as db:
        list(db.execute(PLAIN_SCHEMA.format(dimension=place.dimension)))
        memories = Memories(SEED)
        for batch in memories.batches(place.chunks):
            first = batch.number * BATCH + 1
            with db:
                db.executemany("INSERT INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?)", _plain_rows(batch, first))
                last = first + len(batch.texts) - 1
                db.execute(
                    "INSERT INTO chunks_fts (rowid, text) SELECT id, text FROM chunks WHERE id BETWEEN ? AND ?",
                    (first, last),
                )
        for found in _numbered(place):
            with db:
                db.executemany("INSERT INTO chunks_vec (chunk_id, embedding) VALUES (?, ?)", found)
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _plain_rows(batch: Batch, first: int) -> Iterator[tuple[Any, ...]]:
    for at, text in enumerate(batch.texts):
        session = at // SESSION
        project = f"project-{batch.projects[session]}"
        yield (
            first + at,
            text,
            batch.roles[at],
            batch.sessions[session],
            project,
            batch.branches[at],
            batch.times[at],
        )
