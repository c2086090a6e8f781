"""Implement ``crystal remember``, ``get`` and ``memories``: store, find, change, hide and list memories."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from crystal.app import memory_changes
from crystal.app.context import Machine, current_folder, open_machine, open_reader
from crystal.app.memories import remember as keep
from crystal.app.memory_queries import by_key, list_memories, memory_of
from crystal.app.memory_queries import history as history_of
from crystal.app.mirror import mirror_notes
from crystal.app.reflect import learned_facts, origin_of, state_of
from crystal.app.validity import memory_validity
from crystal.cli.json_output import answer, print_json, record
from crystal.cli.options import AsJson, Limit, OnlyProject, argument, flag, option
from crystal.cli.reflect import as_record, learned_lines, review
from crystal.cli.render import Look, clipped, look_of, note, one_line, say, snippet, validity_words
from crystal.cli.values import unknown_project, whole_number
from crystal.errors import NotFoundError, UsageError
from crystal.memories.rules import is_as_given
from crystal.model.recall import Filters, Remembered
from crystal.store.search.scope import scope_of
from crystal.text.harmless import harmless
from crystal.timewords.parse import ago, clock

Ident = Annotated[str, argument("A memory's id or its beginning, or its key.", "ID", show_default=False)]
Idents = Annotated[list[str], argument("Ids of memories or their beginnings, or keys.", "ID...", show_default=False)]
Category = Annotated[str | None, option("fact, preference, event, opinion or skill.", "CATEGORY")]
TEXT_LINES = 3
MAX_READ = 16 << 20
"""Maximum bytes read from standard input: more than any memory may have."""

commands = typer.Typer(help="What was remembered.", invoke_without_command=True)


@commands.callback()
def memories(
    context: typer.Context,
    *,
    category: Category = None,
    project: OnlyProject = None,
    key: Annotated[str | None, option("Only the one with this key; 'a*' for keys that begin with a.", "KEY")] = None,
    status: Annotated[str, option("active, proposed, deprecated or all.", "STATUS")] = "active",
    limit: Limit = "50",
    as_json: AsJson = False,
) -> None:
    """List memories, newest first. To search in them: crystal search --source memory."""
    if context.invoked_subcommand is not None:
        return

    state = None if status.strip().lower() == "all" else status
    with open_reader() as machine:
        found = list_memories(
            machine, category=category, project=project, key=key, status=state,
            limit=whole_number(limit, "--limit"),
        )  # fmt: skip
        now, notes = machine.now(), mirror_notes(machine.mirror, machine.now())
        narrowed = category or project or key or state != "active"
        to_review = [] if found or narrowed else list_memories(machine, status="proposed", limit=1)
        if project and not found:
            notes = (*scope_of(machine.store, Filters(project=project)).notes, *notes)
    look = look_of(sys.stdout)
    lines = [line for one in found for line in (*_lines(one, now, look), "")]
    first = "crystal memories review" if to_review else 'crystal remember "we deploy on Fridays"'
    nothing = "no memories", "widen the filters" if narrowed else first
    every = {"notes": notes, "memories": record(found)}
    answer(every, lines, as_json=as_json, notes=notes, nothing=nothing)


@commands.command()
def edit(
    memory: Ident,
    text: Annotated[
        list[str] | None, argument("The new text; - reads it from standard input.", "TEXT", show_default=False)
    ] = None,
    category: Category = None,
    key: Annotated[str | None, option("Its new key; '' removes the key.", "KEY")] = None,
    project: Annotated[str | None, option("Its new project, a name or a folder; '' for everywhere.", "PROJECT")] = None,
    as_json: AsJson = False,
) -> None:
    """Change a memory. Its former version is kept."""
    words = read_words(text) if text else None
    with open_machine() as machine:
        one = memory_changes.edit(machine, memory, text=words, category=category, key=key, project=project)
        _embed_soon(machine)
    if words is not None:
        note(*left_out(one, words))
    _tell("changed", [one], as_json=as_json)


commands.command()(review)


@commands.command(name="show")
@commands.command()
def history(memory: Ident, as_json: AsJson = False) -> None:
    """Show a memory, its former versions, newest first, and the words from which it was learned."""
    with open_reader() as machine:
        show_memory(machine, memory, as_json=as_json)


@commands.command()
def deprecate(memory: Idents, as_json: AsJson = False) -> None:
    """Hide memories from lists and searches. To delete them for good: crystal forget."""
    with open_machine() as machine:
        found = [memory_changes.deprecate(machine, ident) for ident in memory]
    _tell("deprecated", found, as_json=as_json)


@commands.command()
def restore(memory: Idents, as_json: AsJson = False) -> None:
    """Show hidden memories again."""
    with open_machine() as machine:
        found = [memory_changes.revive(machine, ident) for ident in memory]
        _embed_soon(machine)
    _tell("restored", found, as_json=as_json)


# ------------------------------------------------------------------------------------------------------------ output


def show_memory(machine: Machine, ident: str, *, as_json: bool) -> None:
    """Print a memory and its former versions."""
    one = memory_of(machine, ident)
    former, facts = history_of(machine, one.id), learned_facts(machine, one)
    validity = memory_validity(machine, one, current_folder())
    if as_json:
        how = None if facts is None else as_record(facts)
        print_json({"memory": record(one), "history": record(former), "learned": how, "validity": record(validity)})
        return
    now, look = machine.now(), look_of(sys.stdout)
    say(look.bold(one.id) + look.dim(f" · {described(one)}"), look.dim(_origin(one, now)), "", harmless(one.text))
    say(*([] if validity is None else ["", look.warning(validity_words(validity))]))
    for was in former:
        span = f"{clock(was.from_at, now)} to {clock(was.until_at, now)}"
        hidden = "" if was.status == "active" else ", not active"
        say("", look.dim(f"from {span}: {was.category}{hidden}"), harmless(was.text))
    if facts is not None:
        say("", *learned_lines(facts, now))


def _tell(what: str, found: list[Remembered], *, as_json: bool) -> None:
    lines = (f"{what} {one.id}: {described(one)}" for one in found)
    answer({"memories": record(found)}, lines, as_json=as_json)


def _lines(one: Remembered, now: int, look: Look) -> Iterator[str]:
    where = "" if one.memory == "local" else " · from the mirror"
    head = f" · {described(one)} · {ago(one.updated_at, now)}{where}"
    yield look.name(one.id) + look.dim(clipped(head, look.width - len(one.id)))
    yield from snippet(one.text, [], look, lines=TEXT_LINES, indent="  ")


def _origin(one: Remembered, now: int) -> str:
    changed = "" if one.updated_at == one.created_at else f", changed {clock(one.updated_at, now)}"
    origin = f"{one_line(origin_of(one))} on {one_line(one.device)}"
    mirror = ", from the mirror" if one.memory == "mirror" else ""
    return f"remembered {clock(one.created_at, now)} {origin}{changed}{mirror}"


def remember(
    text: Annotated[list[str] | None, argument("What to remember; - or no text reads standard input.", "TEXT")] = None,
    category: Annotated[str | None, option("fact (default), preference, event, opinion, skill.", "CATEGORY")] = None,
    project: Annotated[
        str | None,
        option("Where it applies: a project's name or folder (. is this one). Default: everywhere.", "PROJECT"),
    ] = None,
    key: Annotated[
        str | None, option("A name for exact lookup; a known key gets the text as its new value.", "KEY")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Remember something. Secrets are removed first; the same text again only refreshes the memory."""
    words = read_words(text)
    with open_machine() as machine:
        notes = unknown_project(machine, project)
        one = keep(machine, words, category=category, project=project, key=key)
        _embed_soon(machine)
    note(*notes, *left_out(one, words))
    known = "" if one.created_at == one.updated_at else ", already known"
    answer({"memory": record(one)}, [f"remembered as {one.id}{known}: {described(one)}"], as_json=as_json)


def _embed_soon(machine: Machine) -> None:
    from crystal.app.background import embed_soon  # imports capture, which a list does not need

    embed_soon(machine)


def left_out(kept: Remembered, asked: str) -> tuple[str, ...]:
    """Return a note if redaction removed something from the text."""
    return () if is_as_given(kept.text, asked) else ("secrets and private parts were removed from the text",)


def get(
    memory: Annotated[str | None, argument("A memory's id, or its beginning.", "ID", show_default=False)] = None,
    key: Annotated[str | None, option("The key that it was remembered under.", "KEY")] = None,
    as_json: Annotated[bool, flag("Print one JSON object: the whole memory.", "--json")] = False,
) -> None:
    """Print only the text of a memory, found by its exact key or its id. Exit code 1 when there is none."""
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
    text = harmless(found.text) if sys.stdout.isatty() else found.text
    answer({"memory": record(found)}, [text], as_json=as_json)


# ------------------------------------------------------------------------------------------------------------ values


def read_words(text: list[str] | None) -> str:
    """Return the user's text, from the arguments or from standard input.

    Raises:
        UsageError: There is none.
    """
    if text and text != ["-"]:
        return " ".join(text)
    if not text and sys.stdin.isatty():
        raise UsageError("there is no text", hint='try: crystal remember "we deploy on Fridays"')
    buffer = getattr(sys.stdin, "buffer", None)
    return sys.stdin.read(MAX_READ) if buffer is None else buffer.read(MAX_READ).decode("utf-8", "replace")


def described(one: Remembered) -> str:
    """Describe the kind of a memory in a few words, without control characters."""
    parts = [
        one.category,
        None if one.key is None else f"key {one_line(one.key)}",
        "everywhere" if one.project is None else f"project {one_line(one.project)}",
        None if one.status == "active" else state_of(one),
    ]
    return " · ".join(part for part in parts if part)
