"""Select the lines and memories that a request names, in one memory, and find their duplicates. Read-only."""

from __future__ import annotations

import functools
import operator
import shlex
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from crystal.errors import NotFoundError, UsageError
from crystal.forgetting.match.indexed_turns import turns_repeating, turns_with_terms
from crystal.forgetting.match.query_terms import Terms, folded, repetitions
from crystal.forgetting.request import Because, ForgetRequest, Progress, Selection, counted
from crystal.hook.remember import judged
from crystal.model.capture import MIRROR_IDS, Memory, is_unicode, parse_hit_name
from crystal.model.named_tuple import NamedTuple
from crystal.model.sources import FilePlace
from crystal.store import Store
from crystal.store.forget import forgotten_rows, traces
from crystal.store.memories.memories import memories_by_key, memories_like, memory_of, memory_of_chunk
from crystal.store.search.candidates import place_of_file_chunk
from crystal.store.search.scope import matching_projects, session_matches
from crystal.store.sessions.conversations import place_of_chunk
from crystal.text.folders import is_folder

SHOWN = 8


class PreviewLimit(NamedTuple):
    """Limits of a preview of a large memory: texts that it looks up, and texts that it reads for that."""

    looked_up: int
    read: int


@dataclass(frozen=True, slots=True)
class Scope:
    """Scope of a request in one memory.

    Attributes:
        sessions, folders: Its session and its project, resolved.
        own: Lines of these sessions that the memory attributes to a fork, because the fork was read before.
        limit: The maximum number of texts to read for a query; None for no limit.
        progress: Called with the progress of reading.
    """

    sessions: Collection[str]
    folders: Collection[str]
    own: Collection[str]
    limit: int | None
    progress: Progress


def select(store: Store, request: ForgetRequest, which: Memory, scope: Scope) -> tuple[Selection, int]:
    """Select what a request names in one memory; also return how many texts that may have its words were not read.

    Targets that this memory does not have are skipped.
    """
    parts: list[Selection] = []
    if request.targets:
        named = Selection()
        for one in filter(None, (find_target(store, target, which) for target in request.targets)):
            named.lines |= one.lines
            named.memories |= one.memories
        parts.append(named)
    if request.key is not None:
        parts.append(Selection(memories={one.id for one in memories_by_key(store, request.key)}))
    scopes: list[tuple[object, dict[str, Any]]] = [
        (request.session, {"sessions": scope.sessions}),
        (request.project, {"projects": forgotten_rows.folders_within(store, scope.folders)}),
        (request.before, {"before": request.before}),
    ]
    for value, where in scopes:
        if value is not None:
            lines = forgotten_rows.lines_where(store, **where) | (set(scope.own) if "sessions" in where else set())
            parts.append(Selection(lines, forgotten_rows.memories_where(store, **where)))
    both, unread = functools.reduce(operator.and_, parts) if parts else None, 0
    if request.query is not None:
        found, unread = _with_terms(store, Terms.of(request.query), both, scope)
        both = found if both is None else both & found
    assert both is not None
    return Selection(both.lines) if request.keep_memories else both, unread


def _with_terms(store: Store, terms: Terms, within: Selection | None, scope: Scope) -> tuple[Selection, int]:
    """Select what has all the words; of the conversation only what is ``within``, and at most so many texts.

    A memory's text is always read. If the index cannot tell which turns may have the words, each of them may.
    """
    turns, found = turns_with_terms(store, terms), Selection()
    if within is not None:
        turns = forgotten_rows.turns_of(store, within.lines, turns)
    count = traces.count_turns(store) if turns is None else len(turns)
    chosen = turns
    if scope.limit is not None:
        chosen = traces.newest_turns(store, scope.limit) if turns is None else set(sorted(turns)[: scope.limit])
    total = count if chosen is None else len(chosen)
    for said in counted(forgotten_rows.each_text(store, chosen), "reading the messages", total, scope.progress):
        if terms.are_in(folded(said.text if said.key is None else f"{said.key}: {said.text}")):
            found.add(said)
    return found, count - total


# ---------------------------------------------------------------------------------------------------------- targets


def find_target(store: Store, target: str, which: Memory) -> Selection | None:
    """Return the line or the memory that a target names in one memory, or None.

    Raises:
        UsageError: It is a prefix of several memories' ids.
    """
    wanted = target.strip()
    if wanted.startswith("mem-"):
        return _memory(store, wanted)
    number = parse_hit_name(wanted)
    if number is not None and (number > MIRROR_IDS) == (which == "mirror"):
        return _chunk(store, number - MIRROR_IDS if which == "mirror" else number)
    return Selection({wanted}) if is_unicode(wanted) and traces.has_line(store, wanted) else None


def _memory(store: Store, wanted: str) -> Selection | None:
    exact = memory_of(store, wanted)
    if exact is not None:
        return Selection(memories={exact.id})
    like = memories_like(store, wanted, SHOWN) if len(wanted) > len("mem-") else []
    if len(like) > 1:
        names = ", ".join(one.id for one in like)
        raise UsageError(f"{wanted} is the beginning of several memories: {names}", hint="give more of the id")
    return Selection(memories={like[0].id}) if like else None


def _chunk(store: Store, number: int) -> Selection | None:
    place = place_of_chunk(store, number)
    if place is None:
        return None
    if place.turn is None:
        _refuse_file(place_of_file_chunk(store, number))
        memory = memory_of_chunk(store, number)
        return None if memory is None else Selection(memories={memory.id})
    return Selection({forgotten_rows.uuid_of_turn(store, place.turn)})


def _refuse_file(place: FilePlace | None) -> None:
    """Refuse a hit in a file of a person's own: the memory follows the file.

    Raises:
        UsageError: It is one.
    """
    if place is not None:
        hint = f"take it out of the file, then run: crystal sources sync {shlex.quote(place.name)}"
        raise UsageError(f"this is in your file {place.folder}/{place.path}, which crystal does not change", hint=hint)


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
        raise NotFoundError(f"there is no session {wanted!r}", hint="run: crystal sessions")
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


# ------------------------------------------------------------------------------------------------------- duplicates


def find_duplicates(
    stores: Sequence[Store],
    lines: Collection[str],
    memories: Collection[str],
    terms: Terms | None = None,
    limit: PreviewLimit | None = None,
) -> Iterator[tuple[Selection, Because]]:
    """Return equal texts, quotations, requests to remember one of the memories, and the client's summaries.

    ``terms`` are words of which everything that has them was selected already: what repeats a text with them has them,
    too. Equal texts and quotations are not looked for where that would exceed a ``limit``.
    """
    texts = forgotten_rows.texts_of(stores, lines, memories)
    if terms is not None:
        texts = [text for text in texts if not terms.are_within(text)]
    if limit is not None and len(texts) > limit.looked_up:
        texts = []
    gone = set(lines)
    for store in stores:
        turns = turns_repeating(store, texts)
        if limit is not None and (turns is None or len(turns) > limit.read):
            turns = set()
        same, quoting = repetitions(texts, forgotten_rows.each_text(store, turns))
        asking = Selection(_words_of_asking(store, memories))
        yield from ((same, "same-text"), (quoting, "quote"), (asking, "remembered"))
        gone |= same.lines | quoting.lines | asking.lines
    for store in stores:
        yield Selection(forgotten_rows.summaries_after(store, gone)), "summary"


def _words_of_asking(store: Store, memories: Collection[str]) -> set[str]:
    """Return the lines that asked for a memory, also of one too short to be searched for everywhere."""
    found: set[str] = set()
    for uid in memories:
        memory = memory_of(store, uid)
        if memory is None or memory.session_id is None:
            continue
        text = folded(memory.text)
        for uuid, role, tool, said in forgotten_rows.turns_of_session(store, memory.session_id):
            is_call = tool is not None and ("remember" in tool or "save_memory" in tool)
            asked = judged(said.lstrip("/"))[1] if role == "user" else said if is_call else ""
            if text and text in folded(asked):
                found.add(uuid)
    return found
