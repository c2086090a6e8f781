"""Parse what is left of JSON that was cut, overwritten in the middle, or written on behind a half-written record."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from crystal.model.named_tuple import NamedTuple
from crystal.text.lazy_pattern import lazy_pattern
from crystal.transcript.line import parse_line

MAX_RECORD_BYTES = 4 << 20
_FORWARDS = lazy_pattern(rb'"[^"\\]*(?:\\.?[^"\\]*)*(?:"|\Z)|[][{}]', re.DOTALL)
_BACKWARDS = lazy_pattern(rb'"[^"]*(?:"(?=\\(?:\\\\)*(?!\\))[^"]*)*"|[][{}]', re.DOTALL)
"""Strings and brackets in reversed JSON: there a quote with an odd number of backslashes behind it is escaped."""
_LIST_NAME = lazy_pattern(rb'("[a-zA-Z_]+")\s*:\s*\[[^][]*\Z')
_MAX_NAME = 1_000
_MAX_OPEN = 4
"""Brackets that are open behind a place where the beginning of a conversation may end."""
_CLOSING = bytes.maketrans(b"[{", b"]}")


class _Place(NamedTuple):
    """A place in a document where it can be closed: behind an object of its list, or where that list begins."""

    end: int
    closing: bytes


def last_record_at(line: bytes) -> int:
    """Return the start of the last JSON object of a line, 0 if it is the whole line or if the line ends with none.

    A program that died in the middle of a line, and goes on without a newline, writes its next record behind the half.
    """
    body = line.rstrip()
    if len(body) > MAX_RECORD_BYTES or not body.endswith(b"}") or parse_line(body) is not None:
        return 0
    start = next((at for depth, sign, at in _backwards(body) if depth == 0 and sign in b"[{"), 0)
    return start if parse_line(body[start:]) is not None else 0


def parse_damaged(data: bytes) -> tuple[object, int, int]:
    """Parse a damaged document that is a list of objects, or an object that has one: those before and after the damage.

    Returns:
        What was parsed, None if nothing can be; and which bytes were left out: the first, and the one behind the last.
    """
    places, open_ = _places(data)
    low = _last_closed(data, places)
    if not low:
        return _without_beginning(data)
    place = places[low - 1]
    is_cut = _parse(data + open_.translate(_CLOSING)[::-1]) is not None
    behind, start = ([], len(data)) if is_cut else _objects_at_end(data, place)
    is_behind_object = data[: place.end].endswith(b"}")
    if not behind and not is_behind_object:
        return None, 0, len(data)
    more = b",".join([b"", *behind] if is_behind_object else behind)
    return _closed(data, place, more), place.end, start


def _without_beginning(data: bytes) -> tuple[object, int, int]:
    """Parse a document that begins damaged: the objects at the end of its list, and what follows them."""
    for closing in (b"]", b"]}"):
        behind, start = _objects_at_end(data, _Place(0, closing))
        named = _LIST_NAME.search(data, max(0, start - _MAX_NAME), start) if len(closing) == 2 else None
        if behind and (named or len(closing) == 1):
            head = b"{" + named[1] + b":[" if named else b"["
            return _parse(head + data[start:]) or _parse(head + b",".join(behind) + closing), 0, start
    return None, 0, len(data)


def parse_beginning(data: bytes) -> object:
    """Parse what stands before the damage, as if everything that is open ended there; None if that is nothing."""
    places = [
        _Place(end, bytes(open_).translate(_CLOSING)[::-1])
        for end, open_ in _brackets(data)
        if len(open_) < _MAX_OPEN and data[end - 1] in b"]}"
    ]
    low = _last_closed(data, places)
    return _closed(data, places[low - 1]) if low else None


def _last_closed(data: bytes, places: Sequence[_Place]) -> int:
    """Return how many of the places are before the damage: if it can be closed at one, then at each one before."""
    low, high = 0, len(places)
    if places and _closed(data, places[-1]) is not None:  # it was only cut
        return high
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (low, middle - 1) if _closed(data, places[middle - 1]) is None else (middle, high)
    return low


def _parse(data: bytes) -> object:
    return (parse_line(b'{"it":' + data + b"}") or {}).get("it")


def _closed(data: bytes, place: _Place, more: bytes = b"") -> object:
    """Parse a document up to a place, with more behind it."""
    return _parse(data[: place.end] + more + place.closing)


def _places(data: bytes) -> tuple[list[_Place], bytes]:
    """Return the places where a document can be closed, and the brackets that are open at its end."""
    open_, places = bytearray(), list[_Place]()
    for end, open_ in _brackets(data):
        if data[end - 1] in b"[}" and len(open_) < 3 and bytes(open_) in (b"[", b"{["):
            places.append(_Place(end, b"]" if len(open_) == 1 else b"]}"))
    return places, bytes(open_)


def _brackets(data: bytes) -> Iterator[tuple[int, bytearray]]:
    """Yield the end of each bracket, and which are open behind it: a list that changes with the next."""
    open_ = bytearray()
    for token in _FORWARDS.finditer(data):
        sign = token[0]
        if sign in (b"[", b"{"):
            open_ += sign
        elif sign in (b"]", b"}"):
            del open_[-1:]
        else:
            continue
        yield token.end(), open_


def _objects_at_end(data: bytes, place: _Place) -> tuple[list[bytes], int]:
    """Return the whole objects at the end of the list that a place is in, and where the first of them begins."""
    closed = place.closing[::-1]
    found, start, stop = list[bytes](), len(data), len(data)
    outer, level, rest = b"", len(closed), data[place.end :]
    for depth, sign, at in _backwards(rest):
        if sign in b"]}" and depth <= level:
            outer = outer[: depth - 1] + sign
        if outer != closed:
            continue
        if sign == b"}" and depth == level + 1:
            stop = at + 1
        elif sign == b"{" and depth == level:
            if parse_line(rest[at:stop]) is None:
                break
            found.append(rest[at:stop])
            start = place.end + at
        elif sign == b"[" and depth < level:
            found, start = [], len(data)  # another list, which is whole
    return found[::-1], start


def _backwards(data: bytes) -> Iterator[tuple[int, bytes, int]]:
    """Yield each bracket from the end on: how many are open before it, the bracket, where it stands."""
    depth = 0
    for token in _BACKWARDS.finditer(data[::-1]):
        sign = token[0]
        if len(sign) == 1 and sign != b'"':
            depth += 1 if sign in b"]}" else -1
            if depth < 0:
                return
            yield depth, sign, len(data) - token.end()
