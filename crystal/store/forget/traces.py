"""Read a store to prove forgetting: its texts, and values that a search of the file's bytes would miss.

A long value is spread over several pages, so values are also read by queries. Everything here only reads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from crystal.store.connection import GIVEN, Store
from crystal.store.forget.forgotten_rows import each_text
from crystal.store.notes import ANSWER_ALONE, MODEL_ANSWER
from crystal.store.search.candidates import texts_of_files
from crystal.store.search.vectors import generations, table_of
from crystal.store.text_blocks import texts_alone

TOLD_EACH = 5_000
_SKIPPED = ("outbox",)
"""Tables of sealed data, which only a holder of the keys can open."""


def retained_texts(
    store: Store, lines: Collection[str], memories: Collection[str], sessions: Collection[str]
) -> Iterator[str]:
    """Yield all readable text but that of these lines, memories and sessions: texts, titles, names, the schema."""
    for said in each_text(store):
        if said.uuid not in lines and said.uid not in memories:
            yield f"{said.text}\n{said.key or ''}"
    yield from texts_of_files(store)
    for session, *titles in store.stream("SELECT session_id, title, summary_title FROM sessions"):
        yield "\n".join([session, *(title or "" for title in titles if session not in sessions)])
    for sql in _NAMES:
        for row in store.stream(sql):
            yield "\n".join(f"`{value}`" for value in row if value is not None)  # in the form of a session's page


_NAMES = (
    "SELECT cwd, git_root, remote, name FROM projects",
    "SELECT DISTINCT agent, device, branch FROM sessions",
    "SELECT DISTINCT agent, device, branch, subagent FROM chunks",
    "SELECT DISTINCT tool, model FROM turns",
    "SELECT path, transcript, archive FROM capture_state",
    "SELECT name, agent FROM relay_peers",
    "SELECT provider, model FROM embedding_generations",
    "SELECT what, about FROM work_calls",
    "SELECT path FROM capture_roots",
    "SELECT value FROM meta WHERE key IN ('unmet', 'not_recovered')",
    "SELECT DISTINCT kind FROM redactions",
    "SELECT name, sql FROM sqlite_schema",
)


def bodies_of(store: Store, lines: Collection[str], memories: Collection[str]) -> Iterator[bytes]:
    """Yield the compressed texts of lines and memories, or the blocks that contain them."""
    blocks = set[int]()
    for name, wanted in (("t.uuid", lines), ("m.uid", memories)):
        for block, body in store.stream(
            "SELECT block_of(c.body), c.body FROM chunks c LEFT JOIN turns t ON t.id = c.turn"
            " LEFT JOIN memories m ON m.id = c.memory"
            f" WHERE {name} IN {GIVEN} AND typeof(c.body) = 'blob'",
            (wanted,),
        ):
            if block is None:
                yield body
            else:
                blocks.add(block)
    for (body,) in store.stream(f"SELECT body FROM text_blocks WHERE id IN {GIVEN}", (blocks,)):
        yield body


def retained_bodies(store: Store, lines: Collection[str], memories: Collection[str]) -> Iterator[bytes]:
    """Yield the compressed texts of all other lines and memories. No block contains a forgotten text any more."""
    for (body,) in store.stream("SELECT body FROM text_blocks"):
        yield body
    for body, uuid, uid in store.stream(
        "SELECT c.body, t.uuid, m.uid FROM chunks c LEFT JOIN turns t ON t.id = c.turn"
        " LEFT JOIN memories m ON m.id = c.memory WHERE typeof(c.body) = 'blob'"
    ):
        if uuid not in lines and uid not in memories:
            yield body


def count_turns(store: Store) -> int:
    """Return the number of turns."""
    return int(store.value("SELECT count(*) FROM turns"))


def newest_turns(store: Store, count: int) -> set[int]:
    """Return the row ids of the newest turns, ``count`` of them."""
    return set(store.all(int, "SELECT id FROM turns ORDER BY id DESC LIMIT ?", (count,)))


def has_line(store: Store, uuid: str) -> bool:
    """Return True if a turn of this line is stored."""
    return store.has("SELECT 1 FROM turns WHERE uuid = ? LIMIT 1", (uuid,))


def rows_left(store: Store, lines: Collection[str], memories: Collection[str]) -> int:
    """Return how many rows of forgotten lines and memories are left."""
    turns, facts = (f"(SELECT count(*) FROM {one} IN {GIVEN})" for one in ("turns WHERE uuid", "memories WHERE uid"))
    return int(store.value(f"SELECT {turns} + {facts}", (lines, memories)))


def values(store: Store, progress: Callable[[int, int], None]) -> Iterator[tuple[str, bytes]]:
    """Yield every string and blob of the tables as (table, bytes), with long values reassembled.

    ``progress`` is called with the number of rows read and the total.
    """
    named = store.all(str, "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table'")
    tables = [name for name in named if name not in _SKIPPED]
    total = sum(int(store.value(f'SELECT count(*) FROM "{table}"')) for table in tables)
    rows = ((table, row) for table in tables for row in store.stream(f'SELECT * FROM "{table}"'))
    for number, (table, row) in enumerate(rows):
        if number % TOLD_EACH == 0:
            progress(number, total)
        for value in row:
            if isinstance(value, str | bytes):
                yield table, value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value


def entries_alone(store: Store) -> int:
    """Count vectors and texts in blocks that have no chunk, and a model's answers that have no session."""
    tables = [f"{table_of(one.id)}_rowids" for one in generations(store)]
    sql = "SELECT count(*) FROM {} WHERE rowid NOT IN (SELECT id FROM chunks)"
    answers = int(store.value(f"SELECT count(*) FROM meta WHERE {ANSWER_ALONE}", (MODEL_ANSWER,)))
    return answers + texts_alone(store) + sum(int(store.value(sql.format(table))) for table in tables)
