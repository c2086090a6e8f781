"""Write the files of sources: a file's rows always match its chunks, and equal texts keep their chunk.

A chunk is recognised within its file by its text, title included. So a paragraph that moves keeps its vector, and a
file that is renamed keeps all of them. Nothing here reads a file. Every function that writes runs inside the caller's
transaction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from crystal.model.named_tuple import NamedTuple
from crystal.model.sources import searched_text
from crystal.store.connection import GIVEN, Store
from crystal.store.search.space import delete_chunks
from crystal.store.text_blocks import put_texts
from crystal.store.texts import text_hash

SOURCE = "file"
ROLE = "source"


class FileSource(NamedTuple):
    """A folder of files. ``read_as`` names the method by which its files were cleaned and split."""

    id: int
    name: str
    path: str
    project: int | None
    added_at: int
    synced_at: int | None
    read_as: str


class KnownFile(NamedTuple):
    """A file that was read. An equal ``stamp`` means unchanged without reading; otherwise its hash decides.

    ``why`` is the reason why it is not indexed, or None.
    """

    id: int
    path: str
    stamp: str
    sha256: bytes
    why: str | None


class FileChunk(NamedTuple):
    """A cleaned part of a file, with its title and line numbers."""

    title: str
    text: str
    first_line: int
    last_line: int


class ReadFile(NamedTuple):
    """A file that was read: its present state, its time of change (ms), and its chunks in order, or why it has none."""

    path: str
    stamp: str
    sha256: bytes
    changed_at: int
    chunks: Sequence[FileChunk] = ()
    why: str | None = None


class Maker(NamedTuple):
    """The agent and the machine stored with the chunks."""

    agent: str
    device: str


# ----------------------------------------------------------------------------------------------------------- sources


def all_sources(store: Store) -> list[FileSource]:
    """Return every source, by name."""
    return store.select(FileSource, "source_collections ORDER BY name")


def put_source(store: Store, name: str, path: str, added_at: int) -> None:
    """Add a source, or change its folder."""
    store.upsert("source_collections", "name", {"name": name, "path": path, "added_at": added_at})


def delete_source(store: Store, source: int) -> None:
    """Delete a source that has no files left."""
    store.execute("DELETE FROM source_collections WHERE id = ?", (source,))


def begin_reading(store: Store, source: FileSource, project: int | None, read_as: str) -> None:
    """Store the project and the way of reading files. If either has changed, all files are read again."""
    if source.project != project or source.read_as != read_as:
        store.execute("UPDATE source_files SET stamp = '', sha256 = x'' WHERE collection = ?", (source.id,))
    sql = "UPDATE source_collections SET project = ?, read_as = ? WHERE id = ?"
    store.execute(sql, (project, read_as, source.id))


def end_reading(store: Store, source: int, now: int) -> None:
    """Record that all files of a source were read."""
    store.execute("UPDATE source_collections SET synced_at = ? WHERE id = ?", (now, source))


# ------------------------------------------------------------------------------------------------------------- files


def known_files(store: Store, source: int) -> dict[str, KnownFile]:
    """Return the known files of a source, by path."""
    return {one.path: one for one in store.select(KnownFile, "source_files WHERE collection = ?", (source,))}


def move_file(store: Store, file: int, path: str, stamp: str) -> None:
    """Change a file's path or stamp; its chunks stay."""
    store.execute("UPDATE source_files SET path = ?, stamp = ? WHERE id = ?", (path, stamp, file))


def write_files(store: Store, source: FileSource, files: Sequence[ReadFile], maker: Maker) -> tuple[int, int]:
    """Store files with their chunks, replacing the stored versions. What moves between the files keeps its chunk.

    Returns:
        The numbers of new chunks and of chunks that stayed.
    """
    said: list[tuple[int | None, bytes, str, int, int, FileChunk]] = []
    left: defaultdict[bytes, list[int]] = defaultdict(list)
    for file in files:
        ident = _put_file(store, source.id, file)
        old = _chunks_by_hash(store, ident)
        for chunk in file.chunks:
            text = searched_text(chunk.title, chunk.text)
            sha = text_hash(text)
            number = old[sha].pop(0) if old[sha] else None
            said.append((number, sha, text, ident, file.changed_at, chunk))
        for sha, numbers in old.items():
            left[sha] += numbers
    texts: list[tuple[int, str]] = []
    for own, sha, text, ident, changed_at, chunk in said:
        number = left[sha].pop(0) if own is None and left[sha] else own
        if number is None:
            number = _insert_chunk(store, sha, changed_at, source.project, maker)
            texts.append((number, text))
        else:
            sql = "UPDATE chunks SET project = ?, ts = ?, agent = ?, device = ? WHERE id = ?"
            store.execute(sql, (source.project, changed_at, *maker, number))
        _place_chunk(store, number, ident, chunk)
    delete_chunks(store, [number for numbers in left.values() for number in numbers])
    put_texts(store, texts)
    return len(texts), len(said) - len(texts)


def delete_files(store: Store, files: Iterable[int]) -> int:
    """Delete files with their chunks; return the number of chunks."""
    listed = [*files]
    deleted = delete_chunks(store, store.all(int, f"SELECT chunk FROM sources WHERE file IN {GIVEN}", (listed,)))
    store.execute(f"DELETE FROM sources WHERE file IN {GIVEN}", (listed,))
    store.execute(f"DELETE FROM source_files WHERE id IN {GIVEN}", (listed,))
    return deleted


def _put_file(store: Store, source: int, file: ReadFile) -> int:
    found = {"stamp": file.stamp, "sha256": file.sha256, "chunks": len(file.chunks), "why": file.why}
    store.upsert("source_files", "collection, path", {"collection": source, "path": file.path, **found})
    sql = "SELECT id FROM source_files WHERE collection = ? AND path = ?"
    return int(store.value(sql, (source, file.path)))


def _chunks_by_hash(store: Store, file: int) -> defaultdict[bytes, list[int]]:
    found: defaultdict[bytes, list[int]] = defaultdict(list)
    sql = "SELECT c.text_sha256, c.id FROM sources s JOIN chunks c ON c.id = s.chunk WHERE s.file = ? ORDER BY s.chunk"
    for sha, ident in store.rows(sql, (file,)):
        found[sha].append(ident)
    return found


def _insert_chunk(store: Store, sha: bytes, ts: int, project: int | None, maker: Maker) -> int:
    columns = "start, body, text_sha256, source, role, project, agent, device, ts"
    return store.insert("chunks", columns, 0, b"", sha, SOURCE, ROLE, project, *maker, ts)


def _place_chunk(store: Store, chunk: int, file: int, found: FileChunk) -> None:
    lines = {"first_line": found.first_line, "last_line": found.last_line}
    store.upsert("sources", "chunk", {"chunk": chunk, "file": file, "title": found.title, **lines})
