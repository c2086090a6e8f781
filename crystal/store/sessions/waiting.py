"""Ask what waits in sessions: for a summary, for the daily log, for the reflector. The worker asks after each turn."""

from crystal.store.connection import Store
from crystal.store.costs import DAY_MS

DUE = (
    "s.last_turn > s.summarized_turn AND (s.ended_at IS NOT NULL OR ?1 >="
    " CASE WHEN s.last_at <= ?2 THEN s.last_at ELSE coalesce("
    "(SELECT max(c.updated_at) FROM capture_state c WHERE c.session_id = s.session_id), 0) END)"
)


def count_due(store: Store, *, now: int, idle_ms: int) -> int:
    """Return how many sessions have turns that no summary covers, and have ended or been idle.

    The time of a session without usable times (none, or more than a day ahead) is that of its capture.
    """
    return int(store.value(f"SELECT count(*) FROM sessions s WHERE {DUE}", (now - idle_ms, now + DAY_MS)))


def is_any_deferred(store: Store) -> bool:
    """Return whether a summary was made without its model, which is asked again later."""
    return store.has("SELECT 1 FROM sessions WHERE summary_mode = 'deferred' AND last_turn > 0 LIMIT 1")


def stretches_unseen(store: Store) -> list[tuple[int | None, int | None, int | None]]:
    """Return, of each session with turns newer than its log: the last time logged, the first and the last since; ms.

    None if nothing was logged, or no turn has a time.
    """
    return store.rows(
        "SELECT (SELECT max(ts) FROM turns WHERE session = s.id AND id <= s.logged_turn),"
        " (SELECT min(ts) FROM turns WHERE session = s.id AND id > s.logged_turn),"
        " (SELECT max(ts) FROM turns WHERE session = s.id AND id > s.logged_turn)"
        " FROM sessions s WHERE s.last_turn > s.logged_turn"
    )


def unread_since(store: Store) -> tuple[bool, int] | None:
    """Return whether a session with turns that were not read for memories has ended, and when sessions were last read.

    Returns:
        None if every turn was read.
    """
    ended = store.value("SELECT max(ended_at IS NOT NULL) FROM sessions WHERE last_turn > reflected_turn")
    return None if ended is None else (bool(ended), int(store.value("SELECT max(at) FROM reflector_runs") or 0))
