"""Reading: one conversation in order, a hit with what stands around it, the list of sessions.

What is asked for may be a session's id or its unique beginning, a hit's number, or the uuid of a transcript line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crystal.errors import UsageProblem
from crystal.model import Filters
from crystal.store import Store
from crystal.store.candidates import candidates
from crystal.store.conversations import (
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
from crystal.store.scope import project_ids, scope_of, session_matches

TITLE_CHARACTERS = 200
_SHOWN = 8


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """A session as a list shows it.

    ``title`` is the given one, the summary's, or the first words of the human; empty when there are none.
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


@dataclass(frozen=True, slots=True)
class ShownTurn:
    """A turn with its text; ``hit`` is the number under which ``show`` finds it, ``focus`` whether it was asked for.

    ``full_length`` (characters) is more than the text has when the middle of a long tool result is in the archive
    alone. ``uuid`` is None for what no transcript said.
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
    """Turns in the order in which they were said, and the session that they belong to, if they do."""

    session: SessionSummary | None
    turns: tuple[ShownTurn, ...]


@dataclass(frozen=True, slots=True)
class Target:
    """What ``show`` was asked for: a session, or a chunk of one, as row ids."""

    session: int | None
    chunk: int | None = None


def sessions(
    store: Store, *, project: str | None = None, since: int | None = None, before: int | None = None, limit: int = 20
) -> tuple[list[SessionSummary], tuple[str, ...]]:
    """List sessions, the latest first, and say why there are none for a project that the store does not have.

    Args:
        store: The store.
        project: Only this one: a name, or a folder and all below it.
        since: Only sessions that went on at this time or later.
        before: Only sessions that began before.
        limit: How many at most.

    Raises:
        UsageProblem: ``limit`` is not positive.
    """
    if limit < 1:
        raise UsageProblem(f"the number of sessions is {limit}", hint="use 1 or more")
    with store.reading():
        ids = None if project is None else project_ids(store, project)
        if ids == []:
            return [], scope_of(store, Filters(project=project)).notes
        rows = list_sessions(store, projects=ids, since=since, before=before, limit=min(limit, 2**31))
        return [_summary(store, row) for row in rows], ()


def find_session(store: Store, wanted: str) -> str:
    """The whole id of the session that an id, or the beginning of one, names.

    Raises:
        UsageProblem: It names none, or several.
    """
    return _one_session(store, wanted)[1]


def find_target(store: Store, wanted: str) -> Target:
    """Find what the user means: a session's whole id, a hit's number, a line's uuid, the beginning of a session's id.

    Raises:
        UsageProblem: It is none of these, or the beginning of several sessions' ids.
    """
    wanted = wanted.strip()
    if not has_session(store, _storable(wanted)):
        chunk = int(wanted) if wanted.isdecimal() and len(wanted) < 19 else None
        place = None if chunk is None else place_of_chunk(store, chunk)
        if place is None and (found := chunk_of_uuid(store, _storable(wanted))) is not None:
            place = place_of_chunk(store, found)
        if place is not None:
            return Target(place.session, place.chunk)
    return Target(_one_session(store, wanted)[0])


def read(store: Store, target: Target, *, context: int = 2) -> Conversation:
    """Read a whole session, or a hit's turn with ``context`` turns before and after it in the same thread."""
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
    if not matches:
        raise UsageProblem(f"no session or hit {wanted!r}", hint="list the sessions: crystal sessions")
    if len(matches) > 1:
        ids = ", ".join(session for _, session in matches[:_SHOWN])
        more = ", ..." if len(matches) > _SHOWN else ""
        raise UsageProblem(f"{wanted!r} is the beginning of several sessions: {ids}{more}", hint="use more of the id")
    return matches[0]


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
    """A chunk that belongs to no turn."""
    one = candidates(store, [chunk]).get(chunk)
    if one is None:
        return ()
    return (ShownTurn(one.id, one.uuid, 0, one.role, one.text, one.ts, focus=True, full_length=len(one.text)),)
