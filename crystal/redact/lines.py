"""The strings of a JSON line and the names they stand under, found without building the JSON.

Nothing is parsed, so nothing is re-written: numbers, white space, the order of keys and a nesting a million deep stay
as they are. A line counts as JSON here if what lies between its strings can only be JSON; otherwise it is text.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from crystal.redact.regex_engines import LARGE, Lazy

_BETWEEN = Lazy(rb"[\s{}\[\]:,0-9eE+\-.trufalsnNIity]*")
_SPACES = b" \t\r\n"
_NAMING_KEYS = frozenset((b"name", b"Name", b"key", b"Key", b"variable"))
_VALUE_KEYS = frozenset((b"value", b"Value", b"default"))
_QUOTE = Lazy(rb'(?s)\\.|"')
_MAX_NAME = 4096
_FLAG = Lazy(rb"--?[A-Za-z][\w-]*")


class JsonString(NamedTuple):
    """A JSON string: ``line[start:end]`` stands between its quotes; ``name`` is what tells of it, or empty."""

    start: int
    end: int
    name: bytes


def strings_of(line: bytes) -> list[JsonString] | None:
    """Return the strings of a JSON line in order, keys among them, or None if the line is not JSON.

    The name of a value is its key; in a list the key of the list, or the flag before it (``["--token", "..."]``);
    for ``{"name": "X", "value": "..."}`` and ``{"X": {"value": "..."}}`` it is X.
    """
    if line.lstrip(_SPACES)[:1] not in (b"{", b"[", b'"'):
        return None
    gaps, lengths = _parts(line)
    if len(gaps) == len(lengths) or not _BETWEEN.fullmatch(b"".join(gaps)):
        return None
    is_spaced = b" " in line or b"\t" in line or b"\r" in line
    plain = [gap.translate(None, _SPACES) for gap in gaps] if is_spaced else gaps
    names = _Names()
    pieces: list[JsonString] = []
    at = len(gaps[0]) + 1
    for number, length in enumerate(lengths):
        end, text = at + length, line[at : at + min(length, _MAX_NAME)]
        if plain[number + 1][:1] == b":":
            names.see_key(plain[number], text)
            pieces.append(JsonString(at, end, b""))
        else:
            pieces.append(JsonString(at, end, names.name_value(plain[number], text)))
        at = end + 2 + len(gaps[number + 1])
    return pieces


def _parts(line: bytes) -> tuple[list[bytes], list[int]]:
    """Return what stands between the strings of a line, and how long each string is."""
    if len(line) > LARGE:  # slower, without a copy
        quotes = (found.start() for found in _QUOTE.finditer(line) if found[0] == b'"')
        spans = list(pairwise([-1, *quotes, len(line)]))
        return [line[before + 1 : at] for before, at in spans[::2]], [at - before - 1 for before, at in spans[1::2]]
    # Blank the escapes, keep the offsets: what quotes are left begin and end strings.
    parts = line.replace(b"\\\\", b"__").replace(b'\\"', b"__").split(b'"')
    return parts[::2], [*map(len, parts[1::2])]


class _Names:
    """Find the name that each string of a line stands under; the strings are passed in order."""

    __slots__ = ("_before", "_key", "_listed", "_owner")

    def __init__(self) -> None:
        self._key = self._owner = self._before = b""
        self._listed = False

    def see_key(self, gap: bytes, key: bytes) -> None:
        """Take note of a key; ``gap`` is what stands between it and the string before, without spaces."""
        if gap == b":{":
            self._owner = self._key
        elif b"{" in gap or b"}" in gap:
            self._owner = b""
        self._key, self._listed = key, False

    def name_value(self, gap: bytes, text: bytes) -> bytes:
        """Return the name of a value."""
        name = self._name_in_object(gap, text) if gap in (b":", b":[") else self._name_in_list(gap)
        if gap == b"," and _FLAG.fullmatch(self._before):
            name = self._before.lstrip(b"-")
        self._before = text if len(text) < 80 else b""
        return name

    def _name_in_object(self, gap: bytes, text: bytes) -> bytes:
        self._listed = gap == b":["
        if self._key in _NAMING_KEYS:
            self._owner = text
        elif self._key in _VALUE_KEYS and self._owner:
            return self._owner
        return self._key

    def _name_in_list(self, gap: bytes) -> bytes:
        self._listed = self._listed and gap == b","
        return self._key if self._listed else b""
