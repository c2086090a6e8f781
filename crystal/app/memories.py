"""Remembering on this machine: new text is cleaned and stored, and what home knows is taken in from the mirror."""

from __future__ import annotations

import os
from dataclasses import replace

from crystal.app.context import Machine
from crystal.app.memory_queries import find_by_key, find_by_words, storable
from crystal.app.memory_storing import own_version, placed, project_of_words, store_version
from crystal.app.mirror import open_mirror
from crystal.memories.rules import changed, checked_category, cleaned_key, cleaned_text, refuse_named_secret
from crystal.model.capture import Project
from crystal.model.recall import Remembered
from crystal.store import Store
from crystal.store.memories import memories
from crystal.store.memories.memories import Version
from crystal.store.notes import ALIAS, write_note

MAX_SOURCE = 100
MAX_SESSION = 400


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
        source: The interface it came through.
        session: The session in which it was asked for.
        ident: The id that was shown to the user; if it was stored before, nothing is changed. None for a new one.

    Raises:
        UsageError: A value that cannot be used, or a text that is nothing but secrets.
    """
    cleaner = machine.redactor()
    kept = cleaned_text(text, cleaner.clean_text)
    kind = None if category is None else checked_category(category)
    name = None if key is None else cleaned_key(key, cleaner.clean_text)
    if name is not None:
        refuse_named_secret(name, kept, cleaner.clean_line)
    place = None if project is None else project_of_words(machine, project, cwd, cleaner)

    def next_version(mirror: Store | None, now: int) -> Version:
        store = machine.store
        before = None if ident is None else memories.version_of(store, ident)
        if before is not None:
            return before
        known = find_by_words(store, mirror, kept, place) if name is None else find_by_key(store, mirror, name)
        if known is None:
            new = _new(machine, kept, kind or "fact", name, place, source, session, now)
            return Version(replace(new, id=ident or new.id), place)
        old = own_version(store, mirror, known)
        if ident is not None:
            write_note(store, f"{ALIAS}{ident}", old.memory.id)
        where, words = place or old.project, kept if name is not None else old.memory.text
        fields: dict[str, object] = {"text": words, "category": kind or old.memory.category, "status": "active"}
        if words != old.memory.text:
            new = _new(machine, kept, "fact", name, place, source, session, now)
            fields |= {"source": new.source, "session_id": new.session_id}
        return Version(changed(placed(old.memory, where), now, **fields), where)

    return store_version(machine, next_version)


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
        source=storable(source).replace("\0", "")[:MAX_SOURCE] or "python",
        agent=config.agent_id,
        device=config.device,
        session_id=None if session is None else storable(session).replace("\0", "")[:MAX_SESSION] or None,
        created_at=now,
        updated_at=now,
    )


def take_memories(machine: Machine) -> int:
    """Update this machine's memories from the mirror; return how many were changed elsewhere."""
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
