r"""Text as its reader sees it, with a way back to where it came from.

A transcript holds strings inside strings: JSON in a JSON string, in a log line, in a shell command. The rules are
written for plain text; each level of escaping is undone in turn (``\"`` to ``"``, ``\n`` to a newline, ``\u0041`` to
``A``), terminal colours are left out, the encoding of URLs is undone, lines that were cut at a fixed width are joined,
and what a rule finds is carried back to the bytes of the source.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

import orjson

from crystal.redact.regex_engines import Lazy

MAX_LEVELS = 8
"""How many levels of escaping are undone. The n-th needs 2**n backslashes before a quote, so more is not seen."""

_ESCAPE = Lazy(
    rb"""\\(?:["\\/'`bfnrt]|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4})"""
    rb"""|\x1b\[[0-9;?]*[A-Za-z]"""
)
COLOUR = Lazy(rb"\x1b\[[0-9;?]*[A-Za-z]")
_ONE = {b"\\" + bytes([c]): bytes([c]) for c in b"\"/'`\\"}
_ONE |= {b"\\b": b"\b", b"\\f": b"\f", b"\\n": b"\n", b"\\r": b"\r", b"\\t": b"\t"}
_AFTER_BACKSLASH = {escape[1:]: plain for escape, plain in _ONE.items() if escape != b"\\\\"}
_BLOCK = 4096
_MANY_EDITS = 60
"""To go through so many edits takes as long as to read a block."""
_PAIRS = b"\\" * _BLOCK
_BOUNDARY = Lazy(rb"\\(?<!\\\\)(?!u[dD][c-fC-F])")
"""Where an escape begins, its first letter first: ``re`` jumps from one occurrence to the next."""
_HELD = b"\xfe"


class View:
    """A source read with one level of encoding undone; the way back is worked out only when it is asked for."""

    __slots__ = ("_encoding", "source", "text")

    def __init__(self, source: bytes, text: bytes, encoding: Encoding) -> None:
        self.source, self.text, self._encoding = source, text, encoding

    def lead_back(self, spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return where stretches of ``text`` (none of them empty) stand in the source, in the order given.

        A stretch that begins or ends within what one escape stands for takes the whole escape. One walk through the
        source for all of them, and nothing kept of it: the source may be a line of 100 MB.
        """
        spans = list(spans)
        places = self._places(sorted({at for start, end in spans for at in (start, end - 1)}))
        return [(places[start][0], places[end - 1][1]) for start, end in spans]

    def _places(self, wanted: list[int]) -> dict[int, tuple[int, int]]:
        """Return for each position in ``text`` (ascending) the stretch of the source that it comes from."""
        places: dict[int, tuple[int, int]] = {}
        at = begin = done = 0
        while done < len(wanted):
            end = self._block_end(begin)
            after = at
            if self.source.count(self._encoding.mark, begin, end) > _MANY_EDITS:
                after += len(self._encoding.read(self.source[begin:end]))
            if at < after <= wanted[done]:
                at = after  # no position is in this block: to read it is quicker than to go through its edits
            else:
                done, at = self._places_in_block(wanted, done, at, (begin, end), places)
            begin = end
        return places

    def _places_in_block(
        self, wanted: list[int], done: int, at: int, block: tuple[int, int], places: dict[int, tuple[int, int]]
    ) -> tuple[int, int]:
        """Fill in the places of the positions from ``wanted[done]`` on; return how many are done, and the next."""
        begin, end = block
        for start, stop, size in chain(self._encoding.edits(self.source, begin, end), ((end, end, 0),)):
            shift, edit = begin - at, start - begin + at
            while done < len(wanted) and wanted[done] < edit + size:
                verbatim = wanted[done] + shift
                places[wanted[done]] = (verbatim, verbatim + 1) if verbatim < start else (start, stop)
                done += 1
            at, begin = edit + size, stop
        return done, at

    def _block_end(self, begin: int) -> int:
        """Return where a block may end: between two escapes."""
        if not self._encoding.in_blocks:
            return len(self.source)
        if self._encoding is PERCENT:
            found = self.source.find(b"%", begin + _BLOCK)
            return len(self.source) if found < 0 else found
        if self.source.startswith(_PAIRS, begin):
            return begin + _BLOCK
        boundary = _BOUNDARY.search(self.source, begin + _BLOCK)
        return boundary.start() if boundary else len(self.source)


def unescaped(source: bytes) -> View | None:
    """Undo one level of escaping and leave out colours, or return None if there is neither."""
    if b"\\" not in source and b"\x1b" not in source:
        return None
    return _view(source, ESCAPED)


def percent_decoded(source: bytes) -> View | None:
    """Undo the encoding of URLs and forms (``%3D`` for ``=``); None if the source has none of it."""
    return _view(source, PERCENT) if b"%" in source and _PERCENT.search(source) else None


def near_escapes(source: bytes) -> View | None:
    """Leave out what is far from any escape, or return None if that is nothing, or little is to be gained."""
    return _without(source, _far_from_escapes(source)) if len(source) > 8 * _NEAR else None


def unwrapped(source: bytes) -> View | None:
    """Join lines that were cut at a fixed width, or return None."""
    return _without(source, _left_out(source)) if b"\n" in source else None


def _view(source: bytes, encoding: Encoding) -> View | None:
    text = encoding.read(source)
    return None if text == source else View(source, text, encoding)


def unescaped_json(inner: bytes) -> View | None:
    """Do the same as ``unescaped`` for what stands between the quotes of a JSON string, sooner."""
    if b"\\" not in inner or b"\x1b" in inner:
        return unescaped(inner)
    try:
        return View(inner, orjson.loads(b'"' + inner + b'"').encode(), ESCAPED)
    except (ValueError, UnicodeEncodeError):
        return unescaped(inner)


def _without_escapes(source: bytes) -> bytes:
    if b"\\" not in source:
        return COLOUR.sub(b"", source)
    if b"\x1b" in source or _HELD in source or _SURROGATE.search(source):
        return _ESCAPE.sub(_decoded, source)
    text = source.replace(b"\\\\", _HELD)
    if text.count(b"\\") * _SPARSE_BYTES < len(text):
        text = _read_each_escape(text)
    else:
        for escape, plain in _AFTER_BACKSLASH.items():
            text = text.replace(b"\\" + escape, plain)
        first, *parts = text.split(b"\\u")
        text = first + b"".join(_CHARACTERS[part[:4]] + part[4:] for part in parts)
    return text.replace(_HELD, b"\\")


_SPARSE_BYTES = 20
"""Bytes for each escape from which on it is quicker to go through the escapes than to replace each kind of them."""


def _read_each_escape(text: bytes) -> bytes:
    first, *parts = text.split(b"\\")
    for number, part in enumerate(parts):
        plain = _AFTER_BACKSLASH.get(part[:1])
        if plain is not None:
            parts[number] = plain + part[1:]
        elif part[:1] == b"u":
            parts[number] = _CHARACTERS[part[1:5]] + part[5:]
        else:
            parts[number] = b"\\" + part
    return first + b"".join(parts)


def _decoded(escape: re.Match[bytes]) -> bytes:
    return _ONE.get(escape.group()) or _decode(escape.group())


@lru_cache(maxsize=4096)
def _decode(found: bytes) -> bytes:
    if found[0] == 0x1B:
        return b""
    code = int(found[2:6], 16)
    if len(found) > 6:
        code = 0x10000 + ((code - 0xD800) << 10) + (int(found[8:], 16) - 0xDC00)
    return chr(code).encode("utf-8", "surrogatepass")


class _Characters(dict[bytes, bytes]):
    """What each four hexadecimal digits of an escape stand for; what are none stay as they are."""

    def __missing__(self, digits: bytes) -> bytes:
        plain = _decode(b"\\u" + digits) if _FOUR_DIGITS.fullmatch(digits) else b"\\u" + digits
        if len(self) < _MAX_CHARACTERS:
            self[digits] = plain
        return plain


_SURROGATE = Lazy(rb"\\u[dD][89abAB]")
_FOUR_DIGITS = Lazy(rb"[0-9a-fA-F]{4}")
_MAX_CHARACTERS = 100_000
_CHARACTERS = _Characters()


_PERCENT = Lazy(rb"%(?:[2-7][0-9A-Fa-f]|0[9AaDd])")
_BY_DIGITS = {form % code: bytes([code]) for code in (9, 10, 13, *range(0x20, 0x80)) for form in (b"%02X", b"%02x")}


def _percent_decode(source: bytes) -> bytes:
    first, *rest = source.split(b"%")
    parts = [first]
    for part in rest:
        plain = _BY_DIGITS.get(part[:2])
        parts += (b"%", part) if plain is None else (plain, part[2:])
    return b"".join(parts)


WIDTHS = frozenset((40, 60, 64, 72, 76, 80, 100, 120))
"""Bytes of a line after which programs cut long tokens."""


class Encoding(NamedTuple):
    """A way to write text so that rules for plain text do not see it.

    Attributes:
        read: Undoes one level of it.
        edits: Yields (begin, end, length when read) of each stretch that is not verbatim, between two places.
        mark: Stands once in most edits.
        in_blocks: The source may be read in blocks.
    """

    read: Callable[[bytes], bytes]
    edits: Callable[[bytes, int, int], Iterator[tuple[int, int, int]]]
    mark: bytes
    in_blocks: bool = True


def _escapes(source: bytes, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    for found in _ESCAPE.finditer(source, begin, end):
        start, stop = found.span()
        yield start, stop, 1 if stop - start == 2 else len(_decode(found.group()))


def _percent_codes(source: bytes, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    return ((*found.span(), 1) for found in _PERCENT.finditer(source, begin, end))


def _line_joints(source: bytes) -> list[tuple[int, int]]:
    """Return the line ends of lines that were cut at a fixed width in the middle of a token."""
    lengths = list(map(len, source.split(b"\n")))
    if _WIDTHS.isdisjoint(lengths):
        return []
    joints, at, following = [], 0, source + b"\n"
    for length in lengths[:-1]:
        end = at + length
        if length in _WIDTHS and following[end + 1] in _TOKEN_BYTES:
            stop = end - (source[end - 1] == _RETURN)
            if stop - at in WIDTHS and source[stop - 1] in _TOKEN_BYTES:
                joints.append((stop, end + 1))
        at = end + 1
    return joints


_WIDTHS = frozenset((*WIDTHS, *(width + 1 for width in WIDTHS)))
"""The same with a carriage return."""
_RETURN = 0x0D
_TOKEN_BYTES = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./+=~-")


_NEAR = 1024
"""Bytes on both sides of a joint or an escape that are read again: the rest has been read as it is."""


def _left_out(source: bytes) -> list[tuple[int, int, bytes]]:
    """Return what joining leaves out of the source, and what stands for it: joints, and all lines far from any."""
    out: list[tuple[int, int, bytes]] = []
    at = 0
    joints = _line_joints(source)
    for begin, end in joints:
        if not at or begin - at > _NEAR:
            stop = source.find(b"\n", at + _NEAR, begin) + 1 if at else 0
            start = source.rfind(b"\n", stop, max(stop, begin - _NEAR))
            if start > stop and (stop or not at):
                out.append((stop, start, b"\xff"))
        out.append((begin, end, b""))
        at = end
    rest = source.find(b"\n", at + _NEAR) + 1 if joints else 0
    if 0 < rest < len(source):
        out.append((rest, len(source), b"\xff"))
    return out


def _far_from_escapes(source: bytes) -> list[tuple[int, int, bytes]]:
    """Return the stretches of whole words that are far from any backslash and any colour."""
    out: list[tuple[int, int, bytes]] = []
    stop = 0
    while stop < len(source):
        found = _ESCAPE_START.search(source, stop)
        begin = found.start() if found else len(source)
        start = begin if found is None else max(source.rfind(gap, stop, max(stop, begin - _NEAR)) for gap in _GAPS)
        if start > stop:
            out.append((stop, start, b"\xff"))
        after = _GAP.search(source, begin + _NEAR)
        stop = after.end() if after else len(source)
    return out


_GAPS = (b"\n", b" ", b";")
_GAP = Lazy(rb"[\n ;]")
_ESCAPE_START = Lazy(rb"[\\\x1b]")


def _without(source: bytes, gaps: list[tuple[int, int, bytes]]) -> View | None:
    """Return the source in which at most one byte stands for each gap, or None if there is none."""
    if not gaps:
        return None
    parts: list[bytes] = []
    at = 0
    for begin, end, instead in gaps:
        parts += (source[at:begin], instead)
        at = end
    text = b"".join([*parts, source[at:]])

    def edits(_: bytes, _begin: int, _end: int) -> Iterator[tuple[int, int, int]]:
        return ((start, stop, len(instead)) for start, stop, instead in gaps)

    return View(source, text, Encoding(lambda _: text, edits, b"\xff", in_blocks=False))


ESCAPED = Encoding(_without_escapes, _escapes, b"\\")
PERCENT = Encoding(_percent_decode, _percent_codes, b"%")
