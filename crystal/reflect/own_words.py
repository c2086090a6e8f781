"""Sentences that the user wrote, without what a message only quotes, pastes or repeats. Pure.

When in doubt a text is not the user's own: what is left out can be said again, what is learned wrongly is obeyed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

MAX_CHARACTERS = 2_000
MAX_LINES = 25
"""Longer messages are pasted, or specifications: nothing is learned from them."""

MAX_SENTENCE = 300
MIN_QUOTED_WORDS = 3

_CODE = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)", re.DOTALL)
_TAGGED = re.compile(r"<([a-zA-Z][\w-]*)[^<>\n]*>.*?(?:</\1>|\Z)", re.DOTALL)
_QUOTED = re.compile(r"[\"“”«»„]([^\"“”«»„\n]*)[\"“”«»„]")
_SPAN = re.compile(r"`[^`\n]*`")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=\S)|;\s+|(?<=\u3002)")

# A line that begins somebody else's text: what follows it is not the user's own.
_SPEAKER = re.compile(
    r"\s*(?:\[[^\]]*\]|[-\u2013*]*\s*\d{1,2}:\d\d\b|(?:user|human|system|assistant|ai|bot|me|error|warning|from"
    r"|to|subject|on .{3,40} wrote)\s*:"
    r"|(?:hi|hello|hey|dear)\b[^.!?]{0,30},\s*$|@@|diff --git|traceback|at \S+\(|\$ |#|\||\{|\[|</?\w)",
    re.IGNORECASE,
)
_INTRODUCES = re.compile(
    r"\b(?:log|logs|mail|e-?mail|message|slack|chat|wiki|page|issue|ticket|article|post|paste[ds]?"
    r"|transcript|output|says?|said"
    r"|wrote|writes|quote[ds]?|readme|docs?|documentation|prompt|spec|text|error|according|suggests?|claims?|states?"
    r"|answer|forum|comment|copied|got this)\b",
    re.IGNORECASE,
)
_REPORTS = re.compile(
    r"\b(?:(?:docs?|documentation|readme|spec|linter|guide|page|article|forum|wiki|issue|ticket|prompt|log"
    r"|model|compiler"
    r"|internet|blog|stack ?overflow|book|manual|someone|somebody|people|he|she|they|colleagues?"
    r"|customers?|users?|\w+ team)"
    r"\s+(?:\w+\s+){0,3}?(?:says?|said|claims?|recommends?|suggests?|states?|prefers?|wants?|thinks?|wrote"
    r"|writes|told|tells|asked)"
    r"|according to|rules? such as|example rules?)\b|https?://",
    re.IGNORECASE,
)


def own_sentences(message: str) -> Iterator[str]:
    """Yield the sentences of a message that its author says in his own name, each with its final sign.

    Args:
        message: The whole text of a turn of the user.
    """
    if len(message) > MAX_CHARACTERS or message.count("\n") > MAX_LINES:
        return
    if "<crystal-memory" in message or "[recalled]" in message:
        return
    text = _TAGGED.sub("\n\n", _CODE.sub("\n", message))
    is_cut = text.strip() != message.strip()
    for line in text.splitlines():
        if line.lstrip().startswith((">", "|")):
            is_cut = True
            continue
        if _SPEAKER.match(line):
            return
        if is_cut and _INTRODUCES.search(line):
            return
        yield from _sentences(line)
        if line.rstrip().endswith(":") or (_INTRODUCES.search(line) and "\n" in text.strip()):
            return


def _sentences(line: str) -> Iterator[str]:
    """Split a line; code in backticks stays whole."""
    spans: list[str] = []

    def hide(found: re.Match[str]) -> str:
        spans.append(found.group())
        return f"`{len(spans) - 1}`"

    for part in _SENTENCE.split(_SPAN.sub(hide, line.strip().lstrip("-*• "))):
        sentence = re.sub(r"`(\d+)`", lambda found: spans[int(found.group(1))], part).strip()
        if 0 < len(sentence) <= MAX_SENTENCE and not is_quoting(sentence):
            yield sentence


def is_quoting(sentence: str) -> bool:
    """Return True if a sentence reports what somebody else says."""
    quoted = max((len(found.split()) for found in _QUOTED.findall(_SPAN.sub("", sentence))), default=0)
    return quoted >= MIN_QUOTED_WORDS or _REPORTS.search(sentence) is not None
