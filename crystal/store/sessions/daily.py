"""Queries for the daily log: sessions with turns that are not logged, their times, and their first words."""

from collections.abc import Sequence
from typing import NamedTuple

from crystal.store.connection import Store


class Unlogged(NamedTuple):
    """A session with turns that are not in the daily log."""

    id: int
    session_id: str
    agent: str
    project: str | None
    last_turn: int
    logged_turn: int


def unlogged_sessions(store: Store, *, after: int, limit: int) -> list[Unlogged]:
    """Return sessions with turns newer than their log, by row id, those with an id above ``after``."""
    rows = store.rows(
        "SELECT s.id, s.session_id, s.agent, p.name, s.last_turn, s.logged_turn FROM sessions s"
        " LEFT JOIN projects p ON p.id = s.project WHERE s.last_turn > s.logged_turn AND s.id > ?"
        " ORDER BY s.id LIMIT ?",
        (after, limit),
    )
    return [Unlogged(*row) for row in rows]


def stretches_unseen(store: Store) -> list[tuple[int | None, int | None, int | None]]:
    """Return, of each session with turns newer than its log: the last time logged, the first and the last since; ms.

    None if nothing was logged, or no turn has a time.
    """
    rows = store.rows(
        "SELECT (SELECT max(ts) FROM turns WHERE session = s.id AND id <= s.logged_turn),"
        " (SELECT min(ts) FROM turns WHERE session = s.id AND id > s.logged_turn),"
        " (SELECT max(ts) FROM turns WHERE session = s.id AND id > s.logged_turn)"
        " FROM sessions s WHERE s.last_turn > s.logged_turn"
    )
    return [(seen, first, last) for seen, first, last in rows]


def times_around(store: Store, session: Unlogged, *, reach: int) -> list[tuple[int, int]]:
    """Return (time, turn id) of the session's turns from ``reach`` ms before the earliest unlogged one, in order.

    Turns without a time are left out; so are those that a fork copied, because they happened in another session.
    """
    first = store.value("SELECT min(ts) FROM turns WHERE session = ? AND id > ?", (session.id, session.logged_turn))
    if first is None:
        return []
    rows = store.rows(
        "SELECT ts, id FROM turns WHERE session = ? AND ts >= ? ORDER BY ts, id", (session.id, int(first) - reach)
    )
    return [(int(at), int(ident)) for at, ident in rows]


def opening_of(store: Store, session: int, *, start: int | None, stop: int | None) -> str:
    """Return the beginning of the first message in a period: by the human, else by anyone.

    None for ``start`` and ``stop`` means turns without a time. Empty if there is no message.
    """
    when, values = ("t.ts IS NULL", ()) if start is None else ("t.ts BETWEEN ? AND ?", (start, stop))
    text = store.value(
        f"SELECT c.text FROM turns t JOIN chunks c ON c.turn = t.id AND c.start = 0 WHERE t.session = ? AND {when}"
        " AND t.role IN ('user', 'assistant', 'subagent', 'summary', 'tool_call')"
        " ORDER BY CASE WHEN t.subagent IS NOT NULL THEN 3 WHEN t.role = 'user' THEN 0 WHEN t.role = 'assistant' THEN 1"
        " ELSE 2 END, t.ts, t.id LIMIT 1",
        (session, *values),
    )
    return "" if text is None else str(text)


def mark_logged(store: Store, sessions: Sequence[Unlogged]) -> None:
    """Note that the log covers all turns up to each session's ``last_turn``. Inside the transaction that read it."""
    store.execute_many(
        "UPDATE sessions SET logged_turn = max(logged_turn, ?) WHERE id = ?",
        [(session.last_turn, session.id) for session in sessions],
    )
