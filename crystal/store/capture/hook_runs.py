"""Store how long the hook's runs on this machine took."""

from __future__ import annotations

from collections.abc import Sequence

from crystal.model.named_tuple import NamedTuple
from crystal.store.connection import Store

KEEP = 2_000


def add_hook_runs(store: Store, runs: Sequence[tuple[int, str, float]]) -> None:
    """Add measured runs (time ms, event, duration ms) and keep the newest 2,000."""
    if not runs:
        return
    with store.transaction():
        store.insert_many("hook_runs", "at, event, ms", runs)
        store.execute("DELETE FROM hook_runs WHERE rowid <= (SELECT max(rowid) FROM hook_runs) - ?", (KEEP,))


def latencies(store: Store) -> list[float]:
    """Return the kept durations in ms, shortest first."""
    return store.all(float, "SELECT ms FROM hook_runs ORDER BY ms")


class Latency(NamedTuple):
    """Durations of some runs of the hook; None if no hook ran."""

    runs: int = 0
    p50_ms: float | None = None
    p95_ms: float | None = None
    max_ms: float | None = None


def latency(durations: Sequence[float]) -> Latency:
    """Summarize durations in ms, given shortest first."""
    if not durations:
        return Latency()
    last = len(durations) - 1
    return Latency(len(durations), durations[last // 2], durations[round(last * 0.95)], durations[last])


def last_runs(store: Store, limit: int) -> list[tuple[int, float]]:
    """Return (time, duration), both in ms, of the latest runs, oldest first."""
    return store.rows("SELECT at, ms FROM hook_runs ORDER BY rowid DESC LIMIT ?", (limit,))[::-1]


def last_turn_run(store: Store) -> int | None:
    """Return the time in ms of the latest run for any event but a session's start."""
    return store.find(int, "SELECT max(at) FROM hook_runs WHERE event NOT IN ('SessionStart', '-')")
