"""Read conversations: the list of sessions, a session's turns in order, their texts, and the latest messages.

A session's turns are its own and those that its transcript repeats from another session (a fork begins with copies).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Literal, TypeAlias

from crystal.model.capture import Memory
from crystal.model.named_tuple import NamedTuple
from crystal.model.quick_dataclass import dataclass
from crystal.store.connection import GIVEN, Row, Store
from crystal.store.sessions.turn_texts import turn_texts

ALL_TURNS = (
    "(SELECT *, 0 AS copied FROM turns WHERE session = ?1"
    " UNION ALL SELECT t.*, 1 FROM turn_copies c JOIN turns t ON t.id = c.turn WHERE c.session = ?1)"
)

AgentNames: TypeAlias = tuple[Literal["agent", "harness"], tuple[str, ...]]
"""A column of ``sessions``, and the values that it may have."""


class Session(NamedTuple):
    """A session's row with its project. ``project`` is the project's name, ``cwd`` the folder of the first turn."""

    id: int
    session_id: str
    agent: str
    device: str
    project: str | None
    cwd: str | None
    git_root: str | None
    branch: str | None
    title: str | None
    started_at: int | None
    last_at: int | None
    ended_at: int | None
    last_turn: int
    summarized_turn: int
    summary_path: str | None
    summary_mode: str | None
    summary_title: str | None
    logged_turn: int
    harness: str

    @property
    def given_title(self) -> str | None:
        """Return the title from the user or the client; None if the summary made it."""
        return self.title if self.title and self.title != self.summary_title else None


class TurnRow(NamedTuple):
    """A turn without its text. ``copied`` is 1 if it belongs to another session, which this one forks, else 0."""

    id: int
    uuid: str
    part: int
    role: str
    tool: str | None
    subagent: str | None
    ts: int | None
    offset: int
    branch: str | None
    message_id: str | None
    model: str | None
    full_length: int
    copied: int


class ChunkPlace(NamedTuple):
    """The row ids of a chunk's turn and session; None if it is in no transcript."""

    chunk: int
    turn: int | None
    session: int | None


SESSION = (
    "SELECT s.id, s.session_id, s.agent, s.device, p.name, p.cwd, p.git_root, s.branch, s.title, s.started_at,"
    " s.last_at, s.ended_at, s.last_turn, s.summarized_turn, s.summary_path, s.summary_mode, s.summary_title,"
    " s.logged_turn, s.harness"
    " FROM sessions s LEFT JOIN projects p ON p.id = s.project"
)
_HAS_TURNS = (
    "(EXISTS (SELECT 1 FROM turns t WHERE t.session = s.id)"
    " OR EXISTS (SELECT 1 FROM turn_copies c WHERE c.session = s.id))"
)


def list_sessions(
    store: Store,
    *,
    projects: Sequence[int] | None,
    agents: AgentNames | None = None,
    since: int | None,
    before: int | None,
    limit: int,
) -> list[Session]:
    """Return sessions with at least one message, latest first.

    Args:
        store: The store.
        projects: Only sessions that began in one of these; None for all.
        agents: Only sessions of these; None for all.
        since: Only sessions with a turn at this time or later.
        before: Only sessions that began before this time.
        limit: Maximum number of sessions.
    """
    column, names = agents or ("agent", None)
    return store.all(
        Session,
        f"{SESSION} WHERE (?1 IS NULL OR s.project IN (SELECT value FROM json_each(?1)))"
        f" AND (?2 IS NULL OR s.{column} IN (SELECT value FROM json_each(?2))) AND (?3 IS NULL OR s.last_at >= ?3)"
        f" AND (?4 IS NULL OR coalesce(s.started_at, s.last_at) < ?4) AND {_HAS_TURNS}"
        " ORDER BY s.last_at IS NULL, s.last_at DESC, s.id DESC LIMIT ?5",
        (projects, names, since, before, limit),
    )


def session_row(store: Store, row: int) -> Session | None:
    """Return one session."""
    return store.find(Session, f"{SESSION} WHERE s.id = ?", (row,))


def find_session_row(store: Store, session_id: str) -> int | None:
    """Return the row id of the session with exactly this id."""
    return store.find(int, "SELECT id FROM sessions WHERE session_id = ?", (session_id,))


def count_turns(store: Store, session: int) -> int:
    """Return the number of turns in a session."""
    own = store.value("SELECT count(*) FROM turns WHERE session = ?", (session,))
    return int(own + store.value("SELECT count(*) FROM turn_copies WHERE session = ?", (session,)))


def first_words(store: Store, session: int, characters: int) -> str | None:
    """Return the beginning of the first human message in a session."""
    return store.find(
        str,
        f"SELECT substr(c.text, 1, ?2) FROM {ALL_TURNS} t JOIN chunks c ON c.turn = t.id AND c.start = 0"
        " WHERE t.role = 'user' AND t.subagent IS NULL ORDER BY t.ts IS NULL, t.ts, t.offset, t.part LIMIT 1",
        (session, characters),
    )


def last_answer(store: Store, session: int, characters: int = 4_000) -> str | None:
    """Return the beginning of the assistant's last answer in a session, ignoring text before a tool call."""
    return store.find(
        str,
        "SELECT substr(c.text, 1, ?2) FROM (SELECT *, lead(role) OVER (ORDER BY ts, offset, part) AS next"
        f" FROM {ALL_TURNS} WHERE role IN ('user', 'assistant', 'tool_call') AND subagent IS NULL) t"
        " JOIN chunks c ON c.turn = t.id AND c.start = 0 WHERE t.role = 'assistant' AND t.next IS NOT 'tool_call'"
        " ORDER BY t.ts DESC, t.offset DESC, t.part DESC LIMIT 1",
        (session, characters),
    )


def requests_of(store: Store, session: int, before: int | None = None) -> list[str]:
    """Return the beginnings of the user's messages in a session, until a moment (ms), in order."""
    asked = "session = ?1 AND role = 'user' AND subagent IS NULL AND (?2 IS NULL OR ts < ?2)"
    sql = f"SELECT id FROM turns WHERE {asked} ORDER BY ts, offset"
    turns = store.all(int, sql, (session, before))
    texts = turn_texts(store, turns, 2_000)
    return [texts[turn][1] for turn in turns if turn in texts]


_ORDER = "ts, coalesce(subagent, ''), offset, part, id"


def session_turns(store: Store, session: int) -> list[TurnRow]:
    """Return the turns of a session in chronological order.

    Lines are sometimes out of order in a transcript, so they are sorted by time; a turn without a time stays after
    the one before it in its file.
    """
    order = "ORDER BY subagent IS NOT NULL, subagent, offset, part, id"
    turns = store.select(TurnRow, f"{ALL_TURNS} {order}", (session,))
    keyed: list[tuple[int, TurnRow]] = []
    last: tuple[str | None, int] = (None, 0)
    for turn in turns:
        known = last[1] if last[0] == turn.subagent else 0
        last = (turn.subagent, known if turn.ts is None else turn.ts)
        keyed.append((last[1], turn))
    return [turn for _, turn in sorted(keyed, key=lambda item: item[0])]


def turns_page(store: Store, session: int, start: int, limit: int) -> list[TurnRow]:
    """Return a page of ``session_turns``; reads only these turns if all turns have a time."""
    if not _is_sorted_by_time(store, session):
        return session_turns(store, session)[start : start + limit]
    own = "(SELECT *, 0 AS copied FROM turns WHERE session = ?)"
    return store.select(TurnRow, f"{own} ORDER BY {_ORDER} LIMIT ? OFFSET ?", (session, limit, start))


def turns_before(store: Store, session: int, turn: int) -> int:
    """Count the turns of a session before a turn, in the order of ``session_turns``."""
    if not _is_sorted_by_time(store, session):
        return next((at for at, one in enumerate(session_turns(store, session)) if one.id == turn), 0)
    sql = (
        "SELECT count(*) FROM turns t JOIN (SELECT * FROM turns WHERE id = ?2) u ON t.session = ?1 AND t.ts <= u.ts"
        " AND (t.ts, coalesce(t.subagent, ''), t.offset, t.part, t.id)"
        " < (u.ts, coalesce(u.subagent, ''), u.offset, u.part, u.id)"
    )
    return int(store.value(sql, (session, turn)))


def _is_sorted_by_time(store: Store, session: int) -> bool:
    """Return True if each turn has a time and none is a copy, so that SQLite can sort them."""
    undated = "SELECT 1 FROM turns WHERE session = ?1 AND ts IS NULL"
    return not store.has(f"{undated} UNION ALL SELECT 1 FROM turn_copies WHERE session = ?1 LIMIT 1", (session,))


def said_after(store: Store, session_id: str, at: int, limit: int) -> list[tuple[int, str]]:
    """Return (time, beginning) of what user and assistant said and called in a session from a moment on."""
    sql = (
        "SELECT t.id, t.ts FROM turns t JOIN sessions s ON s.id = t.session WHERE s.session_id = ? AND t.ts >= ?"
        " AND t.role IN ('user', 'assistant', 'tool_call') ORDER BY t.ts, t.id LIMIT ?"
    )
    times = {int(ident): int(ts) for ident, ts in store.rows(sql, (session_id, at, limit))}
    return [(times[ident], text) for ident, (_, text) in turn_texts(store, times, 2_000).items()]


def turns_of_lines(store: Store, uuids: Iterable[str]) -> dict[str, list[tuple[str, str, str | None]]]:
    """Return (role, text, tool) of the turns of lines, by line id; lines without turns are left out."""
    sql = f"SELECT id, uuid, role, tool FROM turns WHERE uuid IN {GIVEN} ORDER BY id"
    rows = store.rows(sql, ([*uuids],))
    texts = turn_texts(store, [ident for ident, *_ in rows])
    found: dict[str, list[tuple[str, str, str | None]]] = {}
    for ident, uuid, role, tool in rows:
        found.setdefault(uuid, []).append((role, texts[ident][1] if ident in texts else "", tool))
    return found


class SaidTurn(NamedTuple):
    """A message or a tool call of a session."""

    uuid: str
    role: str
    tool: str | None
    text: str


def said_in_session(store: Store, session_id: str, without: Collection[str]) -> list[SaidTurn]:
    """Return the messages and tool calls of a session and its subagents by time, without those from some harnesses.

    Turns that a fork repeats are included.
    """
    session = find_session_row(store, session_id)
    turns = store.rows(
        f"SELECT t.id, t.uuid, t.role, t.tool FROM {ALL_TURNS} t LEFT JOIN segments g ON g.id = t.segment"
        " WHERE t.role NOT IN ('tool_result', 'summary')"
        " AND coalesce(g.transcript, 0) NOT IN (SELECT id FROM capture_state WHERE harness IN"
        " (SELECT value FROM json_each(?2))) ORDER BY t.ts, t.offset, t.part",
        (session, [*without]),
    )
    texts = turn_texts(store, [ident for ident, *_ in turns])
    return [SaidTurn._make((*said, texts[ident][1])) for ident, *said in turns if ident in texts]


def lines_of_other_sessions(store: Store, uuids: Sequence[str], session_id: str) -> list[tuple[str, str]]:
    """Return (line, other session) for those of these lines that are stored with another session."""
    return store.rows(
        "SELECT DISTINCT t.uuid, s.session_id FROM turns t JOIN sessions s ON s.id = t.session"
        f" WHERE t.uuid IN {GIVEN} AND s.session_id <> ?",
        ([*uuids], session_id),
    )


def place_of_chunk(store: Store, chunk: int) -> ChunkPlace | None:
    """Return the place of a chunk, or None if it does not exist."""
    if not 0 < chunk < 2**63:
        return None
    return store.find(ChunkPlace, "SELECT id, turn, session FROM chunks WHERE id = ?", (chunk,))


def chunk_of_uuid(store: Store, uuid: str) -> int | None:
    """Return the first chunk of the transcript line with this id."""
    return store.find(
        int,
        "SELECT c.id FROM turns t JOIN chunks c ON c.turn = t.id WHERE t.uuid = ? ORDER BY t.part, c.start LIMIT 1",
        (uuid,),
    )


@dataclass(frozen=True, slots=True)
class Message:
    """A message of the user or the assistant. ``hit`` is its number for ``show``."""

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


# The plus signs make SQLite use the index of times: it reads the latest few rows, not all of a role.
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
    """Return the latest messages with a time, newest first, each with its part number in its line.

    Args:
        store: The store.
        projects: Only messages in these; None for all.
        agents: Only messages to or from these; None for all.
        before: Only messages before this time.
        without: A session whose messages are left out.
        limit: Maximum number of messages.
    """
    with store.reading():
        rows: list[Row] = []
        column, names = agents or ("agent", None)
        sql = f"{_MESSAGES} AND (?3 IS NULL OR +s.{column} IN (SELECT value FROM json_each(?3)))"
        if projects is None:
            rows = store.rows(sql + _LATEST, (before, without, names, limit))
        for project in projects or ():
            rows += store.rows(f"{sql} AND c.project = ?{_LATEST}", (before, without, names, project, limit))
        rows.sort(key=lambda row: (row[5], row[2]), reverse=True)
        texts = turn_texts(store, [int(row[0]) for row in rows[:limit]])
    return [
        (part, Message(chunk, uuid, role, texts[turn][1], *rest))
        for turn, part, chunk, uuid, role, *rest in rows[:limit]
        if turn in texts
    ]


def moments(store: Store, session_id: str, since: int, before: int) -> list[int]:
    """Return the times of a session's messages within a period, in order."""
    return store.all(
        int,
        "SELECT t.ts FROM turns t JOIN sessions s ON s.id = t.session"
        " WHERE s.session_id = ? AND t.ts >= ? AND t.ts < ? ORDER BY t.ts",
        (session_id, since, before),
    )


def session_days(store: Store, since: int, projects: Sequence[int] | None = None) -> list[tuple[str, str]]:
    """Return (id, local day of the first turn) of each session that began at ``since`` or later, in no order.

    ``projects`` are those in which the sessions began; None means all.
    """
    day = "coalesce(date(started_at / 1000, 'unixepoch', 'localtime'), '')"
    has_turns = "EXISTS (SELECT 1 FROM turns t WHERE t.session = s.id)"
    return store.rows(
        f"SELECT session_id, {day} FROM sessions s WHERE started_at >= ?1 AND {has_turns}"
        " AND (?2 IS NULL OR project IN (SELECT value FROM json_each(?2)))",
        (since, projects),
    )
