"""Remember a text: clean and store it; on a device, seal it for home in the same transaction."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from crystal.app.context import Machine
from crystal.app.memory_queries import find_by_key, find_by_words, find_one, is_folder_word, mirror_of
from crystal.app.mirror import open_mirror
from crystal.app.project_finder import project_finder
from crystal.app.session_context import refresh
from crystal.errors import CrystalError, NotFoundError, UsageError, WatermarkMovedError
from crystal.memories.rules import (
    changed,
    checked_category,
    cleaned_key,
    cleaned_name,
    cleaned_text,
    refuse_named_secret,
)
from crystal.memories.serialize import memory_to_dict
from crystal.model.capture import Project, storable
from crystal.model.recall import Remembered
from crystal.store import Store
from crystal.store.memories import memories
from crystal.store.memories.learned import LEARNED_WORDS
from crystal.store.memories.memories import Version
from crystal.store.notes import ALIAS, write_note
from crystal.store.search.isolated import isolated_projects
from crystal.store.search.scope import project_named
from crystal.store.sync import past
from crystal.store.sync.relay_peers import home_peer

if TYPE_CHECKING:
    from crystal.redact import Redactor
    from crystal.sync.sending import Link


def store_version(machine: Machine, next_version: Callable[[Store | None, int], Version]) -> Remembered:
    """Store the next version of a memory and, on a device, seal it for home, in one transaction."""
    for attempt in (1, 2):
        link = _link(machine)
        try:
            with mirror_of(machine) as mirror, machine.store.transaction():
                version = next_version(mirror, machine.now())
                if memories.put_version(machine.store, version):
                    _tell_home(machine, link, version.memory.id)
                found = memories.memory_of(machine.store, version.memory.id)
        except WatermarkMovedError:  # the keys were rotated meanwhile
            if attempt == 2:
                raise
            continue
        break
    assert found is not None
    refresh(machine)
    return found


def _tell_home(machine: Machine, link: Link | None, uid: str) -> None:
    """Seal a memory for home. Inside the transaction that changed it; without its key it goes with the past later."""
    store = machine.store
    if home_peer(store) is None:
        return
    version = memories.version_of(store, uid)
    assert version is not None
    if link is None:
        past.include_memory(store, memories.row_of(store, uid) or 0)
    else:
        from crystal.sync.sending import put_control  # noqa: PLC0415 - brings cryptography: devices alone seal

        put_control(store, link, "memory", {"memory": memory_to_dict(version)}, lane="live", now=machine.now())


def _link(machine: Machine) -> Link | None:
    """Return the link to home, or None without a home and while its key cannot be read."""
    if home_peer(machine.store) is None:
        return None
    from crystal.app.relay_links import device_link  # noqa: PLC0415 - brings cryptography: only a device seals

    try:
        link = device_link(machine)
        if link is not None:
            _ = link.keys
    except CrystalError:  # capture and doctor report it
        return None
    return link


def own_version(store: Store, mirror: Store | None, one: Remembered) -> Version:
    """Return a memory as it is here; one of the mirror's is taken in first. Inside a transaction."""
    if one.memory == "mirror" and mirror is not None:
        theirs = memories.version_of(mirror, one.id)
        if theirs is not None:
            memories.put_version(store, theirs)
    found = memories.version_of(store, one.id)
    if found is None:
        raise NotFoundError(f"there is no memory {one.id!r} any more", hint="list them: crystal memories")
    return found


def store_fields(machine: Machine, ident: str, fields_of: Callable[[Remembered], dict[str, str]]) -> Remembered:
    """Store a memory's next version with other fields, which are made of the present one. Idempotent."""

    def next_version(mirror: Store | None, now: int) -> Version:
        old = own_version(machine.store, mirror, find_one(machine.store, mirror, ident))
        fields = fields_of(old.memory)
        if all(getattr(old.memory, name) == value for name, value in fields.items()):
            return old
        return Version(changed(old.memory, now, **fields), old.project)

    return store_version(machine, next_version)


def placed(one: Remembered, place: Project | None) -> Remembered:
    """Return a memory that holds in a project, None: everywhere."""
    name, folder = (None, None) if place is None else (place.name, place.cwd)
    return replace(one, project=name, cwd=folder)


def project_of_words(machine: Machine, wanted: str, cwd: str | None, cleaner: Redactor) -> Project:
    """Return the project that a name or a folder means: of a folder the whole repository that it is in."""
    if not is_folder_word(wanted):
        name = cleaned_name(wanted, cleaner.clean_text)
        return _known_project(machine, name) or Project(cwd=name, name=name)
    base = Path.cwd() if cwd is None else Path(cwd)
    folder = os.path.normpath(base / os.path.expanduser(wanted))  # noqa: PTH111 - links stay: transcripts may name them
    found = project_finder(machine.store)(storable(folder))
    root = found.git_root or found.cwd
    return Project(root, found.git_root, found.remote, found.name)


def _known_project(machine: Machine, name: str) -> Project | None:
    with mirror_of(machine) as mirror:
        stores = [machine.store, *([] if mirror is None else [mirror])]
        return next((found for store in stores if (found := project_named(store, name)) is not None), None)


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
    at: int | None = None,
    seen: Machine | None = None,
) -> Remembered:
    """Remember something.

    A key that is known gets the text as its new value. Words that are known in the same project are refreshed.
    What an agent remembers in an isolated project holds there.

    Args:
        machine: This machine.
        text: What to remember; secrets and private spans are taken out.
        category: What kind of thing it is; None for what it was, or a fact.
        project: Where it holds, a name or a folder (``.`` is ``cwd``); None: everywhere, or where it held before.
        cwd: The folder of the agent that asks, where a relative one begins; None for the current one.
        key: Names it for exact look-up.
        source: The interface it came through.
        session: The session in which it was asked for.
        ident: The id that was shown to the user; if it was stored before, nothing is changed. None for a new one.
        at: When it was remembered first, ms, if it is new here; None for now.
        seen: The memory as an agent sees it, see ``open_reader_for``; None for all of it.

    Raises:
        UsageError: A value that cannot be used, or a text that is nothing but secrets; or what the agent does not see
            has the key.
    """
    cleaner, look = machine.redactor(), seen or machine
    given = Remembered(
        id=ident or f"mem-{os.urandom(6).hex()}", text=cleaned_text(text, cleaner.clean_text),
        category=checked_category("fact" if category is None else category),
        key=None if key is None else cleaned_key(key, cleaner.clean_text), project=None, cwd=None,
        status="active", source=_cut(source, MAX_SOURCE) or "python", agent=machine.config.agent_id,
        device=machine.config.device, session_id=_cut(session or "", MAX_SESSION) or None, created_at=0, updated_at=0,
    )  # fmt: skip
    if given.key is not None:
        refuse_named_secret(given.key, given.text, cleaner.clean_line)
    if isolated_projects(look.stores, machine.config.isolated_projects).at(cwd):
        project = "."
    place = None if project is None else project_of_words(look, project, cwd, cleaner)

    def next_version(mirror: Store | None, now: int) -> Version:
        before = None if ident is None else memories.version_of(machine.store, ident)
        if before is not None:
            return before
        known = _known(look, given, place)
        if known is None:
            return _first(machine.store, mirror, placed(given, place), place, at or now)
        old = own_version(machine.store, mirror, known)
        if ident is not None:
            write_note(machine.store, f"{ALIAS}{ident}", old.memory.id)
        new = given if category is not None else replace(given, category=old.memory.category)
        return _renewed(old, new, place or old.project, now)

    return store_version(machine, next_version)


def _first(store: Store, mirror: Store | None, given: Remembered, where: Project | None, at: int) -> Version:
    """Return a memory's first version; what the agent does not see may have its key."""
    if given.key is not None and find_by_key(store, mirror, given.key) is not None:
        raise UsageError(f"the key {given.key!r} is taken", hint="use another key")
    return Version(replace(given, created_at=at, updated_at=at), where)


def _cut(text: str, most: int) -> str:
    return storable(text).replace("\0", "")[:most]


def _known(look: Machine, given: Remembered, place: Project | None) -> Remembered | None:
    """Return the memory with the same key, or where none is given with the same words in the same project."""
    with mirror_of(look) as mirror:
        if given.key is None:
            return find_by_words(look.store, mirror, given.text, place)
        return find_by_key(look.store, mirror, given.key)


def _renewed(old: Version, given: Remembered, where: Project | None, now: int) -> Version:
    """Return the next version of a memory that is remembered again; a key gets the new text."""
    fields: dict[str, object] = {"category": given.category, "status": "active"}
    if old.memory.source.partition(" ")[0] in LEARNED_WORDS:  # from now on somebody wrote it
        fields["source"] = given.source
    if given.key is not None and given.text != old.memory.text:
        fields |= {"text": given.text, "source": given.source, "session_id": given.session_id}
    return Version(changed(placed(old.memory, where), now, **fields), where)


def take_memories(machine: Machine) -> None:
    """Update this machine's memories from the mirror."""
    with open_mirror(machine.places) as mirrored:
        if mirrored is None or mirrored.store is None:
            return
        for uid in memories.outdated(machine.store, mirrored.store):
            theirs = memories.version_of(mirrored.store, uid)
            if theirs is not None:
                with machine.store.transaction():
                    memories.put_version(machine.store, theirs, from_home=True)
