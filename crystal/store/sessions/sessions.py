"""Run the queries for summaries and the daily log: due sessions, their messages and times, and what was written.

The row is the queue: a session is due while its newest turn is newer than the last one that its summary covers.
A session's turns are its own and those that a fork copied into it.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

from crystal.model.named_tuple import NamedTuple
from crystal.store.connection import GIVEN, Row, Store
from crystal.store.costs import DAY_MS
from crystal.store.sessions.conversations import ALL_TURNS, SESSION, Session
from crystal.store.sessions.turn_texts import turn_texts
from crystal.store.sessions.waiting import DUE

SummaryMode = Literal["simple", "llm", "deferred"]
"""``deferred``: made without the model, which was unavailable; it is tried again later."""

CALL_CHARACTERS = 500
MAX_CALLS = 100_000


class SessionCounts(NamedTuple):
    """Numbers of messages of the user and of the assistant, of tool calls and of subagents in a session."""

    user: int = 0
    assistant: int = 0
    tool_calls: int = 0
    subagents: int = 0


class SummaryTurn(NamedTuple):
    """A turn as input of a summary: ``text`` is its beginning, ``length`` the length of the whole in characters."""

    id: int
    role: str
    text: str
    tool: str | None = None
    ts: int | None = None
    subagent: str | None = None
    length: int = 0


_GIVEN = "title IS NOT NULL AND title IS NOT summary_title"


def session_named(store: Store, session_id: str) -> Session | None:
    """Return the session with the agent's id ``session_id``."""
    return store.find(Session, f"{SESSION} WHERE s.session_id = ?", (session_id,))


def due_sessions(store: Store, *, now: int, idle_ms: int, limit: int) -> list[Session]:
    """Return the sessions that ``count_due`` counts, latest first."""
    return store.all(
        Session,
        f"{SESSION} WHERE {DUE} ORDER BY s.last_at DESC, s.id DESC LIMIT ?3",
        (now - idle_ms, now + DAY_MS, limit),
    )


def sessions_summarized_as(store: Store, modes: Sequence[SummaryMode], *, limit: int) -> list[Session]:
    """Return sessions whose summary was made in one of ``modes``, latest first."""
    return store.all(
        Session,
        f"{SESSION} WHERE s.summary_mode IN {GIVEN} AND s.last_turn > 0 ORDER BY s.last_at DESC, s.id DESC LIMIT ?",
        (modes, limit),
    )


def count_turns(store: Store, session: int) -> SessionCounts:
    """Count a session's messages, tool calls and subagents. A message of several blocks counts once."""
    return store.all(
        SessionCounts,
        "SELECT count(DISTINCT CASE WHEN role = 'user' AND subagent IS NULL THEN uuid END),"
        " count(DISTINCT CASE WHEN role = 'assistant' AND subagent IS NULL THEN coalesce(message_id, uuid) END),"
        " coalesce(sum(role = 'tool_call'), 0), count(DISTINCT subagent)"
        f" FROM {ALL_TURNS}",
        (session,),
    )[0]


def read_calls(store: Store, session: int) -> list[SummaryTurn]:
    """Return the beginnings of a session's tool calls, in order; for a very long session only the latest."""
    return store.all(
        SummaryTurn,
        "SELECT * FROM (SELECT t.id, t.role, substr(c.text, 1, ?2), t.tool, t.ts, t.subagent, t.full_length"
        f" FROM {ALL_TURNS} t JOIN chunks c ON c.turn = t.id AND c.start = 0 WHERE t.role = 'tool_call'"
        " ORDER BY t.ts IS NULL DESC, t.ts DESC, t.id DESC LIMIT ?3) ORDER BY ts IS NULL, ts, id",
        (session, CALL_CHARACTERS, MAX_CALLS),
    )


def read_said(store: Store, session: int, roles: Iterable[str], *, each: int, total: int) -> list[SummaryTurn]:
    """Return the messages of a session with ``roles``, in order.

    Args:
        store: The store.
        session: The session's row id.
        roles: The wanted roles.
        each: Maximum characters of one turn, from its beginning.
        total: Maximum characters in all. A longer session is read at both ends; two thirds are for its end.
    """
    rows = store.rows(
        f"SELECT id, role, tool, ts, subagent, full_length FROM {ALL_TURNS}"
        " WHERE role IN (SELECT value FROM json_each(?2)) ORDER BY ts IS NULL, ts, id",
        (session, [*roles]),
    )
    kept = _both_ends(rows, each, total)
    texts = turn_texts(store, [int(row[0]) for row in kept], each)
    return [
        SummaryTurn(ident, role, texts[ident][1], tool, ts, subagent, length)
        for ident, role, tool, ts, subagent, length in kept
        if ident in texts and texts[ident][1]
    ]


def summarizable(store: Store, session: Session, path: str) -> str | None:
    """Store the path of a session's summary before it is made, so that a crash cannot lead to a second file.

    Returns:
        The path stored first, relative to the agent's folder; None if the session is gone.
    """
    if session.summary_path:
        return session.summary_path
    return store.find(
        str,
        "UPDATE sessions SET summary_path = coalesce(summary_path, ?) WHERE id = ? AND session_id = ?"
        " RETURNING summary_path",
        (path, session.id, session.session_id),
    )


def mark_summarized(store: Store, session: Session, mode: SummaryMode, title: str) -> bool:
    """Record that the summary covers all turns up to ``session.last_turn``. Inside a transaction.

    A title from the user or the client is kept.

    Returns:
        False if the session is gone, or a better summary was written meanwhile: then keep that one.
    """
    return store.has(
        "UPDATE sessions SET summarized_turn = ?1, summary_mode = ?2,"
        f" title = CASE WHEN {_GIVEN} THEN title ELSE ?3 END,"
        f" summary_title = CASE WHEN {_GIVEN} THEN summary_title ELSE ?3 END"
        # A missing path means that a part of the session was forgotten meanwhile; this summary may contain it.
        " WHERE id = ?4 AND session_id = ?5 AND summary_path IS NOT NULL AND (summarized_turn < ?1"
        " OR summarized_turn = ?1 AND (?2 = 'llm' OR summary_mode IS NOT 'llm')) RETURNING id",
        (session.last_turn, mode, title, session.id, session.session_id),
    )


def _both_ends(rows: list[Row], each: int, total: int) -> list[Row]:
    """Remove the rows in the middle that exceed ``total``."""
    sizes = [min(int(row[5]), each) for row in rows]
    if sum(sizes) <= total:
        return rows
    head = _count_fitting(sizes, total // 3)
    tail = _count_fitting(sizes[: head - 1 : -1] if head else sizes[::-1], total - total // 3)
    return rows[:head] + rows[len(rows) - tail :]


def _count_fitting(sizes: list[int], budget: int) -> int:
    """Return how many of ``sizes``, from the first on, fit into ``budget``."""
    for count, size in enumerate(sizes):
        budget -= size
        if budget < 0:
            return count
    return len(sizes)


# ------------------------------------------------------------------------------------------------------- daily log


def unlogged_sessions(store: Store, *, after: int, limit: int) -> list[Session]:
    """Return sessions with turns newer than their log and a row id above ``after``, in the order of row ids."""
    sql = f"{SESSION} WHERE s.last_turn > s.logged_turn AND s.id > ? ORDER BY s.id LIMIT ?"
    return store.all(Session, sql, (after, limit))


def times_around(store: Store, session: Session, *, reach: int) -> list[tuple[int, int]]:
    """Return (time, turn id) of the session's turns from ``reach`` ms before the earliest unlogged one, in order.

    Turns without a time are left out, and copies in a fork, because they happened in another session.
    """
    first = store.value("SELECT min(ts) FROM turns WHERE session = ? AND id > ?", (session.id, session.logged_turn))
    if first is None:
        return []
    sql = "SELECT ts, id FROM turns WHERE session = ? AND ts >= ? ORDER BY ts, id"
    return store.rows(sql, (session.id, first - reach))


def opening_of(store: Store, session: int, *, start: int | None, stop: int | None) -> str:
    """Return the beginning of the user's first message in a period, or of anyone's if the user wrote none.

    None for ``start`` and ``stop`` means turns without a time. Empty if there is no message.
    """
    when, values = ("t.ts IS NULL", ()) if start is None else ("t.ts BETWEEN ? AND ?", (start, stop))
    found = store.find(
        str,
        f"SELECT c.text FROM turns t JOIN chunks c ON c.turn = t.id AND c.start = 0 WHERE t.session = ? AND {when}"
        " AND t.role IN ('user', 'assistant', 'subagent', 'summary', 'tool_call')"
        " ORDER BY CASE WHEN t.subagent IS NOT NULL THEN 3 WHEN t.role = 'user' THEN 0 WHEN t.role = 'assistant' THEN 1"
        " ELSE 2 END, t.ts, t.id LIMIT 1",
        (session, *values),
    )
    return found or ""


def mark_logged(store: Store, sessions: Sequence[Session]) -> None:
    """Record that the log covers all turns up to each session's ``last_turn``. Inside the transaction that read it."""
    store.execute_many(
        "UPDATE sessions SET logged_turn = max(logged_turn, ?) WHERE id = ?",
        [(session.last_turn, session.id) for session in sessions],
    )
