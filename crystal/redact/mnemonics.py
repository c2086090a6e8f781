"""Find recovery phrases of wallets (BIP-39): 12, 15, 18, 21 or 24 words of a language's list whose checksum holds.

They are found in any case, on a line, one a line, numbered, in columns and in tables.

Twelve words of the list in a row are ordinary in a dictionary and rare in prose; the checksum leaves one in sixteen.
"""

from __future__ import annotations

import hashlib
import importlib.util
import unicodedata
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import accumulate, chain
from pathlib import Path

from crystal.redact.regex_engines import Lazy, scanner, stretches
from crystal.redact.spans import FORMAT, Span
from crystal.redact.work_limit import FINDING, RedactionWork

SIZES = (24, 21, 18, 15, 12)
MAX_WORDS = 40
"""A longer run of words of the list is a dictionary, or several phrases, each in a line of its own."""

MIN_PHRASE_BYTES = 12 * 3 + 11
"""The shortest phrase: twelve words of three letters and what separates them."""

_LETTER = rb"[A-Za-z\x80-\xf4]"
_BETWEEN = Lazy(rb"(?:[\s,\"'|*-]|\n\xff|(?<!\d)\d{1,2}(?!\d)[.:)]?){1,24}")
_SPACE = rb"\xc2\xa0|\xe1\x9a\x80|\xe2\x80[\x80-\x8b\xa8\xa9\xaf]|\xe2\x81[\x9f\xa0]|\xe3\x80\x80"
"""Spaces other than ASCII's. BIP-39 itself writes U+3000 between Japanese words."""
_GAP_RAW = rb"(?:\n\xff|[\s,\"'|*-]|\\+[nrt\"]|[0-9]{1,2}[.:)]?|" + _SPACE + rb")"
_WORD_RAW = rb"(?:[A-Za-z]{3,9}|[A-Za-z]{0,9}[\x80-\xf4]" + _LETTER + rb"+)"
"""A word of a list: those of ASCII letters alone have nine of them at most, and few sentences twelve such in a row."""
MNEMONIC_HINTS = (rb"(?:" + _WORD_RAW + _GAP_RAW + rb"+){11}" + _LETTER + rb"{3}",)
_ESCAPE = Lazy(rb"\\+u([0-9a-fA-F]{4})")

_WORD = Lazy(rb"(" + _LETTER + rb"{3,})")
_TO_WORDS = bytes(byte if 0x61 <= byte <= 0x7A or 0x80 <= byte <= 0xF4 else 0x20 for byte in bytes(range(256)).lower())
_ROW = b"\1" * SIZES[-1]
_RUN = Lazy(_ROW + b"\1*")
"""Known words in a row, where each word of a text is a byte."""
_JOINED = Lazy(b"\1" * (SIZES[-1] - 1) + b"\1*")
"""Gaps in a row that join their words, where each gap is a byte."""
_LINE = Lazy(rb"(?<!\0)\0{%d,%d}(?!\0)" % (SIZES[-1] - 1, MAX_WORDS - 1))
"""The gaps of a line with a phrase, where each gap that ends a line is a byte of another kind."""

_NONE = -1
"""The place of what is no word of a language."""
_PAST_END = (_NONE,) * (SIZES[0] - SIZES[-1])


@cache
def _files() -> list[bytes]:
    """Return the list of each language; only the files, since importing the package takes 30 ms."""
    package = importlib.util.find_spec("mnemonic")
    assert package is not None
    assert package.submodule_search_locations is not None
    folder = Path(package.submodule_search_locations[0], "wordlist")
    return [file.read_bytes() for file in sorted(folder.glob("*.txt"))]


@cache
def _places(language: int) -> dict[bytes, int]:
    """Return the place of each word of a language, in both ways to write an accent."""
    words = _files()[language].decode()
    forms = [unicodedata.normalize(form, words).encode().split() for form in ("NFC", "NFKD")]
    return {word: place for form in forms for place, word in enumerate(form)}


def _languages_of(words: list[bytes]) -> Iterator[dict[bytes, int]]:
    """Yield the places of the words of each language that a phrase among the words may have.

    Making them takes milliseconds: a language is left out if it has no word that every phrase would have to hold.
    """
    needed = words[_EACH]
    is_ascii = b"".join(needed).isascii()
    for language, known in enumerate(_as_written()):
        if not (is_ascii and known.isdisjoint(needed)) and not _places(language).keys().isdisjoint(needed):
            yield _places(language)


@cache
def _as_written() -> list[frozenset[bytes]]:
    """Return the words of each language as its file writes them: those in ASCII have no other form."""
    return [frozenset(file.split()) for file in _files()]


@cache
def _words() -> frozenset[bytes]:
    return frozenset(chain.from_iterable(map(_places, range(len(_files())))))


@cache
def _ascii_words() -> frozenset[bytes]:
    """Return the words in ASCII, and some more: normalizing the others takes longer than cleaning a turn."""
    return frozenset(chain.from_iterable(_as_written()))


def holds_phrase(text: bytes) -> bool:
    """Return whether twelve words of the list follow each other: the hint alone lets through a lot of prose."""
    if b"\\u" in text:
        parts = _ESCAPE.split(text)
        parts[1::2] = map(_letter, parts[1::2])
        text = b"".join(parts)
    return bool(_places_in(text))


@lru_cache(maxsize=4096)
def _letter(digits: bytes) -> bytes:
    return chr(int(digits, 16)).encode("utf-8", "replace")


def _with_plain_spaces(text: bytes) -> bytes:
    """Return the text with as many ASCII spaces in the place of each other space; offsets stay."""
    while not text.isascii() and (found := scanner((_SPACE,))(text)) is not None:
        text = text.replace(found.group(), b" " * len(found.group()))
    return text


def _places_in(text: bytes) -> list[tuple[int, int]]:
    """Return the stretches of a text that may hold a phrase; none if no twelve words follow."""
    if len(text) < MIN_PHRASE_BYTES or scanner(MNEMONIC_HINTS)(text) is None:
        return []
    text = _with_plain_spaces(text)
    places = [*stretches(text, MNEMONIC_HINTS, longest=_MAX_WORD)]
    return places if any(_holds_row(text[start:end]) for start, end in places) else []


_MIN_HEAD = 512
_MAX_WORD = 64
_EACH = slice(SIZES[-1] - 1, None, SIZES[-1])
"""Words of which every row of a phrase's length has one."""


def _holds_row(part: bytes) -> bool:
    """Return whether twelve words of the list follow each other, with no other word between them."""
    head = len(part) // 8
    if head > _MIN_HEAD and _holds_row(part[:head]):
        return True  # a text full of such rows is read once, by the exact rule
    for escape in (b"\\n", b"\\r", b"\\t") if b"\\" in part else ():
        part = part.replace(escape, b"  ")
    part = part.translate(_TO_WORDS)
    words, known = part.split(), _ascii_words()
    if part.isascii():
        return not known.isdisjoint(words[_EACH]) and _ROW in bytes(map(known.__contains__, words))
    maybe = _ROW in bytes([word in known or not word.isascii() for word in words])
    return maybe and _ROW in bytes(map(_words().__contains__, words))


def mnemonic_spans(text: bytes, work: RedactionWork) -> Iterator[Span]:
    """Yield the recovery phrases, from their first word to their last."""
    places = _places_in(text)
    text = _with_plain_spaces(text) if places else text
    for place in places:
        work.spend(FINDING + 20 * (place[1] - place[0]))
        yield from _in_part(text[slice(*place)].lower(), place[0], work)


def _in_part(part: bytes, at: int, work: RedactionWork) -> Iterator[Span]:
    """Yield the phrases in a part of a text, in small letters, that begins at a place of it."""
    pieces = _WORD.split(part)
    words, gaps = pieces[1::2], pieces[2:-1:2]
    vocabulary = _ascii_words() if part.translate(None, b"\xff").isascii() else _words()
    joins: dict[bytes, bool] = {}
    ends: list[int] = []
    for run in _RUN.finditer(bytes(map(vocabulary.__contains__, words))):
        between = gaps[run.start() : run.end() - 1]
        joins |= {gap: _BETWEEN.fullmatch(gap) is not None for gap in {*between}.difference(joins)}
        for joined in _JOINED.finditer(bytes(map(joins.__getitem__, between))):
            for first, end in _rows_in(run.start() + joined.start(), run.start() + joined.end() + 1, gaps):
                ends = ends or [*accumulate(map(len, pieces), initial=at)]
                row = [(words[number], ends[2 * number + 1], ends[2 * number + 2]) for number in range(first, end)]
                yield from _phrases(row, [b"-" in gap for gap in gaps[first : end - 1]], work)


def _rows_in(first: int, end: int, gaps: list[bytes]) -> Iterator[tuple[int, int]]:
    """Yield a run of words as (number of the first, number after the last), or the lines of a run that is too long."""
    if end - first <= MAX_WORDS:
        yield first, end
        return
    for line in _LINE.finditer(bytes([b"\n" in gap for gap in gaps[first : end - 1]])):
        yield first + line.start(), first + line.end() + 1


def _phrases(run: list[tuple[bytes, int, int]], hyphens: list[bool], work: RedactionWork) -> Iterator[Span]:
    """Yield the phrases in a run of words, each with its start and its end, divided by hyphens or by none."""
    words = [word for word, _, _ in run]
    rows = [(*(places.get(word, _NONE) for word in words), *_PAST_END) for places in _languages_of(words)]
    is_phrase = cache(_holds_checksum)  # each different row of words once: a text may repeat a few
    at = 0
    while at + SIZES[-1] <= len(run):
        work.spend(FINDING)
        size = next((size for size in SIZES for row in rows if is_phrase(row[at : at + size])), 0)
        size = size if len({*hyphens[at : at + size - 1]}) == 1 else 0
        if size:
            yield Span(run[at][1], run[at + size - 1][2], "recovery-phrase", FORMAT)
        at += size or 1


def _holds_checksum(places: tuple[int, ...]) -> bool:
    """Return whether all are words of the language, and the last bits are the checksum of the others."""
    if _NONE in places:
        return False
    value = 0
    for place in places:
        value = value << 11 | place
    check = len(places) // 3
    entropy = (value >> check).to_bytes(len(places) * 4 // 3, "big")
    return hashlib.sha256(entropy).digest()[0] >> (8 - check) == value & ((1 << check) - 1)
