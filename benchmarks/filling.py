"""A store filled by SQL, faster than capture could: to see what its size costs."""

from __future__ import annotations

import time
from pathlib import Path

import apsw
from words import Writer

from crystal.store import Store
from crystal.store.search import vectors
from crystal.store.text_blocks import put_texts
from crystal.store.texts import text_hash

BATCH = 50_000
SESSION = 200
FIRST_CHUNK = 10**7
ADD_SESSION = (
    "INSERT INTO sessions (id, session_id, agent, device, project, started_at, last_at, last_turn, summarized_turn,"
    " logged_turn) VALUES (?, ?, 'cc', 'desk', 1, ?, ?, ?, ?, ?)"
)
ADD_TURN = (
    "INSERT INTO turns (id, uuid, part, session, offset, role, ts, full_length)"
    " VALUES (?, ?, 0, ?, ?, 'assistant', ?, 300)"
)
ADD_CHUNK = (
    "INSERT INTO chunks (id, turn, start, body, text_sha256, source, role, session, project, agent, device, ts,"
    " vector_generation) VALUES (?, ?, 0, x'', ?, 'conversation', 'assistant', ?, 1, 'cc', 'desk', ?, ?)"
)


RARE = 50_000


def fill(path: Path, chunks: int, special: str = "") -> None:
    """Put so many chunks of about 300 characters into a store: a turn each, summarized, none of them waiting.

    ``special`` is said in one chunk of ``RARE``.
    """
    writer = Writer(9)
    with Store.open(path) as store:
        _fill(store, writer, chunks, special)


def _fill(store: Store, writer: Writer, chunks: int, special: str) -> None:
    db = store.db
    db.execute("PRAGMA synchronous = OFF; PRAGMA cache_size = -200000")
    now = int(time.time() * 1000)
    with store.transaction():
        generation = value(db, "SELECT coalesce((SELECT id FROM embedding_generations WHERE serving = 1), 1)")
        db.execute(
            "INSERT OR IGNORE INTO embedding_generations (id, provider, model, dimension, created_at, serving)"
            " VALUES (?, 'embedded', 'benchmark', 4, ?, 1)",
            (generation, now),
        )
        if not value(db, "SELECT count(*) FROM sqlite_schema WHERE name GLOB 'chunks_vec_[0-9]*'"):
            vectors.create_table(store, generation, 4)
        db.execute("INSERT OR IGNORE INTO projects (id, cwd, name) VALUES (1, '/home/dev/full', 'full')")
    turn = value(db, "SELECT coalesce(max(id), 0) + 1 FROM turns")
    session = value(db, "SELECT coalesce(max(id), 0) + 1 FROM sessions")
    for start in range(0, chunks, BATCH):
        said: list[tuple[int, str]] = []
        with store.transaction():
            for row in range(start, min(chunks, start + BATCH)):
                at, chunk, own = now - row, FIRST_CHUNK + turn + row, session + row // SESSION
                if row % SESSION == 0:
                    last = (turn + row + SESSION - 1,) * 3
                    db.execute(ADD_SESSION, (own, f"s{own}", at, at, *last))
                text = " ".join([*writer.words(50), *([special] if row % RARE == 0 else [])])
                db.execute(ADD_TURN, (turn + row, f"u{turn + row}", own, 300 * row, at))
                db.execute(ADD_CHUNK, (chunk, turn + row, text_hash(text), own, at, generation))
                said.append((chunk, text))
            put_texts(store, said)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def value(db: apsw.Connection, sql: str) -> int:
    return int(next(iter(db.execute(sql)))[0])
