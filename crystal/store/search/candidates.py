"""Read candidate chunks with their texts, copies and origin, from conversations and files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, cast

import apsw

from crystal.model.capture import Category
from crystal.model.quick_dataclass import dataclass
from crystal.model.sources import FilePlace
from crystal.store.connection import GIVEN, Row, Store
from crystal.store.search.scope import SearchScope, where
from crystal.store.search.tokenizer import TOKENIZER


@dataclass(frozen=True, slots=True)
class Candidate:
    """A candidate chunk with its origin, without its text, which ``texts_of`` reads."""

    id: int
    text_sha256: bytes
    start: int
    role: str
    source: str
    agent: str
    device: str
    branch: str | None
    subagent: str | None
    ts: int | None
    turn: int | None
    uuid: str | None
    tool: str | None
    session: int | None
    session_id: str | None
    project: str | None
    cwd: str | None
    part: int | None = None
    memory: str | None = None
    category: Category | None = None
    key: str | None = None
    harness: str | None = None
    file: FilePlace | None = None


# ---------------------------------------------------------------------------------------------------------- search


def texts_of(store: Store, ids: Sequence[int]) -> list[tuple[int, str]]:
    """Return the texts of some chunks, newest chunk first."""
    sql = f"SELECT id, text FROM chunks WHERE id IN {GIVEN} ORDER BY id DESC"
    return store.rows(sql, (ids,))


def text_hashes(store: Store, ids: Sequence[int]) -> list[tuple[int, bytes]]:
    """Return the hashes of the texts of some chunks, to compare texts without reading them."""
    return store.rows(f"SELECT id, text_sha256 FROM chunks WHERE id IN {GIVEN}", (ids,))


def newest_texts(store: Store, scope: SearchScope, limit: int) -> Iterator[tuple[int, str]]:
    """Yield the newest chunks within a filter, with their texts."""
    sql = f"SELECT id, text FROM chunks WHERE {scope.sql or 'TRUE'} ORDER BY id DESC LIMIT ?"
    return ((ident, text) for ident, text in store.stream(sql, (*scope.values, limit)))


def has_more_than(store: Store, count: int) -> bool:
    """Return True if the store has more than ``count`` chunks."""
    return store.has("SELECT 1 FROM chunks LIMIT 1 OFFSET ?", (count,))


def contains_text(run: str) -> SearchScope:
    """Return a filter for the chunks that contain ``run``. SQLite reads every text for it."""
    return where("instr(lower(text), lower(?)) > 0", run)


def latest_chunks(store: Store, scope: SearchScope, spans: Sequence[tuple[int, int]], limit: int) -> list[int]:
    """Return the newest chunks of users' and assistants' messages within spans of time and a filter."""
    times = " OR ".join(["(ts >= ? AND ts < ?)"] * len(spans))
    return store.all(
        int,
        f"SELECT id FROM chunks WHERE ({times}) AND role IN ('user', 'assistant') AND ({scope.sql or 'TRUE'})"
        " ORDER BY ts DESC, id LIMIT ?",
        (*(moment for span in spans for moment in span), *scope.values, limit),
    )


def count_copies(store: Store, text_sha256: bytes, scope: SearchScope) -> int:
    """Return how many chunks within a filter have exactly this text."""
    sql = f"SELECT count(*) FROM {_by_text(store)} WHERE text_sha256 = ? AND ({scope.sql or 'TRUE'})"
    return int(store.value(sql, (text_sha256, *scope.values)))


def places_of_text(store: Store, text_sha256: bytes, scope: SearchScope) -> set[tuple[str, int]]:
    """Return (uuid, part) of the turns and memories within a filter that have a chunk with exactly this text."""
    where = f" AND id IN (SELECT id FROM chunks WHERE {scope.sql})" if scope.sql else ""
    sql = (
        "SELECT coalesce(t.uuid, m.uid), coalesce(t.part, 0) FROM"
        f" (SELECT turn, memory FROM {_by_text(store)} WHERE text_sha256 = ?{where}) c"
        " LEFT JOIN turns t ON t.id = c.turn LEFT JOIN memories m ON m.id = c.memory"
        " WHERE t.id IS NOT NULL OR m.id IS NOT NULL"
    )
    return {(uuid, part) for uuid, part in store.rows(sql, (text_sha256, *scope.values))}


def _by_text(store: Store) -> str:
    """Return a table expression for chunks that makes SQLite search by text, not by the filter.

    A view of the connection has the table's indexes, but rejects their names.
    """
    return "chunks" if store.hidden else "chunks INDEXED BY chunks_sha"


def own_chunk(store: Store, found: Candidate, scope: SearchScope) -> int | None:
    """Return the chunk within a filter with the same text and turn or memory as a chunk of another store."""
    where = f" AND id IN (SELECT id FROM chunks WHERE {scope.sql})" if scope.sql else ""
    sql = (
        f"SELECT c.id FROM (SELECT id, turn, memory FROM {_by_text(store)} WHERE text_sha256 = ?{where}) c"
        " LEFT JOIN turns t ON t.id = c.turn LEFT JOIN memories m ON m.id = c.memory"
        " WHERE m.uid = ? OR (t.uuid = ? AND t.part = ?) LIMIT 1"
    )
    return store.find(int, sql, (found.text_sha256, *scope.values, found.memory, found.uuid, found.part))


PLACE = "y.name, y.path, f.path, x.title, x.first_line, x.last_line"
"""The columns of a ``FilePlace``."""
PLACE_COLUMNS = 6
JOINED = (
    "LEFT JOIN sources x ON x.chunk = c.id LEFT JOIN source_files f ON f.id = x.file"
    " LEFT JOIN source_collections y ON y.id = f.collection"
)
"""Joins from a chunk ``c``; all columns are NULL for a chunk of no file."""

_DETAILS = f"""
SELECT c.id, c.text_sha256, c.start, c.role, c.source, c.agent, c.device, c.branch, c.subagent, c.ts,
       c.turn, coalesce(t.uuid, m.uid), t.tool, c.session, s.session_id, p.name, p.cwd, t.part, m.uid, m.category,
       m.key, s.harness, {PLACE}
FROM chunks c LEFT JOIN turns t ON t.id = c.turn LEFT JOIN sessions s ON s.id = c.session
LEFT JOIN projects p ON p.id = c.project LEFT JOIN memories m ON m.id = c.memory {JOINED}
WHERE c.id IN (SELECT value FROM json_each(?))
"""


def candidates(store: Store, ids: Sequence[int]) -> dict[int, Candidate]:
    """Return everything but the texts of some chunks, by id; deleted chunks are left out."""
    rows = store.rows(_DETAILS, (ids,))
    return {
        row[0]: Candidate(*(*row[:-PLACE_COLUMNS], None if row[-1] is None else FilePlace(*row[-PLACE_COLUMNS:])))
        for row in rows
    }


# ----------------------------------------------------------------------------------------------------------- words


def stems(store: Store, text: str) -> list[tuple[int, int, str]]:
    """Return the words of a text in the index's form: (first character, end, stem)."""
    tokenize = store.db.fts5_tokenizer(*TOKENIZER)
    data = text.encode("utf-8", "replace")
    tokens = cast("list[tuple[Any, ...]]", tokenize(data, apsw.FTS5_TOKENIZE_DOCUMENT, None))
    if len(data) == len(text):
        return [(start, end, stem) for start, end, stem, *_ in tokens]
    place, characters, found = 0, 0, []
    for start, end, stem, *_ in tokens:
        characters += len(data[place:start].decode("utf-8", "replace"))
        length = len(data[start:end].decode("utf-8", "replace"))
        found.append((characters, characters + length, stem))
        characters, place = characters + length, end
    return found


_SAME_THREAD = "session = ?1 AND subagent IS ?2 AND role IN ('user', 'assistant') AND id <> ?6"
_LAST_BEFORE = f"""
SELECT id, role, uuid, ts FROM turns WHERE {_SAME_THREAD} AND (ts, offset, part) < (?3, ?4, ?5)
ORDER BY ts DESC, offset DESC, part DESC LIMIT 1
"""
_FIRST_AFTER = f"""
SELECT id, role, uuid, ts FROM turns WHERE {_SAME_THREAD} AND (ts, offset, part) > (?3, ?4, ?5)
ORDER BY ts, offset, part LIMIT 1
"""

Said = tuple[str, str, str, int | None]
"""Role, text, uuid and time of a turn."""


def around(store: Store, turn: int, *, since: int | None, before: int | None) -> tuple[Said | None, Said | None]:
    """Return the messages before and after a turn within a span of time; the text is that of the nearest chunk."""
    place = store.row("SELECT session, subagent, ts, offset, part, id FROM turns WHERE id = ?", (turn,))
    if place is None or place[2] is None:
        return None, None
    found = store.row(_LAST_BEFORE, place), store.row(_FIRST_AFTER, place)
    earlier, later = (None if row is None or not _within(row, since, before) else row for row in found)
    return _said(store, earlier, "DESC"), _said(store, later, "ASC")


def _within(row: Row, since: int | None, before: int | None) -> bool:
    return (since is None or row[3] >= since) and (before is None or row[3] < before)


def _said(store: Store, row: Row | None, direction: str) -> Said | None:
    if row is None:
        return None
    turn, role, uuid, ts = row
    text = store.value(f"SELECT text FROM chunks WHERE turn = ? ORDER BY start {direction} LIMIT 1", (turn,))
    return None if text is None else (role, text, uuid, ts)


def place_of_file_chunk(store: Store, chunk: int) -> FilePlace | None:
    """Return the place of a chunk in its file; None if the chunk belongs to no file."""
    return store.find(FilePlace, f"SELECT {PLACE} FROM chunks c {JOINED} WHERE c.id = ?", (chunk,))


def chunks_around(store: Store, chunk: int, count: int) -> list[int]:
    """Return a file's chunk with ``count`` chunks before and after it, in order; empty if it belongs to no file."""
    sql = (
        "SELECT chunk FROM sources WHERE file = (SELECT file FROM sources WHERE chunk = ?)"
        " ORDER BY first_line, last_line, chunk"
    )
    ids = store.all(int, sql, (chunk,))
    at = ids.index(chunk) if ids else 0
    return ids[max(0, at - count) : at + count + 1]


def each_file(store: Store) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of every file of a source."""
    sql = (
        "SELECT y.path || '/' || f.path, c.text FROM source_files f JOIN source_collections y ON y.id = f.collection"
        " JOIN sources x ON x.file = f.id JOIN chunks c ON c.id = x.chunk ORDER BY f.id, x.first_line"
    )
    for path, chunks in groupby(store.stream(sql), key=lambda row: str(row[0])):
        yield path, "\n".join(text for _, text in chunks)


def texts_of_files(store: Store) -> Iterator[str]:
    """Yield the texts of all files, and the names and paths of sources; forgetting does not delete these."""
    texts = "SELECT text FROM chunks WHERE source = 'file'"
    for sql in (texts, "SELECT name, path FROM source_collections", "SELECT path FROM source_files"):
        yield from map("\n".join, store.stream(sql))
