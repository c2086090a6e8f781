"""Find time words in a question (``last week``, ``im März``, ``8 May 2023``, ``昨天``) as spans of time.

The result is a preference: search looks there first, and elsewhere too. So a word with another possible meaning
(``may``, ``march``, a year in a file name, anything in quotation marks) is ignored. The present moment and the zone
are arguments.

``lexicon.json`` contains the words of each language, ``tokens`` tags a question with them, ``grammar.json`` and
``meanings`` define the meaning of sequences of tags. A language is an object in the file.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from datetime import tzinfo

from crystal.model.quick_dataclass import dataclass
from crystal.timewords.parse import local, local_ms

__all__ = ["LOOKED_AT", "MAX_SPANS", "TimeSpan", "find_times"]

LOOKED_AT = 2_000
"""Maximum characters of a question that are examined; a longer one is pasted text."""
MAX_SPANS = 16
"""Maximum number of times in a question; one with more is not restricted by them."""


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """A span of time that a question names.

    Attributes:
        start: Its first moment, ms since the epoch.
        end: The first moment after it.
        words: The words that name it, as in the question.
        at: Their position in the question: start and end.
    """

    start: int
    end: int
    words: str
    at: tuple[int, int]


def find_times(text: str, *, now: int, tz: tzinfo | None = None) -> tuple[TimeSpan, ...]:
    """Find the times that a question names. Any string is accepted; only its first 2,000 characters are examined.

    A week is an ISO week. A month without a year is the latest that has begun, a day of the week the latest one.
    ``since`` ends now, ``before`` begins with the epoch. Words with two meanings (05/08/2023, winter
    2023) give two spans with the same words.

    Args:
        text: The question.
        now: The present moment, ms.
        tz: The time zone of the user; None for the machine's.

    Returns:
        The spans in the order of their words, without repetition; of two meanings the likelier first.
    """
    from crystal.timewords.lexicon import may_name_time

    text = text[:LOOKED_AT]
    composed = unicodedata.normalize("NFC", text)
    if not may_name_time(composed):
        return ()
    from crystal.timewords.finding import find
    from crystal.timewords.time_tokens import tokenize

    try:
        present = local(now, tz).replace(tzinfo=None, fold=0)
        found = find(tokenize(composed), present)
    except (OverflowError, ValueError):  # the present is at the very end of the calendar
        return ()
    spans: list[TimeSpan] = []
    for token in found:
        at = (_place(text, composed, token.start), _place(text, composed, token.end))
        for first, last in token.tags["time"].readings:
            try:
                start, end = local_ms(first, tz), local_ms(last, tz)
            except (OverflowError, ValueError, OSError):  # beyond the platform's calendar
                continue
            if start < end:
                spans.append(TimeSpan(start, end, text[at[0] : at[1]], at))
    return tuple(dict.fromkeys(spans))[:MAX_SPANS]


def _place(text: str, composed: str, at: int) -> int:
    """Return the position in a text of a character of its composed form."""
    if text == composed:
        return at
    return bisect_right(range(len(text) + 1), at, key=lambda end: len(unicodedata.normalize("NFC", text[:end]))) - 1
