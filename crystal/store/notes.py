"""Store notes by key: the progress of long work, and decisions that are not carried out yet."""

from __future__ import annotations

from crystal.store.connection import Store

MEMORY_RECORD_SIZE = "memory_record_size"
"""Key of the size in bytes of the record of memories when it matches this store; see crystal/memories."""


ADDRESS_FORM = "address_form"
"""Key of the version of ``repository_identity`` that all addresses of repositories in this store come from."""


ALIAS = "memory_alias "
"""Prefix of the key for an id given to the user for text that was stored already; the value is the stored id."""


READERS = "readers"
"""Key of the version of each agent's reader that has read this store, as JSON."""


WORK_CURSOR = "work_cursor"
"""Key of ``FORM:TURN``: the work index contains every turn up to TURN, extracted by version FORM."""
WORK_FORM = 15
"""Version of the extraction; increase it when the same turns give other rows, and the index is rebuilt."""


MODEL_ANSWER = "model answer "
"""Prefix of the keys of answers that a model gave to the reflector; the session's row id and a colon follow."""
ANSWER_ALONE = (
    "substr(key, 1, length(?1)) = ?1 AND CAST(substr(key, length(?1) + 1) AS INTEGER) NOT IN (SELECT id FROM sessions)"
)
"""SQL condition for answers whose session is gone; the parameter is ``MODEL_ANSWER``."""


def work_cursor(store: Store) -> int:
    """Return the last turn in the work index; 0 if another version of the extraction wrote it."""
    form, _, turn = (read_note(store, WORK_CURSOR) or "").partition(":")
    return int(turn) if form == str(WORK_FORM) else 0


def count_unindexed(store: Store) -> int:
    """Return how many tool calls and results are not in the work index yet."""
    sql = "SELECT count(*) FROM turns WHERE id > ? AND role IN ('tool_call', 'tool_result')"
    return int(store.value(sql, (work_cursor(store),)))


def read_note(store: Store, key: str) -> str | None:
    """Return the value of a note, or None."""
    return store.find(str, "SELECT value FROM meta WHERE key = ?", (key,))


def write_note(store: Store, key: str, value: str) -> None:
    """Write a note, replacing an existing one."""
    store.upsert("meta", "key", {"key": key, "value": value})


def drop_note(store: Store, key: str) -> None:
    """Delete a note."""
    store.execute("DELETE FROM meta WHERE key = ?", (key,))


def drop_notes(store: Store, prefix: str, value: str | None = None) -> None:
    """Delete the notes whose key begins with ``prefix``; with ``value``, only those with this value."""
    sql = "DELETE FROM meta WHERE substr(key, 1, length(?1)) = ?1 AND ifnull(?2, value) = value"
    store.execute(sql, (prefix, value))
