"""Define the shape of each column that contains JSON, and read all of them.

Text of another shape was damaged or written by another program: JSON itself is valid, and SQLite's checks pass.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from crystal.errors import StoreDamagedError
from crystal.model.named_tuple import NamedTuple
from crystal.store.connection import GIVEN, Store
from crystal.store.notes import read_note
from crystal.store.upgrade import REPAIR_HINT

T = TypeVar("T")
_OR_NULL = type(None)


class JsonColumn(NamedTuple):
    """A column, or a note in ``meta``: ``kind`` is the type of its value, ``items`` that of its elements.

    ``is_optional``: NULL is allowed. ``fields``: an object has exactly these, each of one of these types.
    """

    table: str
    name: str
    kind: type[list[Any] | dict[str, Any]]
    items: type = object
    is_optional: bool = False
    fields: Mapping[str, tuple[type, ...]] | None = None


CHOSEN = JsonColumn("injection_logs", "chosen", list, str)
WHY = JsonColumn("injection_logs", "why", dict, int)
FORGOTTEN_NAMES = JsonColumn("tombstones", "value", dict)
FORGET_WORK = JsonColumn("forget_work", "detail", list, is_optional=True)
SERIALS_IN = JsonColumn("relay_peers", "serials_in", dict, int)
STALE = JsonColumn("relay_peers", "stale", dict, int)
TOLD = JsonColumn("relay_peers", "told", dict, is_optional=True)
SENT = JsonColumn("relay_peers", "sent", dict, str, is_optional=True)
JSON_COLUMNS = (CHOSEN, WHY, FORGOTTEN_NAMES, FORGET_WORK, SERIALS_IN, STALE, TOLD, SENT)

_PAST = {"row": (int,), "until": (int,), "private": (str, _OR_NULL), "memory": (int, _OR_NULL)}
_PROGRESS = {"home": (str,), "sealed": (int,), "sealed_at": (int,), "number": (int,), "mark": (str,)}
JSON_NOTES = (
    JsonColumn("meta", "readers", dict, int),
    JsonColumn("meta", "unmet", list, str),
    JsonColumn("meta", "not_recovered", list, str),
    JsonColumn("meta", "retention", dict, fields={"days": (int,), "next_at": (int,)}),
    JsonColumn("meta", "relay_registry", dict, fields={"stream": (str,), "serial": (int,), "digest": (str,)}),
    JsonColumn("meta", "relay_ignored", list, str),
    JsonColumn("meta", "relay_promoting", dict, fields={"device": (str, _OR_NULL), "url": (str, _OR_NULL)}),
    JsonColumn("meta", "relay_demoting", dict),
    JsonColumn("meta", "relay_past", dict, fields=_PAST),
    JsonColumn("meta", "forgotten_relay", dict, fields=_PROGRESS),
)
"""The notes in ``meta`` whose value is JSON."""


def read_json_note(store: Store, key: str) -> Any:
    """Parse one of ``JSON_NOTES``; return None if it does not exist.

    Raises:
        StoreDamagedError: The value is not as crystal writes it.
    """
    value = read_note(store, key)
    if value is None:
        return None
    parsed = _parsed(value)
    if not _fits(next(one for one in JSON_NOTES if one.name == key), parsed):
        raise StoreDamagedError(f"table meta: the note {key} is not as crystal writes it", hint=REPAIR_HINT)
    return parsed


def read_fields(store: Store, key: str, kind: Callable[..., T]) -> T | None:
    """Return ``kind(**fields)`` of a note's object, or None.

    Raises:
        StoreDamagedError: The value is not as crystal writes it.
    """
    value = read_json_note(store, key)
    return None if value is None else kind(**value)


def drop_damaged_notes(store: Store) -> set[str]:
    """Delete the notes that ``read_json_note`` refuses, and return their keys. Inside a transaction."""
    damaged = set(_damaged_notes(store))
    store.execute(f"DELETE FROM meta WHERE key IN {GIVEN}", ([*damaged],))
    return damaged


def _damaged_notes(store: Store) -> Iterator[str]:
    for note in JSON_NOTES:
        value = read_note(store, note.name)
        if value is not None and not _fits(note, _parsed(value)):
            yield note.name


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
    if type(value) is not column.kind or not all(column.items in (object, type(one)) for one in values):
        return False
    return column.fields is None or _has_fields(value, column.fields)


def _has_fields(value: Any, fields: Mapping[str, tuple[type, ...]]) -> bool:
    return value.keys() == fields.keys() and all(type(value[name]) in kinds for name, kinds in fields.items())


def misfits(store: Store, column: JsonColumn) -> list[int]:
    """Return the row ids whose text ``read_json`` refuses."""
    rows = store.rows(f"SELECT rowid, {column.name} FROM {column.table}")
    return [int(row) for row, text in rows if not _fits(column, _parsed(text))]


def json_faults(store: Store) -> Iterator[str]:
    """Yield for each column the number of its invalid rows, and the first of them; and each invalid note."""
    for key in _damaged_notes(store):
        yield f"table meta: the note {key} is not as crystal writes it"
    for column in JSON_COLUMNS:
        if wrong := misfits(store, column):
            more = f" and {len(wrong) - 1:,} more" if len(wrong) > 1 else ""
            yield f"table {column.table}: {column.name} of row {wrong[0]}{more} is not as crystal writes it"
