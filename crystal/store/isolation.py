"""Hide the conversations of isolated agents and projects from a connection that reads for another agent.

Temporary views with the names of the tables filter every query of the connection, also queries added later: see
docs/adr/0040-isolation-by-agent.md. Without hidden content the connection has no views.
"""

from collections.abc import Iterable

from crystal.config.harnesses import CLAUDE_CODE
from crystal.store.connection import GIVEN, Store, as_json
from crystal.store.driver import translated
from crystal.store.hidden import Hidden

MAX_SOURCE = 50

_NOT_HIDDEN = "NOT EXISTS (SELECT 1 FROM main.sessions h WHERE h.{} = x.{} AND (h.harness IN ({{names}}){{strayed}}))"
_OF_SEEN_SESSION = _NOT_HIDDEN.format("id", "session")
_OF_KNOWN_SESSION = _NOT_HIDDEN.format("session_id", "session_id") + "{known}"
_OF_SEEN_TRANSCRIPT = "EXISTS (SELECT 1 FROM capture_state s WHERE s.id = x.transcript)"
_OF_SEEN_MEMORY = "EXISTS (SELECT 1 FROM memories m WHERE m.id = x.memory)"

SHADOWS = {
    "sessions": _NOT_HIDDEN.format("id", "id"),
    "turns": f"{_OF_SEEN_SESSION}{{elsewhere}}",
    "turn_copies": f"{_OF_SEEN_SESSION} AND EXISTS (SELECT 1 FROM turns t WHERE t.id = x.turn)",
    "memories": f"{_NOT_HIDDEN.format('session_id', 'session')}{{not_theirs}}{{elsewhere}}{{owned}}",
    "memory_history": _OF_SEEN_MEMORY,
    "learned_from": _NOT_HIDDEN.format("session_id", "session")
    + " AND EXISTS (SELECT 1 FROM memories m WHERE m.uid = x.memory)",
    "chunks": f"{_OF_SEEN_SESSION} AND (x.memory IS NULL OR {_OF_SEEN_MEMORY})"
    " AND (x.source = 'file' OR (TRUE{elsewhere})) AND (x.turn IS NOT NULL OR (TRUE{owned}))",
    "projects": "(EXISTS (SELECT 1 FROM sessions s WHERE s.project = x.id)"
    " OR EXISTS (SELECT 1 FROM chunks c WHERE c.project = x.id)"
    " OR EXISTS (SELECT 1 FROM memories m WHERE m.project = x.id)"
    " OR EXISTS (SELECT 1 FROM main.source_collections c WHERE c.project = x.id)){listed}",
    "capture_state": f"x.harness NOT IN ({{names}}) AND {_OF_KNOWN_SESSION}",
    **dict.fromkeys(("segments", "snapshot_records", "record_counts"), _OF_SEEN_TRANSCRIPT),
    **dict.fromkeys(("work_calls", "work_lines", "work_errors"), "EXISTS (SELECT 1 FROM turns t WHERE t.id = x.turn)"),
    "injection_logs": _OF_KNOWN_SESSION,
    "problems": "FALSE",
}
"""Condition for the visible rows of each table with conversation data. Messages of problems may contain paths."""
FILE_SHADOWS = {
    "source_collections": "TRUE{owned}",
    "source_files": "EXISTS (SELECT 1 FROM source_collections c WHERE c.id = x.collection)",
}
"""The same for tables of files, which are hidden only if ``only`` restricts the projects."""


def source_via(source: str, agent: str | None) -> str:
    """Return the source of a memory with the name of the agent that requested it appended, so that it can be hidden."""
    return source if agent is None else f"{source[:MAX_SOURCE]} {agent}"


def hide(store: Store, hidden: Hidden | None) -> None:
    """Hide content from a connection by temporary views. The connection is then read-only."""
    if hidden is None:
        return
    names = ", ".join(f"'{name}'" for name in hidden.agents)  # names from the table in crystal/config/harnesses.py
    # Only Claude Code's prompts request memories; the session of such a memory may not be stored.
    sources = [*hidden.agents, *(["prompt"] if CLAUDE_CODE in hidden.agents else [])]
    words = {"names": names, "not_theirs": "".join(f" AND ' ' || x.source NOT LIKE '% {name}'" for name in sources),
             "strayed": "", "elsewhere": "", "owned": "", "known": "", "listed": ""}  # fmt: skip
    with translated(store.path):
        store.db.execute("PRAGMA query_only = 0")
        if hidden.folders is not None or hidden.only is not None:
            _list_projects(store, hidden.folders or (), hidden.only)
            words["strayed"] = " OR h.project NOT IN temp.seen_projects OR h.id IN temp.strayed_sessions"
            words["elsewhere"] = " AND (x.project IS NULL OR x.project IN temp.seen_projects)"
        if hidden.only is not None:
            words["strayed"] += " OR h.project IS NULL"
            words["owned"], words["listed"] = (f" AND x.{key} IN temp.seen_projects" for key in ("project", "id"))
            words["known"] = " AND EXISTS (SELECT 1 FROM sessions s WHERE s.session_id = x.session_id)"
        for table, condition in (SHADOWS if hidden.only is None else SHADOWS | FILE_SHADOWS).items():
            which = condition.format(**words)
            store.db.execute(f"CREATE TEMP VIEW {table} AS SELECT * FROM main.{table} AS x WHERE {which}")
        store.db.execute("PRAGMA query_only = 1")
    store.hidden = hidden


def _list_projects(store: Store, folders: Iterable[str], only: Iterable[str] | None) -> None:
    """List the visible projects, so that new projects stay hidden, and the sessions that also worked in hidden ones."""
    store.db.execute("CREATE TEMP TABLE seen_projects (id INTEGER PRIMARY KEY)")
    store.db.execute("CREATE TEMP TABLE strayed_sessions (id INTEGER PRIMARY KEY)")
    store.db.execute(
        f"INSERT INTO seen_projects SELECT id FROM projects WHERE cwd NOT IN {GIVEN} AND (? IS NULL OR cwd IN {GIVEN})",
        (as_json(folders), *2 * (None if only is None else as_json(only),)),
    )
    store.db.execute(
        "INSERT OR IGNORE INTO strayed_sessions SELECT session FROM chunks"
        " WHERE session IS NOT NULL AND project IN (SELECT id FROM projects WHERE id NOT IN seen_projects)"
    )


def hidden_rows(store: Store) -> tuple[list[int], list[int]]:
    """Return the hidden rows: sessions, and chunks of memories and files."""
    sessions = "SELECT id FROM main.sessions EXCEPT SELECT id FROM sessions"
    chunks = "SELECT id FROM main.chunks WHERE turn IS NULL EXCEPT SELECT id FROM chunks WHERE turn IS NULL"
    return store.all(int, sessions), store.all(int, chunks)
