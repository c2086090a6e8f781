"""Which objects of the mirror the relay has: what is missing there, and what is to be deleted there."""

from __future__ import annotations

from crystal.store.connection import Store
from crystal.store.sync import mirror

MAX_STRAY = 1000
"""How many objects that are nobody's wait to be deleted: a relay may list what it likes."""


def is_due(store: Store, every_ms: int, now: int) -> bool:
    """Whether the relay is to be asked which objects it has."""
    looked_at = int(store.value("SELECT looked_at FROM mirror_home") or 0)
    return not 0 <= now - looked_at < every_ms


def look_soon(store: Store) -> None:
    """Ask the relay which objects it has at the next occasion."""
    store.execute("UPDATE mirror_home SET looked_at = 0")


def note_look(store: Store, there: set[bytes], now: int) -> int:
    """Take in which objects the relay has: what is missing is lost, what is nobody's is to be deleted.

    Returns:
        How many are missing.
    """
    known = known_objects(store)
    index = mirror.index_id(store)
    listed_ids = {one.sha256[:16] for one in mirror.listed(store) if one.sha256} | ({index} if index else set())
    mirror.mark_lost(store, listed_ids - there, now + 1, now)  # whenever they were made
    with store.transaction():
        trashed = int(store.value("SELECT count(*) FROM mirror_trash"))
        for ident in sorted(there - known)[: max(0, MAX_STRAY - trashed)]:
            store.execute("INSERT OR IGNORE INTO mirror_trash (object, since) VALUES (?, ?)", (ident, now))
        store.execute("UPDATE mirror_home SET looked_at = ?", (now,))
    return len(listed_ids - there)


def trash(store: Store, grace_ms: int, now: int) -> list[bytes]:
    """Objects whose time has come to be deleted; a time to come is one of a clock that was wrong."""
    rows = store.rows("SELECT object FROM mirror_trash WHERE NOT since BETWEEN ? AND ?", (now - grace_ms, now))
    return [bytes(one) for (one,) in rows]


def forget_trash(store: Store, ident: bytes) -> None:
    """Note that an object is deleted."""
    store.execute("DELETE FROM mirror_trash WHERE object = ?", (ident,))


def known_objects(store: Store) -> set[bytes]:
    """The ids of all objects that belong to the mirror, listed or to be deleted."""
    rows = store.rows("SELECT substr(sha256, 1, 16) FROM mirror_objects WHERE sha256 IS NOT NULL")
    found = {bytes(one) for (one,) in rows} | {bytes(one) for (one,) in store.rows("SELECT object FROM mirror_trash")}
    own = mirror.index_id(store)
    return found | ({own} if own else set())
