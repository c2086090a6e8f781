"""Read a session that continues another one after a handoff, including what it contains only as a quotation.

A session that crystal writes for another agent quotes tool calls and old turns, and capture leaves out quotations.
Together with the session that it continues, it is complete.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, takewhile

from crystal.sessions.reading import MEMORIES, Conversation, ShownTurn, ShowTarget, find_target, read
from crystal.store import Store
from crystal.store.sessions.conversations import find_session_row, lines_of_other_sessions

_TOOLS = frozenset(("tool_call", "tool_result"))


def read_whole(stores: Sequence[Store], session: str, behind: frozenset[str] = frozenset()) -> Conversation:
    """Read a session, with the turns of the sessions that it continues and does not contain itself.

    Args:
        stores: This machine's own store, and the mirror's if it exists. Only one of them may have the other session.
        session: The session's complete id.
        behind: Sessions that continue it and are ignored, because two stores may order two sessions differently.
    """
    for at, (memory, store) in enumerate(zip(MEMORIES, stores, strict=False)):
        row = find_session_row(store, session)
        found = Conversation(None, ()) if row is None else read(stores, ShowTarget(row, memory=memory))
        names = [turn.uuid for turn in found.turns if turn.uuid is not None]
        told = chain.from_iterable(lines_of_other_sessions(one, names, session) for one in reversed(stores[at:]))
        said_in = {line: other for line, other in told if other not in behind}
        copied = [(turn.role, said_in[turn.uuid]) for turn in found.turns if turn.uuid in said_in]
        if copied and not any(role in _TOOLS for role, _ in copied):  # an agent's own fork also repeats tool calls
            before = read_whole(stores, copied[-1][1], behind | {session}).turns
            return replace(found, turns=_with_origin(before, found.turns))
    return read(stores, find_target(stores, session))


def _with_origin(before: Sequence[ShownTurn], turns: Sequence[ShownTurn]) -> tuple[ShownTurn, ...]:
    """Return the turns of a session after the preceding turns of the session that it continues."""
    here = {_id_of(turn) for turn in turns}
    repeated = [at for at, turn in enumerate(before) if _id_of(turn) in here]
    if not repeated:
        return tuple(turns)
    first, end = repeated[0], repeated[-1] + 1
    end += len([*takewhile(lambda turn: turn.role in _TOOLS, before[end:])])
    begun = [turn for at, turn in enumerate(before[:end]) if at < first or _id_of(turn) in here or turn.role in _TOOLS]
    known = {_id_of(turn) for turn in begun}
    return (*begun, *(turn for turn in turns if _id_of(turn) not in known))


def _id_of(turn: ShownTurn) -> tuple[str | None, int]:
    """Return the identity of a turn, the same in every memory."""
    return turn.uuid, turn.part
