"""Notes that the store keeps about itself, by key: where a long work stands, what was decided and is not done yet."""

from __future__ import annotations

from crystal.store.connection import Store

MEMORY_RECORD_SIZE = "memory_record_size"
"""The key of how many bytes the record of memories has when it says what this store says; see crystal/memories."""


ALIAS = "memory_alias "
"""Begins the key of an id that the user was told for words that were known already; the value is the known id."""


def read_note(store: Store, key: str) -> str | None:
    """A note, None where there is none."""
    value = store.value("SELECT value FROM meta WHERE key = ?", (key,))
    return None if value is None else str(value)


def write_note(store: Store, key: str, value: str) -> None:
    """Write a note, in the place of the one that is there."""
    store.execute(
        "INSERT INTO meta (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = ?2", (key, value)
    )


def drop_note(store: Store, key: str) -> None:
    """Forget a note."""
    store.execute("DELETE FROM meta WHERE key = ?", (key,))


def drop_aliases(store: Store, uid: str) -> None:
    """Forget every other id of a memory."""
    store.execute("DELETE FROM meta WHERE substr(key, 1, ?) = ? AND value = ?", (len(ALIAS), ALIAS, uid))
