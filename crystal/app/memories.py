"""Remembering on this machine: every change is cleaned, stored, and on a device sealed for home in one transaction.

What is listed or looked up is this machine's own and the mirror's of home together; of one memory the newest version.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from crystal.app.context import Machine
from crystal.app.memory_queries import (
    by_key,
    find_by_key,
    find_by_words,
    find_one,
    history,
    is_folder_word,
    list_memories,
    memory_of,
    mirror_of,
    storable,
)
from crystal.app.mirror import open_mirror
from crystal.app.session_context import refresh
from crystal.errors import CrystalError, NotFound, UsageProblem, WatermarkMoved
from crystal.memories.rules import (
    changed,
    checked_category,
    cleaned_key,
    cleaned_name,
    cleaned_text,
    refuse_named_secret,
)
from crystal.model.capture import Project
from crystal.model.recall import Remembered
from crystal.store import Store
from crystal.store.memories import memories
from crystal.store.memories.memories import Version
from crystal.store.notes import ALIAS, write_note

if TYPE_CHECKING:
    from crystal.redact import Redactor
    from crystal.sync.sending import Link

MOST_SOURCE = 100
MOST_SESSION = 400

__all__ = [
    "by_key", "deprecate", "edit", "history", "list_memories", "memory_of", "remember", "revive", "take_memories",
]  # fmt: skip


def remember(  # noqa: PLR0913 - each is a field of the memory
    machine: Machine,
    text: str,
    *,
    category: str | None = None,
    project: str | None = None,
    cwd: str | None = None,
    key: str | None = None,
    source: str = "cli",
    session: str | None = None,
    ident: str | None = None,
) -> Remembered:
    """Remember something.

    A key that is known gets the text as its new value. Words that are known in the same project are refreshed.

    Args:
        machine: This machine.
        text: What to remember; secrets and private spans are taken out.
        category: What kind of thing it is; None for what it was, or a fact.
        project: Where it holds, a name or a folder (``.`` is ``cwd``); None: everywhere, or where it held before.
        cwd: The folder that a relative one begins at; None for the current one.
        key: Names it for exact look-up.
        source: By which door it came.
        session: The session in which it was asked for.
        ident: The id that the user was told; if it was stored before, nothing is changed. None for a new one.

    Raises:
        UsageProblem: A value that cannot be used, or a text that is nothing but secrets.
    """
    cleaner = _cleaner(machine)
    kept = cleaned_text(text, cleaner.clean_text)
    kind = None if category is None else checked_category(category)
    name = None if key is None else cleaned_key(key, cleaner.clean_text)
    if name is not None:
        refuse_named_secret(name, kept, cleaner.clean_line)
    place = None if project is None else _project_of(machine, project, cwd, cleaner)

    def next_version(mirror: Store | None, now: int) -> Version:
        store = machine.store
        before = None if ident is None else memories.version_of(store, ident)
        if before is not None:
            return before
        known = find_by_words(store, mirror, kept, place) if name is None else find_by_key(store, mirror, name)
        if known is None:
            new = _new(machine, kept, kind or "fact", name, place, source, session, now)
            return Version(replace(new, id=ident or new.id), place)
        old = _here(store, mirror, known)
        if ident is not None:
            write_note(store, f"{ALIAS}{ident}", old.memory.id)
        where, words = place or old.project, kept if name is not None else old.memory.text
        fields: dict[str, object] = {"text": words, "category": kind or old.memory.category, "status": "active"}
        if words != old.memory.text:
            new = _new(machine, kept, "fact", name, place, source, session, now)
            fields |= {"source": new.source, "session_id": new.session_id}
        return Version(changed(_placed(old.memory, where), now, **fields), where)

    return _store(machine, next_version)


def edit(
    machine: Machine,
    ident: str,
    *,
    text: str | None = None,
    category: str | None = None,
    key: str | None = None,
    project: str | None = None,
    cwd: str | None = None,
) -> Remembered:
    """Change a memory; what is None stays. An empty key takes the key away, an empty project lets it hold everywhere.

    Raises:
        NotFound: There is no such memory.
        UsageProblem: A value that cannot be used, a key that another memory has, or nothing to change.
    """
    if text is None and category is None and key is None and project is None:
        raise UsageProblem("nothing to change is given", hint="give a text, --category, --key or --project")
    _take_waiting(machine, ident)
    cleaner = _cleaner(machine)
    fields: dict[str, object] = {} if text is None else {"text": cleaned_text(text, cleaner.clean_text)}
    if category is not None:
        fields["category"] = checked_category(category)
    if key is not None:
        fields["key"] = cleaned_key(key, cleaner.clean_text) if key else None
    place = _project_of(machine, project, cwd, cleaner) if project else None

    def next_version(mirror: Store | None, now: int) -> Version:
        old = _here(machine.store, mirror, find_one(machine.store, mirror, ident))
        _refuse_taken(machine.store, mirror, old.memory, fields.get("key"))
        where = old.project if project is None else place
        new = changed(_placed(old.memory, where), now, **fields)
        if new.key is not None:
            refuse_named_secret(new.key, new.text, cleaner.clean_line)
        return Version(new, where)

    return _store(machine, next_version)


def deprecate(machine: Machine, ident: str) -> Remembered:
    """Hide a memory: it is not listed and not found any more, and can be brought back. Idempotent.

    Raises:
        NotFound: There is no such memory.
    """
    return _set_status(machine, ident, "deprecated")


def revive(machine: Machine, ident: str) -> Remembered:
    """Bring a deprecated memory back. Idempotent.

    Raises:
        NotFound: There is no such memory.
    """
    return _set_status(machine, ident, "active")


def _take_waiting(machine: Machine, ident: str) -> None:
    """Act on the hook's notes if one of them holds this memory: its id was told before it was stored."""
    from crystal.app.capture import run_capture
    from crystal.capture.engine import Tally
    from crystal.capture.spool import read_notes

    asked = [note.asked for note in read_notes(machine.places.spool)]
    if any(one is not None and one.memory_id == ident.strip().lower() for one in asked):
        run_capture(machine, lambda _: Tally())


def _set_status(machine: Machine, ident: str, status: str) -> Remembered:
    _take_waiting(machine, ident)

    def next_version(mirror: Store | None, now: int) -> Version:
        old = _here(machine.store, mirror, find_one(machine.store, mirror, ident))
        return old if old.memory.status == status else Version(changed(old.memory, now, status=status), old.project)

    return _store(machine, next_version)


# ------------------------------------------------------------------------------------------------------------ storing


def _store(machine: Machine, next_version: Callable[[Store | None, int], Version]) -> Remembered:
    """Store what comes next, and on a device seal it for home; both or neither."""
    for attempt in (1, 2):
        link = _link(machine)
        try:
            with mirror_of(machine) as mirror, machine.store.transaction():
                version = next_version(mirror, machine.now())
                if memories.put_version(machine.store, version):
                    _tell_home(machine, link, version.memory.id)
                found = memories.memory_of(machine.store, version.memory.id)
        except WatermarkMoved:  # the keys were rotated meanwhile
            if attempt == 2:
                raise
            continue
        break
    assert found is not None
    refresh(machine)
    return found


def _tell_home(machine: Machine, link: Link | None, uid: str) -> None:
    """Seal a memory for home. Inside the transaction that changed it; without its key it goes with the past later."""
    from crystal.store.sync import past
    from crystal.store.sync.relay_peers import home_peer
    from crystal.sync.memories import put_memory

    store = machine.store
    if home_peer(store) is None:
        return
    version = memories.version_of(store, uid)
    assert version is not None
    if link is None:
        past.include_memory(store, memories.row_of(store, uid) or 0)
    else:
        put_memory(store, link, version, lane="live", now=machine.now())


def _link(machine: Machine) -> Link | None:
    """The link to home, None where there is none or its key cannot be read just now."""
    from crystal.app.sync.links import device_link

    try:
        link = device_link(machine)
        if link is not None:
            _ = link.keys
    except CrystalError:  # it is named where a capture meets it, and by doctor
        return None
    return link


def _new(
    machine: Machine,
    text: str,
    category: str,
    key: str | None,
    place: Project | None,
    source: str,
    session: str | None,
    now: int,
) -> Remembered:
    config = machine.config
    name, folder = (None, None) if place is None else (place.name, place.cwd)
    return Remembered(
        id=f"mem-{os.urandom(6).hex()}",
        text=text,
        category=checked_category(category),
        key=key,
        project=name,
        cwd=folder,
        status="active",
        source=storable(source).replace("\0", "")[:MOST_SOURCE] or "python",
        agent=config.agent_id,
        device=config.device,
        session_id=None if session is None else storable(session).replace("\0", "")[:MOST_SESSION] or None,
        created_at=now,
        updated_at=now,
    )


def _placed(one: Remembered, place: Project | None) -> Remembered:
    name, folder = (None, None) if place is None else (place.name, place.cwd)
    return replace(one, project=name, cwd=folder)


# ----------------------------------------------------------------------------------------------------------- projects


def _project_of(machine: Machine, wanted: str, cwd: str | None, cleaner: Redactor) -> Project:
    """The project that a name or a folder means: of a folder the whole repository that it is in."""
    from crystal.app.projects import project_finder

    if not is_folder_word(wanted):
        name = cleaned_name(wanted, cleaner.clean_text)
        return _known_project(machine, name) or Project(cwd=name, name=name)
    base = Path.cwd() if cwd is None else Path(cwd)
    folder = os.path.normpath(base / os.path.expanduser(wanted))  # noqa: PTH111 - links stay: transcripts may name them
    found = project_finder(machine.store)(storable(folder))
    root = found.git_root or found.cwd
    return Project(root, found.git_root, found.remote, found.name)


def _known_project(machine: Machine, name: str) -> Project | None:
    from crystal.store.search.scope import project_named

    with mirror_of(machine) as mirror:
        stores = [machine.store, *([] if mirror is None else [mirror])]
        return next((found for store in stores if (found := project_named(store, name)) is not None), None)


# ------------------------------------------------------------------------------------------------------------- around


def _here(store: Store, mirror: Store | None, one: Remembered) -> Version:
    """A memory as it is here; one of the mirror's is taken in first. Inside a transaction."""
    if one.memory == "mirror" and mirror is not None:
        theirs = memories.version_of(mirror, one.id)
        if theirs is not None:
            memories.put_version(store, theirs)
    found = memories.version_of(store, one.id)
    if found is None:
        raise NotFound(f"there is no memory {one.id!r} any more", hint="list them: crystal memories")
    return found


def _refuse_taken(store: Store, mirror: Store | None, one: Remembered, key: object) -> None:
    other = find_by_key(store, mirror, key) if isinstance(key, str) else None
    if other is not None and other.id != one.id and other.status == "active":
        raise UsageProblem(
            f"the key {key!r} belongs to {other.id}", hint=f"give it another value: crystal remember --key {key} TEXT"
        )


def _cleaner(machine: Machine) -> Redactor:
    from crystal.redact import Redactor

    return Redactor(machine.redaction_key(), secrets=machine.config.redact_enabled)


def take_memories(machine: Machine) -> int:
    """Bring this machine's own memories up to date with the mirror; gives how many were changed elsewhere."""
    taken = 0
    with open_mirror(machine.places) as mirrored:
        if mirrored is None or mirrored.store is None:
            return 0
        for uid in memories.outdated(machine.store, mirrored.store):
            theirs = memories.version_of(mirrored.store, uid)
            if theirs is not None:
                with machine.store.transaction():
                    taken += memories.take_from_home(machine.store, theirs)
    return taken
