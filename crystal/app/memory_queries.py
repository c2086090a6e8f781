"""Look up memories: this machine's own and the mirror's merged, the newest version of each."""

from __future__ import annotations

import contextlib
import os
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping

from crystal.app.context import Machine
from crystal.app.mirror import open_mirror
from crystal.errors import NotFoundError, UsageError
from crystal.memories.rules import checked_category, checked_status, cleaned_key
from crystal.model.capture import Project, storable
from crystal.model.quick_dataclass import replace
from crystal.model.recall import FormerMemory, Remembered
from crystal.store import Store
from crystal.store.isolation import hide
from crystal.store.memories import memories
from crystal.store.memories.history import history_of
from crystal.store.memories.memories import claim_of, order_of
from crystal.store.notes import ALIAS, read_note
from crystal.text.folders import is_folder, is_within

SHOWN = 8
"""Maximum number of ids in an error about an ambiguous beginning."""


def list_memories(
    machine: Machine,
    *,
    category: str | None = None,
    project: str | None = None,
    key: str | None = None,
    status: str | None = "active",
    limit: int = 100,
) -> list[Remembered]:
    """Return the memories, the latest first.

    Args:
        machine: This machine.
        category: Only these.
        project: Only of this one: a name, or a folder and all below it.
        key: Only the one with this key, or with ``*`` at the end those whose keys begin so.
        status: ``active``, ``proposed`` (learned, and not reviewed), ``deprecated``, or None for all.
        limit: How many at most.

    Raises:
        UsageError: A value that cannot be used.
    """
    if limit < 1:
        raise UsageError(f"the number of memories is {limit}", hint="use 1 or more")
    kind = None if category is None else checked_category(category)
    is_proposed = status is not None and status.strip().lower() == "proposed"
    state = None if status is None else checked_status("deprecated" if is_proposed else status)
    tests: list[Callable[[Remembered], bool]] = [] if kind is None else [lambda one: one.category == kind]
    tests += [] if state is None else [lambda one: one.status == state]
    tests += [lambda one: is_proposed == one.source.startswith("proposed")] if state == "deprecated" else []
    tests += [] if key is None else [_key_test(key)]
    tests += [] if project is None else [_project_test(project)]
    with mirror_of(machine) as mirror:
        every = _merged(machine.store, mirror, memories.all_memories)
    newest = sorted(every, key=lambda one: (-one.updated_at, one.id))
    return [one for one in newest if all(test(one) for test in tests)][:limit]


def memory_of(machine: Machine, id_or_prefix: str) -> Remembered:
    """Return the memory with this id or unique prefix of one; else the one with this key, active or not.

    Raises:
        NotFoundError: No memory matches.
        UsageError: There are several.
    """
    with mirror_of(machine) as mirror:
        return find_one(machine.store, mirror, id_or_prefix)


def by_key(machine: Machine, key: str) -> Remembered | None:
    """Return the active memory that has this key, or None.

    Raises:
        UsageError: It is no key.
    """
    with mirror_of(machine) as mirror:
        found = find_by_key(machine.store, mirror, cleaned_key(key, _unchanged))
    return None if found is None or found.status != "active" else found


def history(machine: Machine, ident: str) -> list[FormerMemory]:
    """Return the former versions of a memory, latest first; only those that this machine had.

    Raises:
        NotFoundError: There is no such memory.
    """
    return history_of(machine.store, memory_of(machine, ident).id)


def _merged(store: Store, mirror: Store | None, read: Callable[[Store], Iterable[Remembered]]) -> list[Remembered]:
    """Return what a reader finds in both stores, this machine's first, of each memory the newest version."""
    found = {one.id: one for one in read(store)}
    theirs = [] if mirror is None else [*read(mirror)]
    if theirs:
        known = {**memories.memories_with_ids(store, {one.id for one in theirs} - found.keys()), **found}
        gone = memories.forgotten_memories(store)
        for one in theirs:
            if one.id not in gone and (one.id not in known or order_of(known[one.id]) < order_of(one)):
                found[one.id] = replace(one, memory="mirror")
    return list(found.values())


def find_one(store: Store, mirror: Store | None, ident: str) -> Remembered:
    """Return the memory with this id, unique prefix of an id, or key; see ``memory_of``."""
    wanted = ident.strip().lower()
    found: dict[str, Remembered] = {}
    if wanted.startswith("mem-") and len(wanted) > len("mem-") and wanted.isascii():
        wanted = read_note(store, f"{ALIAS}{wanted}") or wanted
        like = _merged(store, mirror, lambda one: memories.memories_like(one, wanted, SHOWN + 1))
        found = {one.id: one for one in like}
    if not found:
        named = find_by_key(store, mirror, unicodedata.normalize("NFC", storable(ident)).strip())
        if named is not None:
            return named
        raise NotFoundError(f"there is no memory {ident.strip()[:80]!r}", hint="list them: crystal memories")
    if len(found) > 1 and wanted not in found:
        names = ", ".join(list(found)[:SHOWN])
        raise UsageError(f"{wanted!r} is the beginning of several memories: {names}", hint="use more of the id")
    return found.get(wanted) or next(iter(found.values()))


def find_by_key(store: Store, mirror: Store | None, key: str) -> Remembered | None:
    """Return the memory that has this key, active or not."""
    return max(_merged(store, mirror, lambda one: memories.memories_by_key(one, key)), key=claim_of, default=None)


def find_by_words(store: Store, mirror: Store | None, text: str, place: Project | None) -> Remembered | None:
    """Return the memory with exactly this text in a project; None as ``place`` means everywhere."""
    folder = None if place is None else place.cwd
    return next(iter(_merged(store, mirror, lambda one: memories.memories_by_words(one, text, folder))), None)


def _project_test(wanted: str) -> Callable[[Remembered], bool]:
    """Return a test for memories of a project: given by name in any case, or by a folder inside it."""
    from crystal.transcript.project import find_project  # noqa: PLC0415 - reads transcripts too; only --project needs it

    text = os.path.abspath(os.path.expanduser(wanted)) if is_folder_word(wanted) else wanted  # noqa: PTH100, PTH111
    if not is_folder(text):
        name = text.strip().casefold()
        return lambda one: one.project is not None and one.project.casefold() == name
    root = find_project(storable(text)).git_root or text
    return lambda one: one.cwd is not None and (is_within(one.cwd, text) or one.cwd == root)


def _key_test(key: str) -> Callable[[Remembered], bool]:
    wanted = unicodedata.normalize("NFC", key).strip()
    if wanted.endswith("*"):
        return lambda one: one.key is not None and one.key.startswith(wanted[:-1])
    return lambda one: one.key == wanted


def is_folder_word(wanted: str) -> bool:
    """Return True if the user's word for a project is a folder, also a relative one."""
    separators = [os.sep, os.altsep or os.sep]
    return wanted in (".", "..", "~") or any(separator in wanted for separator in separators)


@contextlib.contextmanager
def mirror_of(machine: Machine) -> Iterator[Store | None]:
    """Yield the mirror of home's memory, or None if no mirror can be read."""
    if machine.mirror is not None:
        yield machine.mirror_store
        return
    with open_mirror(machine.places, machine.config.role) as mirrored:
        if mirrored is not None and mirrored.store is not None:
            hide(mirrored.store, machine.store.hidden)
        yield None if mirrored is None else mirrored.store


def _unchanged(text: str) -> tuple[str, Mapping[str, int]]:
    """Return the text as it is: looking up needs no cleaning."""
    return text, {}
