"""Finds tokens of known formats in plain text, and tells the first look what to look for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from crystal.redact.engine import compile_scanner
from crystal.redact.format_table import APART_RAW, DIGITS, TABLE
from crystal.redact.judge import looks_random
from crystal.redact.spans import FORMAT, NEARBY, Span


class Format(NamedTuple):
    """A token format: one of ``literals`` stands in every match; group 1 is the secret, else the whole match is."""

    kind: str
    literals: tuple[bytes, ...]
    pattern: re.Pattern[bytes]


FORMATS = tuple(
    Format(kind, tuple(literals.split()) or (b"",), re.compile(pattern)) for kind, literals, pattern in TABLE
)

_AWS_SECRET = re.compile(rb"(?<![A-Za-z0-9/+=_-])[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=_-])")
_TWILIO_ACCOUNT = re.compile(rb"(?<![A-Za-z0-9])(?:AC|SK)[0-9a-f]{32}(?![A-Za-z0-9])")
_HEX32 = re.compile(rb"(?<![A-Za-z0-9-])[0-9a-f]{32}(?![A-Za-z0-9-])")
_NEAR = 200
_LONG, _AROUND = 64 * 1024, 512
_TOKEN_END = re.compile(rb"[^A-Za-z0-9_.+/=-]")
_BASE64 = re.compile(rb"[A-Za-z0-9+/]+")
_BLOB = re.compile(rb"[A-Za-z0-9+/]{64}")


def _hint(pattern: bytes) -> bytes:
    r"""Loosen a pattern into one that RE2 takes and that matches the raw text of every string the pattern matches.

    Look-arounds go, long counts shrink (a small automaton), and ``/`` may be written ``\/``.
    """
    loose = re.sub(rb"\(\?<?[=!](?:[^()\[\]]|\[[^\]]*\])*\)", b"", pattern)
    loose = re.sub(
        rb"\{(\d+)(,?)\d*\}", lambda count: b"{16,}" if int(count[1]) > 16 else b"{%b%b}" % count.groups(), loose
    )
    return re.sub(
        rb"\[[^\]]*\]|/",
        lambda part: rb"\\*/" if part[0] == b"/" else part[0].replace(b"/", rb"/\\"),
        loose,
    )


_OWN_HINTS = {
    b"-us": rb"-us\d",
    b"NRAL": rb"NRAL",
    b".atlasv1.": rb"\.atlasv1\.",
    b"Q~": rb"Q~[\w~.-]{16}",
    b":AA": rb":AA[\w-]{16}",
    b"sk-": rb"sk-[\w-]{0,12}[A-Za-z0-9]{16}",
    b"T3BlbkFJ": rb"T3BlbkFJ",
    b"EAAA": APART_RAW + rb"EAAA[\w-]{60}",
    b"EAA": APART_RAW + rb"EAA[A-Za-z0-9]{80}",
    b"cio": APART_RAW + rb"cio[A-Za-z0-9]{32}",
    b"sl.": rb"sl\.(?:u\.)?[\w-]{60}",
    b"": DIGITS + rb"{4}",
    b"AAAAAAAAAAAAAAAAAAAA": rb"A{20}[A-Za-z0-9]+%",
}
"""For patterns that begin with anything at all: RE2 would follow each of them through every word."""

FORMAT_HINTS = tuple(_OWN_HINTS.get(row[1]) or _hint(row[2]) for row in TABLE)
"""What a raw line must hold for a token of a known format to be in any of its strings."""

_scan_hints = compile_scanner(b"|".join(b"(?:" + hint + b")" for hint in FORMAT_HINTS))

FORMAT_LITERALS = tuple(literal for row in FORMATS for literal in row.literals if len(literal) > 3)
FORMAT_PATTERNS = (
    *(hint for hint, row in zip(FORMAT_HINTS, FORMATS, strict=True) if 0 < min(map(len, row.literals)) <= 3),
    *(DIGITS.replace(b"[MNO]", letter) + DIGITS + rb"{3}" for letter in (b"M", b"N", b"O")),
)
"""The same without RE2: literals, and for the formats whose literals are too short to tell, patterns."""


def format_spans(text: bytes) -> Iterator[Span]:
    """Yield the tokens of known formats, and the secrets that stand near an account id."""
    for start, end in _places(text):
        part = text if end - start == len(text) else text[start:end]
        for kind, literals, pattern in FORMATS:
            if any(literal in part for literal in literals):
                group = 1 if pattern.groups else 0
                for found in pattern.finditer(text, start, end):
                    if not _in_base64(text, *found.span(group)):
                        yield Span(*found.span(group), kind, FORMAT)
    yield from _near(text, rb"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}", _AWS_SECRET, "aws-secret-key")
    yield from _near(text, _TWILIO_ACCOUNT.pattern, _HEX32, "twilio-auth-token")


def _places(text: bytes) -> Iterator[tuple[int, int]]:
    """Yield the stretches of a text that can hold a token: all of it, or of a long one the surroundings of each hint.

    Otherwise a picture in base64, where some hint comes by chance every few MB, would be searched a hundred times.
    """
    if len(text) < _LONG:
        yield 0, len(text)
        return
    begin = stop = 0
    for start, hint_end in _scan_hints(text):
        end = min(hint_end, start + _LONG)
        after = _TOKEN_END.search(text, end + _AROUND, end + _LONG)
        if start - _AROUND > stop:
            if stop:
                yield begin, stop
            begin = start - _AROUND
        stop = max(stop, after.start() if after else min(end + _LONG, len(text)))
    if stop:
        yield max(begin, 0), stop


def _in_base64(text: bytes, start: int, end: int) -> bool:
    """Return whether this is a stretch of a picture or another file in base64, where any letters come by chance."""
    if not _BASE64.fullmatch(text, start, end):
        return False
    return any(_BLOB.fullmatch(text, *side) for side in ((start - 64, start), (end, end + 64)) if side[0] >= 0)


def _near(text: bytes, account: bytes, secret: re.Pattern[bytes], kind: str) -> Iterator[Span]:
    for found in re.finditer(account, text):
        for beside in secret.finditer(text, max(0, found.start() - _NEAR), found.end() + _NEAR):
            if looks_random(beside.group(), 16):
                yield Span(*beside.span(), kind, NEARBY)
