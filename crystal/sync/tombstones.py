"""Tombstones in transfer: encode them in a message or a document, and decode them strictly.

A tombstone holds ids, never text. Source: docs/spec/relay-messages.md, section 7.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from crystal.model.capture import is_unicode
from crystal.store.forget.forgetting import KINDS, MAX_NAMES, Tombstone
from crystal.sync.wire import MAX_NAME, MAX_PATH, BadRecord

MAX_TIME = 1 << 53

_LISTS = ("folders", "memories", "sessions", "lines")


def _can_travel(name: str) -> bool:
    return 0 < len(name) <= MAX_PATH and "\0" not in name and is_unicode(name)


def words_of(tombstone: Tombstone) -> dict[str, Any]:
    """Encode a tombstone for a message or a document."""
    value: dict[str, Any] = {
        what: [name for name in tombstone.names(what) if _can_travel(name)]
        for what in _LISTS
        if what in tombstone.value
    }
    if "session" in tombstone.value:
        value["session"] = tombstone.value["session"]
    return {
        "uid": tombstone.uid,
        "kind": tombstone.kind,
        "value": value,
        "until_at": tombstone.until_at,
        "made_at": tombstone.made_at,
    }


def read_tombstones(rows: object, device: str | None, *, most: int = MAX_NAMES) -> tuple[Tombstone, ...]:
    """Parse tombstones strictly.

    Args:
        rows: The received rows.
        device: The sending device; None if each tombstone names its machine itself, as home's do.
        most: Maximum total number of ids.

    Raises:
        BadRecord: They are malformed.
    """
    if not isinstance(rows, list):
        raise BadRecord("the message names nothing that is forgotten")
    found = tuple(_read(row, device) for row in rows)
    if sum(len(one.names(what)) for one in found for what in _LISTS) > most or len(found) > most:
        raise BadRecord(f"the message names more than {most:,} things that are forgotten")
    return found


def _read(row: object, device: str | None) -> Tombstone:
    if not isinstance(row, dict) or not isinstance(row.get("value"), dict) or row.get("kind") not in KINDS:
        raise BadRecord("what is forgotten is of a kind that this crystal does not know", hint="update crystal")
    uid, said, told = row.get("uid"), row["value"], row.get("device")
    if not isinstance(uid, str) or len(uid) != 32 or not set(uid) <= set("0123456789abcdef"):
        raise BadRecord("what is forgotten has no id")
    value: dict[str, Any] = {what: _names(said[what]) for what in _LISTS if what in said}
    if "session" in said:
        value["session"] = _names([said["session"]])[0]
    if row["kind"] == "session" and "session" not in value:
        raise BadRecord("a forgotten session is not named")
    until_at = None if row.get("until_at") is None else _time(row["until_at"])
    if device is None:
        if not isinstance(told, str) or not 0 < len(told) <= MAX_NAME or not is_unicode(told):
            raise BadRecord("what is forgotten names no machine")
        device = told
    return Tombstone(uid, row["kind"], value, until_at, _time(row.get("made_at")), device)


def _names(found: object) -> list[str]:
    if not isinstance(found, list) or not all(isinstance(name, str) and _can_travel(name) for name in found):
        raise BadRecord("what is forgotten has something else where a name should be")
    return found


def _time(value: object) -> int:
    if type(value) is not int or not 0 <= value < MAX_TIME:
        raise BadRecord("what is forgotten has something else where a time should be")
    return value


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
    words = {"v": 1, "kind": "forget", "tombstones": [words_of(one) for one in tombstones]}
    return json.dumps(words, separators=(",", ":")).encode()
