"""Order the documents of one part of the index, and store their attributes as arrays.

Documents are grouped by conversation, each in the order of its turns, so that the neighbours of a document are its
neighbours in the conversation, except before the ``first``. Documents without a session have no neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from crystal.model.quick_dataclass import dataclass
from crystal.search.index.array_types import Array
from crystal.store.search.index_source import DocumentRow

NO_TIME = -(2**63)

NUMBERS = {
    "id": "<i8",
    "session": "<i8",
    "turn": "<i8",
    "project": "<i8",
    "ts": "<i8",
    "offset": "<i8",
    "part": "<i4",
    "start": "<i4",
}
"""Attributes that are numbers; 0 if missing, ``NO_TIME`` for ``ts``."""

NAMES = ("role", "source", "agent", "device", "branch", "subagent")
"""Attributes that are strings, stored as codes with a list of strings for each part; "" if missing."""

ROLES = {"is_user": "user", "is_assistant": "assistant"}
"""Boolean attributes made from the role, which is faster than comparing strings."""

LENGTH = "<u2"
MAX_WORDS = 65_535


@dataclass(frozen=True, slots=True)
class Documents:
    """The attributes of some ordered documents; ``order[i]`` is the new index of the i-th input document."""

    arrays: dict[str, Array]
    names: dict[str, list[str]]
    order: Array


def documents_of(rows: Sequence[DocumentRow], lengths: Sequence[int]) -> Documents:
    """Order documents that come from the store in any order."""
    numbers = {name: _numbers(name, [getattr(row, name) or 0 for row in rows]) for name in NUMBERS}
    numbers["ts"] = _numbers("ts", [NO_TIME if row.ts is None else row.ts for row in rows])
    numbers["length"] = np.minimum(np.array(lengths, np.int64), MAX_WORDS).astype(LENGTH)
    names: dict[str, list[str]] = {}
    for name in NAMES:
        numbers[name], names[name] = _codes([getattr(row, name) or "" for row in rows])
    return _arranged(numbers, names)


def merge_documents(
    parts: Sequence[tuple[Mapping[str, Any], Mapping[str, Array]]], kept: Sequence[Array]
) -> tuple[Documents, list[Array]]:
    """Merge the documents of some parts.

    Args:
        parts: For each part its lists of strings, and its arrays.
        kept: For each part a mask of the documents to keep.

    Returns:
        The documents, and for each part the new index of each document, -1 for those left out.
    """
    together = {
        name: np.concatenate([arrays[name][keep] for (_, arrays), keep in zip(parts, kept, strict=True)])
        for name in (*NUMBERS, "length")
    }
    names: dict[str, list[str]] = {}
    for name in NAMES:
        known: dict[str, int] = {}
        recoded = []
        for (lists, arrays), keep in zip(parts, kept, strict=True):
            codes = arrays[name][keep]
            new = np.full(len(lists[name]), -1, np.int64)
            for code in np.unique(codes):  # names that no document has any more are dropped
                new[code] = known.setdefault(lists[name][code], len(known))
            recoded.append(new[codes].astype("<i4"))
        together[name], names[name] = np.concatenate(recoded), list(known)
    documents = _arranged(together, names)
    orders, at = [], 0
    for keep in kept:
        order = np.full(len(keep), -1, np.int64)
        count = int(np.count_nonzero(keep))
        order[keep] = documents.order[at : at + count]
        orders.append(order)
        at += count
    return documents, orders


def _numbers(name: str, values: Sequence[int]) -> Array:
    limits = np.iinfo(NUMBERS[name])
    try:
        return np.array(values, NUMBERS[name])
    except OverflowError:
        return np.array([max(limits.min, min(limits.max, value)) for value in values], NUMBERS[name])


def _codes(values: Iterable[str]) -> tuple[Array, list[str]]:
    known: dict[str, int] = {}
    codes = [known.setdefault(value, len(known)) for value in values]
    return np.array(codes, "<i4"), list(known)


def _arranged(arrays: dict[str, Array], names: dict[str, list[str]]) -> Documents:
    keys = ("id", "start", "part", "offset", "ts", "subagent", "session")
    places = np.lexsort([arrays[key] for key in keys])
    ordered: dict[str, Array] = {
        name: array[places] if name in ("ts", "length") else narrowed(array[places]) for name, array in arrays.items()
    }
    session, subagent = ordered["session"], ordered["subagent"]
    first = np.ones(len(places), np.uint8)
    same = (session[1:] == session[:-1]) & (subagent[1:] == subagent[:-1]) & (session[1:] != 0)
    first[1:] = ~same
    ordered["first"] = first
    ordered["by_id"] = narrowed(np.argsort(ordered["id"], kind="stable"))
    order = np.empty(len(places), np.int64)
    order[places] = np.arange(len(places))
    return Documents(ordered, names, order)


def narrowed(numbers: Array) -> Array:
    """Return integers in the smallest type that can represent all of them."""
    low, high = int(numbers.min(initial=0)), int(numbers.max(initial=0))
    kinds = ("|u1", "<u2", "<u4", "<i8") if low >= 0 else ("|i1", "<i2", "<i4", "<i8")
    return numbers.astype(next(kind for kind in kinds if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max))


def distinct(numbers: Array) -> Array:
    """Return the numbers sorted, without repeats. ``np.unique`` loads ``numpy.ma``: 40 ms at the first question."""
    ordered = np.sort(numbers)
    return ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])] if len(ordered) else ordered


def within(ts: Array, spans: Sequence[tuple[int, int]]) -> Array:
    """Return a mask of the times that are inside any of the spans."""
    inside = np.zeros(len(ts), np.bool_)
    for start, end in spans:
        inside |= (ts >= start) & (ts < end) & (ts != NO_TIME)
    return inside
