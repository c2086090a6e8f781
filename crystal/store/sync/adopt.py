"""Copy rows of another store into this one, when a machine becomes home and keeps the content of its mirror.

The rows have no archive here; when their archive arrives later, they are recognised by their uuids and stay.
"""

from __future__ import annotations

from itertools import groupby

from crystal.model.capture import Chunk, Origin, Project, Turn
from crystal.store.capture import turns
from crystal.store.connection import Row, Store
from crystal.store.forget.forgetting import read_blocks
from crystal.store.memories import memories
from crystal.store.memories.learned import Evidence, add_evidence

PAGE = 500

_TURNS = (
    "SELECT t.id, t.uuid, t.part, t.role, '', t.offset, t.ts, NULL, p.cwd, t.branch, t.tool, t.message_id,"
    " t.model, t.full_length, p.cwd, p.git_root, p.remote, p.name, s.title, c.agent, c.device, s.session_id,"
    " t.subagent, s.harness"
    " FROM turns t JOIN sessions s ON s.id = t.session LEFT JOIN projects p ON p.id = t.project"
    " JOIN chunks c ON c.id = (SELECT min(id) FROM chunks WHERE turn = t.id) WHERE t.id > ? ORDER BY t.id LIMIT ?"
)
"""A turn's row id, the fields of a ``Turn`` (its chunks are its text), of a ``Project``, the title, an ``Origin``."""
_TURN, _PROJECT, _TITLE, _ORIGIN = slice(1, 14), slice(14, 18), 18, slice(19, None)


def adopt_turns(store: Store, other: Store) -> None:
    """Copy every turn that this store lacks from another store. Can be repeated."""
    after = 0
    while rows := other.rows(_TURNS, (after, PAGE)):
        chunks: dict[int, list[Chunk]] = {}
        sql = "SELECT turn, start, text FROM chunks WHERE turn BETWEEN ? AND ? ORDER BY turn, start"
        for turn, start, text in other.rows(sql, (rows[0][0], rows[-1][0])):
            chunks.setdefault(turn, []).append(Chunk(start, text))
        after = rows[-1][0]
        with store.transaction():
            for origin, group in groupby(rows, key=lambda row: Origin(*row[_ORIGIN])):
                _add(store, origin, list(group), chunks)


def _add(store: Store, origin: Origin, rows: list[Row], chunks: dict[int, list[Chunk]]) -> None:
    """Add turns of one session, except forgotten ones. Inside a transaction."""
    blocks = read_blocks(store)
    said: list[tuple[Turn, int | None, list[Chunk]]] = []
    projects: dict[str, Project] = {}
    for row in rows:
        turn = Turn(*row[_TURN])
        if blocks is None or not blocks.holds(turn.uuid, origin.session_id, turn.timestamp, turn.cwd):
            said.append((turn, None, chunks[row[0]]))
            if turn.cwd is not None:
                projects[turn.cwd] = Project(*row[_PROJECT])
    known = store.value("SELECT title FROM sessions WHERE session_id = ?", (origin.session_id,))
    turns.add_turns(store, origin, said, projects, rows[-1][_TITLE] if said and known is None else None)


def adopt_memories(store: Store, other: Store) -> int:
    """Copy every memory that is newer in the other store; return the number. Can be repeated."""
    added = after = 0
    while found := memories.versions_after(other, after, PAGE):
        after = found[-1][0]
        with store.transaction():
            added += sum(memories.put_version(store, version) for _, version in found)
    return added


def adopt_evidence(store: Store, other: Store) -> None:
    """Copy what says which lines taught memories, except of forgotten ones. Can be repeated."""
    blocks, gone = read_blocks(store), memories.forgotten_memories(store)
    with store.transaction():
        for one in other.select(Evidence, "learned_from"):
            is_forgotten = blocks is not None and blocks.holds(one.line, one.session, one.at, None)
            if not is_forgotten and one.memory not in gone:
                add_evidence(store, one)
