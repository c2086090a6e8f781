"""From answers in order to the list that is shown: near-duplicates behind the best of them, no session before all else.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from crystal.search.ranking.late import is_near
from crystal.search.results import RankedAnswer

FROM_ONE_SESSION = 3
"""After so many hits of one session, the next one comes from another, if any other has one."""
LOOK_AHEAD = 400
"""How far down another session's hit is looked for."""

Item = TypeVar("Item")


def mixed(items: Sequence[Item], session_of: Callable[[Item], Hashable | None], first: int = 0) -> list[Item]:
    """Put the best of other sessions between the many hits of one.

    Each session may show three hits; then one of another session must come before each further one. What has no
    session (None) stands where it stood, and so do the ``first`` ones.
    """
    rest = list(items)
    shown: dict[Hashable, int] = {}
    out: list[Item] = []
    if len({session_of(one) for one in rest}) < 2:
        return rest
    while rest:
        ahead = rest[:LOOK_AHEAD] if len(out) >= first else []
        at = next((at for at, one in enumerate(ahead) if _may(session_of(one), shown)), 0)
        one = rest.pop(at)
        session = session_of(one)
        full = [other for other, count in shown.items() if other != session and count >= FROM_ONE_SESSION]
        shown.update(dict.fromkeys(full, FROM_ONE_SESSION - 1))
        if session is not None:
            shown[session] = shown.get(session, 0) + 1
        out.append(one)
    return out


def _may(session: Hashable | None, shown: dict[Hashable, int]) -> bool:
    return session is None or shown.get(session, 0) < FROM_ONE_SESSION


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
            first = next((other for other in kept if _nearly_same(other, one)), None)
        by_text.setdefault(name, first or one)
        if first is None:
            kept.append(one)
        else:
            first.similar += 1
    return kept


def _nearly_same(one: RankedAnswer, other: RankedAnswer) -> bool:
    return one.chunk.role == other.chunk.role and is_near(one.tokens, other.tokens)
