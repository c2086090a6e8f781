"""Check with a few queries whether a turn leaves work to do; if not, the code for that work is not loaded."""

from __future__ import annotations

from crystal.store.connection import Store

Mark = tuple[str, int, int, int]
"""Path, device and inode of a transcript, and how many bytes of it were read."""

# Each query finds work for the worker: failures, private lines, items that wait for home, missing vectors, forgetting.
_QUESTIONS = (
    "SELECT 1 FROM problems",
    "SELECT 1 FROM private_marks WHERE until_at IS NULL",
    "SELECT 1 FROM relay_peers WHERE revoked_at IS NULL",
    "SELECT 1 FROM chunks WHERE vector_generation = 0 AND vector_generation <= 0",
    "SELECT 1 FROM forget_work",
    "SELECT 1 FROM tombstones WHERE done_at IS NULL",
)


def marks_of_session(store: Store, session_id: str) -> list[Mark] | None:
    """Return how far the transcripts of a session were read; None if there is other work than reading them."""
    if any(store.has(f"{question} LIMIT 1") for question in _QUESTIONS):
        return None
    if store.has("SELECT 1 FROM sessions WHERE session_id = ? AND ended_at IS NOT NULL", (session_id,)):
        return None
    return store.rows("SELECT path, dev, inode, offset FROM capture_state WHERE session_id = ?", (session_id,))
