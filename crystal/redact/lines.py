"""The strings of a JSON line and the names they stand under, found without building the JSON.

Nothing is parsed, so nothing is re-written: numbers, white space, the order of keys and a nesting a million deep stay
as they are. A line counts as JSON here if what lies between its strings can only be JSON; otherwise it is text.
"""

from __future__ import annotations

from typing import NamedTuple

from crystal.redact.engine import Lazy

_STRING = Lazy(rb'"([^"]*)"')
_BETWEEN = Lazy(rb"[\s{}\[\]:,0-9eE+\-.trufalsnNIity]*")
_SPACES = b" \t\r\n"
_NAMING_KEYS = frozenset((b"name", b"Name", b"key", b"Key", b"variable"))
_VALUE_KEYS = frozenset((b"value", b"Value", b"default"))
_FLAG = Lazy(rb"--?[A-Za-z][\w-]*")


class Piece(NamedTuple):
    """A JSON string: ``line[start:end]`` stands between its quotes; ``name`` is what tells of it, or empty."""

    start: int
    end: int
    name: bytes


def strings_of(line: bytes) -> list[Piece] | None:
    """Return the strings of a JSON line in order, keys among them, or None if the line is not JSON.

    The name of a value is its key; in a list the key of the list, or the flag before it (``["--token", "..."]``);
    for ``{"name": "X", "value": "..."}`` and ``{"X": {"value": "..."}}`` it is X.
    """
    if line.lstrip(_SPACES)[:1] not in (b"{", b"[", b'"'):
        return None
    # Blank the escapes, keep the offsets: what quotes are left begin and end strings.
    bare = line.replace(b"\\\\", b"__").replace(b'\\"', b"__")
    if not _BETWEEN.fullmatch(_STRING.sub(b"", bare)):
        return None
    pieces: list[Piece] = []
    key = owner = before = b""
    listed = False
    at = 0
    found = [string.span(1) for string in _STRING.finditer(bare)]
    for index, (start, end) in enumerate(found):
        gap = line[at : start - 1].translate(None, _SPACES)
        at = end + 1
        after = found[index + 1][0] - 1 if index + 1 < len(found) else len(line)
        is_key = line[at:after].lstrip(_SPACES)[:1] == b":"
        if is_key:
            if gap == b":{":
                owner = key
            elif b"{" in gap or b"}" in gap:
                owner = b""
            key, listed = line[start:end], False
            pieces.append(Piece(start, end, b""))
            continue
        if gap in (b":", b":["):
            name, listed = key, gap == b":["
            if key in _NAMING_KEYS:
                owner = line[start:end]
            elif key in _VALUE_KEYS and owner:
                name = owner
        else:
            listed = listed and gap == b","
            name = key if listed else b""
        if gap == b"," and _FLAG.fullmatch(before):
            name = before.lstrip(b"-")
        before = line[start:end] if end - start < 80 else b""
        pieces.append(Piece(start, end, name))
    return pieces
