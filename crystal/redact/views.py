r"""Text as its reader sees it, with a way back to where it came from.

A transcript holds strings inside strings: JSON in a JSON string, in a log line, in a shell command. The rules are
written for plain text; each level of escaping is undone in turn (``\"`` to ``"``, ``\n`` to a newline, ``\u0041`` to
``A``), terminal colours are left out, and what a rule finds is carried back to the bytes of the source.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import orjson

MAX_LEVELS = 8
"""How many levels of escaping are undone. The n-th needs 2**n backslashes before a quote, so more is not seen."""

_ESCAPE = re.compile(
    rb"""\\(?:["\\/'`bfnrt]|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4})"""
    rb"""|\x1b\[[0-9;?]*[A-Za-z]"""
)
_ONE = {b"\\" + bytes([c]): bytes([c]) for c in b"\"/'`\\"}
_ONE |= {b"\\b": b"\b", b"\\f": b"\f", b"\\n": b"\n", b"\\r": b"\r", b"\\t": b"\t"}
_BLOCK = 64 * 1024
_HELD = b"\xfe"


class View:
    """A source read with one level of escaping undone; the way back is worked out only when it is asked for."""

    __slots__ = ("source", "text")

    def __init__(self, source: bytes, text: bytes) -> None:
        self.source, self.text = source, text

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
            size = len(_without_escapes(self.source[begin:end]))
            if wanted[done] < at + size:
                done = self._places_in_block(wanted, done, at, begin, end, places)
            at, begin = at + size, end
        return places

    def _block_end(self, begin: int) -> int:
        """Return where a block may end: after a space, which is part of no escape."""
        return self.source.find(b" ", begin + _BLOCK) + 1 or len(self.source)

    def _places_in_block(
        self, wanted: list[int], done: int, at: int, begin: int, end: int, places: dict[int, tuple[int, int]]
    ) -> int:
        """Fill in the places of the positions from ``wanted[done]`` on that lie in the block; return how far it got."""
        for size, start, stop in _runs(self.source, begin, end):
            while done < len(wanted) and wanted[done] < at + size:
                verbatim = start + wanted[done] - at
                places[wanted[done]] = (verbatim, verbatim + 1) if size == stop - start else (start, stop)
                done += 1
            at += size
        return done


def unescaped(source: bytes) -> View | None:
    """Undo one level of escaping and leave out colours, or return None if there is neither."""
    if b"\\" not in source and b"\x1b" not in source:
        return None
    text = _without_escapes(source)
    return None if text == source else View(source, text)


def unescaped_json(inner: bytes) -> View | None:
    """Do the same for what stands between the quotes of a JSON string: the same answer, sooner."""
    if b"\\" not in inner or b"\x1b" in inner or b"\\u001" in inner:
        return unescaped(inner)
    try:
        return View(inner, orjson.loads(b'"' + inner + b'"').encode())
    except (ValueError, UnicodeEncodeError):
        return unescaped(inner)


def _without_escapes(source: bytes) -> bytes:
    if b"\\u" in source or b"\x1b" in source or _HELD in source:
        return _ESCAPE.sub(_decoded, source)
    text = source.replace(b"\\\\", _HELD)
    for escape, plain in _ONE.items():
        if escape != b"\\\\":
            text = text.replace(escape, plain)
    return text.replace(_HELD, b"\\")


def _runs(source: bytes, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield (length when read, begin and end in the source) of each verbatim run and each escape."""
    for escape in _ESCAPE.finditer(source, begin, end):
        start, stop = escape.span()
        if start > begin:
            yield start - begin, begin, start
        size = len(_decoded(escape))
        if size:
            yield size, start, stop
        begin = stop
    if begin < end:
        yield end - begin, begin, end


def _decoded(escape: re.Match[bytes]) -> bytes:
    found = escape.group()
    if found in _ONE:
        return _ONE[found]
    if found[0] == 0x1B:
        return b""
    code = int(found[2:6], 16)
    if len(found) > 6:
        code = 0x10000 + ((code - 0xD800) << 10) + (int(found[8:], 16) - 0xDC00)
    return chr(code).encode("utf-8", "surrogatepass")
