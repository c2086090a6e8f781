"""From answers in order to the list that is shown: near-duplicates behind the best of them, no session before all else.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

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


def collapsed(
    items: Sequence[Item], same: Callable[[Item], Hashable], is_near: Callable[[Item, Item], bool], most: int
) -> list[tuple[Item, list[Item]]]:
    """Keep the first of items that are nearly the same, with the others it stands for.

    Args:
        items: In their order.
        same: What is equal for items that are the same.
        is_near: Whether two items are nearly the same.
        most: Only so many items, the first ones, are compared by ``is_near``.
    """
    kept: list[tuple[Item, list[Item]]] = []
    by_name: dict[Hashable, list[Item]] = {}
    for at, one in enumerate(items):
        others = by_name.get(same(one))
        if others is None and at < most:
            others = next((others for first, others in kept if is_near(first, one)), None)
        if others is None:
            others = by_name[same(one)] = []
            kept.append((one, others))
        else:
            others.append(one)
    return kept
