"""Store private periods, ids of private lines, and the key for keyed hashes."""

import os
from collections.abc import Iterable

from crystal.model.named_tuple import NamedTuple
from crystal.store.connection import Store


class PrivatePeriod(NamedTuple):
    """A private period from ``from_at`` to ``until_at`` (None: still open), in one session or in all.

    If ``folder`` is set, only conversation in it or below is private.
    """

    session_id: str | None
    reason: str
    from_at: int
    until_at: int | None
    folder: str | None = None


def marks(store: Store) -> tuple[PrivatePeriod, ...]:
    """Return all private periods, oldest first."""
    return tuple(store.select(PrivatePeriod, "private_marks ORDER BY id"))


def open_mark(store: Store, session_id: str | None, reason: str, now: int) -> bool:
    """Begin a private period, or confirm the open one. Return False if one was open."""
    with store.transaction():
        was_open = store.value(
            "UPDATE private_marks SET last_at = max(last_at, ?) WHERE session_id IS ? AND reason = ?"
            " AND until_at IS NULL RETURNING 1",
            (now, session_id, reason),
        )
        if was_open:
            return False
        store.insert("private_marks", "session_id, reason, from_at, last_at", session_id, reason, now, now)
    return True


def close_mark(store: Store, session_id: str | None, reason: str, until: int) -> bool:
    """End a private period at ``until``. Return False if none was open."""
    return _close(store, "max(from_at, ?)", (until, session_id, reason))


def close_mark_as_seen(store: Store, session_id: str, reason: str) -> bool:
    """End a session's private period at the time of its last confirmation. Return False if none was open."""
    return _close(store, "last_at + 1", (session_id, reason))


def _close(store: Store, until: str, values: tuple[object, ...]) -> bool:
    where = "session_id IS ? AND reason = ? AND until_at IS NULL"
    if not store.has(f"SELECT 1 FROM private_marks WHERE {where}", values[-2:]):
        return False
    with store.transaction():
        store.execute(f"UPDATE private_marks SET until_at = {until} WHERE {where}", values)
    return True


def add_private_lines(store: Store, uuids: Iterable[str]) -> None:
    """Record the ids of private lines. Inside a transaction."""
    store.insert_many("private_lines", "uuid", [(uuid,) for uuid in uuids], "DO NOTHING")


def has_private_lines(store: Store) -> bool:
    """Return True if any private line is recorded."""
    return store.has("SELECT 1 FROM private_lines LIMIT 1")


def is_private_line(store: Store, uuid: str) -> bool:
    """Return True if the line is private on the machine that wrote it."""
    return store.has("SELECT 1 FROM private_lines WHERE uuid = ?", (uuid,))


def add_redactions(store: Store, counts: Iterable[tuple[str, int]]) -> None:
    """Add to the counts of redacted secrets, by kind. Inside a transaction."""
    more = "(kind) DO UPDATE SET count = count + excluded.count"
    store.insert_many("redactions", "kind, count", counts, more)


def redaction_counts(store: Store) -> dict[str, int]:
    """Return how many secrets of each kind were redacted so far."""
    return {str(kind): int(count) for kind, count in store.rows("SELECT kind, count FROM redactions ORDER BY kind")}


def is_key(value: object) -> bool:
    """Return True if a stored value has the form of ``store_key``."""
    return isinstance(value, str) and len(value) == 64 and not set(value) - set("0123456789abcdef")


def store_key(store: Store) -> bytes:
    """Return the 32 random bytes of this store's keyed hashes; create them at the first call.

    The key is in the store so that hashes and key are always lost together.
    """
    value = store.value("SELECT value FROM meta WHERE key = 'hash_key'")
    if value is None and (store.db.readonly("main") or store.value("PRAGMA query_only")):
        return os.urandom(32)  # no hash is stored yet
    if value is None:
        with store.transaction():
            store.insert("meta", "key, value", "hash_key", os.urandom(32).hex(), on_conflict="DO NOTHING")
        value = store.value("SELECT value FROM meta WHERE key = 'hash_key'")
    return bytes.fromhex(value)
