"""Spans: the stretches of text that the rules find. Overlapping ones are merged here."""

from __future__ import annotations

from collections.abc import Iterable

from crystal.model.named_tuple import NamedTuple
from crystal.redact.regex_engines import Lazy

MARKER_FORM = rb"\[redacted:[a-z][a-z0-9-]{1,31}:[0-9a-f]{8}\]|\[private\]|\[recalled\]"
MARKER = Lazy(rb"(" + MARKER_FORM + rb")")
"""Marker left where something was taken out. Rules never look inside it: cleaning twice is cleaning once."""

STRING_END = b"\n\xff\n"
"""Separates strings of a line that are read as one text. No rule reads across it."""

PRIVATE, RECALLED, DENSE, BLOCK, FORMAT, ENCODED, ADDRESS, HEADER, NAMED, NEARBY = range(10)
"""Ranks: where spans overlap, the lower one names the kind."""


class Span(NamedTuple):
    """The secret is ``text[start:end]``; ``rank`` decides which of two overlapping spans gives the kind."""

    start: int
    end: int
    kind: str
    rank: int


class Cut(NamedTuple):
    """A stretch of the source to be replaced, and the secret in it as its reader would see it (unescaped).

    ``instead`` is what comes in its place if that is no marker alone, and ``times`` how many markers there are.
    """

    start: int
    end: int
    kind: str
    rank: int
    secret: bytes
    instead: bytes | None = None
    times: int = 1


def string_around(text: bytes, at: int) -> tuple[int, int]:
    """Return where the string that holds a place of the text begins and ends."""
    before, end = text.rfind(STRING_END, 0, at), text.find(STRING_END, at)
    return before + len(STRING_END) if before >= 0 else 0, end if end >= 0 else len(text)


def masked(text: bytes, blank: bytes = b"\xff") -> bytes:
    """Return the text with every marker blanked, by the byte 0xFF that ends every rule's match. Offsets stay."""
    if b"[redacted:" not in text and b"[private]" not in text and b"[recalled]" not in text:
        return text
    parts = MARKER.split(text)
    parts[1::2] = [blank * len(marker) for marker in parts[1::2]]
    return b"".join(parts)


def merged(cuts: Iterable[Cut]) -> list[Cut]:
    """Join overlapping cuts; the one of the lowest rank (then the first found) names the whole."""
    joined: list[Cut] = []
    for cut in sorted(cuts, key=lambda cut: (cut.start, cut.rank)):
        if not joined or cut.start >= joined[-1].end:
            joined.append(cut)
            continue
        last = joined[-1]
        name = cut if cut.rank < last.rank else last
        joined[-1] = Cut(last.start, max(last.end, cut.end), name.kind, name.rank, name.secret)
    return joined
