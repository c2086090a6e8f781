"""What was said last: where a time alone is asked for, or a picture, which no engine knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from crystal.search.ranking.listing import collapsed, mixed
from crystal.search.results import RankedAnswer, SearchedStore, latest_answers
from crystal.store.search.candidates import contains_text
from crystal.store.search.scope import SearchScope
from crystal.text.query import Query, has_content
from crystal.timewords import TimeSpan

LISTED = 200
"""So many answers are looked at, at least."""
EVER = (-(1 << 62), 1 << 62)


def is_time_alone(asked: Query, times: Sequence[TimeSpan]) -> bool:
    """Return True if nothing but a time is asked for: ``what did we do yesterday``."""
    if not times or asked.phrases:
        return False
    rest = asked.text
    for start, end in sorted({span.at for span in times}, reverse=True):
        rest = f"{rest[:start]} {rest[end:]}"
    return not has_content(rest)


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
