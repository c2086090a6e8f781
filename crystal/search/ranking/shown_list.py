"""Make the shown list from ranked answers: group near-duplicates, and mix sessions.

Also list the latest turns, for questions that name only a time, or only symbols such as emoji.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from itertools import islice
from typing import TypeVar

from crystal.model.quick_dataclass import replace
from crystal.search.ranking.late import is_near
from crystal.search.results import RankedAnswer, SearchedStore, latest_answers
from crystal.store.search.candidates import contains_text
from crystal.store.search.scope import SearchScope
from crystal.text.query import Query, has_content
from crystal.timewords import TimeSpan

FROM_ONE_SESSION = 3
"""Number of hits of one session before hits of other sessions come between them."""
LOOK_AHEAD = 400
"""Number of ranks that are searched for another session's hit."""

_DIGITS = re.compile(r"\d[-./]\d")

Item = TypeVar("Item")


def mixed(items: Sequence[Item], session_of: Callable[[Item], Hashable], first: int = 0) -> list[Item]:
    """Put hits of other sessions between many hits of one session.

    After three hits of a session, one of another session comes before each further one. Items without a session (None)
    and the ``first`` ones stay in place.
    """
    if len({session_of(one) for one in items}) < 2:
        return list(items)
    coming = iter(items)
    ahead = deque(islice(coming, LOOK_AHEAD))
    waiting = deque[Item]()  # delayed items of the session that was shown too often
    shown: dict[Hashable, int] = {}
    full: Hashable = None  # the session that has to wait; at most one, because any other hit ends the waiting
    out: list[Item] = []
    while ahead or waiting:
        one = _take_next(ahead, waiting, full if len(out) >= first else None, session_of)
        ahead += islice(coming, 1)
        session = session_of(one)
        if full not in (None, session):
            shown[full] = FROM_ONE_SESSION - 1
            full = None
        if session is not None:
            shown[session] = shown.get(session, 0) + 1
            full = session if shown[session] >= FROM_ONE_SESSION else full
        out.append(one)
    return out


def _take_next(
    ahead: deque[Item], waiting: deque[Item], full: Hashable, session_of: Callable[[Item], Hashable]
) -> Item:
    """Remove and return the next item of another session than ``full``; those of ``full`` before it wait."""
    if waiting and session_of(waiting[0]) != full:
        return waiting.popleft()
    while full is not None and ahead and session_of(ahead[0]) == full:
        waiting.append(ahead.popleft())
    return (ahead or waiting).popleft()


def collapsed(answers: Sequence[RankedAnswer], most: int) -> list[RankedAnswer]:
    """Keep the first of answers with nearly the same text by the same role, and count the others.

    Args:
        answers: The answers, in order.
        most: Number of the first answers that are compared by their tokens; all are compared by their whole text.
    """
    kept: list[RankedAnswer] = []
    by_text: dict[tuple[str, bytes], RankedAnswer] = {}
    for at, one in enumerate(answers):
        name = (one.chunk.role, one.chunk.text_sha256)
        first = by_text.get(name)
        if first is None and at < most:
            first = next(
                (other for other in kept if is_near(other.tokens, one.tokens) and other.chunk.role == one.chunk.role),
                None,
            )
        by_text.setdefault(name, first or one)
        if first is None:
            kept.append(one)
        else:
            first.similar += 1
    return kept


LISTED = 200
"""Minimum number of answers that are read."""
EVER = (-(1 << 62), 1 << 62)


def is_time_alone(asked: Query, times: Sequence[TimeSpan]) -> bool:
    """Return True if the question names only a time: ``what did we do yesterday``."""
    return bool(times) and not asked.phrases and not has_content(without_times(asked.text, times))


def without_times(text: str, times: Sequence[TimeSpan]) -> str:
    """Return a question without the words of some of its times."""
    for start, end in sorted({span.at for span in times}, reverse=True):
        text = f"{text[:start]} {text[end:]}"
    return text


def dates_in_digits(times: Sequence[TimeSpan]) -> list[TimeSpan]:
    """Return the times that are written in digits, such as ``2026-01-06``, which also occur in logs and file names."""
    return [span for span in times if _DIGITS.search(span.words)]


def list_latest(places: Sequence[SearchedStore], spans: Sequence[tuple[int, int]], limit: int) -> list[RankedAnswer]:
    """Return the latest turns within some times, with duplicates grouped and sessions mixed."""
    answers = collapsed(latest_answers(places, spans, max(LISTED, 4 * limit)), 0)
    if all(place.scope.session is None for place in places):
        answers = mixed(answers, lambda one: one.chunk.session_id)
    for number, one in enumerate(answers, 1):
        one.score = 1.0 / number
    return answers


def list_showing(places: Sequence[SearchedStore], pictures: str, limit: int) -> list[RankedAnswer]:
    """Return the latest turns that contain all of some symbols, such as emoji, separated by white space."""
    showing = SearchScope()
    for picture in sorted({word.replace("\ufe0f", "") for word in pictures.split()}):
        showing &= contains_text(picture)
    return list_latest([replace(place, scope=place.scope & showing) for place in places], [EVER], limit)
