"""Hits with the turns around them: enough to understand them without opening the session."""

from __future__ import annotations

from dataclasses import replace

from crystal.model.recall import Filters, Hit, Neighbour
from crystal.search.results import Order
from crystal.store.search.surroundings import Said, around

SURROUNDED = 100
"""So many hits get what was said around them."""
CHARACTERS = 240
"""So much of it."""


def surrounded_hits(order: Order, limit: int, now: int, filters: Filters) -> tuple[Hit, ...]:
    """Return the first hits of an order with the turns around them, which obey the time filters too."""
    return tuple(_surrounded(order, at, now, filters) for at in range(min(limit, len(order.fused))))


def _surrounded(order: Order, at: int, now: int, filters: Filters) -> Hit:
    fused = order.fused[at]
    hit, (where, ident) = order.hit(fused, now), order.shown[fused.key]
    turn = order.details[where, ident].turn
    if turn is None or at >= SURROUNDED:
        return hit
    store = order.proposals[where].side.store
    before, after = around(store, turn, since=filters.since, before=filters.before)
    return replace(hit, before=_neighbour(before, end=True), after=_neighbour(after, end=False))


def _neighbour(said: Said | None, *, end: bool) -> Neighbour | None:
    """Return the end of the text before a hit, or the beginning of the text after it, as one line."""
    if said is None:
        return None
    role, text, uuid, ts = said
    line = " ".join((text[-2 * CHARACTERS :] if end else text[: 2 * CHARACTERS]).split())
    if len(line) > CHARACTERS:
        line = f"... {line[-CHARACTERS:]}" if end else f"{line[:CHARACTERS]} ..."
    return Neighbour(role, line, uuid, ts)
