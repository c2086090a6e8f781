"""Read what the terminal shows: lists of entries, and pages of conversations.

All lists have the same form: each entry leads to a turn, a session or a memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from crystal.app.about import Event, about, most_telling
from crystal.app.blame import blame, line_span
from crystal.app.context import Machine
from crystal.app.fixes import fix
from crystal.app.memory_queries import list_memories, memory_of
from crystal.app.projects import relative
from crystal.app.search import EMPTY_MEMORY, is_memory_empty, prepare_search
from crystal.capture.finder import look_at
from crystal.cli import render
from crystal.memories.rules import is_memory_id
from crystal.model.capture import hit_name
from crystal.model.recall import Filters
from crystal.search.engine import search
from crystal.sessions.reading import SessionSummary, ShownTurn, find_target, read, read_page, sessions
from crystal.text.harmless import harmless
from crystal.timewords.parse import ago, clock, local
from crystal.work.calls import calls_of
from crystal.work.outcomes import is_failed

HITS, ENOUGH, SESSIONS, EVENTS, MEMORIES = 50, 20, 300, 100, 300
PER_PAGE = 60
FOLDED = frozenset(("tool_call", "tool_result", "thinking"))
MAX_BODY = 20_000
"""Maximum characters shown of a turn."""


@dataclass(frozen=True, slots=True)
class ListEntry:
    """A row of the list.

    Attributes:
        text: Its text.
        facts: Who, when, where.
        target: The id to open, as for ``crystal show``; None for a heading.
    """

    text: str
    facts: str = ""
    target: str | None = None


@dataclass(frozen=True, slots=True)
class EntryList:
    """A list with its title, and a note below it."""

    title: str
    entries: Sequence[ListEntry]
    note: str = ""


@dataclass(frozen=True, slots=True)
class TurnBlock:
    """A turn of a conversation.

    Attributes:
        head: The speaker and the time.
        body: The text.
        is_folded: Whether only its first line is shown until it is unfolded.
        is_markdown: Whether an agent wrote it for a person.
        is_focus: Whether it is the turn to show first.
        file: The file that the call edits, or None.
        name: The file's path relative to the session's folder.
        error: The output of a failed call, or None.
    """

    head: str
    body: str
    is_folded: bool
    is_markdown: bool
    is_focus: bool
    file: str | None = None
    name: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ConversationPage:
    """A page of a conversation of ``total`` turns, ``start`` of which are before it."""

    title: str
    target: str
    blocks: Sequence[TurnBlock]
    start: int
    total: int


def find(machine: Machine, query: str) -> EntryList:
    """Search as ``crystal search`` does, everywhere."""
    sources, request = prepare_search(machine, query, HITS, Filters())
    result = search(sources, replace(request, enough=ENOUGH))
    entries = []
    for hit in result.hits:
        who = render.speaker(hit.role, hit.tool, hit.harness)
        target = hit.uuid if hit.category else hit_name(hit.id)
        entries.append(_entry(hit.text, target, who, ago(hit.timestamp, request.now), hit.project))
    return EntryList(render.count_words(len(entries), "hit"), entries, "; ".join(result.notes))


def list_sessions(machine: Machine, *, by_day: bool = False) -> EntryList:
    """List the sessions, latest first; with ``by_day`` under a heading for each day."""
    found, notes = sessions(machine.stores, limit=SESSIONS)
    entries, day, now = list[ListEntry](), "", machine.now()
    for one in found:
        date = "undated" if one.last_at is None else f"{local(one.last_at):%A %d %B %Y}"
        if by_day and date != day:
            entries.append(ListEntry(date))
        day = date
        turns = render.count_words(one.turns, "turn")
        entries.append(_entry(one.title or "without words", one.id, ago(one.last_at, now), one.project, turns))
    notes = (*notes, EMPTY_MEMORY) if is_memory_empty(machine) else notes
    return EntryList("days" if by_day else "sessions", entries, "; ".join(notes))


def memories(machine: Machine) -> EntryList:
    """List the active memories, latest first."""
    found, now = list_memories(machine, limit=MEMORIES), machine.now()
    entries = [_entry(one.text, one.id, one.category, ago(one.updated_at, now), one.project) for one in found]
    return EntryList("memories", entries, "" if entries else "none yet; to add one: crystal remember TEXT")


def history(machine: Machine, thing: str) -> EntryList:
    """List the history of a thing."""
    found, now = about(machine, thing), machine.now()
    entries = [_event(one, now) for one in most_telling(found.events, EVENTS)]
    note = "; ".join((*found.notes, *([] if entries else ["nothing is known of it"])))
    return EntryList(f"about {render.one_line(thing)}", entries, note)


def _event(one: Event, now: int) -> ListEntry:
    """Return the row of an event; of an edit what was asked comes first, because the file is the same in every row."""
    words = [one.because, one.text] if one.what == "edited" else [one.text, one.because]
    facts = (f"{one.what}{one.size}", clock(one.at, now), one.project)
    return _entry(" · ".join(filter(None, words)), one.uuid, *facts)


def lines_of(machine: Machine, file: str, name: str) -> EntryList:
    """List who wrote the lines of a file; if the file is missing here, its history by its ``name``."""
    if look_at(Path(file)) is None:
        return history(machine, name)
    entries, now = list[ListEntry](), machine.now()
    found = blame(machine, file)
    for one in found.lines:
        if one.call is not None:
            text = one.call.request or one.call.reason or ""
            entries.append(_entry(text, one.call.uuid, line_span(one.first, one.last), clock(one.call.at, now)))
    note = "".join(found.notes) or ("" if entries else "no session is known to have written its lines")
    return EntryList(f"who wrote {render.one_line(name)}", entries, note)


def cures(machine: Machine, error: str) -> EntryList:
    """List the cures of an error."""
    entries = list[ListEntry]()
    for one in fix(machine, error):
        entries.append(ListEntry(render.one_line(one.error)))
        entries += [_entry(step.command or f"edited {step.file}", step.call.uuid, "then") for step in one.steps]
        entries.append(_entry(one.command, one.succeeded.uuid, "succeeded"))
    return EntryList("what cured it", entries, "" if entries else "no known cure of this error")


def open_page(machine: Machine, target: str, start: int | None = None) -> ConversationPage:
    """Read a page of a conversation, the one with the target or the one that begins at ``start``; or a memory."""
    if is_memory_id(target):
        memory = memory_of(machine, target)
        return ConversationPage(
            "memory", target, [TurnBlock(memory.category, harmless(memory.text), False, False, True)], 0, 1
        )
    stores, now = machine.stores, machine.now()
    place = find_target(stores, target)
    if place.session is None:  # text of a file
        turns, title, first, total, session = read(stores, place).turns, "file", 0, 0, None
    else:
        page = read_page(stores, place, start=start, limit=PER_PAGE)
        turns, title, first, total = page.turns, page.session.title or "without words", page.start, page.total
        session = page.session
    return ConversationPage(render.one_line(title), target, list(_blocks(turns, now, session)), first, total)


def _blocks(turns: Sequence[ShownTurn], now: int, session: SessionSummary | None) -> Iterator[TurnBlock]:
    harness, folder = (session.harness, session.cwd) if session else (None, None)
    for turn in turns:
        suffix = ", subagent" if turn.subagent and turn.role != "subagent" else ""
        who = render.speaker(turn.role, turn.tool, harness) + suffix
        when = "" if turn.timestamp is None else clock(turn.timestamp, now)
        calls = calls_of(turn.tool, turn.text) if turn.role == "tool_call" else []
        file = next((call.what for call in calls if call.is_edit), None)
        name = None if file is None else relative(file, folder)
        error = turn.text if turn.role == "tool_result" and is_failed(turn.text) else None
        head = "  ".join(part for part in (who, when) if part)
        body, is_answer = harmless(turn.text[:MAX_BODY]), turn.role in ("assistant", "subagent")
        yield TurnBlock(head, body, turn.role in FOLDED, is_answer, turn.focus, file, name, error)


def _entry(text: str, target: str, *facts: str | None) -> ListEntry:
    return ListEntry(render.one_line(text)[:400] or "without words", " · ".join(fact for fact in facts if fact), target)
