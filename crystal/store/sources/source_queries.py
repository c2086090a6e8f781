"""Query sources: counts, texts, and missing parts. Read-only."""

from __future__ import annotations

from crystal.model.named_tuple import NamedTuple
from crystal.store.connection import Store


class SourceCounts(NamedTuple):
    """Counts of a source: files, files not indexed, chunks, and chunks without a vector of the serving model."""

    files: int
    skipped: int
    chunks: int
    waiting: int


def counts_of(store: Store, source: int, generation: int) -> SourceCounts:
    """Return the counts of a source; ``generation`` is the serving generation, or 0."""
    waiting = "count(c.id) FILTER (WHERE c.vector_generation >= 0 AND c.vector_generation < ?)"
    return store.all(
        SourceCounts,
        f"SELECT count(DISTINCT f.id) FILTER (WHERE f.why IS NULL), count(DISTINCT f.id) FILTER (WHERE f.why IS NOT"
        f" NULL), count(c.id), {waiting} FROM source_files f LEFT JOIN sources x ON x.file = f.id"
        " LEFT JOIN chunks c ON c.id = x.chunk WHERE f.collection = ?",
        (max(generation, 1), source),
    )[0]


def damaged_files(store: Store, wrong_chunks: set[int]) -> list[int]:
    """Return the rows of files with missing or damaged chunks, which search does not find as they are.

    ``wrong_chunks`` are chunks whose text does not match its hash.
    """
    rows = store.rows(
        "SELECT f.id, f.chunks, c.id FROM source_files f LEFT JOIN sources x ON x.file = f.id"
        " LEFT JOIN chunks c ON c.id = x.chunk AND c.source = 'file'"
    )
    missing: dict[int, int] = {}
    for file, number, chunk in rows:
        is_whole = chunk is not None and chunk not in wrong_chunks
        missing.setdefault(file, number)
        missing[file] -= is_whole
    return [file for file, number in missing.items() if number]


def chunks_without_file(store: Store) -> list[int]:
    """Return the chunks of files that no longer exist."""
    sql = "SELECT id FROM chunks WHERE source = 'file' AND id NOT IN (SELECT chunk FROM sources)"
    return store.all(int, sql)


def texts_of_source(store: Store, source: int) -> tuple[list[str], list[bytes]]:
    """Return the texts of a source and their stored forms, to prove that both are deleted."""
    rows = store.rows(
        "SELECT c.text, coalesce(b.body, c.body) FROM source_files f JOIN sources x ON x.file = f.id"
        " JOIN chunks c ON c.id = x.chunk LEFT JOIN text_blocks b ON b.id = block_of(c.body) WHERE f.collection = ?",
        (source,),
    )
    return [text for text, _ in rows], [body for _, body in rows if isinstance(body, bytes)]
