r"""Text as its reader sees it, with a way back to where it came from.

A transcript holds strings inside strings: JSON in a JSON string, in a log line, in a shell command. The rules are
written for plain text; each level of escaping is undone in turn (``\"`` to ``"``, ``\n`` to a newline, ``\u0041`` to
``A``), terminal colours are left out, and what a rule finds is carried back to the bytes of the source.
"""

from __future__ import annotations

import re
from bisect import bisect_right

MAX_LEVELS = 8
"""How many levels of escaping are undone. The n-th needs 2**n backslashes before a quote, so more is not seen."""

_ESCAPE = re.compile(rb"""\\(?:["\\/'`bfnrt]|u[0-9a-fA-F]{4})|\x1b\[[0-9;]*[A-Za-z]""")
_PLAIN = {
    **{bytes([c]): bytes([c]) for c in b"\"\\/'`"},
    b"b": b"\b",
    b"f": b"\f",
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
}


class View:
    """One level of reading of a source: ``text``, and for each of its bytes the place in the source."""

    __slots__ = ("text", "_ends", "_sources", "_starts")

    def __init__(self, text: bytes, starts: list[int], sources: list[int], ends: list[int]) -> None:
        """Keep the runs: run i is ``text[starts[i]:starts[i + 1]]``, it stands at ``sources[i]:ends[i]``."""
        self.text = text
        self._starts, self._sources, self._ends = starts, sources, ends

    def source_of(self, start: int, end: int) -> tuple[int, int]:
        """Return where ``text[start:end]`` (not empty) stands in the text that this view was made from."""
        first, last = bisect_right(self._starts, start) - 1, bisect_right(self._starts, end - 1) - 1
        return self._place(first, start)[0], self._place(last, end - 1)[1]

    def _place(self, run: int, at: int) -> tuple[int, int]:
        source, after = self._sources[run], self._ends[run]
        stop = self._starts[run + 1] if run + 1 < len(self._starts) else len(self.text)
        if stop - self._starts[run] == after - source:
            moved = source + at - self._starts[run]
            return moved, moved + 1
        return source, after


def unescaped(text: bytes) -> View | None:
    """Undo one level of escaping, or return None if there is none."""
    if b"\\" not in text and b"\x1b" not in text:
        return None
    parts: list[bytes] = []
    starts: list[int] = []
    sources: list[int] = []
    ends: list[int] = []
    size = at = 0
    for escape in _ESCAPE.finditer(text):
        begin, end = escape.span()
        if begin < at:
            continue
        decoded, end = _decoded(text, begin, end)
        for piece, source, after in ((text[at:begin], at, begin), (decoded, begin, end)):
            if piece:
                parts.append(piece)
                starts.append(size)
                sources.append(source)
                ends.append(after)
                size += len(piece)
        at = end
    if at == 0:
        return None
    if at < len(text):
        parts.append(text[at:])
        starts.append(size)
        sources.append(at)
        ends.append(len(text))
    return View(b"".join(parts), starts, sources, ends)


def _decoded(text: bytes, begin: int, end: int) -> tuple[bytes, int]:
    if text[begin] == 0x1B:
        return b"", end
    if text[begin + 1] != 0x75:
        return _PLAIN[text[begin + 1 : end]], end
    code = int(text[begin + 2 : end], 16)
    if 0xD800 <= code < 0xDC00 and text[end : end + 2] == b"\\u":
        low = text[end + 2 : end + 6]
        if re.fullmatch(rb"[dD][c-fC-F][0-9a-fA-F]{2}", low):
            code = 0x10000 + ((code - 0xD800) << 10) + (int(low, 16) - 0xDC00)
            end += 6
    return chr(code).encode("utf-8", "surrogatepass"), end
