"""Select the lines and memories that a request names, in one memory. Read-only."""

from __future__ import annotations

import functools
import operator
from collections.abc import Collection

from crystal.errors import NotFoundError, UsageError
from crystal.forgetting.match.terms import Terms, folded
from crystal.forgetting.plan.candidates import turns_with_terms
from crystal.forgetting.request import ForgetRequest, Selection
from crystal.model.capture import MIRROR_IDS, Memory, parse_hit_name
from crystal.store import Store
from crystal.store.forget import forgotten_rows, traces
from crystal.store.memories.memories import memories_by_key, memories_like, memory_of, memory_of_chunk
from crystal.store.search.scope import is_folder, matching_projects, session_matches
from crystal.store.sessions.conversations import place_of_chunk

SHOWN = 8


def select(
    store: Store,
    wish: ForgetRequest,
    which: Memory,
    sessions: Collection[str],
    folders: Collection[str],
    own: Collection[str] = (),
) -> Selection:
    """Select what a request names in one memory, using the resolved ``sessions`` and ``folders`` of its scope.

    ``own`` are lines of these sessions that the memory attributes to a fork, because the fork was read before.

    Targets that this memory does not have are skipped.
    """
    parts: list[Selection] = []
    if wish.targets:
        parts.append(_targets(store, wish.targets, which))
    if wish.key is not None:
        parts.append(Selection(memories={one.id for one in memories_by_key(store, wish.key)}))
    if wish.session is not None:
        lines = forgotten_rows.uuids_of_sessions(store, sessions, None) | set(own)
        parts.append(Selection(lines, forgotten_rows.memories_where(store, sessions=sessions)))
    if wish.project is not None:
        projects = forgotten_rows.folders_within(store, folders)
        lines = forgotten_rows.uuids_of_projects(store, projects, None)
        parts.append(Selection(lines, forgotten_rows.memories_where(store, projects=projects)))
    if wish.before is not None:
        lines = forgotten_rows.uuids_before(store, wish.before)
        parts.append(Selection(lines, forgotten_rows.memories_where(store, before=wish.before)))
    if wish.query is not None:
        parts.append(_with_words(store, Terms.of(wish.query)))
    both = functools.reduce(operator.and_, parts)
    return Selection(both.lines) if wish.keep_memories else both


def _with_words(store: Store, terms: Terms) -> Selection:
    found = Selection()
    for said in forgotten_rows.each_text(store, turns_with_terms(store, terms)):
        if terms.are_in(folded(said.text if said.key is None else f"{said.key}: {said.text}")):
            found.add(said)
    return found


# ---------------------------------------------------------------------------------------------------------- targets


def _targets(store: Store, targets: Collection[str], which: Memory) -> Selection:
    found = Selection()
    for target in targets:
        one = find_target(store, target, which)
        if one is not None:
            found.lines |= one.lines
            found.memories |= one.memories
    return found


def find_target(store: Store, target: str, which: Memory) -> Selection | None:
    """Return the line or the memory that a target names in one memory, or None.

    Raises:
        UsageError: It is a prefix of several memories' ids.
    """
    wanted = target.strip()
    if wanted.startswith("mem-"):
        return _memory(store, wanted)
    number = _number(wanted, which)
    if number is not None:
        return _chunk(store, number)
    try:
        wanted.encode()
    except UnicodeEncodeError:
        return None
    return Selection({wanted}) if traces.has_line(store, wanted) else None


def _memory(store: Store, wanted: str) -> Selection | None:
    exact = memory_of(store, wanted)
    if exact is not None:
        return Selection(memories={exact.id})
    like = memories_like(store, wanted, SHOWN) if len(wanted) > len("mem-") else []
    if len(like) > 1:
        names = ", ".join(one.id for one in like)
        raise UsageError(f"{wanted} is the beginning of several memories: {names}", hint="give more of the id")
    return Selection(memories={like[0].id}) if like else None


def _number(wanted: str, which: Memory) -> int | None:
    """Return the row of a hit in one memory, by the name shown in search results."""
    number = parse_hit_name(wanted)
    if number is None or (number > MIRROR_IDS) != (which == "mirror"):
        return None
    return number - MIRROR_IDS if which == "mirror" else number


def _chunk(store: Store, number: int) -> Selection | None:
    place = place_of_chunk(store, number)
    if place is None:
        return None
    if place.turn is None:
        memory = memory_of_chunk(store, number)
        return None if memory is None else Selection(memories={memory.id})
    return Selection({forgotten_rows.uuid_of_turn(store, place.turn)})


# ----------------------------------------------------------------------------------------------------------- scopes


def sessions_meant(stores: Collection[Store], wanted: str) -> tuple[str, ...]:
    """Return the session with an id or id prefix.

    Raises:
        UsageError: It matches none, or several.
    """
    wanted = wanted.strip().removesuffix(".jsonl")
    names = {name for store in stores for _, name in session_matches(store, wanted, SHOWN)}
    if wanted in names:
        return (wanted,)
    if len(names) > 1:
        listed = ", ".join(sorted(names))
        raise UsageError(f"{wanted} is the beginning of several sessions: {listed}", hint="give more of the id")
    if not names:
        raise NotFoundError(f"there is no session {wanted!r}", hint="crystal sessions lists them")
    return tuple(names)


def folders_meant(stores: Collection[Store], wanted: str) -> tuple[str, ...]:
    """Return the folders of a project, given by its name or by a folder.

    Raises:
        UsageError: No project has this name.
    """
    if is_folder(wanted):
        return (wanted,)
    found = {
        folder
        for store in stores
        for folder in forgotten_rows.folders_of_projects(store, matching_projects(store, wanted))
    }
    if not found:
        raise NotFoundError(f"there is no project {wanted!r}", hint="run: crystal projects")
    return tuple(sorted(found))
