"""Read one conversation in order, a hit with its surroundings, or the list of sessions.

A target may be a session id or its unique prefix, a hit's number, or the uuid of a transcript line. A mirror of home's
memory is used as well: a session that is in both is read where it has more turns, from this machine's own memory if
they are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

from crystal.errors import NotFound, UsageProblem
from crystal.memories.rules import is_memory_id
from crystal.model.capture import MIRROR_IDS, Memory, parse_hit_name
from crystal.model.recall import Filters
from crystal.store import Store
from crystal.store.memories.memories import first_chunk, memory_of_chunk
from crystal.store.search.candidates import candidates
from crystal.store.search.scope import project_ids, scope_of, session_matches
from crystal.store.sessions.conversations import (
    SessionRow,
    TurnRow,
    chunk_of_uuid,
    count_turns,
    first_words,
    has_session,
    list_sessions,
    place_of_chunk,
    session_row,
    session_turns,
    turn_texts,
)

TITLE_CHARACTERS = 200
_SHOWN = 8


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """Session as a list entry.

    ``title`` is the given one, the summary's, or the user's first words; empty if there are none.
    """

    id: str
    title: str
    project: str | None
    cwd: str | None
    branch: str | None
    agent: str
    device: str
    started_at: int | None
    last_at: int | None
    turns: int
    memory: Memory = "local"


@dataclass(frozen=True, slots=True)
class ShownTurn:
    """Turn with its text; ``hit`` is its number for ``show``, ``focus`` is True for the requested turn.

    ``full_length`` (characters) exceeds the length of the text if the middle of a long tool result is in the archive
    only. ``uuid`` is None for turns that are not from a transcript.
    """

    hit: int
    uuid: str | None
    part: int
    role: str
    text: str
    timestamp: int | None
    tool: str | None = None
    subagent: str | None = None
    branch: str | None = None
    message_id: str | None = None
    model: str | None = None
    full_length: int = 0
    copied: bool = False
    focus: bool = False


@dataclass(frozen=True, slots=True)
class Conversation:
    """Turns in conversation order, and the session that they belong to, or None."""

    session: SessionSummary | None
    turns: tuple[ShownTurn, ...]


@dataclass(frozen=True, slots=True)
class Target:
    """Target of ``show``: a session, or a chunk of one, as row ids of the memory that has it."""

    session: int | None
    chunk: int | None = None
    memory: Memory = "local"


def sessions(
    store: Store,
    *,
    project: str | None = None,
    since: int | None = None,
    before: int | None = None,
    limit: int = 20,
    mirror: Store | None = None,
) -> tuple[list[SessionSummary], tuple[str, ...]]:
    """List sessions, newest first, and say why the list is empty for an unknown project.

    Args:
        store: The store.
        project: Only this project: a name, or a folder and all below it.
        since: Only sessions active at this time or later.
        before: Only sessions that began before this time.
        limit: Maximum number of sessions.
        mirror: The mirror of home's memory.

    Raises:
        UsageProblem: ``limit`` is not positive.
    """
    if limit < 1:
        raise UsageProblem(f"the number of sessions is {limit}", hint="use 1 or more")
    own, notes = _sessions(store, project, since, before, limit)
    if mirror is None:
        return own, notes
    theirs, their_notes = _sessions(mirror, project, since, before, limit)
    found = {one.id: one for one in own}
    for one in theirs:
        known = found.get(one.id) or _session_in(store, one.id)
        if known is None or known.turns < one.turns:
            found[one.id] = replace(one, memory="mirror")
        else:
            found[one.id] = known
    both = sorted(found.values(), key=lambda one: (one.last_at is None, -(one.last_at or 0)))[:limit]
    return both, () if both or not (notes and their_notes) else notes


def _sessions(
    store: Store, project: str | None, since: int | None, before: int | None, limit: int
) -> tuple[list[SessionSummary], tuple[str, ...]]:
    with store.reading():
        ids = None if project is None else project_ids(store, project)
        if ids == []:
            return [], scope_of(store, Filters(project=project)).notes
        rows = list_sessions(store, projects=ids, since=since, before=before, limit=min(limit, 2**31))
        return [_summary(store, row) for row in rows], ()


def _session_in(store: Store, session_id: str) -> SessionSummary | None:
    """Return a session that a list left out, because others are newer or because it is empty."""
    matches = session_matches(store, session_id, 1) if has_session(store, session_id) else []
    row = session_row(store, matches[0][0]) if matches else None
    return None if row is None else _summary(store, row)


def find_session(store: Store, wanted: str) -> str:
    """Return the complete session id for an id or its prefix.

    Raises:
        UsageProblem: It matches none, or several.
    """
    return _one_session(store, wanted)[1]


def find_target(store: Store, wanted: str, *, mirror: Store | None = None) -> Target:
    """Find a target: a complete session id, a hit's number, a line's uuid, or a prefix of a session id.

    Raises:
        UsageProblem: It is none of these, or a prefix of several session ids.
    """
    wanted = wanted.strip()
    if is_memory_id(wanted):
        return _memory_target(store, mirror, wanted.lower())
    if mirror is None:
        return _target(store, wanted) or Target(_one_session(store, wanted)[0])
    is_session = has_session(store, _storable(wanted)) or has_session(mirror, _storable(wanted))
    number = None if is_session else _mirror_number(wanted)
    if number is not None and (place := place_of_chunk(mirror, number)) is not None:
        return Target(place.session, place.chunk, "mirror")
    found = _target(store, wanted)
    if found is None and (theirs := _target(mirror, wanted, numbers=False)) is not None:
        found = replace(theirs, memory="mirror")
    return found or _session_of_either(store, mirror, wanted)


def _memory_target(store: Store, mirror: Store | None, wanted: str) -> Target:
    """Return the first chunk of a memory; deprecated memories are not found here."""
    for place, memory in ((store, "local"), (mirror, "mirror")):
        chunk = None if place is None else first_chunk(place, wanted)
        if chunk is not None:
            return Target(None, chunk, cast("Memory", memory))
    raise NotFound(f"no memory {wanted!r} that is active", hint="list them: crystal memories --status all")


def _target(store: Store, wanted: str, *, numbers: bool = True) -> Target | None:
    """Return a hit, unless a session has exactly this id."""
    if has_session(store, _storable(wanted)):
        return None
    chunk = parse_hit_name(wanted) if numbers else None
    place = None if chunk is None else place_of_chunk(store, chunk)
    if place is None and (found := chunk_of_uuid(store, _storable(wanted))) is not None:
        place = place_of_chunk(store, found)
    return None if place is None else Target(place.session, place.chunk)


def _mirror_number(wanted: str) -> int | None:
    """Return the id in the mirror of a hit named ``m17``, or by its assigned number."""
    number = parse_hit_name(wanted)
    return None if number is None or number <= MIRROR_IDS else number - MIRROR_IDS


def _session_of_either(store: Store, mirror: Store, wanted: str) -> Target:
    """Return the session that an id or its prefix names, in the memory that has more of it."""
    ident = _storable(wanted.removesuffix(".jsonl"))
    own, theirs = (dict(_flipped(session_matches(one, ident, _SHOWN + 1))) for one in (store, mirror))
    names = [name for name in {**own, **theirs} if name == ident] or [*{**own, **theirs}]
    _check_one(names, wanted)
    row, their_row = own.get(names[0]), theirs.get(names[0])
    if row is None and names[0] not in own and has_session(store, names[0]):
        row = dict(_flipped(session_matches(store, names[0])))[names[0]]
    if their_row is None or (row is not None and count_turns(store, row) >= count_turns(mirror, their_row)):
        return Target(row)
    return Target(their_row, memory="mirror")


def _flipped(matches: Sequence[tuple[int, str]]) -> list[tuple[str, int]]:
    return [(name, row) for row, name in matches]


def target_memory(store: Store, target: Target, *, mirror: Store | None = None) -> str | None:
    """Return the id of the memory that a target belongs to, None for conversation."""
    place = mirror if target.memory == "mirror" and mirror is not None else store
    one = None if target.chunk is None else memory_of_chunk(place, target.chunk)
    return None if one is None else one.id


def read(store: Store, target: Target, *, context: int = 2, mirror: Store | None = None) -> Conversation:
    """Read a whole session, or a hit's turn with ``context`` turns before and after it in the same thread."""
    if target.memory == "mirror" and mirror is not None:
        found = _read(mirror, target, context)
        turns = tuple(replace(turn, hit=turn.hit + MIRROR_IDS) for turn in found.turns)
        session = None if found.session is None else replace(found.session, memory="mirror")
        return Conversation(session, turns)
    return _read(store, target, context)


def _read(store: Store, target: Target, context: int) -> Conversation:
    with store.reading():
        row = None if target.session is None else session_row(store, target.session)
        session = None if row is None else _summary(store, row)
        if target.chunk is None:
            return Conversation(session, _shown(store, [] if row is None else session_turns(store, row.row), None))
        place = place_of_chunk(store, target.chunk)
        if place is None or place.turn is None or row is None:
            return Conversation(session, _lone(store, target.chunk))
        turns = session_turns(store, row.row)
        subagent = next((turn.subagent for turn in turns if turn.id == place.turn), None)
        thread = [turn for turn in turns if turn.subagent == subagent]
        at = next(at for at, turn in enumerate(thread) if turn.id == place.turn)
        around = thread[max(0, at - max(0, context)) : at + max(0, context) + 1]
        return Conversation(session, _shown(store, around, place.turn))


def _one_session(store: Store, wanted: str) -> tuple[int, str]:
    matches = session_matches(store, _storable(wanted.strip().removesuffix(".jsonl")), _SHOWN + 1)
    _check_one([session for _, session in matches], wanted)
    return matches[0]


def _check_one(names: Sequence[str], wanted: str) -> None:
    if not names:
        raise NotFound(f"there is no session or hit {wanted!r}", hint="run: crystal sessions")
    if len(names) > 1:
        ids = ", ".join(names[:_SHOWN])
        more = ", ..." if len(names) > _SHOWN else ""
        raise UsageProblem(f"{wanted!r} is the beginning of several sessions: {ids}{more}", hint="use more of the id")


def _storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _summary(store: Store, row: SessionRow) -> SessionSummary:
    title = row.title or " ".join((first_words(store, row.row, TITLE_CHARACTERS) or "").split())
    return SessionSummary(
        row.id, title, row.project, row.cwd, row.branch, row.agent, row.device, row.started_at, row.last_at,
        count_turns(store, row.row),
    )  # fmt: skip


def _shown(store: Store, turns: Sequence[TurnRow], focus: int | None) -> tuple[ShownTurn, ...]:
    texts = turn_texts(store, [turn.id for turn in turns])
    return tuple(
        ShownTurn(
            hit=texts[turn.id][0], uuid=turn.uuid, part=turn.part, role=turn.role, text=texts[turn.id][1],
            timestamp=turn.ts, tool=turn.tool, subagent=turn.subagent, branch=turn.branch, message_id=turn.message_id,
            model=turn.model, full_length=turn.full_length, copied=bool(turn.copied), focus=turn.id == focus,
        )
        for turn in turns if turn.id in texts
    )  # fmt: skip


def _lone(store: Store, chunk: int) -> tuple[ShownTurn, ...]:
    """Return a chunk that belongs to no turn."""
    one = candidates(store, [chunk]).get(chunk)
    if one is None:
        return ()
    memory = memory_of_chunk(store, chunk)
    text = one.text if memory is None else memory.text
    return (ShownTurn(one.id, one.uuid, 0, one.role, text, one.ts, focus=True, full_length=len(text)),)
