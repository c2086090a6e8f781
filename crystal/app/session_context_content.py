"""Contexts for new sessions: collect their content, write it for the hook, show what a session would get."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from crystal.app.context import Machine, open_reader_for
from crystal.app.memory_queries import list_memories, mirror_of
from crystal.assist.decisions import find_reason
from crystal.assist.facts import id_of, reason_topic
from crystal.capture.lock import await_lock
from crystal.capture.privacy import policy_of
from crystal.config.harnesses import CLAUDE_CODE
from crystal.context.choosing import (
    MAX_SESSIONS,
    LastSession,
    MemoryCandidate,
    SessionContext,
    SessionOutcome,
    choose,
    is_same_project,
    is_trusted,
    rank,
    user_title,
)
from crystal.context.prepared import PreparedContext, Rules, clear_contexts, empty_mark, read_marks, write_contexts
from crystal.hook.assist import MOMENTS
from crystal.hook.event import truthy
from crystal.model.capture import Memory, Project
from crystal.model.recall import Remembered
from crystal.store import Store
from crystal.store.capture.privacy import marks, store_key
from crystal.store.forget.forgetting import is_work_left
from crystal.store.memories.learned import confidence_of, evidence_for
from crystal.store.memories.memories import forgotten_memories
from crystal.store.search.isolated import isolated_projects
from crystal.store.sessions.contexts import (
    Injection,
    add_injection,
    blocked_sessions,
    injections,
    project_rows,
    state_of_memory,
    working_folders,
)
from crystal.store.sessions.conversations import Session, first_words, last_answer, list_sessions
from crystal.store.work.queries import calls, steps_of_session
from crystal.summarize.simple import first_words as shortened
from crystal.text.folders import outermost
from crystal.work.calls import command_key, file_name
from crystal.work.command_ranking import steps
from crystal.work.cures import WorkStep

MAX_EDITS = 3
"""Edits before which a reason is looked for, the latest."""
MIN_SAID, MAX_SAID = 20, 160
"""Characters of the reason or answer; "Done." tells nothing."""
MAX_FOLDERS = 50
MAX_MEMORIES = 10_000
WORDS_READ = 2_000


@dataclass(slots=True)
class ContextSources:
    """Sources of all contexts: active memories that were stored on request, each with its project."""

    machine: Machine
    stores: Sequence[Store]
    memories: list[tuple[Remembered, Project | None]]
    projects: list[tuple[Store, list[tuple[int, Project]]]]
    contexts: dict[str | None, SessionContext] = field(default_factory=dict)
    confidences: dict[str, float] = field(default_factory=dict)

    def context_for(self, here: Project | None) -> SessionContext:
        """Return the context for a project's folder; ``here`` is None for a folder that nothing is known of."""
        place = None if here is None else here.git_root or here.cwd
        if place not in self.contexts:
            self.contexts[place] = self._build(here)
        return self.contexts[place]

    def folders(self) -> list[Project]:
        """Return this machine's folders with recent work or memories of their own, with their repositories."""
        device, found = self.machine.config.device, dict[str, Project]()
        known = [one for side in self.stores for one in working_folders(side, device, MAX_FOLDERS)]
        places = {one.cwd: one for memory, one in self.memories if one is not None and memory.device == device}
        known += list(places.values())[:MAX_FOLDERS]
        for one in known:
            found.setdefault(one.cwd, one)
            if one.git_root is not None:
                found.setdefault(one.git_root, Project(one.git_root, one.git_root, one.remote, one.name))
        return list(found.values())

    def _build(self, here: Project | None) -> SessionContext:
        candidates = []
        for memory, project in self.memories:
            is_here = here is not None and project is not None and self.is_same(here, project, memory.device)
            if is_here or project is None:
                candidates.append(MemoryCandidate(memory, is_here, self.confidences.get(memory.id, 1.0)))
        sessions = [] if here is None else self._sessions(here)
        where = f"project {here.name}" if here is not None else "for every project"
        origin = f"crystal, {where}, words of the user and the assistant"
        return choose(rank(candidates), sessions, self.machine.config.context_tokens, origin, None)

    def is_same(self, here: Project, other: Project, device: str) -> bool:
        """Return True if a memory's project, on a device, is the one of a folder here."""
        return is_same_project(here, other, same_machine=device == self.machine.config.device)

    def rows_of(self, here: Project, *, by_name: bool = False) -> Iterator[tuple[Store, dict[int, Project]]]:
        """Yield each store with the rows of a folder's project; with those of its name too, which may be another's."""
        for side, projects in self.projects:
            yield side, {row: one for row, one in projects if is_same_project(here, one, same_machine=not by_name)}

    def forgotten(self, side: Store, sessions: Sequence[str]) -> set[str]:
        """Return which sessions of a store have something forgotten that the store may still hold."""
        own = self.machine.store
        return blocked_sessions(own, sessions) if side is not own or is_work_left(own) else set()

    def _sessions(self, here: Project) -> list[LastSession]:
        """Return the last sessions of a project in which the user wrote something, each named by the user's own words.

        Never by a title: that may come from the client or a model, which read tools' results too.
        """
        found = dict[str, LastSession]()
        for side, known in self.rows_of(here, by_name=True):
            ids = list(known)
            rows = list_sessions(side, projects=ids, since=None, before=None, limit=8 * MAX_SESSIONS) if ids else []
            gone = self.forgotten(side, [row.session_id for row in rows])
            most = len(found) + MAX_SESSIONS
            for row in rows:
                if len(found) == most:
                    break
                own = [one for one in known.values() if one.cwd == row.cwd and self.is_same(here, one, row.device)]
                if row.session_id in found or row.session_id in gone or not own:
                    continue
                title = user_title(first_words(side, row.id, WORDS_READ), shortened)
                if title is not None:
                    outcome = outcome_of(side, row, self.machine.memory_of(side), store_key(self.machine.store))
                    found[row.session_id] = LastSession(
                        row.session_id, title, row.last_at, row.branch, row.device, outcome
                    )
        return sorted(found.values(), key=lambda one: (one.at is None, -(one.at or 0)))[:MAX_SESSIONS]


def outcome_of(store: Store, session: Session, memory: Memory, secret: bytes) -> SessionOutcome:
    """Return what came of a session of a store; ``secret`` is the key of the ids of facts.

    Only words of the assistant, commands that ran and files that were edited: no tool's output.
    """
    done = steps_of_session(store, session.id)
    edits = [step for step in done if step.is_edit]
    files = [*dict.fromkeys(file_name(step.what) for step in reversed(edits))]
    known = calls(store, {step.turn for step in edits[-MAX_EDITS:]}, memory)
    given = [find_reason(known[turn].reason) for turn in sorted(known, reverse=True)]
    reason = next(filter(None, given), None)
    said = shortened(reason or last_answer(store, session.id) or "", MAX_SAID)
    fact = "" if reason is None else id_of(reason_topic(session.session_id, reason), secret)
    return SessionOutcome(said if len(said) >= MIN_SAID else "", fact, _still_failing(done), tuple(files))


def _still_failing(done: Sequence[WorkStep]) -> str:
    """Return the last command that ran if it failed, else an empty text."""
    ran = (step for step in reversed(done) if not step.is_edit and step.exit is not None and steps(step.what))
    last = next(ran, None)
    return command_key(last.what) if last is not None and last.exit else ""


def context_sources(machine: Machine, mirror: Store | None) -> ContextSources:
    """Gather the sources of all contexts."""
    sides = [machine.store, *filter(None, [mirror])]
    projects = [(side, project_rows(side)) for side in sides]
    by_folder = [{one.cwd: one for _, one in rows} for _, rows in projects]
    gone = forgotten_memories(machine.store)
    memories = [
        (memory, _place_of(memory, by_folder[-1 if memory.memory == "mirror" else 0]))
        for memory in filter(is_trusted, list_memories(machine, status="active", limit=MAX_MEMORIES))
        if memory.id not in gone
    ]
    unreviewed = [one.id for one, _ in memories if one.source.startswith("learned")]
    evidence = {uid: known for side in sides for uid, known in evidence_for(side, unreviewed).items()}
    confidences = {uid: confidence_of(known) for uid, known in evidence.items()}
    return ContextSources(machine, sides, memories, projects, confidences=confidences)


def _place_of(memory: Remembered, known: Mapping[str, Project]) -> Project | None:
    if memory.cwd is None:
        return None
    return known.get(memory.cwd) or Project(memory.cwd, name=memory.project or "")


LOCK = "context.lock"
LOCK_SECONDS = 10.0
TRIES = 3
VARIABLES = (
    "CRYSTAL_CONTEXT_ENABLED",
    "CRYSTAL_CONTEXT_TOKENS",
    "CRYSTAL_ASSIST_MODE",
    *(f"CRYSTAL_ASSIST_{name.upper()}" for name in MOMENTS.values()),
    "CRYSTAL_ASSIST_TOKENS",
    "CRYSTAL_PRIVATE_PROJECTS",
    "CRYSTAL_PRIVATE_SESSIONS",
)


@contextlib.contextmanager
def seen_by(machine: Machine, agent: str | None, folder: str | None) -> Iterator[ContextSources]:
    """Yield what an agent sees in a folder; None is one that is not known."""
    if not machine.config.hidden_from(agent) and not machine.config.isolated_projects:
        with mirror_of(machine) as mirror:
            yield context_sources(machine, mirror)
        return
    with open_reader_for(agent, folder, {"data_dir": machine.places.data_dir}) as seen:
        yield context_sources(seen, seen.mirror_store)


def seen_folders(machine: Machine) -> Iterator[tuple[str | None, ContextSources, list[Project]]]:
    """Yield the folders that are not private, with what is seen there; where one is isolated, alone, with its name."""
    policy, patterns = policy_of(machine.store, machine.config), machine.config.isolated_projects
    isolated = isolated_projects([machine.store], patterns).folders
    for where in (None, *sorted({*isolated.values()})):
        with seen_by(machine, CLAUDE_CODE, where) as here:
            folders = [one for one in here.folders() if isolated.get(one.cwd, outermost(patterns, one.cwd)) == where]
            yield where, here, [one for one in folders if not policy.is_private_folder(one.cwd)]


def _contexts(machine: Machine) -> Iterator[PreparedContext]:
    """Make the contexts of all folders."""
    for where, here, folders in seen_folders(machine) if machine.config.tells_at_start else ():
        if not where:
            yield PreparedContext(None, here.context_for(None))
        yield from (PreparedContext(one.cwd, here.context_for(one)) for one in folders)


def write_session_contexts(machine: Machine) -> None:
    """Write the contexts for session starts; remove them if the setting or capture is off."""
    data_dir = machine.places.data_dir
    with await_lock(data_dir / LOCK, seconds=LOCK_SECONDS) as held:
        config = machine.config
        is_on = config.tells_at_start or config.assist_moments
        if not held or not is_on or policy_of(machine.store, config).is_off:
            clear_contexts(data_dir)
            return
        for _ in range(TRIES):
            before = state_of_memory(machine.store)
            write_contexts(data_dir, _rules(machine), _contexts(machine))
            if state_of_memory(machine.store) == before:
                return
        clear_contexts(data_dir)  # what was forgotten meanwhile may be in it; the next call rebuilds it


def record_injections(machine: Machine) -> None:
    """Move the hook's marks of given contexts since the last call into the store."""
    for path, injection in read_marks(machine.places.data_dir, machine.now()):
        if injection is not None:
            add_injection(machine.store, injection)
        empty_mark(path)


def _rules(machine: Machine) -> Rules:
    config, file = machine.config, str(machine.places.config_file)
    open_marks = [mark for mark in marks(machine.store) if mark.until_at is None and mark.session_id is not None]
    return Rules(
        config=file,
        stamp=config.stamp,
        variables={name: os.environ.get(name, "") for name in VARIABLES},
        private_sessions=tuple(map(literal_prefix, config.private_sessions)),
        private_folders=tuple(map(literal_prefix, config.private_projects)),
        off=tuple(sorted({str(mark.session_id) for mark in open_marks})),
        moments=config.assist_moments,
        assist_tokens=str(config.assist_tokens),
        is_for_all=CLAUDE_CODE not in config.isolated,
    )


def literal_prefix(pattern: str) -> str:
    """Return the literal prefix of everything that a pattern matches."""
    return pattern[: min((at for at in map(pattern.find, "*?[") if at >= 0), default=len(pattern))]


@dataclass(frozen=True, slots=True)
class Preview:
    """Context that a session in a folder would get now; ``refusals`` say why it would get none."""

    folder: str
    project: str | None
    budget: int
    told: SessionContext
    refusals: tuple[str, ...]
    notes: tuple[str, ...] = ()


def preview(machine: Machine, folder: str) -> Preview:
    """Return what a session that began in a folder now would be given, and why that may be nothing."""
    policy, config = policy_of(machine.store, machine.config), machine.config
    with seen_by(machine, CLAUDE_CODE, folder) as found:
        here = next((one for one in found.folders() if one.cwd == folder), None)
        told = found.context_for(here)
    notes = [] if here else ["no session was captured in this folder yet: the context has only what applies everywhere"]
    refusals = []
    if not config.tells_at_start:
        refusals.append("context is off; to switch it on: crystal config set context.enabled true")
    if truthy(os.environ.get("CRYSTAL_PRIVATE")):
        refusals.append("CRYSTAL_PRIVATE is set")
    if policy.is_off:
        refusals.append("capture is off: crystal --on")
    beginnings = tuple(map(literal_prefix, config.private_projects))
    if policy.is_private_folder(folder):
        refusals.append("the folder is private")
    elif here is None and folder.startswith(beginnings):
        refusals.append("crystal does not know the folder, and it may be private")
    return Preview(folder, here.name if here else None, config.context_tokens, told, tuple(refusals), tuple(notes))


def injection_log(machine: Machine, limit: int) -> list[Injection]:
    """Return the log of injected contexts, latest first; with the marks that no worker has moved to the store yet."""
    noted = injections(machine.store, limit)
    known = {(one.session_id, one.source) for one in noted}
    waiting = [one for _, one in read_marks(machine.places.data_dir, machine.now()) if one is not None]
    fresh = [one for one in waiting if (one.session_id, one.source) not in known]
    return sorted([*fresh, *noted], key=lambda one: -one.at)[:limit]
