"""The history of a thing: a file, a symbol, an error, a package, a person, a branch, a pull request or a commit.

What was done comes from the work index, what was said from the texts that name the thing, each with its turn.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Literal

from crystal.app.context import Machine
from crystal.app.file_paths import FilePaths
from crystal.app.fixes import FixStep, fix
from crystal.app.git_files import commits_of
from crystal.app.renames import FileName, names_of
from crystal.app.search import prepare_search
from crystal.assist.decisions import find_reason
from crystal.errors import UsageError
from crystal.model.capture import MIRROR_IDS, Memory
from crystal.model.named_tuple import NamedTuple
from crystal.model.recall import Filters, Hit
from crystal.search.candidates import note_of_unread
from crystal.search.engine import search
from crystal.sessions.reading import sessions as list_sessions
from crystal.store import Store
from crystal.store.search.scope import project_ids
from crystal.store.work import queries
from crystal.store.work.index import hash_for
from crystal.work.calls import command_key, file_name
from crystal.work.command_ranking import steps
from crystal.work.errors import MAX_CHARACTERS, error_lines, plain_error
from crystal.work.mentions import ThingKind, joined, kind_of_name, mentions, sentences_with, shortened, words_of

EventKind = Literal["edited", "ran", "failed", "fixed", "decided", "asked", "said", "remembered", "committed"]
WHY = {"edited": "asked", "failed": "command", "ran": "command", "fixed": "error", "committed": "by"}
"""Labels of an event's ``why``, by what happened."""

_COMMITTED = re.compile(r"\[[^\]]+ [0-9a-f]+\] ")
"""Pattern of the line that git prints of a commit that it made."""
_LIKE_A_FILE = re.compile(r"\S*[./]\S*")
CALL_ROLES = ("tool_call", "tool_result")
MAX_TEXTS, ENOUGH_TEXTS = 60, 20
"""Texts that name the thing which are read, the best; how many are enough if each was said many times."""
SAYING = "user,assistant,memory"
"""Roles whose texts are read if the others only show the thing."""
MAX_EDITS = 60
"""Sessions whose edits of a file are told, the latest."""
MAX_FAILURES = 5
"""Errors for which a cure is looked for, the latest."""
MAX_SESSIONS = 40
"""Sessions whose other files are counted, the latest."""
MAX_RELATED, MAX_LATEST = 10, 20


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to the thing.

    Attributes:
        what: What happened.
        text: The file, the command, the error, the sentence that names the thing, or a commit's subject.
        why: Of an edit the request that it answered, of an error the command, of a cure the error, of a commit its
            author; else None.
        at: When, ms; None if nobody knows.
        session_id: The session; empty for a commit.
        uuid: The turn or the memory, for ``crystal show``; or the commit.
        project: The project.
        device: The machine.
        times: How often it happened in this session.
        added: Lines that edits added.
        removed: Lines that they removed.
    """

    what: EventKind
    text: str
    why: str | None
    at: int | None
    session_id: str
    uuid: str
    project: str | None
    device: str
    times: int = 1
    added: int = 0
    removed: int = 0

    @property
    def size(self) -> str:
        """Return what an edit changed, after a space: `` +9 -2``; empty unless it is an edit."""
        return f" +{self.added} -{self.removed}" if self.added or self.removed else ""

    @property
    def because(self) -> str:
        """Return ``why`` with its label, such as ``asked: ...``; empty without a reason."""
        return f"{WHY[self.what]}: {self.why}" if self.why else ""

    @property
    def place(self) -> str:
        """Return the command that shows the event."""
        return f"git show {self.uuid[:10]}" if self.what == "committed" else f"crystal show {self.uuid}"


class RelatedFile(NamedTuple):
    """A file that was edited in sessions that dealt with the thing, and in how many of them."""

    file: str
    sessions: int


@dataclass(frozen=True, slots=True)
class ThingHistory:
    """History of a thing.

    Attributes:
        thing: Its name, as it was asked for.
        kind: What it is.
        events: The latest first.
        sessions: In how many sessions they are.
        related: The files that were edited in most of them.
        notes: Why something may be missing.
    """

    thing: str
    kind: ThingKind
    events: tuple[Event, ...]
    sessions: int
    related: tuple[RelatedFile, ...]
    notes: tuple[str, ...] = ()


def about(
    machine: Machine, thing: str, *, project: str | None = None, is_only: bool = False, folder: str | None = None
) -> ThingHistory:
    """Return the history of a thing: in a project; if nothing is known of it there, in all.

    Args:
        machine: This machine.
        thing: Its name as it is written: ``src/cart.py``, ``total_price``, ``#123``, a line of an error.
        project: The project to begin with: its name, or a folder; None for all.
        is_only: The other projects are not searched.
        folder: The folder in whose repository a person's commits are looked for; None for that of the project.

    Raises:
        UsageError: The name is longer than the line of an error may be.
    """
    printed = error_lines(thing) if "\n" in thing.strip() else []
    name = printed[0].text if printed else " ".join(thing.split())
    if len(name) > MAX_CHARACTERS:
        at_most = f"the name has {len(name):,} characters, at most {MAX_CHARACTERS} are allowed"
        raise UsageError(at_most, hint="give a file, a symbol, or one line of the error")
    commits, notes = list(_commits_of(machine, name, folder or project)), dict[str, None]()
    for place in (project,) if project is None or is_only else (project, None):
        found = _History(machine, name, place, folder or project)
        events = found.events()
        notes |= dict.fromkeys(found.notes)
        if events:
            return replace(found.told(_merged([*events, *commits])), notes=tuple(notes))
    return ThingHistory(name, kind_of_name(name), tuple(_merged(commits)), 0, (), tuple(notes))


def _commits_of(machine: Machine, name: str, folder: str | None) -> Iterator[Event]:
    """Yield the commits of a thing in a folder's repository."""
    if folder is not None:
        for one in commits_of(folder, name):
            yield Event("committed", one.subject, one.author, one.at, "", one.commit, Path(folder).name,
                        machine.config.device)  # fmt: skip


def edited_lately(machine: Machine, project: str | None) -> list[RelatedFile]:
    """Return the files that most of the latest sessions edited, in a project or (None) in all."""
    latest, _ = list_sessions(machine.stores, project=project, limit=MAX_LATEST)
    edited = _edited_in(machine.stores, FilePaths(*machine.stores), [one.id for one in latest], project)
    return edited[:MAX_RELATED]


def _edited_in(
    stores: Sequence[Store], paths: FilePaths, sessions: Sequence[str], project: str | None
) -> list[RelatedFile]:
    """Return the files that sessions edited, those of most sessions first."""
    edited = set[tuple[str, str]]()
    for store in stores:
        rows = queries.edited_files(store, sessions, None if project is None else project_ids(store, project))
        edited |= {(session, paths.inside(path, cwd, folder)) for session, path, cwd, folder in rows}
    counted = Counter(file for _, file in sorted(edited))
    return [RelatedFile(file, count) for file, count in counted.most_common()]


def most_telling(events: Sequence[Event], limit: int) -> list[Event]:
    """Return the most informative events, in their order: messages and commands are the first to be left out."""
    order = sorted(range(len(events)), key=lambda at: (events[at].what in ("said", "ran"), at))
    return [events[at] for at in sorted(order[:limit])]


class _History:
    """Question about one thing, to the memories of one project or of all."""

    def __init__(self, machine: Machine, thing: str, project: str | None, folder: str | None) -> None:
        self._machine, self._thing, self._project = machine, thing, project
        self._kind, self._pattern = kind_of_name(thing), mentions(thing)
        self._names, self._paths = [FileName(thing)], FilePaths(*machine.stores)
        self.notes = list[str]()
        if self._kind == "name" and _LIKE_A_FILE.fullmatch(thing):
            self._names = names_of(machine.stores, thing, project=project, folder=folder)
        for one in self._names[1:]:
            self._pattern = re.compile(f"{self._pattern.pattern}|{mentions(one.spoken(thing)).pattern}", re.IGNORECASE)

    def events(self) -> list[Event]:
        """Return the events, the latest first; what happened several times in a session is one."""
        done = [event for store in self._machine.stores for one in self._names for event in self._edits(store, one)]
        if done:
            self._kind = "file"
        said = [event for one in self._names for event in self._said(one)]
        if not done and not said:  # much that was only read may hide all that was said
            said = list(self._said(self._names[0], SAYING))
        return _merged([*done, *said, *self._fixed(said)])

    def told(self, events: Sequence[Event]) -> ThingHistory:
        """Return the history, with related files."""
        sessions = dict.fromkeys(one.session_id for one in events if one.session_id)
        is_branch = self._kind == "name" and any(queries.has_branch(one, self._thing) for one in self._machine.stores)
        kind: ThingKind = "branch" if is_branch else self._kind
        return ThingHistory(self._thing, kind, tuple(events), len(sessions), tuple(self._related([*sessions])))

    def _projects(self, store: Store) -> Sequence[int] | None:
        return None if self._project is None else project_ids(store, self._project)

    # ------------------------------------------------------------------------------------------------ what was done

    def _edits(self, store: Store, name: FileName) -> Iterator[Event]:
        """Yield the edits of the file under a name, if the thing is the name or the end of the path of one."""
        if " " in self._thing:
            return
        rows = queries.changed_rows(store, since=name.since, before=name.until, projects=self._projects(store),
                                    keys=[hash_for(store)(file_name(name.path))])  # fmt: skip
        rows = [one for one in rows if name.is_of(f"{one.cwd or ''}/{one.path}")]
        latest = dict[tuple[str, str], int]()
        for one in reversed(rows):
            latest.setdefault((one.session_id, one.path), one.turn)
        told = dict(islice(latest.items(), MAX_EDITS))
        calls = queries.calls(store, {*told.values()}, self._machine.memory_of(store))
        for one in rows:
            if call := calls.get(told.get((one.session_id, one.path), 0)):
                path = self._paths.inside(one.path, one.cwd, one.folder)
                yield Event("edited", path, call.request, one.at or None, call.session_id, one.call.split(" ")[0],
                            call.project, call.device, 1, one.added, one.removed)  # fmt: skip

    def _fixed(self, said: Iterable[Event]) -> Iterator[Event]:
        """Yield the cures of the error that the thing is, or of the latest errors that name it."""
        errors = [self._thing] if self._kind == "error" else []
        errors += dict.fromkeys(one.text for one in said if one.what == "failed" and plain_error(one.text))
        cured = [fix(self._machine, error, project=self._project, is_only=True) for error in errors[:MAX_FAILURES]]
        for one in chain.from_iterable(cured):
            done = "; ".join(dict.fromkeys(_step(step) for step in one.steps))
            if self._kind == "error" or self._pattern.search(f"{done} {one.error}"):
                call = one.succeeded
                yield Event("fixed", done, one.error, call.at, call.session_id, call.uuid, call.project, call.device)

    def _related(self, sessions: Sequence[str]) -> Iterator[RelatedFile]:
        """Yield the other files that were edited in the sessions, those of most sessions first."""
        edited = _edited_in(self._machine.stores, self._paths, sessions[:MAX_SESSIONS], self._project)
        yield from [one for one in edited if not self._pattern.search(one.file)][:MAX_RELATED]

    # ------------------------------------------------------------------------------------------------ what was said

    def _said(self, name: FileName, roles: str | None = None) -> Iterator[Event]:
        """Yield events from the texts of some roles, or all, that name the thing; a call and its result are one."""
        hits = self._hits(name, roles)
        calls = self._calls([one for one in hits if one.role in CALL_ROLES])
        told = set[tuple[Memory, int]]()
        for hit in sorted(hits, key=lambda one: one.role != "tool_result"):  # it tells more than the call does
            call = calls.get(hit.id)
            event = self._heard(hit) if hit.role not in CALL_ROLES else call and self._done(hit, call)
            if event is not None and (call is None or (hit.memory, call.turn) not in told):
                yield event
                told |= {(hit.memory, call.turn)} if call else set()

    def _hits(self, name: FileName, roles: str | None) -> list[Hit]:
        """Return the texts of some roles, or all, that name the thing: the best of them."""
        words = " ".join(words_of(name.spoken(self._thing))).replace('"', " ")
        question = f'"{words}"' if " " in words else words
        filters = Filters(self._project, role=roles)
        sources, request = prepare_search(self._machine, question, MAX_TEXTS, filters, recency="off")
        exact = tuple(replace(source, embedder=None) for source in sources)
        found = search(exact, replace(request, enough=ENOUGH_TEXTS, verbatim=True, surrounded=0))
        unread = {note for source in sources for note in note_of_unread(source.store)}
        self.notes += [note for note in found.notes if note.removeprefix("mirror: ") in unread]
        return [one for one in found.hits if name.covers(one.timestamp) and self._pattern.search(one.text)]

    def _calls(self, hits: Sequence[Hit]) -> dict[int, queries.CallEnd]:
        """Return the outcomes of the calls that hits are, or are the results of, by the ids of the hits."""
        found = dict[int, queries.CallEnd]()
        for store in self._machine.stores:
            memory = self._machine.memory_of(store)
            first = MIRROR_IDS if memory == "mirror" else 0
            ends = queries.call_ends(store, {one.id - first for one in hits if one.memory == memory})
            found.update((chunk + first, end) for chunk, end in ends.items())
        return found

    def _heard(self, hit: Hit) -> Event | None:
        """Return the event of a message or a memory; None for thinking, files and tool calls."""
        sentences = sentences_with(self._pattern, joined(hit.text))
        reasons = [reason for one in sentences if (reason := find_reason(one))]
        if not sentences:
            return None
        if hit.source == "memory":
            return self._event("remembered", sentences[0], hit)
        if hit.role == "assistant":
            return self._event("decided", reasons[0], hit) if reasons else self._event("said", sentences[0], hit)
        return self._event("asked", sentences[0], hit) if hit.role == "user" and not hit.subagent else None

    def _done(self, hit: Hit, call: queries.CallEnd) -> Event | None:
        """Return the event of a call or its result; None if it only shows the thing."""
        if hit.role == "tool_result":
            lines = sentences_with(self._pattern, hit.text)
            errors = [line for line in lines if call.exit and plain_error(line)]
            if errors:
                return self._event("failed", errors[0], hit, command_key(call.what))
            made = [line for line in lines if self._kind == "commit" and _COMMITTED.match(line)]
            return self._event("ran", made[0], hit, command_key(call.what)) if made else None
        if call.is_edit:
            edited = self._event("edited", self._paths.inside(call.what, call.cwd, call.folder), hit)
            return None if self._kind == "file" else replace(edited, added=call.added, removed=call.removed)
        command = command_key(call.what)
        return self._event("failed" if call.exit else "ran", command, hit) if steps(command) else None

    def _event(self, what: EventKind, text: str, hit: Hit, why: str | None = None) -> Event:
        line = shortened(self._pattern, text)
        return Event(what, line, why, hit.timestamp, hit.session_id, hit.uuid, hit.project, hit.device)


def _step(step: FixStep) -> str:
    return step.command or f"edited {file_name(step.file or '')}"


def _merged(events: Iterable[Event]) -> list[Event]:
    """Return the events, the latest first; equal ones of a session as the latest of them, with their number."""
    same = defaultdict[tuple[str, str, str], dict[str, Event]](dict)
    for one in events:
        same[one.session_id, one.what, one.text][one.uuid] = one
    merged = [
        replace(
            max(group.values(), key=lambda one: one.at or 0),
            times=len(group),
            added=sum(one.added for one in group.values()),
            removed=sum(one.removed for one in group.values()),
        )
        for group in same.values()
    ]
    return sorted(merged, key=lambda one: (-(one.at or 0), one.uuid, one.text))
