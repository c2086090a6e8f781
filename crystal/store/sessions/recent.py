"""The latest messages by a person or the assistant, and the times of a session's messages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from crystal.model.capture import Memory
from crystal.store.connection import Row, Store
from crystal.store.sessions.conversations import AgentNames, turn_texts


@dataclass(frozen=True, slots=True)
class Message:
    """Message of a person or the assistant. ``hit`` is its number for ``show``."""

    hit: int
    uuid: str
    role: str
    text: str
    timestamp: int
    session_id: str
    project: str | None
    branch: str | None
    agent: str
    device: str
    memory: Memory = "local"


# The plus signs keep SQLite on the index of times: the latest few are read, not all of a role.
_MESSAGES = (
    "SELECT t.id, t.part, c.id, t.uuid, c.role, c.ts, s.session_id, p.name, c.branch, c.agent, c.device FROM chunks c"
    " JOIN turns t ON t.id = c.turn JOIN sessions s ON s.id = c.session LEFT JOIN projects p ON p.id = c.project"
    " WHERE c.start = 0 AND +c.role IN ('user', 'assistant') AND +c.source = 'conversation' AND +c.subagent IS NULL"
    " AND c.ts < ? AND s.session_id IS NOT ?"
)
_LATEST = " ORDER BY c.ts DESC, c.id DESC LIMIT ?"


def latest_messages(
    store: Store,
    *,
    projects: Sequence[int] | None,
    agents: AgentNames | None,
    before: int,
    without: str | None,
    limit: int,
) -> list[tuple[int, Message]]:
    """Return the latest messages with a time, newest first, each with its number among the parts of its line.

    Args:
        store: The store.
        projects: Only in these; None for all.
        agents: Only to these; None for all.
        before: Only what was said before this.
        without: A session whose messages are left out.
        limit: How many at most.
    """
    with store.reading():
        rows: list[Row] = []
        sql, values = _MESSAGES, list[int | str | None]((before, without))
        if agents is not None:
            sql += f" AND +s.{agents[0]} IN (SELECT value FROM json_each(?))"
            values.append(json.dumps(agents[1]))
        if projects is None:
            rows = store.rows(sql + _LATEST, (*values, limit))
        for project in projects or ():
            rows += store.rows(f"{sql} AND c.project = ?{_LATEST}", (*values, project, limit))
        rows.sort(key=lambda row: (row[5], row[2]), reverse=True)
        texts = turn_texts(store, [int(row[0]) for row in rows[:limit]])
    return [
        (part, Message(chunk, uuid, role, texts[turn][1], *rest))
        for turn, part, chunk, uuid, role, *rest in rows[:limit]
        if turn in texts
    ]


def moments(store: Store, session_id: str, since: int, before: int) -> list[int]:
    """Return the times of a session's messages within a period, in order."""
    rows = store.rows(
        "SELECT t.ts FROM turns t JOIN sessions s ON s.id = t.session"
        " WHERE s.session_id = ? AND t.ts >= ? AND t.ts < ? ORDER BY t.ts",
        (session_id, since, before),
    )
    return [int(ts) for (ts,) in rows]


def session_starts(store: Store, since: int) -> list[tuple[str, int]]:
    """Return (id, time of the first turn) of each session that began at ``since`` or later, in no order."""
    sql = (
        "SELECT session_id, started_at FROM sessions s WHERE started_at >= ?"
        " AND EXISTS (SELECT 1 FROM turns t WHERE t.session = s.id)"
    )
    return [(str(ident), int(at)) for ident, at in store.rows(sql, (since,))]
