"""Sources of a folder's context: memories and sessions of this machine and of the mirror, gathered once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from crystal.app.context import Machine
from crystal.app.memory_queries import list_memories
from crystal.context import LastSession, MemoryCandidate, Told, choose, is_same_project, is_trusted, rank
from crystal.context.choosing import MAX_SESSIONS, user_title
from crystal.model.capture import Project
from crystal.model.recall import Remembered
from crystal.store import Store
from crystal.store.forget.forgetting import is_work_left
from crystal.store.memories.memories import forgotten_memories
from crystal.store.sessions.contexts import blocked_sessions, project_rows, working_folders
from crystal.store.sessions.conversations import first_words, list_sessions
from crystal.summarize.simple import first_words as shortened

MAX_FOLDERS = 50
MAX_MEMORIES = 10_000
WORDS_READ = 2_000


@dataclass(slots=True)
class ContextSources:
    """Sources of all contexts: active memories that were stored on request, each with its project."""

    machine: Machine
    sides: Sequence[Store]
    memories: list[tuple[Remembered, Project | None]]
    projects: list[tuple[Store, list[tuple[int, Project]]]]
    made: dict[str | None, Told] = field(default_factory=dict)

    def told(self, here: Project | None) -> Told:
        """Return the context for a project's folder; ``here`` is None for a folder that nothing is known of."""
        place = None if here is None else here.git_root or here.cwd
        if place not in self.made:
            self.made[place] = self._made(here)
        return self.made[place]

    def folders(self) -> list[Project]:
        """Return this machine's folders with recent work or memories of their own, with their repositories."""
        device, found = self.machine.config.device, dict[str, Project]()
        known = [one for side in self.sides for one in working_folders(side, device, MAX_FOLDERS)]
        places = {one.cwd: one for memory, one in self.memories if one is not None and memory.device == device}
        known += list(places.values())[:MAX_FOLDERS]
        for one in known:
            found.setdefault(one.cwd, one)
            if one.git_root is not None:
                found.setdefault(one.git_root, Project(one.git_root, one.git_root, one.remote, one.name))
        return list(found.values())

    def _made(self, here: Project | None) -> Told:
        candidates = []
        for memory, project in self.memories:
            is_here = here is not None and project is not None and self._is_same(here, project, memory.device)
            if is_here or project is None:
                candidates.append(MemoryCandidate(memory, is_here))
        sessions = [] if here is None else self._sessions(here)
        where = f"project {here.name}" if here is not None else "for every project"
        origin = f"crystal, {where}, words of the user and the assistant"
        return choose(rank(candidates), sessions, self.machine.config.context_tokens, origin, None)

    def _is_same(self, here: Project, other: Project, device: str) -> bool:
        return is_same_project(here, other, same_machine=device == self.machine.config.device)

    def _sessions(self, here: Project) -> list[LastSession]:
        """Return the last sessions of a project in which the user wrote something, each named by the user's own words.

        Never by a title: that may come from the client or a model, which read tools' results too.
        """
        own, found = self.machine.store, dict[str, LastSession]()
        for side, projects in self.projects:
            known = {row: one for row, one in projects if self._is_same(here, one, "") or self._is_here(here, one)}
            ids = list(known)
            rows = list_sessions(side, projects=ids, since=None, before=None, limit=8 * MAX_SESSIONS) if ids else []
            gone = blocked_sessions(own, [row.id for row in rows]) if side is not own or is_work_left(own) else ()
            most = len(found) + MAX_SESSIONS
            for row in rows:
                if len(found) == most:
                    break
                if row.id in found or row.id in gone or not self._is_of(here, row.cwd, row.device, known.values()):
                    continue
                title = user_title(first_words(side, row.row, WORDS_READ), shortened)
                if title is not None:
                    found[row.id] = LastSession(row.id, title, row.last_at, row.branch, row.device)
        return sorted(found.values(), key=lambda one: (one.at is None, -(one.at or 0)))[:MAX_SESSIONS]

    def _is_here(self, here: Project, other: Project) -> bool:
        return self._is_same(here, other, self.machine.config.device)

    def _is_of(self, here: Project, cwd: str | None, device: str, known: Iterable[Project]) -> bool:
        return any(one.cwd == cwd and self._is_same(here, one, device) for one in known)


def tellable(machine: Machine, mirror: Store | None) -> ContextSources:
    """Gather the sources of all contexts."""
    sides = [machine.store, *([] if mirror is None else [mirror])]
    projects = [(side, project_rows(side)) for side in sides]
    by_folder = [{one.cwd: one for _, one in rows} for _, rows in projects]
    memories, gone = [], forgotten_memories(machine.store)
    for memory in list_memories(machine, status="active", limit=MAX_MEMORIES):
        if is_trusted(memory) and memory.id not in gone:
            known = by_folder[-1 if memory.memory == "mirror" else 0]
            place = (
                None if memory.cwd is None else known.get(memory.cwd) or Project(memory.cwd, name=memory.project or "")
            )
            memories.append((memory, place))
    return ContextSources(machine, sides, memories, projects)
