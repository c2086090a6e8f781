"""Filter documents by the attributes in the index, and by SQLite for all other filters."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from crystal.search.index.array_types import Mask
from crystal.search.index.attributes import NAMES, NO_TIME
from crystal.search.index.index_parts import IndexPart
from crystal.store import Store
from crystal.store.search import index_source
from crystal.store.search.scope import ScopeCondition


def allowed(store: Store, parts: Sequence[IndexPart], conditions: Sequence[ScopeCondition]) -> list[Mask]:
    """Return for each part the documents that fulfil all conditions, of which there is at least one."""
    masks = (_fulfilling(store, parts, condition) for condition in conditions)
    return [np.logical_and.reduce(of_part) for of_part in zip(*masks, strict=True)]


_TIMES = {"from": np.greater_equal, "before": np.less}


def _fulfilling(store: Store, parts: Sequence[IndexPart], condition: ScopeCondition) -> list[Mask]:
    column, values = condition.column, condition.values
    if condition.kind in _WITHOUT_STORE:
        return [_mask(part, condition) for part in parts]
    if condition.kind == "session":
        turns = np.array(sorted(index_source.copied_turns(store, int(values[0]))), np.int64)
        return [_numbered(part, "session", values) | np.isin(part.arrays["turn"], turns) for part in parts]
    ids = np.array(index_source.ids_where(store, column, values), np.int64)
    return [part.holding(ids) for part in parts]


_WITHOUT_STORE = ("in", "subagent", "held", "sessions", *_TIMES)


def _mask(part: IndexPart, condition: ScopeCondition) -> Mask:
    """Return the rows of a part that a condition allows by the part's own columns."""
    kind, column, values = condition.kind, condition.column, condition.values
    if kind == "in":
        return _named(part, column, values) if column in NAMES else _numbered(part, column, values)
    if kind == "subagent":
        return _named(part, column, values) | ~_named(part, "subagent", ("",))
    if kind == "held":
        return _numbered(part, "project", values) | _holds_everywhere(part)
    if kind == "sessions":
        return _numbered(part, "session", json.loads(values[0]))
    times = part.arrays["ts"]
    found: Mask = _TIMES[kind](times, values[0]) & (times != NO_TIME)
    return found


def _holds_everywhere(part: IndexPart) -> Mask:
    return np.asarray(_named(part, "source", ("memory", "file")) & (part.arrays["project"] == 0))


def _named(part: IndexPart, name: str, values: Sequence[str]) -> Mask:
    known = np.array([value in values for value in part.names[name]], np.bool_)
    return known[part.arrays[name]]


def _numbered(part: IndexPart, name: str, values: Sequence[int]) -> Mask:
    numbers = part.arrays[name]
    return np.asarray(numbers == values[0]) if len(values) == 1 else np.isin(numbers, np.array(values, np.int64))
