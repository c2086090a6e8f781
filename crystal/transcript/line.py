"""Parse one line of JSON into fields, and fields into values that can be stored; for the readers.

Never raises. What is not a JSON object becomes None; a field of the wrong type is ignored.

Source: docs/reference/transcript-format.md, section 3.
"""

import contextlib
import hashlib
import json
import math
import re
from datetime import datetime, timedelta, timezone
from typing import Any, TypeAlias

from crystal.text.lazy_pattern import lazy_pattern

Fields: TypeAlias = dict[str, Any]
"""Fields of one line as in the JSON; their types are not checked."""

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_FEW_BYTES = 1 << 20
"""As much as the standard library parses while orjson is imported, which is twice as fast then."""
MAX_MILLISECONDS = 1 << 53
_MAX_ID = 256
_SURROGATES = lazy_pattern("[\ud800-\udfff]")
_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,30}))?)?\s?(?:([Zz])|([+-])(\d\d):?(\d\d)?)?",
    re.ASCII,
)


def parse_line(line: bytes) -> Fields | None:
    """Parse one line; None if it is not a JSON object. Never raises.

    The standard library's parser takes lone surrogates, broken UTF-8, a byte order mark and NaN too. Nesting of more
    than a thousand levels makes the line unreadable.
    """
    fields = _parse(line)
    return fields if isinstance(fields, dict) else None


def parse_lines(data: bytes) -> list[Fields]:
    """Parse lines; those that are no JSON objects are left out."""
    return [fields for line in data.split(b"\n") if (fields := parse_line(line)) is not None]


def format_line(fields: object) -> bytes:
    """Return what was parsed as JSON in one line. Never raises; only what is nested a thousand deep becomes empty.

    orjson first; what it refuses (lone surrogates, long integers, NaN, bytes) goes to the standard library.
    """
    import orjson  # noqa: PLC0415 - 10 ms, and a turn of most agents formats nothing

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


class _Parser:
    """Parses few bytes with the standard library alone, more with orjson first. Both give the same."""

    def __init__(self) -> None:
        self._left = _FEW_BYTES
        self._decode = json.JSONDecoder(parse_int=_parse_integer).decode

    def __call__(self, line: bytes) -> object:
        self._left -= len(line)
        if self._left >= 0:
            with contextlib.suppress(RecursionError):  # orjson goes deeper
                return self.leniently(line)
        return self.quickly(line)

    def quickly(self, line: bytes) -> object:
        import orjson  # noqa: PLC0415 - with what it imports it takes 10 ms, a turn's lines a tenth of that

        try:
            return orjson.loads(line)
        except orjson.JSONDecodeError:
            pass
        try:
            return self.leniently(line)
        except RecursionError:
            return None

    def leniently(self, line: bytes) -> object:
        try:
            return self._decode(line.decode("utf-8", "replace").lstrip("\ufeff"))
        except ValueError:
            return None


def _parse_integer(digits: str) -> int | float | str:
    """Return an integer as orjson does: one of more than 64 bits as a float, what is endless as a float as text."""
    number = int(digits) if len(digits) <= 20 else None
    if number is not None and -(1 << 63) <= number < 1 << 64:
        return number
    near = float(digits)
    return digits if math.isinf(near) else near


_parse = _Parser()
