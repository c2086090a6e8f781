"""What was said last: where a time alone is asked for, or a picture, which no engine knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from crystal.search.ranking.listing import collapsed, mixed
from crystal.search.results import MemorySource, Order, Unit, latest_order
from crystal.search.rrf import Fused
from crystal.store.search.candidates import Candidate, contains_text
from crystal.store.search.scope import Scope
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


def listed_latest(places: Sequence[tuple[MemorySource, Scope]], spans: Sequence[tuple[int, int]], limit: int) -> Order:
    """Return the latest turns of some times; duplicates are grouped, and no session crowds out the others."""
    order = latest_order(places, spans, max(LISTED, 4 * limit))

    def one(answer: Fused[Unit]) -> Candidate:
        return order.details[order.shown[answer.key]]

    kept = collapsed(order.fused, lambda it: (one(it).role, one(it).text_sha256), lambda _one, _other: False, 0)
    answers = [first for first, _ in kept]
    if all(scope.session is None for _, scope in places):
        answers = mixed(answers, lambda it: one(it).session_id)
    fused = [replace(it, score=1.0 / place) for place, it in enumerate(answers, 1)]
    return replace(order, fused=fused, similar={first.key: len(others) for first, others in kept})


def showing_order(places: Sequence[tuple[MemorySource, Scope]], pictures: str, limit: int) -> Order:
    """Return the latest turns that have all of some pictures, which white space separates."""
    showing = Scope()
    for picture in sorted({word.replace("\ufe0f", "") for word in pictures.split()}):
        showing &= contains_text(picture)
    return listed_latest([(side, scope & showing) for side, scope in places], [EVER], limit)
