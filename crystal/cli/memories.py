"""``crystal memories``: what was remembered; edit it, hide it, bring it back, see what it was before."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from crystal.cli.remember import described, former_json, left_out, memory_json, read_words
from crystal.cli.render import clipped, harmless, look_of, note, one_line, say, snippet

if TYPE_CHECKING:
    from crystal.app.context import Machine
    from crystal.cli.render import Look
    from crystal.model.recall import FormerMemory, Remembered

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Ident = Annotated[
    str, typer.Argument(help="A memory's id or its beginning, or its key.", metavar="ID", show_default=False)
]
Idents = Annotated[
    list[str], typer.Argument(help="Ids of memories or their beginnings, or keys.", metavar="ID...", show_default=False)
]
Category = Annotated[str | None, typer.Option(help="fact, preference, event, opinion or skill.", metavar="CATEGORY")]
TEXT_LINES = 3

commands = typer.Typer(help="What was remembered.", invoke_without_command=True)


@commands.callback()
def memories(
    context: typer.Context,
    *,
    category: Category = None,
    project: Annotated[
        str | None,
        typer.Option(help="Only of this project: its name, or a folder and all below it.", metavar="PROJECT"),
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="Only the one with this key; 'a*' for keys that begin with a.", metavar="KEY")
    ] = None,
    status: Annotated[str, typer.Option(help="active, deprecated or all.", metavar="STATUS")] = "active",
    limit: Annotated[str, typer.Option("-n", "--limit", help="How many at most.", metavar="N")] = "50",
    as_json: AsJson = False,
) -> None:
    """List memories, newest first. To search in them: crystal search --source memory."""
    if context.invoked_subcommand is not None:
        return
    from crystal.app.context import open_reader
    from crystal.app.memory_queries import list_memories
    from crystal.app.mirror import mirror_notes
    from crystal.cli.search import whole_number
    from crystal.model.recall import Filters
    from crystal.store.search.scope import scope_of

    state = None if status.strip().lower() == "all" else status
    with open_reader() as machine:
        found = list_memories(
            machine, category=category, project=project, key=key, status=state,
            limit=whole_number(limit, "--limit"),
        )  # fmt: skip
        now, notes = machine.now(), mirror_notes(machine.mirror, machine.now())
        if project and not found:
            notes = (*scope_of(machine.store, Filters(project=project)).notes, *notes)
    if as_json:
        print(json.dumps({"schema": 1, "notes": list(notes), "memories": [memory_json(one) for one in found]}))
        return
    note(*notes)
    look = look_of(sys.stdout)
    for one in found:
        say(*_lines(one, now, look), "")
    if not found:
        narrowed = category or project or key or state != "active"
        hint = "widen the filters" if narrowed else 'crystal remember "we deploy on Fridays"'
        say("crystal: no memories", f"crystal: hint: {hint}", stream=sys.stderr)


@commands.command()
def edit(
    memory: Ident,
    text: Annotated[
        list[str] | None,
        typer.Argument(help="The new text; - reads it from standard input.", metavar="TEXT", show_default=False),
    ] = None,
    category: Category = None,
    key: Annotated[str | None, typer.Option(help="Its new key; '' removes the key.", metavar="KEY")] = None,
    project: Annotated[
        str | None,
        typer.Option(help="Its new project, a name or a folder; '' for everywhere.", metavar="PROJECT"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Change a memory's text, category, key or project; the former version is kept."""
    from crystal.app.background import embed_soon
    from crystal.app.context import open_machine
    from crystal.app.memory_changes import edit as change

    words = read_words(text) if text else None
    with open_machine() as machine:
        one = change(machine, memory, text=words, category=category, key=key, project=project)
        embed_soon(machine)
    if words is not None:
        note(*left_out(one, words))
    _tell("changed", [one], as_json=as_json)


@commands.command()
def history(memory: Ident, as_json: AsJson = False) -> None:
    """Show a memory and its former versions, newest first."""
    from crystal.app.context import open_reader

    with open_reader() as machine:
        show_memory(machine, memory, as_json=as_json)


@commands.command()
def deprecate(memory: Idents, as_json: AsJson = False) -> None:
    """Hide memories: crystal keeps them, but neither lists nor finds them. To delete them for good: crystal forget."""
    from crystal.app.context import open_machine
    from crystal.app.memory_changes import deprecate as hide

    with open_machine() as machine:
        found = [hide(machine, ident) for ident in memory]
    _tell("deprecated", found, as_json=as_json)


@commands.command()
def restore(memory: Idents, as_json: AsJson = False) -> None:
    """Show hidden memories again."""
    from crystal.app.background import embed_soon
    from crystal.app.context import open_machine
    from crystal.app.memory_changes import revive

    with open_machine() as machine:
        found = [revive(machine, ident) for ident in memory]
        embed_soon(machine)
    _tell("restored", found, as_json=as_json)


# ------------------------------------------------------------------------------------------------------------ output


def show_memory(machine: Machine, ident: str, *, as_json: bool) -> None:
    """Print a memory and what it was before."""
    from crystal.app.memory_queries import history as history_of
    from crystal.app.memory_queries import memory_of

    one = memory_of(machine, ident)
    former = history_of(machine, one.id)
    if as_json:
        print(json.dumps({"schema": 1, "memory": memory_json(one), "history": [former_json(was) for was in former]}))
        return
    now, look = machine.now(), look_of(sys.stdout)
    say(look.bold(one.id) + look.dim(f" · {described(one)}"), look.dim(_origin(one, now)), "", harmless(one.text))
    for was in former:
        say("", *_former_lines(was, now, look))


def _tell(what: str, found: list[Remembered], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"schema": 1, "memories": [memory_json(one) for one in found]}))
        return
    say(*(f"{what} {one.id}: {described(one)}" for one in found))


def _lines(one: Remembered, now: int, look: Look) -> Iterator[str]:
    from crystal.timewords.parse import ago

    where = "" if one.memory == "local" else " · from the mirror"
    head = f" · {described(one)} · {ago(one.updated_at, now)}{where}"
    yield look.name(one.id) + look.dim(clipped(head, look.width - len(one.id)))
    yield from snippet(one.text, [], look, lines=TEXT_LINES, indent="  ")


def _origin(one: Remembered, now: int) -> str:
    from crystal.timewords.parse import clock

    changed = "" if one.updated_at == one.created_at else f", changed {clock(one.updated_at, now)}"
    door = f"by {one_line(one.source)} on {one_line(one.device)}"
    mirror = ", from the mirror" if one.memory == "mirror" else ""
    return f"remembered {clock(one.created_at, now)} {door}{changed}{mirror}"


def _former_lines(was: FormerMemory, now: int, look: Look) -> Iterator[str]:
    from crystal.timewords.parse import clock

    span = f"{clock(was.from_at, now)} to {clock(was.until_at, now)}"
    yield look.dim(f"from {span}: {was.category}{'' if was.status == 'active' else ', deprecated'}")
    yield harmless(was.text)
