"""Find passwords and tokens in ``INSERT INTO users (name, password) VALUES ('ada', '...')``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from crystal.redact.named_values import is_secret_beside
from crystal.redact.regex_engines import Lazy
from crystal.redact.secret_names import strength
from crystal.redact.spans import NAMED, Span
from crystal.redact.work_limit import CALL, FINDING, RedactionWork

_GAP_RAW = rb"(?:\s|\\+[nrt])"
INSERT_HINTS = (
    rb"(?i:into)" + _GAP_RAW + rb"+[^()\xff]+\([^()\xff]+\)" + _GAP_RAW + rb"*(?i:values)" + _GAP_RAW + rb"*\(",
)
_INSERT = Lazy(
    rb"(?i)\b(?:insert|replace)\s{1,20}(?:\w{1,20}\s{1,20}){0,2}into\s{1,20}[^\s()]{1,128}\s{0,20}"
    rb"\((?P<columns>[^()\x00\xff]{1,2048})\)\s{0,40}values\s{0,40}(?=\()"
)
_QUOTED = rb"%b(?P<%b>[^%b\\\x00\xff]{0,512}(?:(?:%b%b|\\.)[^%b\\\x00\xff]{0,512}){0,8})%b"
_SINGLE, _DOUBLE = (_QUOTED % (q, name, q, q, q, q, q) for q, name in ((b"'", b"single"), (b'"', b"double")))
_CELL = Lazy(
    rb"\s{0,40}(?:[A-Za-z]?(?:" + _SINGLE + rb"|" + _DOUBLE + rb")"
    rb"|[^'\"(),\x00\xff]{0,256}(?:\([^()\x00\xff]{0,256}\))?)\s{0,40}(?P<end>[,)])"
)
_NEXT_ROW = Lazy(rb"\s{0,40},\s{0,40}(?=\()")


def insert_spans(text: bytes, work: RedactionWork) -> Iterator[Span]:
    """Yield the strings that an SQL statement puts into columns whose names tell of a secret."""
    for found in _INSERT.finditer(text):
        work.spend(4 * CALL)
        names = [name.strip(b" \t\r\n\"'`[]") for name in found["columns"].split(b",")]
        secrets = {number: name for number, name in enumerate(names) if strength(name) is not None}
        row: re.Match[bytes] | None = found
        while secrets and row is not None:
            cells = list(_cells(text, row.end() + 1, work))
            for number in secrets.keys() & range(len(cells)):
                start, end = max(cells[number].span("single"), cells[number].span("double"))
                kind = is_secret_beside(secrets[number], text[start:end]) if start >= 0 else None
                if kind is not None:
                    work.spend(FINDING)
                    yield Span(start, end, kind, NAMED)
            row = _NEXT_ROW.match(text, cells[-1].end()) if cells else None


def _cells(text: bytes, at: int, work: RedactionWork) -> Iterator[re.Match[bytes]]:
    """Yield the values of a row that begins at a place."""
    while True:
        work.spend(2 * CALL)
        cell = _CELL.match(text, at)
        if cell is None:
            return
        yield cell
        at = cell.end()
        if cell["end"] == b")":
            return
