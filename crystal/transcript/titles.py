"""Title of a session, given by the user or the client.

Source: docs/reference/transcript-format.md, section 8.
"""

from __future__ import annotations

from collections.abc import Iterable

from crystal.transcript.line import identifier, parse_line, word

_MARKS = (b'"custom-title"', b'"ai-title"', b'"summary"')


def titles(lines: Iterable[tuple[int, bytes]]) -> str | None:
    """Return the session's title from the lines: the user's latest, else the client's latest, else None.

    A ``summary`` line of older clients counts only if the message that it names is among the lines, because such lines
    were also written to other sessions' files.
    """
    given: dict[str, str] = {}
    every = [line for _, line in lines]
    for line in every:
        if not any(mark in line for mark in _MARKS):
            continue
        fields = parse_line(line) or {}
        kind = fields.get("type")
        if kind == "custom-title":
            _remember(given, "user", fields.get("customTitle"))
        elif kind == "ai-title":
            _remember(given, "client", fields.get("aiTitle"))
        elif kind == "summary" and _names_one_of(every, line, fields.get("leafUuid")):
            _remember(given, "summary", fields.get("summary"))
    return given.get("user") or given.get("client") or given.get("summary")


def _remember(given: dict[str, str], giver: str, title: object) -> None:
    words = word(title)
    if words is not None:
        given[giver] = " ".join(words.split())


def _names_one_of(every: list[bytes], line: bytes, leaf: object) -> bool:
    """Return True if the leaf is the uuid of a line, or there is none to check. Searching the bytes is enough."""
    uuid = identifier(leaf)
    if uuid is None:
        return True
    mark = f'"{uuid}"'.encode()
    return any(mark in other for other in every if other is not line and b'"leafUuid"' not in other)
