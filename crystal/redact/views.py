r"""Text as its reader sees it, with a way back to where it came from.

A transcript holds strings inside strings: JSON in a JSON string, in a log line, in a shell command. The rules are
written for plain text; each level of escaping is undone in turn (``\"`` to ``"``, ``\n`` to a newline, ``\u0041`` to
``A``), terminal colours are left out, and what a rule finds is carried back to the bytes of the source.
"""

from __future__ import annotations

import re
from bisect import bisect_right

import orjson

MAX_LEVELS = 8
"""How many levels of escaping are undone. The n-th needs 2**n backslashes before a quote, so more is not seen."""

_ESCAPE = re.compile(
    rb"""\\(?:["\\/'`bfnrt]|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4})"""
    rb"""|\x1b\[[0-9;]*[A-Za-z]"""
)
_PLAIN = {b"\\" + bytes([c]): bytes([c]) for c in b"\"\\/'`"}
_PLAIN |= {b"\\b": b"\b", b"\\f": b"\f", b"\\n": b"\n", b"\\r": b"\r", b"\\t": b"\t"}


class View:
    """A source read with one level of escaping undone; the way back is worked out only when it is asked for."""

    __slots__ = ("_ends", "_source", "_sources", "_starts", "text")

    def __init__(self, source: bytes, text: bytes) -> None:
        self.text = text
        self._source = source
        self._starts: list[int] = []
        self._sources: list[int] = []
        self._ends: list[int] = []

    def source_of(self, start: int, end: int) -> tuple[int, int]:
        """Return where ``text[start:end]`` (not empty) stands in the source."""
        if not self._starts:
            self._trace()
        first, last = bisect_right(self._starts, start) - 1, bisect_right(self._starts, end - 1) - 1
        return self._place(first, start)[0], self._place(last, end - 1)[1]

    def _place(self, run: int, at: int) -> tuple[int, int]:
        source, after = self._sources[run], self._ends[run]
        stop = self._starts[run + 1] if run + 1 < len(self._starts) else len(self.text)
        if stop - self._starts[run] == after - source:
            moved = source + at - self._starts[run]
            return moved, moved + 1
        return source, after

    def _trace(self) -> None:
        """Lay down the runs: run i of the text begins at ``_starts[i]`` and is the source's ``_sources[i]:_ends[i]``."""
        size = at = 0
        for escape in _ESCAPE.finditer(self._source):
            begin, end = escape.span()
            for length, source, after in ((begin - at, at, begin), (len(_decoded(escape)), begin, end)):
                if length:
                    self._starts.append(size)
                    self._sources.append(source)
                    self._ends.append(after)
                    size += length
            at = end
        if at < len(self._source):
            self._starts.append(size)
            self._sources.append(at)
            self._ends.append(len(self._source))


def unescaped(source: bytes) -> View | None:
    """Undo one level of escaping and leave out colours, or return None if there is neither."""
    if b"\\" not in source and b"\x1b" not in source:
        return None
    text = _ESCAPE.sub(_decoded, source)
    return None if text == source else View(source, text)


def unescaped_json(inner: bytes) -> View | None:
    """Do the same for what stands between the quotes of a JSON string: the same answer, sooner."""
    if b"\\" not in inner or b"\x1b" in inner or b"\\u001" in inner:
        return unescaped(inner)
    try:
        return View(inner, orjson.loads(b'"' + inner + b'"').encode())
    except (ValueError, UnicodeEncodeError):
        return unescaped(inner)


def _decoded(escape: re.Match[bytes]) -> bytes:
    found = escape.group()
    if found in _PLAIN:
        return _PLAIN[found]
    if found[0] == 0x1B:
        return b""
    code = int(found[2:6], 16)
    if len(found) > 6:
        code = 0x10000 + ((code - 0xD800) << 10) + (int(found[8:], 16) - 0xDC00)
    return chr(code).encode("utf-8", "surrogatepass")
