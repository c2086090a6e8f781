"""Parse what is left of JSON that was cut, overwritten in the middle, or written on after a half-written record."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence

from crystal.model.named_tuple import NamedTuple
from crystal.text.lazy_pattern import lazy_pattern
from crystal.transcript.line import fields_of, list_of, parse_line

MAX_RECORD_BYTES = 4 << 20
_FORWARDS = lazy_pattern(rb'"[^"\\]*(?:\\.?[^"\\]*)*(?:"|\Z)|[][{}]', re.DOTALL)
_BACKWARDS = lazy_pattern(rb'"[^"]*(?:"(?=\\(?:\\\\)*(?!\\))[^"]*)*"|[][{}]', re.DOTALL)
"""Strings and brackets in reversed JSON: there a quote with an odd number of backslashes after it is escaped."""
_OBJECT = lazy_pattern(rb'\{\s*"')
_MAX_AGAIN = 20
"""A document is parsed as often at most: one that begins with many objects that do not end would be each time."""
_MAX_OPEN = 4
"""Brackets that are open after a place where the beginning of a conversation may end."""
_CLOSING = bytes.maketrans(b"[{", b"]}")


class MessageList(NamedTuple):
    """The list that a reader reads of a document.

    Attributes:
        name: Its field in the document.
        keys: Fields that each of its objects has, and that no object within them has.
    """

    name: str
    keys: Collection[str]


class _Place(NamedTuple):
    """A place in a document where it can be closed: after an object of its list, or where that list begins."""

    end: int
    closing: bytes


def last_record_at(line: bytes) -> int:
    """Return the start of the last JSON object of a line, 0 if it is the whole line or if the line ends with none.

    A program that died in the middle of a line, and goes on without a newline, writes its next record after the half.
    """
    body = line.rstrip()
    if len(body) > MAX_RECORD_BYTES or not body.endswith(b"}") or parse_line(body) is not None:
        return 0
    start = next((at for depth, sign, at in _backwards(body) if depth == 0 and sign in b"[{"), 0)
    return start if parse_line(body[start:]) is not None else 0


def parse_damaged(data: bytes, listed: MessageList | None = None) -> tuple[object, list[slice]]:
    """Parse a damaged document that is a list of objects, or an object that has one: those before and after the damage.

    Args:
        data: The document.
        listed: The list that it has, to be found where its name is lost; None if the document is the list.

    Returns:
        What was parsed, None if nothing can be; and which bytes were left out.
    """
    head, begin, is_cut = _head(data, listed)
    if is_cut:
        behind = []
    else:
        behind = _objects_at_end(data, begin) if listed is None else _objects_with(listed.keys, data, begin)
    before = list_of(head if listed is None else fields_of(head).get(listed.name))
    found = [*before, *(parse_line(data[one]) for one in behind)]
    if not found:
        return None, [slice(0, len(data))]
    begins, ends = [one.start for one in behind], [begin, *(one.stop for one in behind)]
    if listed is None:
        document: object = found
        is_end_whole = data[ends[-1] :].strip() == b"]"
    else:
        rest = _parse(b'{"%s":[{}' % listed.name.encode() + data[ends[-1] :])
        document = {**fields_of(rest), **fields_of(head), listed.name: found}
        is_end_whole = rest is not None
    between = map(slice, ends, begins if is_end_whole else [*begins, len(data)])
    return document, [one for one in between if data[one].strip(b", \r\n\t")]


def _head(data: bytes, listed: MessageList | None) -> tuple[object, int, bool]:
    """Return the document up to the damage, None without the list; where that is; and whether it is only cut there."""
    places, open_ = _places(data)
    low = _last_closed(data, places)
    head = _closed(data, places[low - 1]) if low else None
    if not low or not isinstance(head if listed is None else fields_of(head).get(listed.name), list):
        return None, 0, False
    return head, places[low - 1].end, _parse(data + open_.translate(_CLOSING)[::-1]) is not None


def _objects_with(keys: Collection[str], data: bytes, at: int) -> list[slice]:
    """Return the places of the whole objects that have some fields, from a place on.

    No text of a message is taken for one: a quote in it is escaped.
    """
    text, decode = data.decode("latin-1"), json.JSONDecoder().raw_decode  # a character is a byte
    found, left = list[slice](), _MAX_AGAIN * len(data)
    while left > 0 and (begun := _OBJECT.search(data, at)) is not None:
        start = begun.start()
        try:
            value, at = decode(text, start)
        except RecursionError:
            break
        except ValueError as error:
            at = start + 1
            left -= getattr(error, "pos", len(data)) - start
        else:
            found += [slice(start, at)] if value.keys() >= set(keys) else []
    return found


def parse_beginning(data: bytes) -> object:
    """Parse what is before the damage, as if everything that is open ended there; None if that is nothing."""
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


def _closed(data: bytes, place: _Place) -> object:
    """Parse a document up to a place."""
    return _parse(data[: place.end] + place.closing)


def _places(data: bytes) -> tuple[list[_Place], bytes]:
    """Return the places where a document can be closed, and the brackets that are open at its end."""
    open_, places = bytearray(), list[_Place]()
    for end, open_ in _brackets(data):
        if data[end - 1] in b"[}" and len(open_) < 3 and bytes(open_) in (b"[", b"{["):
            places.append(_Place(end, b"]" if len(open_) == 1 else b"]}"))
    return places, bytes(open_)


def _brackets(data: bytes) -> Iterator[tuple[int, bytearray]]:
    """Yield the end of each bracket, and which are open after it: a list that changes with the next."""
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


def _objects_at_end(data: bytes, begin: int) -> list[slice]:
    """Return where the whole objects are at the end of a document that is a list, from a place on."""
    found, stop, outer, rest = list[slice](), 0, b"", data[begin:]
    for depth, sign, at in _backwards(rest):
        if depth == 1 and sign in b"]}":
            outer = sign
        if outer != b"]":
            continue
        if sign == b"}" and depth == 2:
            stop = at + 1
        elif sign == b"{" and depth == 1:
            if parse_line(rest[at:stop]) is None:
                break
            found.append(slice(begin + at, begin + stop))
    return found[::-1]


def _backwards(data: bytes) -> Iterator[tuple[int, bytes, int]]:
    """Yield each bracket from the end on: how many are open before it, the bracket, where it is."""
    depth = 0
    for token in _BACKWARDS.finditer(data[::-1]):
        sign = token[0]
        if len(sign) == 1 and sign != b'"':
            depth += 1 if sign in b"]}" else -1
            if depth < 0:
                return
            yield depth, sign, len(data) - token.end()
