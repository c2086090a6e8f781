"""Find tokens of known formats in base64 or hexadecimal text.

The prefilter searches for the beginning of each format as base64 writes it at each of its three alignments, and in
hexadecimal digits. Only where one is found, the run around it is decoded and given to the exact rules.
"""

from __future__ import annotations

import binascii
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from functools import cache
from itertools import chain

from crystal.redact.formats import DIGITS, DIGITS_HINT, FORMATS, SHORT_LITERALS, apart_hint
from crystal.redact.regex_engines import Lazy, compiled, scanner, stretches
from crystal.redact.spans import ENCODED, Span
from crystal.redact.work_limit import CALL, FINDING, RedactionWork

_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_LETTERS = _ALPHABET + b"-_"
_TO_STANDARD = bytes.maketrans(b"-_", b"+/")
_BEFORE = 320
MIN_LITERAL = 3
"""Bytes of a literal that is looked for in hexadecimal digits, and where base64 text begins."""
MIN_ANYWHERE = 4
"""The same for anywhere in base64 text: a shorter one is in every picture by chance, except before more letters."""

_ANY = rb"[\w/+-]"
_WORD = (rb"[L-OQ-Za-e]", rb"[C-HS-Xi-nyz0-3]", rb"[ABEFIJMNQRUVYZcdghklopstwx014589]", rb"[B-Zafh-z0-6]")
"""Three letters of a token in base64."""
_MORE_LETTERS = (
    b"".join(_WORD) * 3,
    _ANY + b"".join(_WORD[2:]) + b"".join(_WORD) * 2,
    _ANY + b"".join(_WORD[3:]) + b"".join(_WORD) * 2,
)
"""Nine letters that confirm a prefix of three, for each number of bytes of a group before the prefix."""
_HEX_GROUP = rb"(?:[MNOYZ][DGTWjmz2][ABEFIJMNQRUVYZcdghkl][h-mw-z0-5])"
"""Three lower-case hexadecimal digits in base64."""
_BY_CHARACTERS = (
    rb"T[UVWXklmn0123][Rp][BFJNRVZjnr][MNde][EUk0][159][EUq6]",  # two groups of Discord's digits, in base64 once more
    rb"(?:4[d-fD-F](?:[45]4|[67][aA])[0-9a-fA-F]{4}){4}",  # the same in hexadecimal
    _HEX_GROUP + rb"{9}",  # 32 hexadecimal digits, as Mailchimp and Twilio have, in base64 and in hexadecimal
    rb"(?:3[0-9]|6[1-6]){16}",
    DIGITS + rb"{2}(?:OkFB|[MNO][DTjz](?:pBQ|[AEIMQUYcgk]6QU))",  # Telegram's digits, colon and AA
)
"""Tokens without a fixed beginning: their characters tell them."""

_TELLING = tuple((literal, row) for row in FORMATS for literal in row.literals)
_LITERALS = (
    DIGITS_HINT,
    rb"SK[0-9a-f]{16}",  # two letters come by chance
    *sorted({re.escape(literal) for literal, _ in _TELLING if len(literal) >= MIN_LITERAL}),
)


_MAX_HINT = 12
"""Letters of the beginning of a token that are looked for: compiling all of them takes twice as long."""


@cache
def literal_hints() -> tuple[bytes, ...]:
    """Return hints at the beginnings of tokens that may be anywhere in encoded text."""
    standard = {base64_of(word, shift) for word in _literals() if len(word) >= MIN_ANYWHERE for shift in range(3)}
    for_urls = {form.replace(b"+", b"-").replace(b"/", b"_") for form in standard}
    digits = {literal.hex().encode() for literal in _literals()}
    anywhere = standard | for_urls | digits | {each.upper() for each in digits}
    return tuple(sorted({form[:_MAX_HINT].replace(b"+", rb"\+") for form in anywhere}))


@cache
def shape_hints() -> tuple[bytes, ...]:
    """Return hints at the other tokens, which need more letters: with the literals in one automaton they are slower."""
    first = [base64_of(word, 0) for word in _literals() if len(word) < MIN_ANYWHERE]
    inside = [
        b"(?:"
        + b"|".join(re.escape(base64_of(word, shift)) for word in (*SHORT_LITERALS, b"$5$", b"$6$"))
        + b")"
        + letters
        for shift, letters in enumerate(_MORE_LETTERS)
    ]
    return (apart_hint(map(re.escape, first)), *inside, *_BY_CHARACTERS)


def _literals() -> list[bytes]:
    return sorted({literal for literal, _ in _TELLING if len(literal) >= MIN_LITERAL})


def base64_of(literal: bytes, shift: int) -> bytes:
    """Return the characters of ``literal`` in base64 that do not depend on its neighbours.

    Args:
        literal: The bytes.
        shift: How many bytes of its group of three precede it.
    """
    encoded = binascii.b2a_base64(bytes(shift) + literal, newline=False).rstrip(b"=")
    return encoded[-(-8 * shift // 6) : 8 * (shift + len(literal)) // 6]


def encoded_spans(text: bytes, work: RedactionWork) -> Iterator[Span]:
    """Yield the stretches of base64 and hexadecimal text that hold a token of a known format."""
    work.spend(len(text) * 4)
    for begin, end in _runs(text, work):
        run = text[begin:end].rstrip(b"=")
        work.spend(10 * len(run) + 6 * FINDING)
        for kind, start, stop in dict.fromkeys([*_in_base64(run, work), *_in_hex(run, work)]):
            padding = len(text[begin + stop : end]) if stop >= len(run) else 0
            yield Span(begin + start, begin + stop + padding, kind, ENCODED)


def _runs(text: bytes, work: RedactionWork) -> Iterator[tuple[int, int]]:
    """Yield the runs to decode, each from shortly before a hint on."""
    run = compiled(rb"[A-Za-z0-9+/_-]{1,8192}={0,2}")
    for search in map(scanner, (literal_hints(), shape_hints())):
        at = 0
        while (hint := search(text, at)) is not None:
            work.spend(CALL)
            last = hint.end() - 1  # a letter of the run; the first of a hint may be before it
            before = text[max(0, last - _BEFORE) : last]
            begin = last - len(before) + len(before.rstrip(_LETTERS))
            at = run.match(text, begin).end()  # type: ignore[union-attr]
            yield begin, at


def _in_base64(run: bytes, work: RedactionWork) -> Iterator[tuple[str, int, int]]:
    """Yield (kind, start, end) of tokens in a run of base64, tried at each of its four alignments."""
    for shift in range(4):
        part = run[shift:].translate(_TO_STANDARD)
        part = part[: len(part) - (len(part) % 4 == 1)]
        plain = binascii.a2b_base64(part + b"=" * (-len(part) % 4))
        for kind, start, end in _tokens(plain, work):
            yield kind, shift + start * 4 // 3, shift + (end * 4 + 2) // 3


def _in_hex(run: bytes, work: RedactionWork) -> Iterator[tuple[str, int, int]]:
    """Yield the same of a run of hexadecimal digits."""
    for digits in compiled(rb"[0-9a-fA-F]{32,}").finditer(run):
        for shift in range(2):
            part = run[digits.start() + shift : digits.end()]
            at = digits.start() + shift
            for kind, start, end in _tokens(bytes.fromhex(part[: len(part) // 2 * 2].decode()), work):
                yield kind, at + 2 * start, at + 2 * end


def _tokens(plain: bytes, work: RedactionWork) -> Iterator[tuple[str, int, int]]:
    if scanner(_LITERALS)(plain, 0) is None:
        return
    work.spend(len(plain) * len(_TELLING) + FINDING)
    for literal, row in _TELLING:
        if literal in plain:
            pattern = work.compiled(row.pattern)
            for found in work.each(pattern.finditer(plain)):
                if not found.lastgroup:
                    yield row.kind, *found.span(found.lastindex or 0)


DUMP_HINTS = (rb"[0-9a-fA-F]{2}(?:[ :]{1,2}[0-9a-fA-F]{2}){7}", rb"[0-9a-fA-F]{4}(?: [0-9a-fA-F]{4}){3}")
_PAIRS = rb"(?:[0-9a-fA-F]{2}){1,2}(?:(?:  ?|:)(?:[0-9a-fA-F]{2}){1,2})"
_DUMP_ROW = Lazy(
    rb"(?m)^[ \t]*[0-9a-fA-F]{6,8}:?[ \t]{1,2}(?P<row>" + _PAIRS + rb"{0,31})(?=[ \t]*$|[ \t]{2})[^\n\xff]*"
    rb"|(?P<run>" + _PAIRS + rb"{7,4096})"
)
"""A line of ``xxd`` or ``hexdump -C``, with the offset and the text beside it; or bytes with gaps between them."""


def dump_spans(text: bytes, work: RedactionWork) -> Iterator[Span]:
    """Yield the rows of hexadecimal dumps that contain a token of a known format."""
    work.spend(8 * len(text))
    plain = bytearray()
    rows: list[tuple[int, int, int]] = []
    for found in chain.from_iterable(_DUMP_ROW.finditer(text, *place) for place in stretches(text, DUMP_HINTS)):
        work.spend(2 * CALL)
        digits = (found["row"] or found["run"]).translate(None, b" :")
        rows.append((len(plain), *found.span()))
        plain += bytes.fromhex(digits.decode())
    firsts = [first for first, _, _ in rows]
    for kind, start, end in _tokens(bytes(plain), work):
        for _, begin, stop in rows[bisect_right(firsts, start) - 1 : bisect_left(firsts, end)]:
            yield Span(begin, stop, kind, ENCODED)
