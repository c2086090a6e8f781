"""Record what the relay confirmed but lost, for the status on both sides. The lost data is sent again."""

from __future__ import annotations

from crystal.store import Store
from crystal.store.problems import clear_problem, find_problem, record_problem

LOST = "relay loses"
LOST_MIRROR = "relay loses the mirror"
MESSAGES = ("message", "messages")
LOST_PARTS = (LOST, LOST_MIRROR)
"""Names of the records."""


def note_losses(store: Store, part: str, count: int, things: tuple[str, str], now: int) -> str | None:
    """Record how many things the relay confirmed but does not have; 0 deletes the record.

    Args:
        store: This machine's store.
        part: ``LOST`` or ``LOST_MIRROR``.
        count: The number of lost things.
        things: Their names, singular and plural.
        now: The time, ms.

    Returns:
        The message, or None if nothing is lost.
    """
    if not count:
        clear_problem(store, part)
        return None
    one, several = things
    words = f"the relay confirmed {count:,} {one if count == 1 else several} but does not have "
    words += "it; it is sent again" if count == 1 else "them; they are sent again"
    record_problem(store, part, words, now)
    return words


def is_first(store: Store) -> bool:
    """Return True if messages are lost and none were lost before."""
    problem = find_problem(store, LOST)
    return problem is not None and problem.tries == 1
