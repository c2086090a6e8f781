"""Store the vectors of chunks in generations: one vec0 table for each (provider, model, dimension).

One generation serves searches. A newer one fills beside it and begins to serve, in one transaction, when no chunk
waits for it; the very first serves from the start. ``chunks.vector_generation`` is the queue: 0 for a chunk without a
vector, else the newest generation that has its vector; ``-n`` if the provider of generation n refuses the text, which
then waits no longer. Functions take and return little-endian float32 vectors of length 1; they are stored as signed
bytes (see ``crystal.store.vector_bytes``), which keep their direction.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from crystal.model.named_tuple import NamedTuple
from crystal.store.connection import Store
from crystal.store.vector_bytes import cosines, rounded

MAX_NEIGHBOURS = 4096
"""The largest k that sqlite-vec accepts."""

MORE = 32
"""Candidates beyond twice the requested number that are compared exactly, because the query is rounded, too."""

SLICE = 5000
"""Vectors deleted in one transaction: about 0.1 seconds."""

# The plus keeps SQLite from scanning all chunks of the generation instead of the few with this text.
SAME_TEXT = "SELECT id FROM chunks WHERE text_sha256 = ? AND +vector_generation = ? LIMIT 1"


class Generation(NamedTuple):
    """A set of vectors of one model, each with ``dimension`` numbers; ``serving`` if searches use them."""

    id: int
    provider: str
    model: str
    dimension: int
    serving: bool


# ----------------------------------------------------------------------------------------------------- generations


_MADE = "id, provider, model, dimension, created_at"
_GENERATIONS = "SELECT id, provider, model, dimension, serving FROM embedding_generations"


def generations(store: Store) -> list[Generation]:
    """Return every generation, oldest first."""
    return store.all(_generation, f"{_GENERATIONS} ORDER BY id")


def serving_generation(store: Store) -> Generation | None:
    """Return the generation that searches use, or None before the first one."""
    return store.find(_generation, f"{_GENERATIONS} WHERE serving = 1")


def find_generation(store: Store, provider: str, model: str, dimension: int) -> Generation | None:
    """Return the generation of a model, or None."""
    where = "WHERE provider = ? AND model = ? AND dimension = ?"
    return store.find(_generation, f"{_GENERATIONS} {where}", (provider, model, dimension))


def ensure_generation(store: Store, provider: str, model: str, dimension: int, now: int) -> int:
    """Find or create the generation of a model, and return its id.

    Other generations that do not serve are dropped, because only the requested model is still wanted. A former serving
    generation is dropped even for the requested model: it lacks the chunks added since.
    """
    found = find_generation(store, provider, model, dimension)
    if found is not None and (found.serving or found == generations(store)[-1]):
        idle = [other for other in generations(store) if not other.serving and other != found]
        if not idle:
            return found.id
    with store.transaction():
        serving = serving_generation(store)
        for other in generations(store):
            is_asked_for = (other.provider, other.model, other.dimension) == (provider, model, dimension)
            is_newer = serving is not None and other.id > serving.id
            if not other.serving and not (is_asked_for and is_newer):
                _drop(store, other.id)
        found = find_generation(store, provider, model, dimension)
        return (found or _make(store, provider, model, dimension, now)).id


def promote(store: Store, generation: int) -> bool:
    """Make a generation serve if no chunk waits for it; the others are then dropped.

    Returns:
        True if it serves now, also if it did before.
    """
    serving = serving_generation(store)
    if serving is None or serving.id != generation:
        with store.transaction():
            if not exists(store, generation) or pending_chunks(store, generation, 1):
                return False
            serve(store, generation)
    for other in generations(store):  # one transaction for each; a killed process leaves the rest to the next call
        if other.id < generation:
            drop_generation(store, other.id)
    return True


def drop_generation(store: Store, generation: int) -> None:
    """Delete a generation and its vectors; chunks that only it had wait again. Dropping it twice does nothing.

    The vectors of a former serving generation are deleted in many short transactions, so that other writers do not wait
    long.
    """
    serving = serving_generation(store)
    while serving is not None and generation < serving.id and exists(store, generation):
        with store.transaction():
            rows = store.rows(f"SELECT rowid FROM {table_of(generation)}_rowids LIMIT ?", (SLICE,))
            store.execute_many(f"DELETE FROM {table_of(generation)} WHERE rowid = ?", rows)
        if len(rows) < SLICE:
            break
    with store.transaction():
        if exists(store, generation):
            _drop(store, generation)


def _generation(ident: int, provider: str, model: str, dimension: int, serving: int) -> Generation:
    return Generation(ident, provider, model, dimension, bool(serving))


def _make(store: Store, provider: str, model: str, dimension: int, now: int) -> Generation:
    newest = store.value("SELECT max(id) FROM embedding_generations") or 0
    # A number that chunks still have must not be reused for another model.
    marked = store.value("SELECT max(vector_generation) FROM chunks") or 0
    ident = max(newest, marked) + 1
    for older in generations(store):
        name, state = _queue_of(older.id), _is_in(older.id)
        store.execute(f"CREATE INDEX IF NOT EXISTS {name} ON chunks(ts) WHERE {state}")
    store.insert("embedding_generations", _MADE, ident, provider, model, dimension, now)
    create_table(store, ident, dimension)
    ask_again(store)  # what one provider refused, another may accept
    first = serving_generation(store) is None
    if first:
        serve(store, ident)
    return Generation(ident, provider, model, dimension, first)


def serve(store: Store, generation: int) -> None:
    """Make a generation serve even if chunks wait for it. Inside a transaction."""
    store.execute("UPDATE embedding_generations SET serving = (id = ?1) WHERE serving <> (id = ?1)", (generation,))


def _drop(store: Store, generation: int) -> None:
    store.execute("DELETE FROM embedding_generations WHERE id = ?", (generation,))
    if serving_generation(store) is None:
        for newest in generations(store)[-1:]:
            serve(store, newest.id)
    store.execute(f"DROP TABLE IF EXISTS {table_of(generation)}")
    for one in (generation, *(newest.id for newest in generations(store)[-1:])):
        store.execute(f"DROP INDEX IF EXISTS {_queue_of(one)}")
    store.execute(
        "UPDATE chunks SET vector_generation = 0 WHERE vector_generation IN (?, ?)", (generation, -generation)
    )
    for older in generations(store):  # ascending, so that the newest one that has the vector wins
        store.execute(
            "UPDATE chunks SET vector_generation = ? WHERE vector_generation >= 0 AND vector_generation < ?"
            f" AND id IN (SELECT rowid FROM {table_of(older.id)})",
            (older.id, older.id),
        )


def exists(store: Store, generation: int) -> bool:
    """Return False if another process has dropped a generation."""
    return store.has("SELECT 1 FROM embedding_generations WHERE id = ?", (generation,))


def table_of(generation: int) -> str:
    """Return the name of a generation's table of vectors."""
    return f"chunks_vec_{int(generation)}"


def create_table(store: Store, generation: int, dimension: int) -> None:
    """Create the table of a generation."""
    store.execute(
        f"CREATE VIRTUAL TABLE {table_of(generation)} USING"
        f" vec0(embedding int8[{int(dimension)}] distance_metric=cosine)"
    )


def adopt_generation(store: Store, ident: int, provider: str, model: str, dimension: int) -> int:
    """Create a generation with the number that another machine gave it; the first one serves. Inside a transaction."""
    known = find_generation(store, provider, model, dimension)
    if known is not None and known.id == ident:
        return ident
    for other in generations(store):
        if other.id == ident or other == known:
            _drop(store, other.id)
    store.insert("embedding_generations", _MADE, ident, provider, model, dimension, 0)
    create_table(store, ident, dimension)
    if serving_generation(store) is None:
        serve(store, ident)
    return ident


# ----------------------------------------------------------------------------------------------------------- queue


def pending_chunks(store: Store, generation: int, limit: int) -> list[tuple[int, bytes, str]]:
    """Return chunks that wait for a vector of ``generation``, as (id, SHA-256, text), newest first.

    Generation 0 means a model that was never used: all chunks wait for it.
    """
    found: list[tuple[int, bytes, str]] = []
    for state in _waiting_states(store, generation):
        if len(found) < limit:
            found += store.rows(
                f"SELECT id, text_sha256, text FROM chunks WHERE {_is_in(state)} ORDER BY ts DESC, id DESC LIMIT ?",
                (limit - len(found),),
            )
    return found


def count_pending(store: Store, generation: int, most: int = -1) -> int:
    """Return how many chunks wait for a vector of ``generation``; 0 as for ``pending_chunks``.

    Counting stops after ``most`` (-1: never): a larger result only means that there are more.
    """
    queues = [f"SELECT 1 FROM chunks WHERE {_is_in(state)} LIMIT ?" for state in _waiting_states(store, generation)]
    return sum(store.value(f"SELECT count(*) FROM ({queue})", (most,)) for queue in queues)


def _waiting_states(store: Store, generation: int) -> list[int]:
    """Return the values of ``vector_generation`` that mean waiting; each has an index: fast for a hook."""
    older = (other.id for other in generations(store) if generation == 0 or other.id < generation)
    return [0, *sorted(older, reverse=True)]


def _is_in(state: int) -> str:
    """Return the condition that a chunk is in a state, in words by which SQLite recognises the index of that state.

    Nearly all chunks are in that of the newest generation, which has none.
    """
    return f"vector_generation = {int(state)}" + (" AND vector_generation <= 0" if state <= 0 else "")


def _queue_of(generation: int) -> str:
    """Return the name of the index of the chunks whose newest vector is of a generation, while there is a newer one."""
    return f"waiting_{table_of(generation)}"


def copy_vectors(store: Store, generation: int, chunks: Iterable[tuple[int, bytes]]) -> set[int]:
    """Give chunks the vectors that ``generation`` has for the same texts, and end their waiting; in one transaction.

    Args:
        store: The store.
        generation: The generation.
        chunks: Waiting chunks, each with the SHA-256 of its text.

    Returns:
        The chunks that got a vector.
    """
    table, known = table_of(generation), set()
    with store.transaction():
        for ident, sha in chunks:
            same = store.value(SAME_TEXT, (sha, generation))
            data = None if same is None else store.value(f"SELECT embedding FROM {table} WHERE rowid = ?", (same,))
            if data is None:
                continue
            known.add(ident)
            if _settle(store, ident, generation, generation):
                write_rounded(store, generation, [(ident, bytes(data))])
    return known


def write_rounded(store: Store, generation: int, vectors: Sequence[tuple[int, bytes]]) -> None:
    """Store vectors of chunks in their stored form, or replace them. Inside a transaction."""
    table = table_of(generation)
    store.execute_many(f"DELETE FROM {table} WHERE rowid = ?", [(ident,) for ident, _ in vectors])
    store.execute_many(f"INSERT INTO {table} (rowid, embedding) VALUES (?, vec_int8(?))", vectors)


def put_vectors(store: Store, generation: int, vectors: Iterable[tuple[int, bytes]]) -> int:
    """Store vectors of chunks and end their waiting, in one transaction. Idempotent.

    Chunks that were deleted meanwhile, or that another process has embedded, are skipped.

    Returns:
        The number of stored vectors.
    """
    with store.transaction():
        if not exists(store, generation):
            return 0
        settled = [one for one in vectors if _settle(store, one[0], generation, generation)]
        if settled:
            data = rounded([vector for _, vector in settled], dimension=len(settled[0][1]) // 4)
            stored = [(ident, one) for (ident, _), one in zip(settled, data, strict=True)]
            write_rounded(store, generation, stored)
        return len(settled)


def refuse_chunks(store: Store, generation: int, chunk_ids: Iterable[int]) -> None:
    """End the waiting of chunks that the provider of ``generation`` always refuses. A new generation tries again."""
    with store.transaction():
        if exists(store, generation):
            for ident in chunk_ids:
                _settle(store, ident, generation, -generation)


def ask_again(store: Store) -> None:
    """Queue the chunks again whose waiting ended without a vector. Inside a transaction."""
    store.execute("UPDATE chunks SET vector_generation = 0 WHERE vector_generation < 0 AND vector_generation <= 0")


def refused_chunks(store: Store, generation: int) -> list[int]:
    """Return the chunks whose waiting for ``generation`` ended without a vector."""
    return store.all(int, f"SELECT id FROM chunks WHERE {_is_in(-generation)}")


def _settle(store: Store, ident: int, generation: int, state: int) -> bool:
    settled = store.value(
        "UPDATE chunks SET vector_generation = ? WHERE id = ? AND vector_generation >= 0 AND vector_generation < ?"
        " RETURNING 1",
        (state, ident, generation),
    )
    return settled is not None


def delete_vectors(store: Store, chunk_ids: Iterable[int]) -> None:
    """Delete the vectors of chunks from every generation; call it in the transaction that deletes the chunks."""
    ids = [(ident,) for ident in chunk_ids]
    for generation in generations(store):
        store.execute_many(f"DELETE FROM {table_of(generation.id)} WHERE rowid = ?", ids)


def has_any(store: Store, generation: int) -> bool:
    """Return True if a generation has any vector."""
    return store.has(f"SELECT 1 FROM {table_of(generation)}_rowids LIMIT 1")


# ---------------------------------------------------------------------------------------------------------- search


def nearest(
    store: Store, generation: int, query: bytes, k: int, where: str = "", values: Sequence[Any] = ()
) -> list[tuple[int, float]]:
    """Return (chunk id, cosine) of the chunks nearest to ``query``, best first, ties by id.

    Args:
        store: The store.
        generation: The generation to search; ``query`` must come from the same model.
        query: A unit vector, little-endian float32.
        k: Maximum number of results; values above ``MAX_NEIGHBOURS`` are reduced to that.
        where: An SQL condition on columns of ``chunks``; it acts inside the search, so ``k`` chunks that meet it
            are found if there are as many.
        values: The values of the condition's question marks.
    """
    where = where or ("TRUE" if store.hidden else "")
    condition = f" AND rowid IN (SELECT id FROM chunks WHERE {where})" if where else ""
    k = max(0, min(k, MAX_NEIGHBOURS))
    rows = store.rows(
        f"SELECT rowid, embedding FROM {table_of(generation)} WHERE embedding MATCH vec_int8(?) AND k = ?{condition}",
        (rounded([query], len(query) // 4)[0], min(2 * k + MORE, MAX_NEIGHBOURS) if k else 0, *values),
    )
    scored = zip((ident for ident, _ in rows), cosines(query, [data for _, data in rows]), strict=True)
    return sorted(scored, key=lambda hit: (-hit[1], hit[0]))[:k]
