"""Read a session that goes on with one that was handed over, with what it repeats only as a quotation.

A session that crystal writes for another agent quotes what tools did and what was too old to go along, and capture
leaves quotations out. The session that it goes on with has both.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, takewhile

from crystal.sessions.reading import MEMORIES, Conversation, ShownTurn, ShowTarget, find_target, read
from crystal.store import Store
from crystal.store.sessions.conversations import find_session_row, said_elsewhere

_TOOLS = frozenset(("tool_call", "tool_result"))


def read_whole(stores: Sequence[Store], session: str, behind: frozenset[str] = frozenset()) -> Conversation:
    """Read a session, with what it leaves out of those that it goes on with.

    Args:
        stores: This machine's own store, and the mirror's if it exists. The other session may be in one of them only.
        session: The session's complete id.
        behind: Sessions that go on with it, not asked again: two stores may have two sessions in opposite orders.
    """
    for at, (memory, store) in enumerate(zip(MEMORIES, stores, strict=False)):
        row = find_session_row(store, session)
        found = Conversation(None, ()) if row is None else read(stores, ShowTarget(row, memory=memory))
        names = [turn.uuid for turn in found.turns if turn.uuid is not None]
        told = chain.from_iterable(said_elsewhere(one, names, session) for one in reversed(stores[at:]))
        said_in = {line: other for line, other in told if other not in behind}
        copied = [(turn.role, said_in[turn.uuid]) for turn in found.turns if turn.uuid in said_in]
        if copied and not any(role in _TOOLS for role, _ in copied):  # an agent's own fork repeats those too
            before = read_whole(stores, copied[-1][1], behind | {session}).turns
            return replace(found, turns=_joined(before, found.turns))
    return read(stores, find_target(stores, session))


def _joined(before: Sequence[ShownTurn], turns: Sequence[ShownTurn]) -> tuple[ShownTurn, ...]:
    """Return the turns of a session after those that go before them in the session that it goes on with."""
    here = {_name(turn) for turn in turns}
    repeated = [at for at, turn in enumerate(before) if _name(turn) in here]
    if not repeated:
        return tuple(turns)
    first, end = repeated[0], repeated[-1] + 1
    end += len([*takewhile(lambda turn: turn.role in _TOOLS, before[end:])])
    begun = [turn for at, turn in enumerate(before[:end]) if at < first or _name(turn) in here or turn.role in _TOOLS]
    known = {_name(turn) for turn in begun}
    return (*begun, *(turn for turn in turns if _name(turn) not in known))


def _name(turn: ShownTurn) -> tuple[str | None, int]:
    """Return what tells a turn in every memory."""
    return turn.uuid, turn.part
