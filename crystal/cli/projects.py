"""Implement ``crystal projects``: list, rename, join and split projects; mark a folder."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from crystal.app.context import open_kept_machine, open_reader
from crystal.app.projects import join_projects, mark_folder, note_marked, rename_project, split_project
from crystal.cli.json_output import answer, json_row
from crystal.cli.options import AsJson, argument
from crystal.cli.render import Look, cells, clipped, count_words, look_of, note, one_line, padded, say
from crystal.errors import NotConfiguredError
from crystal.store.capture.projects import KnownProject, known_projects
from crystal.timewords.parse import ago

Name = Annotated[str, argument("A project, by its name or a folder.", "PROJECT", show_default=False)]
Folder = Annotated[str, argument("A folder.", "FOLDER")]

JSON_KEYS = ("name", "folders", "identity", "joined", "sessions", "memories", "last_at")

commands = typer.Typer(help="The projects in the memory.", invoke_without_command=True)


@commands.callback()
def list_projects(context: typer.Context, *, as_json: AsJson = False) -> None:
    """List projects, the one used last first; rename, join, split or mark them."""
    if context.invoked_subcommand is not None:
        return

    with open_reader() as machine:
        found, now = known_projects(machine.store), machine.now()
    shown = [one for one in found if one.sessions or one.memories or one.joined]
    lines = _lines(shown, now, look_of(sys.stdout)) if shown else ()
    nothing = "no projects yet", "import past sessions: crystal backfill"
    answer({"projects": [json_row(one, *JSON_KEYS) for one in found]}, lines, as_json=as_json, nothing=nothing)


@commands.command("rename")
def rename(project: Name, name: Annotated[str, argument("Its new name.", "NAME", show_default=False)]) -> None:
    """Give a project another name. It applies to past sessions, too."""
    with open_kept_machine() as machine:
        _say_changed(rename_project(machine.store, project, name))


@commands.command("join", short_help="Make one project of two, as after a move.")
def join(
    project: Name,
    into: Annotated[str, argument("The project it becomes part of.", "INTO", show_default=False)],
) -> None:
    """Make one project of two, for example after a folder was moved. `crystal projects split` undoes it."""
    with open_kept_machine() as machine:
        _say_changed(join_projects(machine.store, project, into))


@commands.command("split")
def split(folder: Folder) -> None:
    """Separate a folder from the project that it was joined to."""
    with open_kept_machine() as machine:
        _say_changed(split_project(machine.store, folder))


@commands.command("mark", short_help="Let a folder without git keep its project when moved.")
def mark(
    folder: Annotated[str, argument("A folder. Default: the current one.", "FOLDER", show_default=False)] = ".",
) -> None:
    """Write a small file into a folder without git, so that crystal knows its project after a move."""
    path, is_new = mark_folder(folder)
    with contextlib.suppress(NotConfiguredError), open_kept_machine() as machine:
        if not note_marked(machine.store, path.parent):
            note(
                "you joined this folder to a project: after a move join it again: crystal projects join FOLDER PROJECT"
            )
    say(f"{path} {'is written' if is_new else 'is there already'}: the folder may be moved and renamed")


def _say_changed(one: KnownProject) -> None:
    counts = f"{count_words(len(one.folders), 'folder')}, {count_words(one.sessions, 'session')}"
    say(f"project {one_line(one.name)}: {counts}")


def _lines(found: list[KnownProject], now: int, look: Look) -> Iterator[str]:
    used = ["never" if one.last_at is None else ago(one.last_at, now) for one in found]
    counts = [count_words(one.sessions, "session") for one in found]
    rest = look.width - 4 - max(map(cells, used)) - max(map(cells, counts))
    names = [clipped(one_line(one.name), max(8, min(28, rest))) for one in found]
    widths = [max(map(cells, column)) for column in (names, used, counts)]
    room = look.width - sum(widths) - 6
    for one, *fields in zip(found, names, used, counts, strict=True):
        name, when, count = (padded(field, width) for field, width in zip(fields, widths, strict=True))
        more = f" and {len(one.folders) - 1} more" if len(one.folders) > 1 else ""
        place = one_line(one.folders[0]) + more
        if look.is_terminal and cells(place) > room:  # the end of a path tells most
            count, place = count.rstrip() + "\n", clipped(place[::-1], look.width - 2)[::-1]
        yield f"{look.name(name)}  {look.dim(when)}  {count}  {place}".rstrip()
