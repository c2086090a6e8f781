"""Judge whether what hits and memories name has changed since: files in the working tree and in git, and decisions.

Reads only files in the project's folder on this machine, and runs git for a limited time. In doubt it makes no
statement.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from crystal.app.context import Machine, current_folder
from crystal.app.file_paths import FilePaths
from crystal.app.working_tree import Claim, ProjectFolder, WorkingTree
from crystal.capture.safe_open import TranscriptBlockedError, call_with_deadline
from crystal.errors import CrystalError
from crystal.model.capture import MIRROR_IDS, Project
from crystal.model.named_tuple import NamedTuple
from crystal.model.quick_dataclass import replace
from crystal.model.recall import Hit, Remembered, Validity
from crystal.model.repository_address import repository_identity
from crystal.reflect.compare import contradicts
from crystal.search.request import MemorySource, SearchRequest, SearchResult
from crystal.store import Store
from crystal.store.capture.projects import places_of
from crystal.store.memories import learned, memories
from crystal.store.memories.history import history_of
from crystal.store.work import queries
from crystal.store.work.index import calls_in, hash_for
from crystal.text.folders import is_folder, is_within, outermost
from crystal.transcript.project import find_project, work_tree
from crystal.work.calls import ToolCall, file_name
from crystal.work.validity import KnownEdit, PathInProject, named_files, worst

if TYPE_CHECKING:
    from crystal.sessions.reading import Conversation

LOOK_SECONDS = 0.5
Look = Callable[[str], "tuple[Project, tuple[str, str | None] | None]"]
SAYING = frozenset(("user", "assistant", "thinking", "subagent", "summary", "memory"))
"""Roles whose words may name a file; tools print names that nobody has written."""


class Subject(NamedTuple):
    """A text that may name something: a hit, a turn or a memory; ``id`` is that of its chunk for users."""

    id: int
    text: str
    role: str
    at: int | None
    session: str | None
    uuid: str | None
    cwd: str | None
    branch: str | None
    device: str


def search_with_validity(machine: Machine, sources: Sequence[MemorySource], request: SearchRequest) -> SearchResult:
    """Search; each hit says whether what it names has changed since, first in the current folder."""
    from crystal.search.engine import search  # noqa: PLC0415 - not for a turn or a memory that is shown

    result = search(sources, request)
    return replace(result, hits=tuple(with_validity(machine, result.hits, current_folder())))


def with_validity(machine: Machine, hits: Sequence[Hit], folder: str | None) -> list[Hit]:
    """Return hits that say whether what they name has changed since; ``folder`` is the caller's working folder."""
    subjects = [
        Subject(one.id, one.text, "memory" if one.category else one.role, one.timestamp, one.session_id, one.uuid,
                one.cwd, one.branch, one.device)
        for one in hits
    ]  # fmt: skip
    found = judge(machine, subjects, folder)
    return [replace(hit, validity=validity) for hit, validity in zip(hits, found, strict=True)]


def turns_with_validity(machine: Machine, found: Conversation, folder: str | None) -> Conversation:
    """Return a conversation; the turn that was asked for says whether what it names has changed since."""
    session, asked = found.session, [turn for turn in found.turns if turn.focus and turn.uuid is not None]
    if session is None or not asked:
        return found
    subjects = [
        Subject(turn.hit, turn.text, turn.role, turn.timestamp, session.id, turn.uuid, session.cwd,
                turn.branch, session.device)
        for turn in asked
    ]  # fmt: skip
    known = dict(zip(asked, judge(machine, subjects, folder), strict=True))
    return replace(found, turns=tuple(replace(turn, validity=known.get(turn)) for turn in found.turns))


def memory_validity(machine: Machine, one: Remembered, folder: str | None) -> Validity | None:
    """Return whether what a memory names has changed since."""
    ident = MIRROR_IDS + 1 if one.memory == "mirror" else 1
    subject = Subject(ident, one.text, "memory", one.updated_at, None, one.id, one.cwd, None, one.device)
    return judge(machine, [subject], folder)[0]


def judge(machine: Machine, subjects: Sequence[Subject], folder: str | None) -> list[Validity | None]:
    """Return whether what each text names has changed since; None if nothing is known for sure."""
    found: dict[int, list[Validity]] = {one.id: [] for one in subjects}
    for store in machine.stores:
        own = [one for one in subjects if (one.id > MIRROR_IDS) == (machine.memory_of(store) == "mirror")]
        if not own:
            continue
        for ident, validity in _superseded(store, own):
            found[ident].append(validity)
        paths = FilePaths(store)
        for place, claims in _claims(machine, store, own, folder, paths).items():
            edits = _known_edits(store, place, claims, paths)
            with contextlib.suppress(TranscriptBlockedError):
                for ident, validity in WorkingTree(place, claims, edits, partial(_edit, store)).validities():
                    found[ident].append(validity)
    return [worst(found[one.id]) for one in subjects]


def _superseded(store: Store, subjects: Sequence[Subject]) -> Iterator[tuple[int, Validity]]:
    """Yield which later memory holds now, for a text that taught one and for one that does not hold any more."""
    taught = learned.taught_by(store, [one.uuid for one in subjects if one.uuid and one.role == "user"])
    for one in subjects:
        named = [one.uuid] if one.role == "memory" else [memory for line, memory in taught if line == one.uuid]
        for name in filter(None, named):
            old = memories.memory_of(store, name)
            new = None if old is None else _later(store, old, one.at or 0)
            if new is not None:
                yield one.id, Validity(new.id, "superseded", session=new.session_id, at=new.updated_at)


def _later(store: Store, old: Remembered, at: int) -> Remembered | None:
    if old.status == "active":
        was = history_of(store, old.id)
        return old if any(one.from_at <= at < one.until_at and one.text != old.text for one in was) else None
    active = [
        one for one in memories.all_memories(store) if one.status == "active" and one.updated_at >= old.created_at
    ]
    return next((one for one in active if one.cwd in (None, old.cwd) and contradicts(one.text, old.text)), None)


# ------------------------------------------------------------------------------------------------ what is to be judged


def _claims(
    machine: Machine, store: Store, subjects: Sequence[Subject], folder: str | None, paths: FilePaths
) -> dict[ProjectFolder, list[Claim]]:
    """Return what texts say of files, by the place of their project here."""
    look = lru_cache(_look_at)
    folders = {one.cwd for one in subjects if one.cwd is not None}
    places = {cwd: _place_of(machine, store, cwd, folder, look) for cwd in folders}
    calls = _calls(store, paths, [one.id % MIRROR_IDS for one in subjects if one.role == "tool_call"])
    found: dict[ProjectFolder, list[Claim]] = {}
    for one in subjects:
        place = places.get(one.cwd or "")
        if place is not None:
            edits = calls.get(one.id % MIRROR_IDS, ())
            found.setdefault(place, []).extend(_claims_of(one, place, edits, machine.config.device, paths))
    return {place: claims for place, claims in found.items() if claims}


def _claims_of(
    one: Subject, place: ProjectFolder, edits: Sequence[tuple[ToolCall, PathInProject]], device: str, paths: FilePaths
) -> Iterator[Claim]:
    """Yield what a text says of files: of each that its call edited, and of those that it names."""
    if one.at is None or one.cwd is None:
        return
    is_branch = not place.has_git or (place.branch is not None and one.branch == place.branch)
    is_here = is_branch and one.device == device and is_within(one.cwd, place.root)
    claim = Claim(one.id, one.text, one.at, one.session, is_here, ())
    for call, file in edits:
        is_in_tree = is_here and file.tree in (None, place.root)  # that of another branch may never have come here
        yield claim._replace(is_here=is_in_tree, names=(file.path,), call=call)
    names = named_files(one.text) if one.role in SAYING else []
    if names:
        yield claim._replace(
            names=tuple(paths.inside(name, one.cwd, place.root) if is_folder(name) else name for name in names)
        )


def _calls(store: Store, paths: FilePaths, chunks: Sequence[int]) -> dict[int, list[tuple[ToolCall, PathInProject]]]:
    """Return the edits that the calls of some chunks made, each with its file."""
    rows = queries.edits_of_chunks(store, chunks)
    made = calls_in(store, {turn for _, turn, *_ in rows})
    found: dict[int, list[tuple[ToolCall, PathInProject]]] = {}
    for chunk, turn, part, cwd, folder in rows:
        known = made.get(turn, [])
        file = paths.find(known[part].what, cwd, folder) if part < len(known) else None
        if file is not None:
            found.setdefault(chunk, []).append((known[part], file))
    return found


def _edit(store: Store, one: KnownEdit) -> ToolCall | None:
    """Return what an edit did; None if it was forgotten meanwhile."""
    return next(iter(calls_in(store, [one.turn]).get(one.turn, [])[one.part : one.part + 1]), None)


def _place_of(machine: Machine, store: Store, cwd: str, folder: str | None, look: Look) -> ProjectFolder | None:
    """Return where the project of a folder is on this machine: where the one who asks works comes first."""
    known = places_of(store, cwd)
    roots = [root for _, root, _ in known]
    names = {name for *_, name in known if name and not name.startswith(("commit:", "joined:"))}
    addresses = set(map(repository_identity, names))
    for at in dict.fromkeys(one for one in (folder, cwd, *roots) if one and is_folder(one)):
        with contextlib.suppress(CrystalError):
            project, tree = look(at)
            is_private = outermost(machine.config.private_projects, at) is not None
            if tree is not None and not is_private and _is_of(project, at, roots, addresses):
                return ProjectFolder(*tree, project.git_root is not None, tuple(row for row, *_ in known))
    return None


def _is_of(project: Project, at: str, roots: Sequence[str], addresses: Collection[str]) -> bool:
    """Return whether a folder belongs to a project: by its remote if both have one, else by its place."""
    if project.remote and addresses:
        return project.remote in addresses
    return (project.git_root or at) in roots


def _look_at(folder: str) -> tuple[Project, tuple[str, str | None] | None]:
    """Return the project of a folder, and the top of its working tree with the branch; None if it is not there."""

    def step() -> tuple[Project, tuple[str, str | None] | None]:
        return find_project(folder), work_tree(folder) or ((folder, None) if Path(folder).is_dir() else None)

    return call_with_deadline(step, folder, LOOK_SECONDS)


def _known_edits(
    store: Store, place: ProjectFolder, claims: Sequence[Claim], paths: FilePaths
) -> dict[str, list[KnownEdit]]:
    """Return the edits of the files that are named, by path, latest first."""
    hash_of = hash_for(store)
    keys = {hash_of(file_name(name)) for claim in claims for name in claim.names}
    found: dict[str, list[KnownEdit]] = {}
    for row in reversed(queries.changed_rows(store, projects=place.rows, keys=keys)):
        file = paths.find(row.path, row.cwd, row.folder)
        if file is not None:
            found.setdefault(file.path, []).append(KnownEdit(row.session_id, row.at, row.turn, row.part))
    return found
