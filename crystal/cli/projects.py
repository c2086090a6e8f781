"""``crystal projects``: list projects; rename, join, split them; mark a folder."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crystal.cli.capture import count_words
from crystal.cli.render import Look, cells, clipped, look_of, one_line, padded, say

if TYPE_CHECKING:
    from crystal.app.projects import ProjectChange
    from crystal.store.capture.projects import KnownProject

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Name = Annotated[str, typer.Argument(help="A project, by its name or a folder.", metavar="PROJECT", show_default=False)]
Folder = Annotated[str, typer.Argument(help="A folder.", metavar="FOLDER")]

commands = typer.Typer(help="The projects in the memory.", invoke_without_command=True)


@commands.callback()
def list_projects(context: typer.Context, *, as_json: AsJson = False) -> None:
    """List projects, the one used last first; rename, join, split or mark them."""
    if context.invoked_subcommand is not None:
        return
    from crystal.app.context import open_reader
    from crystal.store.capture.projects import known_projects

    with open_reader() as machine:
        found, now = known_projects(machine.store), machine.now()
    if as_json:
        print(json.dumps({"schema": 1, "projects": [_as_json(one) for one in found]}))
    elif found:
        say(*_lines(found, now, look_of(sys.stdout)))
    else:
        say("crystal: no projects yet", "crystal: hint: import past sessions: crystal backfill", stream=sys.stderr)


@commands.command("rename")
def rename(
    project: Name, name: Annotated[str, typer.Argument(help="Its new name.", metavar="NAME", show_default=False)]
) -> None:
    """Give a project another name. It applies to past sessions, too."""
    from crystal.app.context import open_kept_machine
    from crystal.app.projects import rename_project

    with open_kept_machine() as machine:
        _say_change(rename_project(machine.store, project, name))


@commands.command("join")
def join(
    project: Name,
    into: Annotated[str, typer.Argument(help="The project it becomes part of.", metavar="INTO", show_default=False)],
) -> None:
    """Make one project of two, for example after a folder was moved. `crystal projects split` undoes it."""
    from crystal.app.context import open_kept_machine
    from crystal.app.projects import join_projects

    with open_kept_machine() as machine:
        _say_change(join_projects(machine.store, project, into))


@commands.command("split")
def split(folder: Folder) -> None:
    """Separate a folder from the project that it was joined to."""
    from crystal.app.context import open_kept_machine
    from crystal.app.projects import split_project

    with open_kept_machine() as machine:
        _say_change(split_project(machine.store, folder))


@commands.command("mark")
def mark(folder: Folder = ".") -> None:
    """Write a small file into a folder without git, so that crystal knows its project after a move."""
    from crystal.app.projects import mark_folder

    path, is_new = mark_folder(folder)
    say(f"{path} {'is written' if is_new else 'is there already'}: the folder may be moved and renamed")


def _say_change(change: ProjectChange) -> None:
    counts = f"{count_words(change.folders, 'folder')}, {count_words(change.sessions, 'session')}"
    say(f"project {one_line(change.name)}: {counts}")


def _lines(found: list[KnownProject], now: int, look: Look) -> list[str]:
    from crystal.timewords.parse import ago

    names = [clipped(one_line(one.name), 28) for one in found]
    used = ["never" if one.last_at is None else ago(one.last_at, now) for one in found]
    counts = [count_words(one.sessions, "session") for one in found]
    widths = [max(map(cells, column)) for column in (names, used, counts)]
    lines = []
    for one, *fields in zip(found, names, used, counts, strict=True):
        name, when, count = (padded(field, width) for field, width in zip(fields, widths, strict=True))
        more = f" and {len(one.folders) - 1} more" if len(one.folders) > 1 else ""
        lines.append(f"{look.name(name)}  {look.dim(when)}  {count}  {one_line(one.folders[0])}{more}")
    return lines


def _as_json(one: KnownProject) -> dict[str, Any]:
    from crystal.timewords.parse import iso

    return {
        name: iso(one.last_at) if name == "last_at" else getattr(one, name)
        for name in ("name", "folders", "identity", "joined", "sessions", "memories", "last_at")
    }
