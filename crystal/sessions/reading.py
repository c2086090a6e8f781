"""Read one conversation in order, a hit with its surroundings, or the list of sessions.

A target may be a session id or its unique prefix, a hit's number, or the uuid of a transcript line. A mirror of home's
memory is used as well: of a session in both, the memory with more turns is read, this machine's own if they are equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from crystal.errors import NotFoundError, UsageError
from crystal.memories.rules import is_memory_id
from crystal.model.capture import MIRROR_IDS, Memory, parse_hit_name, storable
from crystal.model.recall import Filters, Validity
from crystal.model.sources import FilePlace, shown_text
from crystal.store import Store
from crystal.store.memories.memories import first_chunk, memory_of_chunk
from crystal.store.search.candidates import candidates, chunks_around, texts_of
from crystal.store.search.scope import agents_named, project_ids, scope_of, session_matches
from crystal.store.sessions import conversations
from crystal.store.sessions.sessions import session_named
from crystal.store.sessions.turn_texts import turn_texts
from crystal.summarize.wording import without_introduction

MEMORIES: tuple[Memory, ...] = ("local", "mirror")
"""Name the memories of a sequence of stores, in its order."""
TITLE_CHARACTERS = 200
STREAMED_TURNS = 200
_SHOWN = 8


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """A session as a list entry.

    ``title`` is the given one, the summary's, or the user's first words; empty if there are none. ``opening`` are the
    user's first words.
    """

    id: str
    title: str
    project: str | None
    cwd: str | None
    branch: str | None
    agent: str
    harness: str
    device: str
    started_at: int | None
    last_at: int | None
    turns: int
    memory: Memory = "local"
    opening: str = ""


@dataclass(frozen=True, slots=True)
class ShownTurn:
    """A turn with its text; ``hit`` is its number for ``show``, ``focus`` is True for the requested turn.

    ``full_length`` (characters) exceeds the length of the text if the middle of a long tool result is only in the
    archive. ``uuid`` is None for turns that are not from a transcript; ``file`` is the place of a source's text, and
    ``validity`` says whether what the requested turn names has changed since.
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
    file: FilePlace | None = None
    validity: Validity | None = None


@dataclass(frozen=True, slots=True)
class Conversation:
    """Turns in conversation order, and the session that they belong to, or None."""

    session: SessionSummary | None
    turns: tuple[ShownTurn, ...]


@dataclass(frozen=True, slots=True)
class SessionPage:
    """A page of a session's turns, of ``total``; ``start`` turns are before it."""

    session: SessionSummary
    turns: tuple[ShownTurn, ...]
    start: int
    total: int


@dataclass(frozen=True, slots=True)
class ShowTarget:
    """The target of ``show``: a session, or a chunk of one, as row ids of the memory that contains it."""

    session: int | None
    chunk: int | None = None
    memory: Memory = "local"


def sessions(
    stores: Sequence[Store],
    *,
    project: str | None = None,
    agent: str | None = None,
    since: int | None = None,
    before: int | None = None,
    limit: int = 20,
) -> tuple[list[SessionSummary], tuple[str, ...]]:
    """List sessions, newest first; also explain an empty list for an unknown project or agent.

    Args:
        stores: This machine's own store, and the mirror's if there is one.
        project: Only this project: a name, or a folder and all below it.
        agent: Only this agent: the name of an agent program, or crystal's id.
        since: Only sessions active at this time or later.
        before: Only sessions that began before this time.
        limit: Maximum number of sessions.

    Raises:
        UsageError: ``limit`` is not positive.
    """
    if limit < 1:
        raise UsageError(f"the number of sessions is {limit}", hint="use 1 or more")
    (own, *theirs), notes = zip(*(_sessions(one, project, agent, since, before, limit) for one in stores), strict=True)
    found = {one.id: one for one in own}
    for one in chain.from_iterable(theirs):
        known = found.get(one.id) or session_summary(stores[0], one.id)
        found[one.id] = known if known and known.turns >= one.turns else replace(one, memory="mirror")
    both = sorted(found.values(), key=lambda one: (one.last_at is None, -(one.last_at or 0)))[:limit]
    return both, notes[0] if all(notes) and not both else ()


def _sessions(
    store: Store, project: str | None, agent: str | None, since: int | None, before: int | None, limit: int
) -> tuple[list[SessionSummary], tuple[str, ...]]:
    with store.reading():
        ids = None if project is None else project_ids(store, project)
        agents = None if agent is None else agents_named(store, agent)
        if ids == [] or (agents and not agents[1]):
            return [], scope_of(store, Filters(project=project, agent=agent)).notes
        rows = conversations.list_sessions(
            store, projects=ids, agents=agents, since=since, before=before, limit=min(limit, 2**31)
        )
        return [_summary(store, row) for row in rows], ()


def session_summary(store: Store, session_id: str) -> SessionSummary | None:
    """Return one session, even an empty one, which lists omit."""
    row = session_named(store, session_id)
    return None if row is None else _summary(store, row)


def find_session(store: Store, wanted: str) -> str:
    """Return the complete session id for an id or its prefix.

    Raises:
        UsageError: It matches none, or several.
    """
    return _session_name([store], wanted)


def find_session_of(store: Store, wanted: str) -> str:
    """Return the complete session id for an id, its prefix, or a hit in it; see ``find_target``."""
    row = find_target([store], wanted).session
    session = None if row is None else conversations.session_row(store, row)
    if session is None:
        raise _no_session()
    return session.session_id


def _no_session() -> NotFoundError:
    return NotFoundError("this belongs to no session", hint="run: crystal sessions")


def find_target(stores: Sequence[Store], wanted: str) -> ShowTarget:
    """Find a target: a complete session id, a hit's number, a line's uuid, or a prefix of a session id.

    Raises:
        UsageError: It is none of these, or a prefix of several session ids.
    """
    wanted = wanted.strip()
    sides = dict(zip(MEMORIES, stores, strict=False))
    if is_memory_id(wanted):
        for memory, side in sides.items():
            chunk = first_chunk(side, wanted.lower())
            if chunk is not None:
                return ShowTarget(None, chunk, memory)
        # Deprecated memories are not found here.
        raise NotFoundError(f"no memory {wanted!r} that is active", hint="list them: crystal memories --status all")
    if all(conversations.find_session_row(side, storable(wanted)) is None for side in sides.values()):
        found = _hit(sides, wanted)
        if found is not None:
            return found
    name = _session_name(sides.values(), wanted)
    rows = {
        memory: row for memory, side in sides.items() if (row := conversations.find_session_row(side, name)) is not None
    }
    # The first memory, this machine's own, if they are equal.
    most = max(rows, key=lambda memory: conversations.count_turns(sides[memory], rows[memory]))
    return ShowTarget(rows[most], memory=most)


def _hit(sides: Mapping[Memory, Store], wanted: str) -> ShowTarget | None:
    """Return the hit with this number, or the line with this uuid."""
    number = parse_hit_name(wanted)
    if number is not None:
        memory: Memory = "mirror" if number > MIRROR_IDS else "local"
        place = conversations.place_of_chunk(sides[memory], number % MIRROR_IDS) if memory in sides else None
        if place is not None:
            return ShowTarget(place.session, place.chunk, memory)
    for memory, side in sides.items():
        chunk = conversations.chunk_of_uuid(side, storable(wanted))
        place = None if chunk is None else conversations.place_of_chunk(side, chunk)
        if place is not None:
            return ShowTarget(place.session, place.chunk, memory)
    return None


def _session_name(sides: Iterable[Store], wanted: str) -> str:
    """Return the session with an id or a prefix of it."""
    ident = storable(wanted.strip().removesuffix(".jsonl"))
    names = list(dict.fromkeys(name for side in sides for _, name in session_matches(side, ident, _SHOWN + 1)))
    if ident in names:
        return ident
    if not names:
        raise NotFoundError(f"there is no session or hit {wanted!r}", hint="run: crystal sessions")
    if len(names) > 1:
        ids = ", ".join(names[:_SHOWN])
        more = ", ..." if len(names) > _SHOWN else ""
        raise UsageError(f"{wanted!r} is the beginning of several sessions: {ids}{more}", hint="use more of the id")
    return names[0]


def target_memory(stores: Sequence[Store], target: ShowTarget) -> str | None:
    """Return the id of the memory to which a target belongs, or None for a conversation."""
    one = None if target.chunk is None else memory_of_chunk(store_of(stores, target.memory), target.chunk)
    return None if one is None else one.id


def store_of(stores: Sequence[Store], memory: Memory) -> Store:
    """Return the store of a memory."""
    return stores[MEMORIES.index(memory)]


def read(stores: Sequence[Store], target: ShowTarget, *, context: int = 2) -> Conversation:
    """Read a whole session, or a hit's turn with ``context`` turns before and after it in the same thread."""
    found = _read(store_of(stores, target.memory), target, context)
    session = None if found.session is None else replace(found.session, memory=target.memory)
    return Conversation(session, _numbered_for(target.memory, found.turns))


def read_page(stores: Sequence[Store], target: ShowTarget, *, start: int | None, limit: int) -> SessionPage:
    """Read ``limit`` turns of a session: from ``start`` on, or if it is None, the page with the target's turn.

    Raises:
        NotFoundError: The target is in no session.
    """
    place = store_of(stores, target.memory)
    with place.reading():
        row = None if target.session is None else conversations.session_row(place, target.session)
        if row is None:
            raise _no_session()
        focus = None if target.chunk is None else conversations.place_of_chunk(place, target.chunk)
        turn = None if focus is None else focus.turn
        if start is None:
            before = 0 if turn is None else conversations.turns_before(place, row.id, turn)
            start = before - before % limit
        turns = _shown(place, conversations.turns_page(place, row.id, start, limit), turn)
        session = replace(_summary(place, row), memory=target.memory)
    return SessionPage(session, _numbered_for(target.memory, turns), start, session.turns)


def _numbered_for(memory: Memory, turns: Sequence[ShownTurn]) -> tuple[ShownTurn, ...]:
    """Return turns with the numbers for ``show``, which are higher in the mirror."""
    return tuple(turns) if memory == "local" else tuple(replace(turn, hit=turn.hit + MIRROR_IDS) for turn in turns)


def stream_turns(store: Store, session_id: str) -> Iterator[ShownTurn]:
    """Yield the turns of a session in order, with only ``STREAMED_TURNS`` of their texts in memory."""
    row = conversations.find_session_row(store, session_id)
    turns = [] if row is None else conversations.session_turns(store, row)
    for at in range(0, len(turns), STREAMED_TURNS):
        yield from _shown(store, turns[at : at + STREAMED_TURNS], None)


def _read(store: Store, target: ShowTarget, context: int) -> Conversation:
    with store.reading():
        row = None if target.session is None else conversations.session_row(store, target.session)
        session = None if row is None else _summary(store, row)
        if target.chunk is None:
            return Conversation(
                session, _shown(store, [] if row is None else conversations.session_turns(store, row.id), None)
            )
        place = conversations.place_of_chunk(store, target.chunk)
        if place is None or place.turn is None or row is None:
            return Conversation(session, _chunk_alone(store, target.chunk, context))
        turns = conversations.session_turns(store, row.id)
        subagent = next((turn.subagent for turn in turns if turn.id == place.turn), None)
        thread = [turn for turn in turns if turn.subagent == subagent]
        at = next(at for at, turn in enumerate(thread) if turn.id == place.turn)
        around = thread[max(0, at - max(0, context)) : at + max(0, context) + 1]
        return Conversation(session, _shown(store, around, place.turn))


def _summary(store: Store, row: conversations.Session) -> SessionSummary:
    said = conversations.first_words(store, row.id, TITLE_CHARACTERS) or ""
    opening = " ".join(without_introduction(said).split())
    return SessionSummary(
        row.session_id, row.title or opening, row.project, row.cwd, row.branch, row.agent, row.harness, row.device,
        row.started_at, row.last_at, conversations.count_turns(store, row.id), opening=opening,
    )  # fmt: skip


def _shown(store: Store, turns: Sequence[conversations.TurnRow], focus: int | None) -> tuple[ShownTurn, ...]:
    texts = turn_texts(store, [turn.id for turn in turns])
    return tuple(
        ShownTurn(
            hit=texts[turn.id][0], uuid=turn.uuid, part=turn.part, role=turn.role, text=texts[turn.id][1],
            timestamp=turn.ts, tool=turn.tool, subagent=turn.subagent, branch=turn.branch, message_id=turn.message_id,
            model=turn.model, full_length=turn.full_length, copied=bool(turn.copied), focus=turn.id == focus,
        )
        for turn in turns if turn.id in texts
    )  # fmt: skip


def _chunk_alone(store: Store, chunk: int, context: int) -> tuple[ShownTurn, ...]:
    """Return a chunk that belongs to no turn: of a memory, or of a file with ``context`` chunks on both sides."""
    memory = memory_of_chunk(store, chunk)
    ids = [chunk] if memory is not None else chunks_around(store, chunk, max(0, context)) or [chunk]
    found, said = candidates(store, ids), dict(texts_of(store, ids))
    shown = [found[ident] for ident in ids if ident in found]
    texts = [shown_text(one.file, said[one.id]) if memory is None else memory.text for one in shown]
    return tuple(
        ShownTurn(
            one.id, one.uuid, 0, one.role, text, one.ts, focus=one.id == chunk, full_length=len(text), file=one.file
        )
        for one, text in zip(shown, texts, strict=True)
    )
