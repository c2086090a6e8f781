"""Check which sessions wait for a summary, the daily log or the reflector. The worker checks after each turn."""

from crystal.store.connection import Store
from crystal.store.costs import DAY_MS

DUE = (
    "s.last_turn > s.summarized_turn AND (s.ended_at IS NOT NULL OR ?1 >="
    " CASE WHEN s.last_at <= ?2 THEN s.last_at ELSE coalesce("
    "(SELECT max(c.updated_at) FROM capture_state c WHERE c.session_id = s.session_id), 0) END)"
)


def count_due(store: Store, *, now: int, idle_ms: int) -> int:
    """Return how many sessions have turns that no summary covers, and have ended or been idle.

    The time of capture replaces the time of a session if it has none or one more than a day ahead.
    """
    return int(store.value(f"SELECT count(*) FROM sessions s WHERE {DUE}", (now - idle_ms, now + DAY_MS)))


def is_any_deferred(store: Store) -> bool:
    """Return whether a summary was made without its model and must be tried again."""
    return store.has("SELECT 1 FROM sessions WHERE summary_mode = 'deferred' AND last_turn > 0 LIMIT 1")


def stretches_unseen(store: Store) -> list[tuple[int | None, int | None, int | None]]:
    """Return (last logged, first unlogged, last unlogged time) of each session with unlogged turns; ms.

    A time is None if nothing was logged, or no turn has a time.
    """
    return store.rows(
        "SELECT (SELECT max(ts) FROM turns WHERE session = s.id AND id <= s.logged_turn),"
        " (SELECT min(ts) FROM turns WHERE session = s.id AND id > s.logged_turn),"
        " (SELECT max(ts) FROM turns WHERE session = s.id AND id > s.logged_turn)"
        " FROM sessions s WHERE s.last_turn > s.logged_turn"
    )


def unread_since(store: Store) -> tuple[bool, int] | None:
    """Return whether a session with turns unread by the reflector has ended, and the time of the last run, ms.

    Returns:
        None if every turn was read.
    """
    ended = store.value("SELECT max(ended_at IS NOT NULL) FROM sessions WHERE last_turn > reflected_turn")
    return None if ended is None else (bool(ended), int(store.value("SELECT max(at) FROM reflector_runs") or 0))
