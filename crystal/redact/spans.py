"""What a rule returns: a stretch of text and what it is; and how overlapping stretches become one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from crystal.redact.regex_engines import Lazy

MARKER = Lazy(rb"(\[redacted:[a-z][a-z0-9-]{1,31}:[0-9a-f]{8}\]|\[private\]|\[recalled\])")
"""What stands where something was taken out. Rules never look inside it: cleaning twice is cleaning once."""

PRIVATE, RECALLED, DENSE, BLOCK, FORMAT, ENCODED, ADDRESS, HEADER, NAMED, NEARBY = range(10)
"""Ranks: where spans overlap, the lower one names the kind."""


class Span(NamedTuple):
    """The secret is ``text[start:end]``; ``rank`` decides which of two overlapping spans gives the kind."""

    start: int
    end: int
    kind: str
    rank: int


class Cut(NamedTuple):
    """A stretch of the source to be replaced, and the secret in it as its reader would see it (unescaped)."""

    start: int
    end: int
    kind: str
    rank: int
    secret: bytes


def masked(text: bytes) -> bytes:
    """Return the text with every marker blanked by the byte 0xFF, which ends every rule's match. Offsets stay."""
    if b"[redacted:" not in text and b"[private]" not in text and b"[recalled]" not in text:
        return text
    parts = MARKER.split(text)
    parts[1::2] = [b"\xff" * len(marker) for marker in parts[1::2]]
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
