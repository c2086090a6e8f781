"""Durations of the hook on this machine, as it measured itself."""

from __future__ import annotations

from collections.abc import Sequence

from crystal.store.connection import Store

KEEP = 2_000


def add_hook_runs(store: Store, runs: Sequence[tuple[int, str, float]]) -> None:
    """Add measured runs (time ms, event, duration ms) and keep the newest 2,000."""
    if not runs:
        return
    with store.transaction():
        store.execute_many("INSERT INTO hook_runs (at, event, ms) VALUES (?, ?, ?)", runs)
        store.execute("DELETE FROM hook_runs WHERE rowid <= (SELECT max(rowid) FROM hook_runs) - ?", (KEEP,))


def latencies(store: Store) -> list[float]:
    """Return the kept durations in ms, shortest first."""
    return [float(ms) for (ms,) in store.rows("SELECT ms FROM hook_runs ORDER BY ms")]


def last_runs(store: Store, limit: int) -> list[tuple[int, float]]:
    """Return (time, duration), both in ms, of the latest runs, the oldest first."""
    rows = store.rows("SELECT at, ms FROM hook_runs ORDER BY rowid DESC LIMIT ?", (limit,))
    return [(int(at), float(ms)) for at, ms in reversed(rows)]


def last_turn_run(store: Store) -> int | None:
    """Return when a hook last ran for another event than a session's start, ms."""
    return store.find(int, "SELECT max(at) FROM hook_runs WHERE event NOT IN ('SessionStart', '-')")
