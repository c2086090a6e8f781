"""Copy rows of another store into this one: a machine that becomes home keeps what home's mirror knows.

The rows have no archive here; when their archive comes later, they are recognised by their uuids and stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from crystal.model.capture import Chunk, Origin, Project, Turn
from crystal.store.capture import turns
from crystal.store.connection import Row, Store
from crystal.store.forget.forgetting import Blocks, read_blocks
from crystal.store.memories import memories

PAGE = 500


@dataclass(frozen=True, slots=True)
class _Said:
    origin: Origin
    turn: Turn
    chunks: list[Chunk]
    project: Project | None
    title: str | None


def adopt_turns(store: Store, other: Store) -> int:
    """Copy every turn of a store that this one does not have; return how many were new. Can be run again."""
    added = after = 0
    while rows := _page(other, after):
        after = rows[-1][0]
        said = list(_read(other, rows))
        with store.transaction():
            blocks = read_blocks(store)
            kept = said if blocks is None else [one for one in said if not _is_forgotten(blocks, one)]
            for origin, group in groupby(kept, key=lambda one: one.origin):
                added += _add(store, origin, list(group))
    return added


def _is_forgotten(blocks: Blocks, one: _Said) -> bool:
    return blocks.holds(one.turn.uuid, one.origin.session_id, one.turn.timestamp, one.turn.cwd)


def adopt_memories(store: Store, other: Store) -> int:
    """Copy every memory of a store that is newer than this one's; return how many. Can be run again."""
    added = after = 0
    while found := memories.versions_after(other, after, PAGE):
        after = found[-1][0]
        with store.transaction():
            added += sum(memories.put_version(store, version) for _, version in found)
    return added


def _add(store: Store, origin: Origin, said: list[_Said]) -> int:
    projects = {one.project.cwd: one.project for one in said if one.project is not None}
    placed = [(one.turn, None, one.chunks) for one in said]
    known = store.value("SELECT title FROM sessions WHERE session_id = ?", (origin.session_id,))
    return turns.add_turns(store, origin, placed, projects, said[-1].title if known is None else None).turns


def _page(other: Store, after: int) -> list[Row]:
    return other.rows(
        "SELECT t.id, t.uuid, t.part, t.role, t.offset, t.ts, t.parent_uuid, t.branch, t.tool, t.message_id, t.model,"
        " t.full_length, t.subagent, s.session_id, s.title, p.cwd, p.git_root, p.remote, p.name"
        " FROM turns t JOIN sessions s ON s.id = t.session LEFT JOIN projects p ON p.id = t.project"
        " WHERE t.id > ? ORDER BY t.id LIMIT ?",
        (after, PAGE),
    )


def _read(other: Store, rows: list[Row]) -> Iterator[_Said]:
    chunks: dict[int, list[Row]] = {}
    for row in other.rows(
        "SELECT turn, start, text, agent, device FROM chunks WHERE turn BETWEEN ? AND ? ORDER BY turn, start",
        (rows[0][0], rows[-1][0]),
    ):
        chunks.setdefault(row[0], []).append(row)
    for row in rows:
        parts = chunks.get(row[0])
        if parts:
            yield _said(row, parts)


def _said(row: Row, parts: list[Row]) -> _Said:
    fields: list[Any] = list(row)
    _, uuid, part, role, offset, ts, parent, branch, tool, message, model, length, subagent, session, title = fields[
        :15
    ]
    cwd, root, remote, name = fields[15:]
    turn = Turn(
        uuid=uuid,
        part=part,
        role=role,
        text="",  # the chunks are what is stored
        offset=offset,
        timestamp=ts,
        parent_uuid=parent,
        cwd=cwd,
        branch=branch,
        tool=tool,
        message_id=message,
        model=model,
        full_length=length,
    )
    project = None if cwd is None else Project(cwd, root, remote, name)
    origin = Origin(parts[0][3], parts[0][4], session, subagent)
    return _Said(origin, turn, [Chunk(start, text) for _, start, text, _, _ in parts], project, title)
