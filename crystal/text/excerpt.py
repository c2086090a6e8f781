"""Choose the part of a long text to show: the one with most words of the query."""

from __future__ import annotations

import re
from collections.abc import Sequence

Span = tuple[int, int]
"""Start and end of a part of a text."""


def excerpt_span(text: str, spans: Sequence[Span], budget: int) -> Span:
    """Return the span of about ``budget`` characters with most different marked words, the first of several."""
    if len(text) <= budget or not spans:
        return 0, _end_of_word(text, 0, budget + 1)
    best, best_at = -1.0, 0
    for first, (start, _) in enumerate(spans):
        inside = [span for span in spans[first : first + 50] if span[1] <= start + budget * 3 // 4]
        worth = len({text[a:b].lower() for a, b in inside}) + len(inside) / 100
        if worth > best:
            best, best_at = worth, start
    start = max(0, best_at - budget // 5)
    if start:
        space = re.compile(r"\s").search(text, start, best_at)
        start = space.end() if space else start
    return start, _end_of_word(text, start, start + budget)


def _end_of_word(text: str, start: int, end: int) -> int:
    """Return the last position before ``end`` that splits no word, or ``end`` if none is near."""
    if end >= len(text):
        return len(text)
    return next((at for at in range(end, max(start, end - 40), -1) if text[at].isspace()), end)
