"""Change a memory: its text, its kind, its key, where it holds, and whether it is shown."""

from __future__ import annotations

from collections.abc import Mapping

from crystal.app.capture import run_capture
from crystal.app.context import Machine
from crystal.app.memories import own_version, placed, project_of_words, store_fields, store_version
from crystal.app.memory_queries import find_by_key, find_one
from crystal.capture.engine import Tally
from crystal.capture.spool import read_notes
from crystal.errors import UsageError
from crystal.memories.rules import changed, checked_category, cleaned_key, cleaned_text, refuse_named_secret
from crystal.model.recall import Remembered
from crystal.reflect.learn import LEARNED, PROPOSED, REFUSED, REVIEWED, judged
from crystal.store import Store
from crystal.store.memories.memories import Version


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
    """Change a memory; None leaves a field unchanged. An empty key removes the key, an empty project means everywhere.

    Raises:
        NotFoundError: There is no such memory.
        UsageError: A value that cannot be used, a key that another memory has, or nothing to change.
    """
    if text is None and category is None and key is None and project is None:
        raise UsageError("no change was given", hint="give a text, --category, --key or --project")
    _take_waiting(machine, ident)
    cleaner = machine.redactor()
    fields: dict[str, object] = {} if text is None else {"text": cleaned_text(text, cleaner.clean_text)}
    if category is not None:
        fields["category"] = checked_category(category)
    if key is not None:
        fields["key"] = cleaned_key(key, cleaner.clean_text) if key else None
    place = project_of_words(machine, project, cwd, cleaner) if project else None

    def next_version(mirror: Store | None, now: int) -> Version:
        old = own_version(machine.store, mirror, find_one(machine.store, mirror, ident))
        _refuse_taken(machine.store, mirror, old.memory, fields.get("key"))
        where = old.project if project is None else place
        new = changed(placed(old.memory, where), now, **fields)
        if new.key is not None:
            refuse_named_secret(new.key, new.text, cleaner.clean_line)
        return Version(new, where)

    return store_version(machine, next_version)


def deprecate(machine: Machine, ident: str) -> Remembered:
    """Hide a memory from lists and searches, until it is revived; reject a proposal. Idempotent.

    Raises:
        NotFoundError: There is no such memory.
    """
    return _set_status(machine, ident, "deprecated", {PROPOSED: LEARNED})


def revive(machine: Machine, ident: str) -> Remembered:
    """Restore a deprecated memory; a learned one then counts as reviewed. Idempotent.

    Raises:
        NotFoundError: There is no such memory.
    """
    return _set_status(machine, ident, "active", dict.fromkeys((PROPOSED, LEARNED, REFUSED), REVIEWED))


def _take_waiting(machine: Machine, ident: str) -> None:
    """Process the hook's notes if one of them holds this memory: its id was shown before it was stored."""
    asked = [note.asked for note in read_notes(machine.places.spool)]
    if any(one is not None and one.memory_id == ident.strip().lower() for one in asked):
        run_capture(machine, lambda _: Tally())


def _set_status(machine: Machine, ident: str, status: str, words: Mapping[str, str]) -> Remembered:
    """Change the status, and of a learned memory the first word of its source."""

    def fields_of(old: Remembered) -> dict[str, str]:
        word = old.source.partition(" ")[0]
        return {"status": status, "source": judged(old, words.get(word, word))}

    _take_waiting(machine, ident)
    return store_fields(machine, ident, fields_of)


def _refuse_taken(store: Store, mirror: Store | None, one: Remembered, key: object) -> None:
    other = find_by_key(store, mirror, key) if isinstance(key, str) else None
    if other is not None and other.id != one.id and other.status == "active":
        raise UsageError(
            f"the key {key!r} belongs to {other.id}", hint=f"give it another value: crystal remember --key {key} TEXT"
        )
