"""Find keys and tokens of known formats, as their vendors publish them: the rows of ``formats.tsv``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

from crystal.model.named_tuple import NamedTuple
from crystal.redact.judge import looks_random
from crystal.redact.regex_engines import Lazy, compiled, matcher, scanner, stretches
from crystal.redact.spans import FORMAT, NEARBY, Span
from crystal.redact.work_limit import CALL, FINDING, RedactionWork


class Format(NamedTuple):
    """A token format: every match contains one of ``literals``.

    Group 1 is the secret, else the whole match is; a match with the group ``none`` in it is no token.
    """

    kind: str
    literals: tuple[bytes, ...]
    pattern: bytes


APART_RAW = rb"(?:^|[^A-Za-z0-9+/]|\\[nrtbf/]|u[0-9a-fA-F]{4})"
"""Nothing of a picture in base64 before it, in text whose escapes are not yet undone."""


def apart_hint(hints: Iterable[bytes]) -> bytes:
    """Return one hint for all that stands apart: an automaton with ``APART_RAW`` in it many times is built slowly."""
    return APART_RAW + b"(?:" + b"|".join(hints) + b")"


DIGITS = rb"(?:[MNO][DTjz][AEIMQUYcgk][w-z0-5])"
"""Three decimal digits in base64, as the user id with which a Discord token begins."""

DIGITS_HINT = DIGITS + rb"{4}"

_NOT_BEFORE = {b"free": rb"[A-Za-z0-9]", b"apart": rb"[A-Za-z0-9+/]"}
"""Characters that must not be before ``<free>`` (a short prefix may end a word) and before ``<apart>`` (base64)."""

_BEGINNING = Lazy(rb"^<(free|apart)>([\w/-]*(?![?*+{]))")


def _letters_first(beginning: re.Match[bytes]) -> bytes:
    """Put the letters that a format begins with first: ``re`` jumps from one occurrence to the next."""
    return rb"%b(?<!%b%b)" % (beginning[2], _NOT_BEFORE[beginning[1]], beginning[2])


def _read_table(path: Path) -> Iterator[Format]:
    for row in path.read_bytes().splitlines():
        if not row.startswith(b"#"):
            kind, literals, pattern = row.split(b"\t")
            pattern = pattern.replace(b"<digits>", DIGITS).replace(b"<none>", b"(?P<none>)")
            pattern = _BEGINNING.sub(_letters_first, pattern)
            yield Format(kind.decode(), (b"",) if literals == b"-" else tuple(literals.split()), pattern)


FORMATS = tuple(_read_table(Path(__file__).with_name("formats.tsv")))

_AWS_ACCOUNT = rb"A[KSBC][IC]A[A-Z0-9]{16}"
_AWS_SECRET = rb"(?<![A-Za-z0-9/+=_-])[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=_-])"
_TWILIO_ACCOUNT = rb"[AS][CK](?<![A-Za-z0-9]..)[0-9a-f]{32}(?![A-Za-z0-9])"
_ACCOUNT_HINTS = (_AWS_ACCOUNT, rb"[AS][CK][0-9a-f]{32}")
_HEX32 = rb"(?<![A-Za-z0-9-])[0-9a-f]{32}(?![A-Za-z0-9-])"
_NEAR = 200
_BASE64 = Lazy(rb"[A-Za-z0-9+/]+")
_BLOB = Lazy(rb"[A-Za-z0-9+/]{64}")
_PIECE = 8 * 1024
_GAP = (rb"[\s\v]",)
_MAX_HINT = 256


_LOOK_AROUND = Lazy(rb"\(\?<?[=!](?:[^()\[\]]|\[[^\]]*\])*\)")
_COUNTED = Lazy(rb"\{(?:1[6-9]|[2-9]\d|\d{3})")
_SET_OR_SLASH = Lazy(rb"\[[^\]]*\]|/")


def _hint(pattern: bytes) -> bytes:
    r"""Loosen a pattern into one that RE2 takes and that matches the raw text of every string the pattern matches.

    Look-arounds go, and what follows the first 16 letters that are counted: RE2 looks for where a match begins from
    its end, and would read all of a long word. ``/`` may be written ``\/``.
    """
    loose, *more = _COUNTED.split(_LOOK_AROUND.sub(b"", pattern), maxsplit=1)
    loose += b"{16}" if more else b""
    loose += b")" * (loose.count(b"(") - loose.count(b")"))
    return _SET_OR_SLASH.sub(lambda part: rb"\\*/" if part[0] == b"/" else part[0].replace(b"/", rb"/\\"), loose)


_OWN_HINTS = {
    b'"d":"': rb"\"(?:d|k|p|q|d[pq]|qi)\\*\"\s*:\s*\\*\"[\w-]{2}",
    b"-us": rb"[0-9a-f]{4}-us\d",
    b"NRAL": rb"[0-9a-fA-F]{4}NRAL",
    b".atlasv1.": rb"\.atlasv1\.",
    b"Q~": rb"\dQ~[\w~.-]{16}",
    b":AA": rb"\d{4}:AA[\w-]{16}",
    b"sk-": rb"sk-(?:[A-Za-z0-9]{0,11}[_-]){0,12}[A-Za-z0-9]{16}",
    b"eyJ": rb"eyJ[\w-]{8,}\.[\w-]{8}",
    b"T3BlbkFJ": rb"T3BlbkFJ",
    **dict.fromkeys((b"EAAA", b"EAA", b"cio"), apart_hint((rb"EAA[\w-]{61}", rb"cio[A-Za-z0-9]{32}"))),
    b"sl.": rb"sl\.(?:u\.)?[\w-]{60}",
    b"": DIGITS_HINT,
    b"AAAAAAAAAAAAAAAAAAAA": rb"A{20}[A-Za-z0-9]+%",
}
"""For patterns that begin with anything at all: RE2 would follow each of them through every word."""

_NEAR_HINTS = {b"-us": rb"-us\d", b"NRAL": b"NRAL", b"Q~": b"Q~", b":AA": rb":AA[\w-]{4}", b"eyJ": rb"eyJ[\w-]{8}"}
"""Hints that need not be exact: a count before or after the letters makes a new state for nearly every byte."""

MAX_SHORT = 3
LONG_LITERALS = sorted({literal for row in FORMATS for literal in row.literals if len(literal) > MAX_SHORT})
SHORT_LITERALS = sorted(
    {
        literal
        for row in FORMATS
        for literal in row.literals
        if len(literal) == MAX_SHORT and row.pattern.startswith(literal[:2])
    }
)
"""Those of three letters that a token begins with."""


@cache
def format_hints() -> tuple[bytes, ...]:
    """Return what a raw line must hold for a token of a known format to be in any of its strings."""
    return tuple(sorted(map(_hint_of, FORMATS)))


@cache
def format_literals() -> tuple[bytes, ...]:
    """Return hints of which one is found wherever any of ``format_hints`` is: the long literals, the others' hints.

    Their automaton is made in a quarter of the time: that of all hints takes as long as cleaning a turn.
    """
    literals = set(map(_raw, LONG_LITERALS))
    others = (row for row in FORMATS if row.literals[0] in _OWN_HINTS or min(map(len, row.literals)) <= MAX_SHORT)
    return tuple(sorted(literals.union(_NEAR_HINTS.get(row.literals[0]) or _hint_of(row) for row in others)))


def holds_format(text: bytes) -> bool:
    """Return whether a raw line holds one of ``format_hints``: asked for those alone of which it holds a literal."""
    rows = sorted(_rows_in()(text) or ())
    return any(scanner((_hint_of(FORMATS[row]),))(text) is not None for row in rows)


def _raw(literal: bytes) -> bytes:
    return re.escape(literal).replace(b"/", rb"\\*/")


def _hint_of(row: Format) -> bytes:
    return _OWN_HINTS.get(row.literals[0]) or _hint(row.pattern)


@cache
def _rows_in() -> Callable[[bytes], list[int] | None]:
    """Return a function that lists the formats of which a text holds a literal, or the own hint.

    A pattern with anything at all before its literal is slow: the hint tells more.
    """
    return matcher(
        (_OWN_HINTS[row.literals[0]],) if row.pattern[:1] == b"(" else map(_raw, row.literals) for row in FORMATS
    )


def format_spans(text: bytes, work: RedactionWork) -> Iterator[Span]:
    """Yield the tokens of known formats, and the secrets that are near an account id.

    A long text is read in pieces that end between words: a list of all prefixes in it has only its own piece read
    for each of them.
    """
    begin = 0
    while begin < len(text):
        gap = scanner(_GAP)(text, begin + _PIECE) if begin + _PIECE < len(text) else None
        end = gap.end() if gap else len(text)
        yield from _formats_in(text, begin, end, work)
        begin = end
    if scanner(_ACCOUNT_HINTS)(text) is not None:
        yield from _near(text, _AWS_ACCOUNT, _AWS_SECRET, "aws-secret-key", work)
        yield from _near(text, _TWILIO_ACCOUNT, _HEX32, "twilio-auth-token", work)


def _formats_in(text: bytes, begin: int, end: int, work: RedactionWork) -> Iterator[Span]:
    work.spend((end - begin) * 2 + 2 * CALL)
    for row in sorted(_rows_of(text[begin:end])):
        kind, _, pattern = FORMATS[row]
        work.spend((end - begin) // 2 + CALL)
        for found in work.compiled(pattern).finditer(text, begin, end):
            if found.lastgroup:
                work.spend(100)  # letters that only begin like a token: its pattern goes on after them
                continue
            span = found.span(found.lastindex or 0)
            work.spend(FINDING)
            if not _in_base64(text, *span):
                yield Span(*span, kind, FORMAT)


def _rows_of(part: bytes) -> Iterable[int]:
    """Return the formats that may be in a piece of a text; of one that is a long word only what is near is asked."""
    if scanner(format_literals())(part) is None:
        return ()
    places = stretches(part, format_literals(), longest=_MAX_HINT) if len(part) > 2 * _PIECE else ((0, len(part)),)
    return {row for start, stop in places for row in _rows_in()(part[start:stop]) or ()}


def _in_base64(text: bytes, start: int, end: int) -> bool:
    """Return whether this is a stretch of a picture or another file in base64, where any letters come by chance."""
    if not _BASE64.fullmatch(text, start, end):
        return False
    return any(_BLOB.fullmatch(text, *side) for side in ((start - 64, start), (end, end + 64)) if side[0] >= 0)


def _near(text: bytes, account: bytes, secret: bytes, kind: str, work: RedactionWork) -> Iterator[Span]:
    """Yield what looks like the secret of an account id close by. Each stretch is searched once."""
    work.spend(len(text) * 3)
    stretches: list[list[int]] = []
    for found in compiled(account).finditer(text):
        work.spend(CALL)
        begin, end = max(0, found.start() - _NEAR), found.end() + _NEAR
        if stretches and begin <= stretches[-1][1]:
            stretches[-1][1] = end
        else:
            stretches.append([begin, end])
    for begin, end in stretches:
        for beside in compiled(secret).finditer(text, begin, end):
            work.spend(2 * FINDING)
            if looks_random(beside.group(), 16):
                yield Span(*beside.span(), kind, NEARBY)
