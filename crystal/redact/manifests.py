"""Find the values of Kubernetes Secrets, in YAML and in JSON: all of them are secret, whatever their names."""

from __future__ import annotations

import re
from collections.abc import Iterator

from crystal.redact.judge import is_stand_in
from crystal.redact.regex_engines import Lazy
from crystal.redact.spans import NAMED, STRING_END, Span
from crystal.redact.work_limit import CALL, FINDING, RedactionWork

MANIFEST_HINTS = (rb"kind[\"'\\]*[\t ]*:[\t ]*[\"'\\]*Secret\b",)
_SECRET = Lazy(rb"\bkind[\"']?[\t ]*:[\t ]*[\"']?Secret\b(?![\w.-])")
_MAX_MANIFEST = 2 << 20
"""Kubernetes stores at most 1 MiB, in base64 a third more."""
_EDGE = re.escape(STRING_END) + rb"|(?m:^(?:[ \t]*\d+(?:\t|\xe2\x86\x92))?---)"
_END = Lazy(_EDGE)
_NUMBER = rb"(?:[ \t]*\d+(?:\t|\xe2\x86\x92))?"
_DATA = Lazy(rb"(?m)^" + _NUMBER + rb"(?P<indent> *)(?:data|stringData):[ \t]*\r?\n")
_LINE = Lazy(
    _NUMBER + rb"(?P<indent> *)(?P<key>[\"']?[\w.-]{1,253}[\"']?:(?=\s|$))?[ \t]*"
    rb"(?P<block>[|>][+-]?(?=\s|$))?[\"']?(?P<v>[^\r\n\x00\xff]*?)[\"']?[ \t]*(?:[\x00\xff][^\n]*)?\r?(?:\n|$)"
)
_OBJECT = Lazy(rb"\"(?:data|stringData)\"\s{0,9}:\s{0,9}\{")
_PAIR = Lazy(
    rb"[\s,]{0,99}\"[\w.-]{1,253}\"\s{0,9}:\s{0,9}"
    rb"(?:null|\"(?P<v>(?:[^\"\\\x00\xff]|\\.)*)(?:[\x00\xff](?:[^\"\\]|\\.)*)?\")"
)
_JSON = Lazy(rb"\{\s*\\*\"")
"""Begins a value that is a file of JSON, and no template."""
_MIN_VALUE = 3


def manifest_spans(text: bytes, work: RedactionWork) -> Iterator[Span]:
    """Yield the values under ``data`` and ``stringData`` in each manifest of kind Secret."""
    at = 0
    while (kind := _SECRET.search(text, at)) is not None:
        start = max(0, at, kind.start() - _MAX_MANIFEST)
        start = max([start, *(edge.end() for edge in _END.finditer(text, start, kind.start()))])
        edge = _END.search(text, kind.end(), kind.end() + _MAX_MANIFEST)
        at = edge.start() if edge else min(kind.end() + _MAX_MANIFEST, len(text))
        work.spend(4 * CALL + 20 * (at - start))
        for found in (*_entries(text, start, at), *_pairs(text, start, at)):
            work.spend(FINDING)
            value = found["v"] or b""
            if len(value) >= _MIN_VALUE and (_JSON.match(value) or not is_stand_in(value)):
                yield Span(*found.span("v"), "secret", NAMED)


def _entries(text: bytes, start: int, end: int) -> Iterator[re.Match[bytes]]:
    """Yield the lines below ``data``. In a block of several lines each is a value."""
    while (data := _DATA.search(text, start, end)) is not None:
        start, keys_at, is_block = data.end(), 0, False
        while start < end and (line := _LINE.match(text, start, end)) is not None:
            indent, is_blank = len(line["indent"]), not (line["key"] or line["v"])
            if not is_block if is_blank else indent <= len(data["indent"]):
                break
            yield line
            start, keys_at = line.end(), keys_at or indent
            if line["key"] and indent == keys_at:
                is_block = line["block"] is not None


def _pairs(text: bytes, start: int, end: int) -> Iterator[re.Match[bytes]]:
    while (data := _OBJECT.search(text, start, end)) is not None:
        start = data.end()
        while (pair := _PAIR.match(text, start, end)) is not None:
            yield pair
            start = pair.end()
