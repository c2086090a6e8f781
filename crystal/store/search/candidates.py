"""Keyword candidates: FTS5 expressions safe for any query text, BM25 with filters applied inside, and chunk details."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import apsw

from crystal.model.capture import Category
from crystal.store.connection import Store
from crystal.store.search.scope import SearchScope, where

_MAX_READ = 20_000


@dataclass(frozen=True, slots=True)
class Candidate:
    """A chunk that may answer, with everything about its origin."""

    id: int
    text: str
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


# ---------------------------------------------------------------------------------------------------- expressions


def quoted(text: str) -> str:
    """Return an FTS5 string: the words of a text in this order, without operators."""
    return '"' + text.replace('"', '""') + '"'


def prefix(text: str) -> str:
    """Return an expression for whatever begins with ``text``."""
    return quoted(text) + " *"


def any_of(parts: Iterable[str]) -> str:
    """Return an expression that matches at least one of some expressions."""
    return _joined(" OR ", parts)


def all_of(parts: Iterable[str]) -> str:
    """Return an expression that matches all of some expressions."""
    return _joined(" AND ", parts)


def _joined(operator: str, parts: Iterable[str]) -> str:
    distinct = list(dict.fromkeys(part for part in parts if part))
    return distinct[0] if len(distinct) == 1 else f"({operator.join(distinct)})" if distinct else ""


# ---------------------------------------------------------------------------------------------------------- search


def keyword_candidates(store: Store, expression: str, scope: SearchScope, limit: int) -> list[tuple[int, float]]:
    """Return the chunks that match an FTS5 expression, as (chunk id, BM25; higher is better), best first, newer first.

    The filter is a set of ids that FTS5 applies while matching: with a plain ``rowid IN`` SQLite would run the whole
    match again for every id, and with ``ORDER BY rank`` FTS5 would score what the filter removes (measured:
    docs/adr/0008-search.md).
    """
    inside = f" AND +rowid IN (SELECT id FROM chunks WHERE {scope.sql})" if scope.sql else ""
    rows = store.rows(
        "SELECT rowid, bm25(chunks_fts) AS cost FROM chunks_fts WHERE chunks_fts MATCH ?"
        f"{inside} ORDER BY cost, rowid DESC LIMIT ?",
        (expression, *scope.values, limit),
    )
    return [(int(ident), -float(cost)) for ident, cost in rows]


def literal_candidates(
    store: Store, expression: str, literal: str, scope: SearchScope, limit: int
) -> list[tuple[int, float, int]]:
    """Return the chunks that match an FTS5 expression, first those with ``literal`` exactly, then in any case.

    Returns:
        (chunk id, BM25; higher is better, tier), where the tier is 0 for an exact match, 1 in any case of ASCII, 2 for
        neither.
    """
    inside = f" AND +rowid IN (SELECT id FROM chunks WHERE {scope.sql})" if scope.sql else ""
    # Only the newest ones: a literal that is in very many chunks needs no exact order.
    newest = (
        "SELECT rowid AS chunk, bm25(chunks_fts) AS cost FROM chunks_fts WHERE chunks_fts MATCH ?"
        f"{inside} ORDER BY rowid DESC LIMIT {_MAX_READ}"
    )
    tier = "CASE WHEN instr(c.text, ?) > 0 THEN 0 WHEN instr(lower(c.text), lower(?)) > 0 THEN 1 ELSE 2 END"
    rows = store.rows(
        f"SELECT id, cost, tier FROM (SELECT c.id, cost, {tier} AS tier FROM ({newest}) JOIN chunks c ON c.id = chunk)"
        " ORDER BY tier, cost, id DESC LIMIT ?",
        (literal, literal, expression, *scope.values, limit),
    )
    return [(int(ident), -float(cost), int(tier)) for ident, cost, tier in rows]


def substring_candidates(store: Store, parts: Sequence[str], scope: SearchScope, limit: int) -> list[tuple[int, float]]:
    """Return the chunks that contain some strings, as (chunk id, how many of them), most first, then newest first.

    Reads every chunk that the filter leaves: for scripts whose words the index does not know.
    """
    if not parts:
        return []
    count = " + ".join(["(instr(text, ?) > 0)"] * len(parts))
    inside = f" WHERE {scope.sql}" if scope.sql else ""
    rows = store.rows(
        f"SELECT id, found FROM (SELECT id, ts, {count} AS found FROM chunks{inside}) WHERE found > 0"
        " ORDER BY found DESC, ts DESC, id DESC LIMIT ?",
        (*parts, *scope.values, limit),
    )
    return [(int(ident), float(found)) for ident, found in rows]


def contains_text(run: str) -> SearchScope:
    """Return a filter for the chunks that contain some characters; SQLite reads every text for it."""
    return where("instr(lower(text), lower(?)) > 0", run)


def matches_fts(expression: str) -> SearchScope:
    """Return a filter, for any engine, for the chunks that match an FTS5 expression."""
    return where("id IN (SELECT rowid FROM chunks_fts WHERE chunks_fts MATCH ?)", expression)


def has_any(store: Store, scope: SearchScope) -> bool:
    """Return True if a filter leaves anything."""
    where = f" WHERE {scope.sql}" if scope.sql else ""
    return bool(store.value(f"SELECT EXISTS (SELECT 1 FROM chunks{where})", scope.values))


def latest_chunks(store: Store, scope: SearchScope, spans: Sequence[tuple[int, int]], limit: int) -> list[int]:
    """Return the newest chunks of what people and the assistant said within spans of time, under a filter."""
    times = " OR ".join(["(ts >= ? AND ts < ?)"] * len(spans))
    where = f" AND ({scope.sql})" if scope.sql else ""
    rows = store.rows(
        f"SELECT id FROM chunks WHERE ({times}) AND role IN ('user', 'assistant'){where} ORDER BY ts DESC, id LIMIT ?",
        (*(moment for span in spans for moment in span), *scope.values, limit),
    )
    return [ident for (ident,) in rows]


def count_texts(store: Store, chunks: Sequence[int]) -> int:
    """Return how many different texts some chunks have."""
    listed = json.dumps(list(chunks))
    sql = "SELECT count(DISTINCT text_sha256) FROM chunks WHERE id IN (SELECT value FROM json_each(?))"
    return int(store.value(sql, (listed,)))


def count_copies(store: Store, text_sha256: bytes, scope: SearchScope) -> int:
    """Return how many chunks within a filter have exactly this text."""
    where = f" AND ({scope.sql})" if scope.sql else ""
    # INDEXED BY: for a filter by project or session SQLite must not skip this index of the few chunks with this text.
    sql = f"SELECT count(*) FROM chunks INDEXED BY chunks_sha WHERE text_sha256 = ?{where}"
    return int(store.value(sql, (text_sha256, *scope.values)))


def places_of_text(store: Store, text_sha256: bytes, scope: SearchScope) -> set[tuple[str, int]]:
    """Return the turns and memories within a filter with exactly this text in a chunk, as (uuid, part)."""
    where = f" AND id IN (SELECT id FROM chunks WHERE {scope.sql})" if scope.sql else ""
    sql = (
        "SELECT coalesce(t.uuid, m.uid), coalesce(t.part, 0) FROM"
        f" (SELECT turn, memory FROM chunks INDEXED BY chunks_sha WHERE text_sha256 = ?{where}) c"
        " LEFT JOIN turns t ON t.id = c.turn LEFT JOIN memories m ON m.id = c.memory"
        " WHERE t.id IS NOT NULL OR m.id IS NOT NULL"
    )
    return {(uuid, part) for uuid, part in store.rows(sql, (text_sha256, *scope.values))}


def chunk_of_turn(store: Store, uuid: str, part: int, text_sha256: bytes, scope: SearchScope) -> int | None:
    """Return the chunk of a turn within a filter that has exactly this text."""
    return _own_chunk(store, "turns t ON t.id = c.turn", "t.uuid = ? AND t.part = ?", (uuid, part), text_sha256, scope)


def chunk_of_memory(store: Store, uid: str, text_sha256: bytes, scope: SearchScope) -> int | None:
    """Return the chunk of a memory within a filter that has exactly this text."""
    return _own_chunk(store, "memories m ON m.id = c.memory", "m.uid = ?", (uid,), text_sha256, scope)


def _own_chunk(
    store: Store, joined: str, which: str, values: tuple[object, ...], text_sha256: bytes, scope: SearchScope
) -> int | None:
    where = f" AND c.id IN (SELECT id FROM chunks WHERE {scope.sql})" if scope.sql else ""
    found = store.value(
        f"SELECT c.id FROM chunks c JOIN {joined} WHERE {which} AND c.text_sha256 = ?{where} LIMIT 1",
        (*values, text_sha256, *scope.values),
    )
    return None if found is None else int(found)


_DETAILS = """
SELECT c.id, c.text, c.text_sha256, c.start, c.role, c.source, c.agent, c.device, c.branch, c.subagent, c.ts,
       c.turn, coalesce(t.uuid, m.uid), t.tool, c.session, s.session_id, p.name, p.cwd, t.part, m.uid, m.category,
       m.key, s.harness
FROM chunks c LEFT JOIN turns t ON t.id = c.turn LEFT JOIN sessions s ON s.id = c.session
LEFT JOIN projects p ON p.id = c.project LEFT JOIN memories m ON m.id = c.memory
WHERE c.id IN ({marks})
"""


def candidates(store: Store, ids: Sequence[int]) -> dict[int, Candidate]:
    """Return everything about some chunks, by id; ids that are gone are left out."""
    found: dict[int, Candidate] = {}
    for at in range(0, len(ids), 500):
        some = ids[at : at + 500]
        for row in store.rows(_DETAILS.format(marks=", ".join("?" * len(some))), some):
            found[row[0]] = Candidate(*row)
    return found


# ----------------------------------------------------------------------------------------------------------- words


def stems(store: Store, text: str) -> list[tuple[int, int, str]]:
    """Return the words of a text as the index sees them: (first character, after the last, stem)."""
    tokenize = store.db.fts5_tokenizer("porter", ["unicode61", "remove_diacritics", "2"])
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
