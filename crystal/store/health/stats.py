"""Counts for ``crystal status``: each answered from an index or a small table, also in a large store."""

from __future__ import annotations

from crystal.store.connection import Store


def counts(store: Store) -> dict[str, int]:
    """Return how many rows of each kind there are."""
    return {
        table: int(store.value(f"SELECT count(*) FROM {table}"))
        for table in ("sessions", "turns", "chunks", "memories", "projects")
    }


def bytes_by_state(store: Store) -> dict[str, int]:
    """Return how many transcript bytes are in which ledger state; skipped ones by their rule."""
    sql = "SELECT CASE state WHEN 'skipped' THEN rule ELSE state END, sum(stop - start) FROM segments GROUP BY 1"
    return {str(state): int(size) for state, size in store.rows(sql)}


def archived_bytes(store: Store) -> tuple[int, int]:
    """Return the size of the archived lines in bytes, plain and compressed."""
    row = store.row("SELECT coalesce(sum(clean_length), 0), coalesce(sum(archive_length), 0) FROM segments")
    return (0, 0) if row is None else (int(row[0]), int(row[1]))


def time_span(store: Store) -> tuple[int | None, int | None]:
    """Return the times of the earliest and the latest turn, ms."""
    row = store.row("SELECT min(started_at), max(last_at) FROM sessions")
    return (None, None) if row is None else (row[0], row[1])


def last_capture(store: Store) -> int | None:
    """Return when something was last captured, ms."""
    value = store.value("SELECT captured_at FROM segments WHERE state = 'captured' ORDER BY id DESC LIMIT 1")
    return None if value is None else int(value)


def newest_turn(store: Store) -> int:
    """Return the largest id that a turn ever had: it grows with every new turn."""
    return int(store.value("SELECT max(seq) FROM sqlite_sequence WHERE name = 'turns'") or 0)


def has_home(store: Store) -> bool:
    """Return True if this machine sends to a home; cheaper to import than ``relay_peers``."""
    return store.value("SELECT 1 FROM relay_peers WHERE side = 'home' AND revoked_at IS NULL LIMIT 1") is not None


def newest_memory(store: Store) -> int:
    """Return the row id of the memory that was added last, or 0."""
    return int(store.value("SELECT max(id) FROM memories") or 0)
