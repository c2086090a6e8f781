"""Read a session that goes on with one that was handed over, with what it repeats only as a quotation.

A session that crystal writes for another agent quotes what tools did and what was too old to go along, and capture
leaves quotations out. The session that it goes on with has both.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile

from crystal.sessions.reading import MEMORIES, Conversation, ShownTurn, ShowTarget, find_target, read
from crystal.store import Store
from crystal.store.sessions.conversations import find_session_row

_TOOLS = frozenset(("tool_call", "tool_result"))


def read_whole(stores: Sequence[Store], session: str) -> Conversation:
    """Read a session, with what it leaves out of those that it goes on with.

    Args:
        stores: This machine's own store, and the mirror's if it exists. The other session may be in one of them only.
        session: The session's complete id.
    """
    rows = [(memory, find_session_row(store, session)) for memory, store in zip(MEMORIES, stores, strict=False)]
    both = [read(stores, ShowTarget(row, memory=memory)) for memory, row in rows if row is not None]
    for found in both:
        copied = [turn for turn in found.turns if turn.copied]
        if copied and not any(turn.role in _TOOLS for turn in copied):  # an agent's own fork repeats those too
            said_in = read(stores, find_target(stores, str(copied[-1].hit))).session
            if said_in is not None and said_in.id != session:
                before = read_whole(stores, said_in.id).turns
                return replace(found, turns=_joined(before, found.turns))
    return read(stores, find_target(stores, session))


def _joined(before: Sequence[ShownTurn], turns: Sequence[ShownTurn]) -> tuple[ShownTurn, ...]:
    """Return the turns of a session after those that go before them in the session that it goes on with."""
    here = {turn.hit for turn in turns}
    repeated = [at for at, turn in enumerate(before) if turn.hit in here]
    if not repeated:
        return tuple(turns)
    first, end = repeated[0], repeated[-1] + 1
    end += len([*takewhile(lambda turn: turn.role in _TOOLS, before[end:])])
    begun = [turn for at, turn in enumerate(before[:end]) if at < first or turn.hit in here or turn.role in _TOOLS]
    known = {turn.hit for turn in begun}
    return (*begun, *(turn for turn in turns if turn.hit not in known))
