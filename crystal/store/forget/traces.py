"""Texts of a store, and what its file holds in forms that a byte search does not find: for the proof of forgetting.

A long value lies in several pages, and the keyword index stores only how a word differs from the one before. So both
are also queried through the database. Everything here only reads.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from itertools import groupby
from pathlib import Path

import apsw

from crystal.store import migrate, texts
from crystal.store.connection import Store, translated
from crystal.store.search.candidates import quoted
from crystal.store.search.vectors import generations, table_of

PAGE = 500
_SKIPPED = ("outbox", "quarantine")
"""Tables of sealed data, which only a holder of the keys can open."""


def said_texts(store: Store, lines: Collection[str], memories: Collection[str]) -> Iterator[str]:
    """Yield the texts of lines and memories that are about to be forgotten, turn by turn, and former versions."""
    for uuid in lines:
        rows = store.rows(
            "SELECT c.turn, c.start, c.text FROM turns t JOIN chunks c ON c.turn = t.id WHERE t.uuid = ?"
            " ORDER BY c.turn, c.start",
            (uuid,),
        )
        for turn in dict.fromkeys(row[0] for row in rows):
            yield _laid_over([(start, text) for one, start, text in rows if one == turn])
    for uid in memories:
        yield from (
            text
            for (text,) in store.rows(
                "SELECT text FROM memories WHERE uid = ?1 UNION ALL SELECT h.text FROM memory_history h"
                " JOIN memories m ON m.id = h.memory WHERE m.uid = ?1",
                (uid,),
            )
        )


def _laid_over(pieces: Sequence[tuple[int, str]]) -> str:
    text = ""
    for start, piece in pieces:
        text = text[:start] + piece if start <= len(text) else text + "\n" + piece
    return text


def staying_texts(
    store: Store, lines: Collection[str], memories: Collection[str], sessions: Collection[str]
) -> Iterator[str]:
    """Yield what is readable without these lines and memories: texts, other titles, names, the schema."""
    with translated(store.path):
        rows = store.db.execute(
            "SELECT c.turn, c.start, c.text, t.uuid, m.uid FROM chunks c LEFT JOIN turns t ON t.id = c.turn"
            " LEFT JOIN memories m ON m.id = c.memory ORDER BY c.turn, c.start"
        )
        staying = (row for row in rows if row[3] not in lines and row[4] not in memories)
        for turn, group in groupby(staying, key=lambda row: row[0]):  # a line may be in two chunks of a turn
            pieces = [(start, text) for _, start, text, *_ in group]
            if turn is None:
                yield from (text for _, text in pieces)
            else:
                yield _laid_over(pieces)
        for uid, text, key in store.db.execute(
            "SELECT uid, text, key FROM memories UNION ALL"
            " SELECT m.uid, h.text, NULL FROM memory_history h JOIN memories m ON m.id = h.memory"
        ):
            if uid not in memories:
                yield f"{text}\n{key or ''}"
        for session_id, title, summary_title in store.db.execute(
            "SELECT session_id, title, summary_title FROM sessions"
        ):
            if session_id not in sessions:
                yield f"{title or ''}\n{summary_title or ''}"
        for sql in _NAMES:
            for row in store.db.execute(sql):
                yield "\n".join(str(value) for value in row if value is not None)


def bodies(store: Store, lines: Collection[str], memories: Collection[str], *, are_gone: bool) -> Iterator[bytes]:
    """Yield the compressed texts of lines and memories that are about to be forgotten, or those of all others."""
    with translated(store.path):
        for body, uuid, uid in store.db.execute(
            "SELECT c.body, t.uuid, m.uid FROM chunks c LEFT JOIN turns t ON t.id = c.turn"
            " LEFT JOIN memories m ON m.id = c.memory WHERE typeof(c.body) = 'blob'"
        ):
            if (uuid in lines or uid in memories) == are_gone:
                yield body


_NAMES = (
    "SELECT cwd, git_root, remote, name FROM projects",
    "SELECT DISTINCT agent, device, branch, session_id FROM sessions",
    "SELECT DISTINCT agent, device, branch, subagent FROM chunks",
    "SELECT DISTINCT tool, model FROM turns",
    "SELECT path, transcript, archive FROM capture_state",
    "SELECT name, agent FROM relay_peers",
    "SELECT provider, model FROM embedding_generations",
    "SELECT path FROM capture_roots",
    "SELECT name, sql FROM sqlite_schema",
)


def is_said(store: Store, word: str, lines: Collection[str], memories: Collection[str]) -> bool:
    """Return True if the keyword index finds a word in what remains without some lines and memories."""
    with translated(store.path):
        for uuid, uid in store.db.execute(
            "SELECT t.uuid, m.uid FROM chunks_fts f JOIN chunks c ON c.id = f.rowid LEFT JOIN turns t ON t.id = c.turn"
            " LEFT JOIN memories m ON m.id = c.memory WHERE f.chunks_fts MATCH ?",
            (quoted(word),),
        ):
            if uuid not in lines and uid not in memories:
                return True
    return False


def count_turns(store: Store) -> int:
    """Return the number of turns."""
    return int(store.value("SELECT count(*) FROM turns"))


def has_line(store: Store, uuid: str) -> bool:
    """Return True if a turn of this line is stored."""
    return store.value("SELECT 1 FROM turns WHERE uuid = ? LIMIT 1", (uuid,)) is not None


def rows_left(store: Store, lines: Collection[str], memories: Collection[str]) -> int:
    """Return how many rows are left of lines and memories that were forgotten."""
    count = 0
    for wanted, sql in (
        (lines, "SELECT count(*) FROM turns WHERE uuid IN ({})"),
        (memories, "SELECT count(*) FROM memories WHERE uid IN ({})"),
    ):
        some = list(wanted)
        for at in range(0, len(some), PAGE):
            page = some[at : at + PAGE]
            count += int(store.value(sql.replace("{}", ", ".join("?" * len(page))), page))
    return count


def values(store: Store) -> Iterator[tuple[str, bytes]]:
    """Yield every string and blob in the tables, as (table, bytes), with long ones reassembled."""
    with translated(store.path):
        tables = [
            name
            for schema, name, kind, *_ in store.db.execute("PRAGMA table_list")
            if schema == "main" and kind == "table" and name not in _SKIPPED
        ]
        for table in tables:
            for row in store.db.execute(f'SELECT * FROM "{table}"'):
                for value in row:
                    if isinstance(value, str):
                        yield table, value.encode("utf-8", "surrogatepass")
                    elif isinstance(value, bytes):
                        yield table, value


def indexed_words(store: Store, stems: Sequence[str]) -> list[str]:
    """Return which of some words a keyword index contains."""
    found: list[str] = []
    with translated(store.path):
        tables = [
            name
            for (name,) in store.db.execute(
                "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql LIKE '%USING fts5%' ORDER BY name"
            )
        ]
        for table in tables:
            store.db.execute(f"CREATE VIRTUAL TABLE temp.crystal_words USING fts5vocab(main, '{table}', 'row')")
            try:
                for stem in stems:
                    for (term,) in store.db.execute("SELECT term FROM temp.crystal_words WHERE term = ?", (stem,)):
                        found.append(str(term))
            finally:
                store.db.execute("DROP TABLE temp.crystal_words")
    return found


def entries_alone(store: Store) -> int:
    """Return how many entries of the keyword index and of the vectors belong to no chunk."""
    tables = ["chunks_fts_docsize", *(f"{table_of(one.id)}_rowids" for one in generations(store))]
    key = {"chunks_fts_docsize": "id"}
    return sum(
        int(store.value(f"SELECT count(*) FROM {table} WHERE {key.get(table, 'rowid')} NOT IN (SELECT id FROM chunks)"))
        for table in tables
    )


def blobs_aside(store: Store) -> int:
    """Return how many refused blobs of other machines are kept that cannot be opened here."""
    return int(store.value("SELECT count(*) FROM quarantine"))


@contextlib.contextmanager
def opened_copy(path: Path) -> Iterator[Store]:
    """Open a database file that nobody writes, such as a copy made before an upgrade; its log is ignored.

    Raises:
        StoreDamaged, Unavailable: It cannot be read.
    """
    with translated(path):
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        db = apsw.Connection(f"{path.absolute().as_uri()}?immutable=1", flags=flags)
        texts.register(db)
        try:
            yield Store(path, db)
        finally:
            db.close()


def is_database(head: bytes) -> bool:
    """Return True if a file with this beginning is a database."""
    return head.startswith(migrate.HEADER)
