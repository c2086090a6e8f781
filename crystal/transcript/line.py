"""Parse one line of JSON into fields, and fields into values that can be stored; for the readers.

Never raises. What is not a JSON object becomes None; a field of the wrong type is ignored.

Source: docs/reference/transcript-format.md, section 3.
"""

import hashlib
import json
import re
from datetime import datetime, timedelta, timezone
from typing import Any, TypeAlias

import orjson

Fields: TypeAlias = dict[str, Any]
"""Fields of one line as in the JSON; their types are not checked."""

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MAX_INTEGER = 40
MAX_MILLISECONDS = 1 << 53
_MAX_ID = 256
_STRUCTURE = re.compile(rb'"[^"\\]*(?:\\.?[^"\\]*)*(?:"|\Z)|[][{}]', re.DOTALL)
_SURROGATES = re.compile("[\ud800-\udfff]")
_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,30}))?)?\s?(?:([Zz])|([+-])(\d\d):?(\d\d)?)?",
    re.ASCII,
)


def parse_line(line: bytes) -> Fields | None:
    """Parse one line; None if it is not a JSON object. Never raises.

    orjson first; what it refuses (lone surrogates, broken UTF-8, a byte order mark, NaN) goes to the standard
    library's parser, which takes them. Nesting that overflows either parser makes the line unreadable.
    """
    try:
        fields = orjson.loads(line)
    except orjson.JSONDecodeError:
        fields = _parse_leniently(line)
    return fields if isinstance(fields, dict) else None


def parse_lines(data: bytes) -> list[Fields]:
    """Parse lines; those that are no JSON objects are left out."""
    return [fields for line in data.split(b"\n") if (fields := parse_line(line)) is not None]


def parse_cut(data: bytes) -> tuple[object, bytes]:
    """Parse a cut document that is a list of objects, or an object that has one, up to the last object that is whole.

    Returns:
        What was parsed, None if nothing can be; and the bytes behind it.
    """
    outer, depth, end, closing = b"", 0, 0, b""  # of what is open, the outer two: a file may nest millions
    for token in _STRUCTURE.finditer(data):
        sign = token[0]
        if sign in (b"[", b"{"):
            outer = outer[:depth] + sign if depth < 2 else outer
            depth += 1
        elif sign in (b"]", b"}"):
            depth = max(0, depth - 1)
            if sign == b"}" and depth in (1, 2) and outer[:depth] in (b"[", b"{["):
                end, closing = token.end(), b"]" if depth == 1 else b"]}"
    return (parse_line(b'{"it":' + data[:end] + closing + b"}") or {}).get("it"), data[end:]


def format_line(fields: object) -> bytes:
    """Return what was parsed as JSON in one line. Never raises; only what is nested a thousand deep becomes empty.

    orjson first; what it refuses (lone surrogates, long integers, NaN, bytes) goes to the standard library.
    """
    try:
        return orjson.dumps(fields)
    except TypeError:  # orjson.JSONEncodeError is one
        pass
    try:
        return json.dumps(fields, default=repr).encode("ascii")
    except RecursionError:
        return b"{}"


def digest(value: object) -> str:
    """Return a text that differs whenever a value does: a text, bytes, or anything that is JSON."""
    data = value.encode("utf-8", "replace") if isinstance(value, str) else value
    return hashlib.sha256(data if isinstance(data, bytes) else format_line(data)).hexdigest()


def parse_time(value: object) -> int | None:
    """Convert an ISO 8601 date and time into milliseconds since the epoch; None for anything else.

    Without a zone it counts as UTC. Digits after the millisecond are dropped.
    """
    if not isinstance(value, str):
        return None
    match = _TIME.fullmatch(value)
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, _, sign, zone_hours, zone_minutes = match.groups()
    try:
        moment = datetime(
            int(year), int(month), int(day), int(hour), int(minute), int(second or 0), tzinfo=timezone.utc
        )
    except ValueError:
        return None
    whole = (moment - _EPOCH) // timedelta(milliseconds=1)
    offset = (int(zone_hours or 0) * 60 + int(zone_minutes or 0)) * 60_000
    return whole + int(((fraction or "") + "000")[:3]) + (offset if sign == "-" else -offset)


def fields_of(value: object) -> Fields:
    """Return an object; empty for anything else."""
    return value if isinstance(value, dict) else {}


def list_of(value: object) -> list[Any]:
    """Return a list; empty for anything else."""
    return value if isinstance(value, list) else []


def dicts_of(value: object) -> list[Fields]:
    """Return the objects in a list; empty for anything else."""
    return [one for one in list_of(value) if isinstance(one, dict)]


def milliseconds(value: object) -> int | None:
    """Return a field that must be a time in milliseconds since the epoch; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 < value < MAX_MILLISECONDS else None


def clean_text(text: str) -> str:
    """Make a text storable: lone surrogates and NUL become U+FFFD; everything else is unchanged."""
    if text.isascii():
        return text.replace("\0", "\ufffd")
    try:
        text.encode()
    except UnicodeEncodeError:
        text = _SURROGATES.sub("\ufffd", text)
    return text.replace("\0", "\ufffd")


def word(value: object) -> str | None:
    """Return a field that must be a non-empty text, made storable; else None."""
    if isinstance(value, str) and value and not value.isspace():
        return clean_text(value)
    return None


def identifier(value: object) -> str | None:
    """Return a field that must be an id: a short text; else None."""
    if isinstance(value, str) and len(value) <= _MAX_ID:
        return word(value)
    return None


def _parse_leniently(line: bytes) -> object:
    text = line.decode("utf-8", "replace").lstrip("\ufeff")
    try:
        return json.loads(text, parse_int=_parse_integer)
    except (ValueError, RecursionError):
        return None


def _parse_integer(digits: str) -> int | str:
    """Keep an extremely long integer as text: Python refuses to convert it, or needs quadratic time."""
    return int(digits) if len(digits) <= _MAX_INTEGER else digits
