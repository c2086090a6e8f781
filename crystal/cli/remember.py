"""``crystal remember`` and ``crystal get``: keep what somebody asks to keep, and look it up by its exact key."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from crystal.app.context import Machine
    from crystal.model.recall import FormerMemory, Remembered

MAX_READ = 16 << 20
"""So many bytes are read from standard input: more than any memory has."""


def remember(
    text: Annotated[
        list[str] | None,
        typer.Argument(help="What to remember; - or no text reads standard input.", metavar="TEXT"),
    ] = None,
    category: Annotated[
        str | None, typer.Option(help="fact (default), preference, event, opinion, skill.", metavar="CATEGORY")
    ] = None,
    project: Annotated[
        str | None,
        typer.Option(
            help="Where it applies: a project's name or folder (. is this one). Default: everywhere.", metavar="PROJECT"
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(help="A name for exact lookup; a known key gets the text as its new value.", metavar="KEY"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Remember something. Secrets are removed first; the same text again only refreshes the memory."""
    from crystal.app.background import embed_soon
    from crystal.app.context import open_machine
    from crystal.app.memories import remember as keep
    from crystal.cli.render import note, say

    words = read_words(text)
    with open_machine() as machine:
        notes = _unknown(machine, project)
        one = keep(machine, words, category=category, project=project, key=key)
        embed_soon(machine)
    note(*notes, *left_out(one, words))
    if as_json:
        print(json.dumps({"schema": 1, "memory": memory_json(one)}))
        return
    known = "" if one.created_at == one.updated_at else ", already known"
    say(f"remembered as {one.id}{known}: {described(one)}")


def left_out(kept: Remembered, asked: str) -> tuple[str, ...]:
    """Return a note if something was taken out of a text that is kept."""
    from crystal.memories.rules import is_as_given

    return () if is_as_given(kept.text, asked) else ("secrets and private parts were removed from the text",)


def get(
    memory: Annotated[
        str | None, typer.Argument(help="A memory's id, or its beginning.", metavar="ID", show_default=False)
    ] = None,
    key: Annotated[str | None, typer.Option(help="The key that it was remembered under.", metavar="KEY")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object: the whole memory.")] = False,
) -> None:
    """Print only the text of a memory, found by its exact key or its id. Exit code 1 when there is none."""
    from crystal.app.context import open_reader
    from crystal.app.memory_queries import by_key, list_memories, memory_of
    from crystal.cli.render import harmless, say
    from crystal.errors import NotFoundError, UsageError

    if (memory is None) == (key is None):
        raise UsageError("give a key or an id", hint="crystal get --key user_name, or crystal get mem-...")
    with open_reader() as machine:
        if key is None:
            found: Remembered | None = memory_of(machine, memory or "")
        else:
            found = by_key(machine, key)
        if found is None:
            hidden = list_memories(machine, key=key, status="deprecated", limit=1)
            hint = (
                f"bring it back: crystal memories restore {hidden[0].id}" if hidden else "list them: crystal memories"
            )
            raise NotFoundError(f"no {'active ' if hidden else ''}memory has the key {key!r}", hint=hint)
    if as_json:
        print(json.dumps({"schema": 1, "memory": memory_json(found)}))
        return
    say(harmless(found.text) if sys.stdout.isatty() else found.text)


def _unknown(machine: Machine, project: str | None) -> tuple[str, ...]:
    """Return a note if a project's name is new, as it may be a typing error; the name is accepted all the same."""
    from crystal.app.memory_queries import is_folder_word, mirror_of
    from crystal.model.recall import Filters
    from crystal.store.search.scope import project_ids, scope_of

    if project is None or not project.strip() or is_folder_word(project):
        return ()
    with mirror_of(machine) as mirror:
        if mirror is not None and project_ids(mirror, project):
            return ()
    return scope_of(machine.store, Filters(project=project)).notes


# ------------------------------------------------------------------------------------------------------------ values


def read_words(text: list[str] | None) -> str:
    """Return what the user gave, as words or on standard input.

    Raises:
        UsageError: Neither.
    """
    from crystal.errors import UsageError

    if text and text != ["-"]:
        return " ".join(text)
    if not text and sys.stdin.isatty():
        raise UsageError("there is no text", hint='try: crystal remember "we deploy on Fridays"')
    buffer = getattr(sys.stdin, "buffer", None)
    return sys.stdin.read(MAX_READ) if buffer is None else buffer.read(MAX_READ).decode("utf-8", "replace")


def memory_json(one: Remembered) -> dict[str, Any]:
    """Return a memory as the JSON output shows it."""
    from crystal.timewords.parse import iso

    return {
        "id": one.id,
        "text": one.text,
        "category": one.category,
        "key": one.key,
        "project": one.project,
        "cwd": one.cwd,
        "status": one.status,
        "source": one.source,
        "agent": one.agent,
        "device": one.device,
        "session_id": one.session_id,
        "created_at": iso(one.created_at),
        "updated_at": iso(one.updated_at),
        "from": one.memory,
    }


def former_json(one: FormerMemory) -> dict[str, Any]:
    """Return a former version of a memory as the JSON output shows it."""
    from crystal.timewords.parse import iso

    return {
        "text": one.text,
        "category": one.category,
        "status": one.status,
        "from_at": iso(one.from_at),
        "until_at": iso(one.until_at),
    }


def described(one: Remembered) -> str:
    """Describe the kind of a memory in a few words, without control characters."""
    from crystal.cli.render import one_line

    parts = [
        one.category,
        None if one.key is None else f"key {one_line(one.key)}",
        "everywhere" if one.project is None else f"project {one_line(one.project)}",
        "deprecated" if one.status == "deprecated" else None,
    ]
    return " · ".join(part for part in parts if part)
