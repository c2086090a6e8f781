"""Time words in a question (``last week``, ``im März``, ``8 May 2023``, ``昨天``) as spans on the time line. Pure.

What is found is a preference: whoever searches looks there first, and elsewhere too. So a word that may be something
else (``may``, ``march``, a year in a file name, anything in quotation marks) is left alone rather than guessed at.
The room knows no clock: the present moment and the zone are arguments.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import tzinfo

from crystal.timewords.folding import LOOKED_AT, fold
from crystal.when import local, local_ms

__all__ = ["LOOKED_AT", "MOST_SPANS", "TimeSpan", "find_times"]

MOST_SPANS = 16
"""A question that names more times than this wants none of them."""


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """A span of time that a question names.

    Attributes:
        start: Its first moment, ms since the epoch.
        end: The first moment after it.
        words: The words that name it, as they stand in the question.
        at: Where they stand: the first character, and the one after the last.
    """

    start: int
    end: int
    words: str
    at: tuple[int, int]


def find_times(text: str, *, now: int, tz: tzinfo | None = None) -> tuple[TimeSpan, ...]:
    """Find the times that a question names. Any string will do; its first 2,000 characters are looked at.

    A week is an ISO week. A month without a year is the latest that has begun, a day of the week the latest one.
    ``since`` ends now, ``before`` begins with the epoch, ``around`` adds a little on both sides. Words with two
    meanings (05/08/2023, winter 2023) give two spans with the same words.

    Args:
        text: The question.
        now: The present moment, ms.
        tz: The zone of whoever asks; None for the machine's.

    Returns:
        The spans in the order of their words, without repetition; for two meanings the likelier first.
    """
    folded = fold(text)
    if not (folded.has_cue or folded.has_unspaced):
        return ()
    from crystal.timewords.joining import find

    try:
        present = local(now, tz).replace(tzinfo=None, fold=0)
        found = find(folded, present)
    except (OverflowError, ValueError):  # a present at the very end of the calendar
        return ()
    spans: list[TimeSpan] = []
    for one in found:
        at = (folded.back[one.start], folded.back[one.end])
        for first, last in one.readings:
            try:
                start, end = local_ms(first, tz), local_ms(last, tz)
            except (OverflowError, ValueError, OSError):  # beyond what the platform's calendar knows
                continue
            if start < end:
                spans.append(TimeSpan(start, end, text[at[0] : at[1]], at))
    return tuple(dict.fromkeys(spans))[:MOST_SPANS]
