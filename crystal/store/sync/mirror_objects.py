"""Comparison of the mirror's objects with the relay: which are missing there, and which are to be deleted there."""

from __future__ import annotations

from crystal.store.connection import Store
from crystal.store.sync import mirror

MAX_STRAY = 1000
"""Maximum number of unknown objects queued for deletion: a relay may list anything."""


def is_due(store: Store, every_ms: int, now: int) -> bool:
    """Return True if the relay is to be asked which objects it has."""
    looked_at = int(store.value("SELECT looked_at FROM mirror_home") or 0)
    return not 0 <= now - looked_at < every_ms


def look_soon(store: Store) -> None:
    """Make the check of which objects the relay has due now."""
    store.execute("UPDATE mirror_home SET looked_at = 0")


def note_look(store: Store, there: set[bytes], now: int) -> int:
    """Record which objects the relay has: listed ones that are missing are lost, unknown ones are to be deleted.

    Returns:
        How many are missing.
    """
    known = known_objects(store)
    listed_ids = {one.sha256[:16] for one in mirror.listed(store) if one.sha256}
    mirror.mark_lost(store, listed_ids - there, now + 1, now)  # regardless of their age
    with store.transaction():
        trashed = int(store.value("SELECT count(*) FROM mirror_trash"))
        for ident in sorted(there - known)[: max(0, MAX_STRAY - trashed)]:
            store.execute("INSERT OR IGNORE INTO mirror_trash (object, since) VALUES (?, ?)", (ident, now))
        store.execute("UPDATE mirror_home SET looked_at = ?", (now,))
    return len(listed_ids - there)


def trash(store: Store, grace_ms: int, now: int) -> list[bytes]:
    """Return objects due for deletion; a time in the future comes from a wrong clock and counts as due."""
    rows = store.rows("SELECT object FROM mirror_trash WHERE NOT since BETWEEN ? AND ?", (now - grace_ms, now))
    return [bytes(one) for (one,) in rows]


def forget_trash(store: Store, ident: bytes) -> None:
    """Note that an object is deleted."""
    store.execute("DELETE FROM mirror_trash WHERE object = ?", (ident,))


def known_objects(store: Store) -> set[bytes]:
    """Return the ids of all objects that belong to the mirror, listed or to be deleted."""
    rows = store.rows("SELECT substr(sha256, 1, 16) FROM mirror_objects WHERE sha256 IS NOT NULL")
    return {bytes(one) for (one,) in (*rows, *store.rows("SELECT object FROM mirror_trash"))}
