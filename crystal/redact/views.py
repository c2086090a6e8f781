r"""Undo the encodings of a text, and map places in the result back to the source.

A transcript holds strings inside strings: JSON in a JSON string, in a log line, in a shell command. The rules are
written for plain text; each level of escaping is undone in turn (``\"`` to ``"``, ``\n`` to a newline, ``\u0041`` to
``A``), terminal colours are left out, the encoding of URLs is undone, lines that were cut at a fixed width are joined,
and what a rule finds is carried back to the bytes of the source.

All of it is done in place: bytes that are read no more become fillers, which no UTF-8 text has. The rules read what
is left without the fillers; the way back is to count them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import compress

from crystal.redact.regex_engines import Lazy
from crystal.redact.spans import Cut, masked

MAX_LEVELS = 8
"""Number of levels of escaping that are undone. Level n needs 2**n backslashes before a quote: more do not occur."""

_REST, _GONE, _HELD = b"\xfe", b"\xfd", b"\xfc"
"""The rest of what one byte stands for, what nothing stands for, and a backslash that begins no escape."""
_FILLERS = _REST + _GONE
_NO_TEXT = b"\xff" + _FILLERS + _HELD
_TO_MARKS = bytes.maketrans(_NO_TEXT, b"?" * len(_NO_TEXT))
_CHARACTER_REST = Lazy(rb"(?:\xfe+[\x80-\xbf]?)+")


class View:
    """A source read with one level of encoding undone, byte for byte; ``text`` is the text without fillers."""

    __slots__ = ("_filled", "text")

    def __init__(self, filled: bytes) -> None:
        self._filled = filled
        self.text = filled.translate(None, _FILLERS)

    def lead_back(self, spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return where stretches of ``text`` (none of them empty) are in the source.

        A stretch that begins or ends within what one escape stands for takes the whole escape.
        """
        spans = list(spans)
        filled = self._filled
        fillers = filled.replace(_GONE, _REST)
        places: dict[int, int] = {}
        read = at = 0
        for number in sorted({place for start, end in spans for place in (start, end - 1)}):
            missing = number + 1 - read
            while missing:
                at, missing = at + missing, fillers.count(_REST, at, at + missing)
            read, places[number] = number + 1, at - 1
        return [_whole(filled, places[start], places[end - 1] + 1) for start, end in spans]


def _whole(filled: bytes, begin: int, end: int) -> tuple[int, int]:
    """Return the stretch with the whole of the escapes in which it begins and ends."""
    while filled[begin - 1 : begin] == _REST and 0x80 <= filled[begin] < 0xC0:
        begin -= 2
    rest = _CHARACTER_REST.match(filled, end) if filled[end : end + 1] == _REST else None
    return begin, rest.end() if rest else end


def moved(cuts: list[Cut], view: View | None, offset: int) -> list[Cut]:
    """Map cuts of a view, or of a text that is at ``offset``, to their places in the whole."""
    if not cuts:
        return cuts
    places = [cut[:2] for cut in cuts] if view is None else view.lead_back(cut[:2] for cut in cuts)
    return [
        Cut(offset + start, offset + end, cut.kind, cut.rank, cut.secret)
        for cut, (start, end) in zip(cuts, places, strict=True)
    ]


def readable(source: bytes) -> bytes:
    """Return a source with question marks for the bytes that mean something here, which no UTF-8 text has."""
    return source.translate(_TO_MARKS) if any(byte in source for byte in _NO_TEXT) else source


def unescaped(source: bytes) -> View | None:
    """Undo one level of escaping and leave out colours, or return None if there is neither."""
    return _view(_without_escapes(source)) if b"\\" in source or b"\x1b" in source else None


def percent_decoded(source: bytes) -> View | None:
    """Undo the encoding of URLs and forms (``%3D`` and ``%253D`` for ``=``); None if the source has none of it."""
    if b"%" not in source:
        return None
    text, percent = source, b"%"
    while percent + b"25" in text:  # all levels at once: each would be read again from end to end
        text, percent = text.replace(percent + b"25", percent + _REST * 2), percent + _REST * 2
    return _view(_rewritten(_PERCENT, _PERCENT_FORMS, text))


def near_escapes(source: bytes) -> View | None:
    """Leave out what is far from any escape, or return None if that is nothing, or little is to be gained."""
    if len(source) <= _MIN_NEAR or sum(map(source.count, (b"\\\\", b'\\"', b"\\n"))) * _NEAR > 4 * len(source):
        return None
    return _view(_near(source, _LONE.sub(b" ", source).replace(b"\x1b", b"\\"), b"\\"))


def near_markers(source: bytes) -> View | None:
    """Leave out what is far from all that was taken out before, or return None likewise."""
    return _view(_near(source, masked(source, _HELD), _HELD)) if len(source) > _MIN_NEAR else None


def unwrapped(source: bytes) -> View | None:
    """Join lines that were cut at a fixed width in the middle of a token, or return None."""
    joined = _joined(source) if b"\n" in source else b""
    return _view(_near(joined, joined, _GONE)) if _GONE in joined else None


def _view(filled: bytes) -> View | None:
    return View(filled) if _REST in filled or _GONE in filled else None


_AFTER_BACKSLASH = {b'"': b'"', b"/": b"/", b"n": b"\n", b"t": b"\t", b"r": b"\r", b"b": b"\b", b"f": b"\f"}
_AFTER_BACKSLASH |= {b"'": b"'", b"`": b"`"}
_LONE = Lazy(rb"""\\(?<!\\\\)(?![\\"/ntrbf'`u])""")
"""A backslash that begins no escape, as in ``\\d``: a text full of them would be read again at each level."""
_LONG = Lazy(rb"(\\u(?:[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|[0-9a-fA-F]{4})|\x1b\[[0-9;?]*[A-Za-z])")
COLOUR = Lazy(rb"\x1b\[[0-9;?]*[A-Za-z]")


def _without_escapes(source: bytes) -> bytes:
    text = source
    if b"\\" in text:
        after = _after_backslashes(text)
        if b"" in after:
            text = text.replace(b"\\\\", _HELD + _REST)
        for letter in after & _AFTER_BACKSLASH.keys():
            text = text.replace(b"\\" + letter, _AFTER_BACKSLASH[letter] + _REST)
    if b"\\u" in text or b"\x1b[" in text:
        text = _rewritten(_LONG, _LONG_FORMS, text)
    return text.replace(_HELD, b"\\")


_RARE = 16


def _after_backslashes(text: bytes) -> set[bytes]:
    """Return which bytes are after backslashes, and nothing for a backslash, or more: to look for each takes long."""
    if text.count(b"\\") * _RARE > len(text):
        return {b"", *_AFTER_BACKSLASH}
    return {part[:1] for part in text.split(b"\\")[1:]}


def _rewritten(pattern: re.Pattern[bytes], forms: dict[bytes, bytes], text: bytes) -> bytes:
    """Put for each match of a pattern, of which all is one group, what stands for it."""
    few = set(pattern.findall(text, 0, _SAMPLE))
    if len(few) <= _FEW_FORMS and len(few := set(pattern.findall(text))) <= _FEW_FORMS:
        for form in sorted(few, key=len, reverse=True):  # half of a pair may be alone elsewhere
            text = text.replace(form, forms[form])
        return text
    parts = pattern.split(text)
    parts[1::2] = map(forms.__getitem__, parts[1::2])
    return b"".join(parts)


class _LongForms(dict[bytes, bytes]):
    """Replacements of escapes of more than two bytes, with fillers to the same length; a colour leaves nothing."""

    def __missing__(self, escape: bytes) -> bytes:
        filled = _GONE * len(escape)
        if escape[:1] == b"\\":
            units = bytes.fromhex(escape.replace(b"\\u", b"").decode())
            plain = units.decode("utf-16-be", "surrogatepass").encode("utf-8", "surrogatepass")
            filled = _REST.join(plain[at : at + 1] for at in range(len(plain))).ljust(len(escape), _REST)
        if len(self) < _MAX_FORMS and len(escape) <= _MAX_ESCAPE:
            self[escape] = filled
        return filled


_LONG_FORMS = _LongForms()
_FEW_FORMS, _SAMPLE, _MAX_FORMS, _MAX_ESCAPE = 16, 4096, 100_000, 12
_CODE = rb"(?:[2-7][0-9A-Fa-f]|0[9AaDd])"
_PERCENT = Lazy(rb"(%(?:" + _CODE + rb"(?:%" + _CODE + rb"){0,499}|\xfe+" + _CODE + rb"))")


class _PercentForms(dict[bytes, bytes]):
    """Replacements of runs of bytes that are encoded for a URL, with fillers to the same length."""

    def __missing__(self, run: bytes) -> bytes:
        filled = bytearray(_REST * len(run))
        plain = bytes.fromhex(run.translate(None, b"%" + _REST).decode())
        filled[:: len(run) // len(plain)] = plain
        if len(self) < _MAX_FORMS and len(run) <= _MAX_ESCAPE:
            self[run] = bytes(filled)
        return bytes(filled)


_PERCENT_FORMS = _PercentForms()

WIDTHS = frozenset((40, 60, 64, 72, 76, 80, 100, 120))
"""Bytes of a line after which programs cut long tokens."""
_WIDTHS = frozenset((*WIDTHS, *(width + 1 for width in WIDTHS)))
"""The same with a carriage return."""
_TOKEN_LETTERS = frozenset(
    bytes([letter]) for letter in b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./+=~-$%"
)


def _joined(source: bytes) -> bytes:
    """Leave out the ends of lines that were cut at a fixed width in a token."""
    lines = source.split(b"\n")
    lengths = [*map(len, lines)]
    if _WIDTHS.isdisjoint(lengths):
        return source
    for number in compress(range(len(lines) - 1), map(_WIDTHS.__contains__, lengths)):
        line = lines[number]
        if lines[number + 1][:1] in _TOKEN_LETTERS:
            cut = line.removesuffix(b"\r")
            if cut[-1:] in _TOKEN_LETTERS and len(cut) in WIDTHS:
                lines[number] = cut + _GONE * (1 + len(line) - len(cut))
    return b"\n".join(lines).replace(_GONE + b"\n", _GONE)


_NEAR = 1024
"""Bytes on both sides of a joint or an escape that are read again: the rest has been read as it is."""
_MIN_NEAR = _MAX_WORD = 8 * _NEAR
_GAPS = (b"\n", b" ", b";")
_GAP = Lazy(rb"[\n ;]")


def _near(source: bytes, marked: bytes, mark: bytes) -> bytes:
    """Return the source with one byte for each stretch of words far from where ``marked`` has the mark.

    The words are whole, but of a longer one than any token only its nearer part is kept.
    """
    kept: list[bytes] = []
    at = 0
    while (last := marked.find(mark, at)) >= 0:
        far, until = max(at, last - _NEAR - _MAX_WORD), max(at, last - _NEAR)
        start = max(far, *(source.rfind(gap, far, until) for gap in _GAPS))
        while (further := marked.rfind(mark, last + 1, last + 1 + _NEAR)) >= 0:
            last = further
        far = min(last + _NEAR + _MAX_WORD, len(source))
        after = _GAP.search(source, last + _NEAR, far)
        end = after.end() if after else far
        kept += (_far(start - at), source[start:end])
        at = end
    return b"".join((*kept, _far(len(source) - at)))


def _far(size: int) -> bytes:
    return b"\xff".ljust(size, _REST) if size else b""
