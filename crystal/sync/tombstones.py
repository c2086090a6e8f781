"""Tombstones in transfer: encode them in a message or a document, and decode them strictly.

A tombstone holds ids, never text. Source: docs/spec/relay-messages.md, section 7.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from crystal.model.capture import is_unicode
from crystal.store.forget.forgetting import KINDS, MAX_NAMES, Tombstone
from crystal.sync.wire import MAX_NAME, MAX_PATH, InvalidRecordError, control_message

MAX_TIME = 1 << 53
_UID = re.compile("[0-9a-f]{32}")

_LISTS = ("folders", "memories", "sessions", "lines")


def words_of(tombstone: Tombstone) -> dict[str, Any]:
    """Encode a tombstone for a message or a document; names that nobody accepts are left out."""
    value = {what: list(filter(_is_name, tombstone.names(what))) for what in _LISTS if what in tombstone.value}
    if "session" in tombstone.value:
        value["session"] = tombstone.value["session"]
    words = tombstone._replace(value=value)._asdict()
    del words["device"]
    return words


def read_tombstones(rows: object, device: str | None, *, most: int = MAX_NAMES) -> tuple[Tombstone, ...]:
    """Parse tombstones strictly.

    Args:
        rows: The received rows.
        device: The sending device; None if each tombstone names its machine itself, as home's do.
        most: Maximum total number of ids.

    Raises:
        InvalidRecordError: They are malformed.
    """
    if not isinstance(rows, list):
        raise InvalidRecordError("the message names nothing that is forgotten")
    found = tuple(_read(row, device) for row in rows)
    if sum(len(one.names(what)) for one in found for what in _LISTS) > most or len(found) > most:
        raise InvalidRecordError(f"the message names more than {most:,} things that are forgotten")
    return found


def _read(row: object, device: str | None) -> Tombstone:
    match row:
        case {"uid": str(uid), "kind": str(kind), "value": dict(said), "until_at": until, "made_at": made, **rest}:
            told = rest.get("device") if device is None else device
            value = {what: said[what] for what in (*_LISTS, "session") if what in said}
            found = Tombstone(uid, kind, value, until, made, told)  # type: ignore[arg-type]
            is_named = device is not None or (isinstance(told, str) and _is_name(told) and len(told) <= MAX_NAME)
            if is_named and _is_valid(found):
                return found
    raise InvalidRecordError("what is forgotten cannot be understood", hint="update crystal")


def _is_valid(one: Tombstone) -> bool:
    lists = [one.value.get(what, []) for what in _LISTS]
    checks = (
        _UID.fullmatch(one.uid) is not None,
        one.kind in KINDS,
        all(isinstance(names, list) and all(map(_is_name, names)) for names in lists),
        _is_name(one.value["session"]) if "session" in one.value else one.kind != "session",
        one.until_at is None or _is_time(one.until_at),
        _is_time(one.made_at),
    )
    return all(checks)


def _is_name(name: object) -> bool:
    return isinstance(name, str) and 0 < len(name) <= MAX_PATH and "\0" not in name and is_unicode(name)


def _is_time(value: object) -> bool:
    return type(value) is int and 0 <= value < MAX_TIME


def messages(tombstones: Sequence[Tombstone]) -> Iterator[bytes]:
    """Yield the messages that send tombstones to home, each as full as possible."""
    run: list[Tombstone] = []
    names = 0
    for one in tombstones:
        count = max(1, sum(len(one.names(what)) for what in _LISTS))
        if run and names + count > MAX_NAMES:
            yield _message(run)
            run, names = [], 0
        run.append(one)
        names += count
    if run:
        yield _message(run)


def _message(tombstones: Sequence[Tombstone]) -> bytes:
    return control_message("forget", {"tombstones": [words_of(one) for one in tombstones]})
