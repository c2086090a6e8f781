"""Hide the conversations of isolated agents from a connection that reads for another agent.

Views of the connection take the names of the tables, so every query of every reader is filtered inside, also one that
is written tomorrow: see docs/adr/0040-isolation-by-agent.md. A store for which nothing is hidden has none of them.
"""

from collections.abc import Sequence

from crystal.store.connection import Store, translated

MAX_SOURCE = 50

_OF_HIDDEN = "EXISTS (SELECT 1 FROM main.sessions h WHERE h.id = {} AND h.harness IN ({{names}}))"
_OF_HIDDEN_TRANSCRIPT = "EXISTS (SELECT 1 FROM main.capture_state h WHERE h.id = {} AND h.harness IN ({{names}}))"

SHADOWS = {
    "sessions": "harness NOT IN ({names})",
    "turns": f"NOT {_OF_HIDDEN.format('x.session')}",
    "turn_copies": f"NOT {_OF_HIDDEN.format('x.session')} AND EXISTS (SELECT 1 FROM turns t WHERE t.id = x.turn)",
    "memories": "NOT EXISTS (SELECT 1 FROM main.sessions h WHERE h.session_id = x.session AND h.harness IN ({names}))"
    " AND {not_theirs}",
    "memory_history": "EXISTS (SELECT 1 FROM memories m WHERE m.id = x.memory)",
    "chunks": f"NOT {_OF_HIDDEN.format('x.session')}"
    " AND (x.memory IS NULL OR EXISTS (SELECT 1 FROM memories m WHERE m.id = x.memory))",
    "projects": "EXISTS (SELECT 1 FROM sessions s WHERE s.project = x.id)"
    " OR EXISTS (SELECT 1 FROM chunks c WHERE c.project = x.id)"
    " OR EXISTS (SELECT 1 FROM memories m WHERE m.project = x.id)"
    " OR EXISTS (SELECT 1 FROM main.source_collections c WHERE c.project = x.id)",
    "capture_state": "harness NOT IN ({names})",
    "segments": f"NOT {_OF_HIDDEN_TRANSCRIPT.format('x.transcript')}",
    "snapshot_records": f"NOT {_OF_HIDDEN_TRANSCRIPT.format('x.transcript')}",
    "record_counts": f"NOT {_OF_HIDDEN_TRANSCRIPT.format('x.transcript')}",
    "injections": "NOT EXISTS (SELECT 1 FROM main.sessions h WHERE h.session_id = x.session_id"
    " AND h.harness IN ({names}))",
    "problems": "FALSE",
}
"""For each table that tells of conversations, which of its rows stay. Messages of problems may name files."""


def source_via(source: str, agent: str | None) -> str:
    """Return the source of a memory that an agent asked for: with its name at the end, by which it is hidden."""
    return source if agent is None else f"{source[:MAX_SOURCE]} {agent}"


def hide(store: Store, harnesses: Sequence[str]) -> None:
    """Let a connection see nothing that was said in some agents. It then reads only: a view takes no rows."""
    if not harnesses:
        return
    names = ", ".join(f"'{name}'" for name in harnesses)  # of the table in crystal/config/harnesses.py
    not_theirs = " AND ".join(f"x.source NOT LIKE '% {name}'" for name in harnesses)
    with translated(store.path):
        store.db.execute("PRAGMA query_only = 0")
        for table, condition in SHADOWS.items():
            which = condition.format(names=names, not_theirs=not_theirs)
            store.db.execute(f"CREATE TEMP VIEW {table} AS SELECT * FROM main.{table} AS x WHERE {which}")
        store.db.execute("PRAGMA query_only = 1")
    store.hidden = tuple(harnesses)


def hidden_sessions(store: Store) -> list[int]:
    """Return the rows of the sessions that are hidden from a connection."""
    sql = f"SELECT id FROM main.sessions WHERE harness IN ({', '.join('?' * len(store.hidden))})"
    return [ident for (ident,) in store.rows(sql, store.hidden)]


def hidden_memory_chunks(store: Store) -> list[int]:
    """Return the chunks of memories that are hidden from a connection."""
    sql = "SELECT id FROM main.chunks WHERE memory IS NOT NULL AND memory NOT IN (SELECT id FROM memories)"
    return [ident for (ident,) in store.rows(sql)]
