"""Make the shown list from ranked answers: group near-duplicates after the best one, and mix sessions.

Also what was said last: where a time alone is asked for, or a picture, which no engine knows.
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
"""After so many hits of one session, the next one comes from another, if any other has one."""
LOOK_AHEAD = 400
"""Number of ranks that are searched for another session's hit."""

_DIGITS = re.compile(r"\d[-./]\d")

Item = TypeVar("Item")


def mixed(items: Sequence[Item], session_of: Callable[[Item], Hashable], first: int = 0) -> list[Item]:
    """Put the best of other sessions between the many hits of one.

    Each session may show three hits; then one of another session must come before each further one. What has no
    session (None) stays where it was, and so do the ``first`` ones.
    """
    if len({session_of(one) for one in items}) < 2:
        return list(items)
    coming = iter(items)
    ahead = deque(islice(coming, LOOK_AHEAD))
    waiting = deque[Item]()  # those of one session that was full, before the others
    shown: dict[Hashable, int] = {}
    full: Hashable = None  # the session that has to wait; never two, as each further hit lets the other on
    out: list[Item] = []
    while ahead or waiting:
        is_full = full is not None and len(out) >= first
        if waiting and not (is_full and session_of(waiting[0]) == full):
            one = waiting.popleft()
        else:
            while is_full and ahead and session_of(ahead[0]) == full:
                waiting.append(ahead.popleft())
            one = (ahead or waiting).popleft()
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


def collapsed(answers: Sequence[RankedAnswer], most: int) -> list[RankedAnswer]:
    """Keep the first of answers with nearly the same text by the same role, and count the others.

    Args:
        answers: In their order.
        most: Only so many answers, the first ones, are compared by their tokens; all by their whole text.
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
"""Minimum number of answers that are looked at."""
EVER = (-(1 << 62), 1 << 62)


def is_time_alone(asked: Query, times: Sequence[TimeSpan]) -> bool:
    """Return True if nothing but a time is asked for: ``what did we do yesterday``."""
    return bool(times) and not asked.phrases and not has_content(without_times(asked.text, times))


def without_times(text: str, times: Sequence[TimeSpan]) -> str:
    """Return a question without the words of some of its times."""
    for start, end in sorted({span.at for span in times}, reverse=True):
        text = f"{text[:start]} {text[end:]}"
    return text


def dates_in_digits(times: Sequence[TimeSpan]) -> list[TimeSpan]:
    """Return the times that are written as ``2026-01-06``, as logs and file names do and people seldom."""
    return [span for span in times if _DIGITS.search(span.words)]


def list_latest(places: Sequence[SearchedStore], spans: Sequence[tuple[int, int]], limit: int) -> list[RankedAnswer]:
    """Return the latest turns of some times; duplicates are grouped, and no session crowds out the others."""
    answers = collapsed(latest_answers(places, spans, max(LISTED, 4 * limit)), 0)
    if all(place.scope.session is None for place in places):
        answers = mixed(answers, lambda one: one.chunk.session_id)
    for number, one in enumerate(answers, 1):
        one.score = 1.0 / number
    return answers


def list_showing(places: Sequence[SearchedStore], pictures: str, limit: int) -> list[RankedAnswer]:
    """Return the latest turns that have all of some pictures, which white space separates."""
    showing = SearchScope()
    for picture in sorted({word.replace("\ufe0f", "") for word in pictures.split()}):
        showing &= contains_text(picture)
    return list_latest([replace(place, scope=place.scope & showing) for place in places], [EVER], limit)
