"""Where the chunks of files are: the columns of a search, and the chunks around one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from crystal.model.sources import FilePlace
from crystal.store.connection import Store, translated

PLACE = "y.name, y.path, f.path, x.title, x.first_line, x.last_line"
"""The columns of a ``FilePlace``."""
PLACE_COLUMNS = 6
JOINED = (
    "LEFT JOIN sources x ON x.chunk = c.id LEFT JOIN source_files f ON f.id = x.file"
    " LEFT JOIN source_collections y ON y.id = f.collection"
)
"""How a chunk ``c`` finds them; all are NULL for a chunk of no file."""


def place_of_file_chunk(store: Store, chunk: int) -> FilePlace | None:
    """Return where a chunk is in which file; None for a chunk of no file."""
    return store.find(FilePlace, f"SELECT {PLACE} FROM chunks c {JOINED} WHERE c.id = ?", (chunk,))


def chunks_around(store: Store, chunk: int, count: int) -> list[int]:
    """Return a chunk of a file with ``count`` chunks of the file before and after it, in order; none of no file."""
    sql = (
        "SELECT chunk FROM sources WHERE file = (SELECT file FROM sources WHERE chunk = ?)"
        " ORDER BY first_line, last_line, chunk"
    )
    ids = [int(ident) for (ident,) in store.rows(sql, (chunk,))]
    at = ids.index(chunk) if ids else 0
    return ids[max(0, at - count) : at + count + 1]


def each_file(store: Store) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of every file of a source."""
    sql = (
        "SELECT y.path || '/' || f.path, c.text FROM source_files f JOIN source_collections y ON y.id = f.collection"
        " JOIN sources x ON x.file = f.id JOIN chunks c ON c.id = x.chunk ORDER BY f.id, x.first_line"
    )
    with translated(store.path):
        for path, chunks in groupby(store.db.execute(sql), key=lambda row: str(row[0])):
            yield path, "\n".join(text for _, text in chunks)


def texts_of_files(store: Store) -> Iterator[str]:
    """Yield the texts of all files, and the names and paths of sources: what forgetting leaves."""
    with translated(store.path):
        for (text,) in store.db.execute("SELECT text FROM chunks WHERE source = 'file'"):
            yield text
    for sql in ("SELECT name, path FROM source_collections", "SELECT path FROM source_files"):
        for row in store.rows(sql):
            yield "\n".join(row)
