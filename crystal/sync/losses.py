"""What the relay confirmed and does not have: said at both ends, as long as it lasts. It is sent again."""

from __future__ import annotations

from crystal.store import Store
from crystal.store.problems import clear_problem, find_problem, record_problem

LOST = "relay loses"
LOST_MIRROR = "relay loses the mirror"
MESSAGES = ("message", "messages")
LOST_ROOMS = (LOST, LOST_MIRROR)
"""Under which names it is written down."""


def note_losses(store: Store, room: str, count: int, things: tuple[str, str], now: int) -> str | None:
    """Write down how many things the relay confirmed and does not have; none ends what was written down.

    Args:
        store: This machine's store.
        room: ``LOST`` or ``LOST_MIRROR``.
        count: How many.
        things: What they are called, one and several.
        now: The time, ms.

    Returns:
        The same in words, None if there is nothing to say.
    """
    if not count:
        clear_problem(store, room)
        return None
    one, several = things
    words = f"the relay confirmed {count:,} {one if count == 1 else several} but does not have "
    words += "it; it is sent again" if count == 1 else "them; they are sent again"
    record_problem(store, room, words, now)
    return words


def is_first(store: Store, room: str) -> bool:
    """Return True if something is lost that was not lost the time before."""
    problem = find_problem(store, room)
    return problem is not None and problem.tries == 1
