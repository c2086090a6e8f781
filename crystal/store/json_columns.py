"""Define the shape of each column that contains JSON, and read all of them.

Text of another shape was damaged or written by another program: JSON itself is valid, and SQLite's checks pass.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from crystal.errors import StoreDamagedError
from crystal.model.named_tuple import NamedTuple
from crystal.store.connection import Store
from crystal.store.notes import read_note
from crystal.store.upgrade import REPAIR_HINT


class JsonColumn(NamedTuple):
    """A column: ``kind`` is the type of its value, ``items`` that of its elements; ``is_optional``: NULL is allowed."""

    table: str
    name: str
    kind: type[list[Any] | dict[str, Any]]
    items: type = object
    is_optional: bool = False


CHOSEN = JsonColumn("injection_logs", "chosen", list, str)
WHY = JsonColumn("injection_logs", "why", dict, int)
FORGOTTEN_NAMES = JsonColumn("tombstones", "value", dict)
FORGET_WORK = JsonColumn("forget_work", "detail", list, is_optional=True)
SERIALS_IN = JsonColumn("relay_peers", "serials_in", dict, int)
STALE = JsonColumn("relay_peers", "stale", dict, int)
TOLD = JsonColumn("relay_peers", "told", dict, is_optional=True)
SENT = JsonColumn("relay_peers", "sent", dict, str, is_optional=True)
JSON_COLUMNS = (CHOSEN, WHY, FORGOTTEN_NAMES, FORGET_WORK, SERIALS_IN, STALE, TOLD, SENT)

JSON_NOTES = ("readers", "retention", "relay_registry", "relay_ignored", "relay_promoting", "relay_demoting")
"""Keys in ``meta`` of notes whose value is JSON."""
_DAMAGED_NOTES = "key IN (SELECT value FROM json_each(?)) AND NOT json_valid(value)"


def read_json_note(store: Store, key: str) -> Any:
    """Parse one of ``JSON_NOTES``; return None if it does not exist.

    Raises:
        StoreDamagedError: The value is not JSON.
    """
    value = read_note(store, key)
    try:
        return None if value is None else json.loads(value)
    except ValueError as error:
        raise StoreDamagedError(f"table meta: the note {key} is not as crystal writes it", hint=REPAIR_HINT) from error


def drop_damaged_notes(store: Store) -> None:
    """Delete the notes whose value is not JSON. Inside a transaction."""
    store.execute(f"DELETE FROM meta WHERE {_DAMAGED_NOTES}", (JSON_NOTES,))


def read_json(column: JsonColumn, text: object) -> Any:
    """Parse the text of a column.

    Raises:
        StoreDamagedError: The value does not have the column's type.
    """
    value = _parsed(text)
    if not _fits(column, value):
        raise StoreDamagedError(f"table {column.table}: {column.name} is not as crystal writes it", hint=REPAIR_HINT)
    return value


def _parsed(text: object) -> Any:
    try:
        return json.loads(text) if isinstance(text, str) else text
    except (ValueError, RecursionError):
        return text


def _fits(column: JsonColumn, value: object) -> bool:
    if value is None:
        return column.is_optional
    values: Any = value.values() if isinstance(value, dict) else value
    return type(value) is column.kind and all(column.items in (object, type(one)) for one in values)


def misfits(store: Store, column: JsonColumn) -> list[int]:
    """Return the row ids whose text ``read_json`` refuses."""
    rows = store.rows(f"SELECT rowid, {column.name} FROM {column.table}")
    return [int(row) for row, text in rows if not _fits(column, _parsed(text))]


def json_faults(store: Store) -> Iterator[str]:
    """Yield for each column the number of its invalid rows, and the first of them; and each invalid note."""
    for key in store.all(str, f"SELECT key FROM meta WHERE {_DAMAGED_NOTES}", (JSON_NOTES,)):
        yield f"table meta: the note {key} is not as crystal writes it"
    for column in JSON_COLUMNS:
        if wrong := misfits(store, column):
            more = f" and {len(wrong) - 1:,} more" if len(wrong) > 1 else ""
            yield f"table {column.table}: {column.name} of row {wrong[0]}{more} is not as crystal writes it"
