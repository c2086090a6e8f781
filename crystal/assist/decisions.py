"""Find the sentence that gives the reason for an edit. Pure."""

from __future__ import annotations

import re

MIN_SENTENCE, MAX_SENTENCE = 40, 320
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=(?:[^`\n]*`[^`\n]*`)*[^`\n]*(?:\n|\Z))|\n+")
"""The end of a sentence; inside code in backticks is none."""
_REASON = re.compile(
    r"\b(?:because|so that|instead of|rather than|otherwise|to (?:avoid|prevent)|must (?:not|never)|on purpose"
    r"|deliberately|the (?:root )?(?:cause|reason|problem|issue|bug) (?:is|was)|turns out|(?:won't|doesn't|can't) work"
    r"|since (?:the|it|we|there|this))\b",
    re.IGNORECASE,
)
_NONE = re.compile(
    r"[?:]$|^[`|#>*-]|^\d+\.|\bi(?:'ll| will) (?:check|look|see|try)\b|^let me (?:check|look|see|read|find)\b",
    re.IGNORECASE,
)


def find_reason(text: str | None) -> str | None:
    """Return the last sentence of a text that gives a reason; None if there is none."""
    sentences = [one.strip() for one in _SENTENCE.split(text or "")]
    telling = [
        one
        for one in sentences
        if MIN_SENTENCE <= len(one) <= MAX_SENTENCE and _REASON.search(one) and not _NONE.search(one)
    ]
    return telling[-1] if telling else None
