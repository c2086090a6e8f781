"""Find the sentences that the user wrote, without what a message quotes, pastes or repeats. Pure.

When in doubt a text is not the user's own: the user can say it again, but agents would follow what is learned wrongly.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from crystal.reflect.statement_patterns import find_statement, read_rules

MAX_CHARACTERS = 2_000
MAX_SENTENCE = 300
MIN_QUOTED_WORDS = 3

_SPAN = re.compile(r"`[^`\n]*`")
_QUOTED = re.compile(r"[\"“”«»„]([^\"“”«»„]*)[\"“”«»„]|(?<!\w)['\u2018\u201a](.*?)['\u2019](?!\w)")
_FIX = r"[^.;]{3,80}\b(?:fixe[sd]|solve[sd]|helped)\b"
_SENTENCE = re.compile(rf"(?<=[.!?])\s+(?=\S)|;\s+(?!{_FIX})|(?<=\u3002)")

# A message that is not typed: tags, fences and marks of programs, or it begins with a sign, a time or a log level.
_MARKED = re.compile(
    r"```|~~~|<[\w/!?|]|\[(?:recalled|INST|/INST)\]|^(?![`\w])|^\d{1,4}[-:]\d\d\b|^\w{1,2}\) "
    r"|^(?:INFO|WARN|DEBUG|TRACE)"
)
_SIGN = re.compile(r"[>|#$%<]")
_LABEL = re.compile(r"([^`]{1,60}?):\s")
_OWN_LABEL = re.compile(
    r"(?:to|before you|hm+|for(?! example| instance)|in(?! the)"
    r"|found it|remember|note|fyi|again|keep in mind|from now|going forward"
    r"|next time|reminder|you keep forgetting"
    r"|please|ok(?:ay)?|yes|nope?|wrong|also|btw|by the way|one more thing|the (?:root cause|fix|reason)"
    r"|(?:\w+ ){0,2}(?:rule|convention|policy)|.*\b(?:is|was|are|were))\b(?!\.\w)",
    re.IGNORECASE,
)


def own_sentences(message: str) -> Iterator[str]:
    """Yield the sentences of a message that are its author's own, each with its final punctuation.

    A message of several lines yields nothing, because such messages are pasted, quoted, or made by a program. After a
    sentence that may introduce somebody else's words, no rule is yielded.

    Args:
        message: The whole text of a turn of the user.
    """
    gates, is_own = read_rules()[1], True
    if not _is_plain_line(message) or gates["JEST"].search(message):
        return
    for sentence in _sentences(message.strip()):
        if _is_of_others(sentence):
            return
        is_rule = find_statement(sentence) is not None
        if len(sentence) <= MAX_SENTENCE and (is_own or not is_rule or gates["GOES_ON"].match(sentence)):
            yield sentence
        if gates["INTRODUCES"].search(sentence):
            return
        is_own = is_own and (is_rule or gates["BARE"].fullmatch(sentence) is not None)


def _is_plain_line(message: str) -> bool:
    """Return True for a single line of at most ``MAX_CHARACTERS`` without marks of pasted text."""
    line = message.strip()
    is_short = len(message) <= MAX_CHARACTERS and len(line.splitlines()) == 1
    return is_short and _MARKED.search(_SPAN.sub("`", line)) is None


def _is_of_others(sentence: str) -> bool:
    """Return True if a sentence begins like a list or a quotation, has a label such as ``Bob:``, or quotes others."""
    label = _LABEL.match(sentence)
    is_labelled = label is not None and _OWN_LABEL.match(label[1]) is None
    return is_labelled or _SIGN.match(sentence) is not None or is_quoting(sentence)


def _sentences(line: str) -> Iterator[str]:
    """Split a line; code in backticks stays whole."""
    spans: list[str] = []

    def hide(found: re.Match[str]) -> str:
        spans.append(found.group())
        return f"`{len(spans) - 1}`"

    for part in _SENTENCE.split(_SPAN.sub(hide, line)):
        yield re.sub(r"`(\d+)`", lambda found: spans[int(found.group(1))], part).strip()


def is_quoting(sentence: str) -> bool:
    """Return True if a sentence reports what somebody else says."""
    quotes = (max(found, key=len) for found in _QUOTED.findall(_SPAN.sub("", sentence)))
    quoted = max((len(found.split()) for found in quotes), default=0)
    return quoted >= MIN_QUOTED_WORDS or read_rules()[1]["REPORTS"].search(sentence) is not None
