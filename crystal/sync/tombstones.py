"""Encode tombstones for a message or a document, and decode them strictly.

A tombstone contains ids, never text. Source: docs/spec/relay-messages.md, section 7.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from crystal.store.forget.forgetting import MAX_NAMES, Tombstone, TombstoneKind
from crystal.sync.wire import Folder, InvalidRecordError, Name, control_message

MAX_TIME = 1 << 53

Time = Annotated[int, Meta(ge=0, lt=MAX_TIME)]
_LISTS = ("folders", "memories", "sessions", "lines")


class _Names(Struct):
    folders: list[Folder] | UnsetType = UNSET
    memories: list[Folder] | UnsetType = UNSET
    sessions: list[Folder] | UnsetType = UNSET
    lines: list[Folder] | UnsetType = UNSET
    session: Folder | UnsetType = UNSET


class _Words(Struct):
    uid: Annotated[str, Meta(pattern=r"\A[0-9a-f]{32}\Z")]
    kind: TombstoneKind
    value: _Names
    until_at: Time | None
    made_at: Time
    device: Name | None = None

    def __post_init__(self) -> None:
        if self.kind == "session" and self.value.session is UNSET:
            raise ValueError("a session without its name")


def words_of(tombstone: Tombstone) -> dict[str, Any]:
    """Encode a tombstone for a message or a document; names that no receiver accepts are left out."""
    value = {what: list(filter(_is_name, tombstone.names(what))) for what in _LISTS if what in tombstone.value}
    if "session" in tombstone.value:
        value["session"] = tombstone.value["session"]
    words = tombstone._replace(value=value)._asdict()
    del words["device"]
    return words


def _is_name(name: str) -> bool:
    try:
        msgspec.convert(name, Folder)
    except ValueError:
        return False
    return True


def read_tombstones(rows: object, device: str | None, *, most: int = MAX_NAMES) -> tuple[Tombstone, ...]:
    """Parse tombstones strictly.

    Args:
        rows: The received rows.
        device: The sending device; None if each tombstone names its machine itself, as home's do.
        most: Maximum total number of ids.

    Raises:
        InvalidRecordError: They are malformed.
    """
    try:
        read = msgspec.convert(rows, list[_Words])
        if device is None and any(one.device is None for one in read):
            raise ValueError("a tombstone without its machine")
    except ValueError as error:
        raise InvalidRecordError("the tombstones cannot be read", hint="update crystal") from error
    found = tuple(
        Tombstone(
            one.uid, one.kind, msgspec.to_builtins(one.value), one.until_at, one.made_at, device or str(one.device)
        )
        for one in read
    )
    if sum(len(one.names(what)) for one in found for what in _LISTS) > most or len(found) > most:
        raise InvalidRecordError(f"the message names more than {most:,} things that are forgotten")
    return found


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
