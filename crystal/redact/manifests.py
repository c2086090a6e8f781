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
_MAX_MANIFEST = 16 * 1024
_EDGE = re.escape(STRING_END) + rb"|(?m:^(?:[ \t]*\d+(?:\t|\xe2\x86\x92))?---)"
_END = Lazy(_EDGE)
_DATA = Lazy(rb"(?m)^(?P<number>[ \t]*\d+(?:\t|\xe2\x86\x92))?(?P<indent> *)(?:data|stringData):[ \t]*\r?\n")
_ENTRY = Lazy(
    rb"(?:[ \t]*\d+(?:\t|\xe2\x86\x92))?(?P<indent> +)[\"']?[\w.-]{1,253}[\"']?:(?:[ \t]*[|>][+-]?\r?\n[ \t]*|[ \t]+)"
    rb"[\"']?(?P<v>[^\r\n\"'\x00\xff]{3,})[^\n]*(?:\n|$)"
)
_OBJECT = Lazy(rb"\"(?:data|stringData)\"\s{0,9}:\s{0,9}\{(?P<body>[^{}\xff]{1,16384})\}")
_PAIR = Lazy(rb"\"[\w.-]{1,253}\"\s{0,9}:\s{0,9}\"(?P<v>[^\"\x00]{3,})\"")


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
            if not is_stand_in(found["v"]):
                yield Span(*found.span("v"), "secret", NAMED)


def _entries(text: bytes, start: int, end: int) -> Iterator[re.Match[bytes]]:
    for data in _DATA.finditer(text, start, end):
        at = data.end()
        while (entry := _ENTRY.match(text, at, end)) is not None and len(entry["indent"]) > len(data["indent"]):
            yield entry
            at = entry.end()


def _pairs(text: bytes, start: int, end: int) -> Iterator[re.Match[bytes]]:
    for data in _OBJECT.finditer(text, start, end):
        yield from _PAIR.finditer(text, *data.span("body"))
