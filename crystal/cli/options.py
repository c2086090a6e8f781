"""Define options and arguments of several commands, and parse their values."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crystal.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from crystal.app.context import Machine


def option(help: str, metavar: str | None = None, *names: str, **more: Any) -> Any:  # noqa: A002 - as typer calls it
    """Declare an option with a value; without ``names`` it has the parameter's name."""
    return typer.Option(*names, help=help, metavar=metavar, **more)


def flag(help: str, *names: str, **more: Any) -> Any:  # noqa: A002 - the same
    """Declare an option without a value."""
    return typer.Option(*names, help=help, **more)


def argument(help: str, metavar: str | None = None, **more: Any) -> Any:  # noqa: A002 - the same
    """Declare an argument."""
    return typer.Argument(help=help, metavar=metavar, **more)


AsJson = Annotated[bool, flag("Print one JSON object.", "--json")]
Quiet = Annotated[bool, flag("Print nothing but errors.", "--quiet", "-q")]
Yes = Annotated[bool, flag("Do not ask.", "--yes", "-y")]
TimerDryRun = Annotated[bool, flag("With a timer option: only show what would be done.", "--dry-run")]
RemoveTimer = Annotated[bool, flag("Remove the timer.", "--remove-timer")]
Limit = Annotated[str, option("How many at most.", "N", "-n", "--limit")]
OnlyProject = Annotated[str | None, option("Only this project: its name, or a folder and all below it.", "PROJECT")]
OnlySession = Annotated[str | None, option("Only this session: its id, or the beginning of it.", "ID", "--session")]
Prefer = Annotated[str | None, option("Where both sides changed: file or crystal wins.", "SIDE", "--prefer")]
OnlyAgent = Annotated[
    str | None,
    option("Only this agent: codex, gemini-cli ... as in `crystal agents`, or its id.", "AGENT"),
]
Transcripts = Annotated[
    list[Path] | None, argument("Transcripts, or folders of them; those of all agents if none is given.")
]


def changes_timer(
    *, install: bool, remove: bool, dry_run: bool, names: str = "--install-timer or --remove-timer"
) -> bool:
    """Return whether the options request a change of a timer.

    Raises:
        UsageError: They request two changes, or ``--dry-run`` was given alone.
    """
    if install and remove:
        raise UsageError("you cannot install and remove in one command", hint=f"choose {names}")
    if dry_run and not (install or remove):
        raise UsageError("--dry-run shows nothing by itself", hint=f"add {names}")
    return install or remove


def existing(paths: Sequence[Path] | None, hint: str = "give a transcript file, or a folder of them") -> list[Path]:
    """Return the given files and folders.

    Raises:
        NotFoundError: One of them does not exist.
    """
    for path in paths or ():
        if not path.exists():
            raise NotFoundError(f"{path} does not exist", hint=hint)
    return list(paths or ())


def time_span(now: int, since: str | None, before: str | None) -> tuple[int | None, int | None]:
    """Return the times for ``--since`` and ``--before``."""
    from crystal.timewords.parse import parse_when

    start = None if since is None else parse_when(since, now=now, name="--since")
    end = None if before is None else parse_when(before, now=now, name="--before")
    if start is not None and end is not None and start >= end:
        raise UsageError(f"--since {since} is not before --before {before}", hint="swap them")
    return start, end


def whole_number(text: str, name: str) -> int:
    """Return the number given with an option."""
    try:
        return int(text)
    except ValueError as error:
        raise UsageError(f"{name} is {text!r}, which is not a whole number", hint=f"try: {name} 10") from error


def project_value(machine: Machine, text: str | None) -> str | None:
    """Return the value of ``--project``: a name, or a folder as an absolute path."""
    from crystal.app.memory_queries import is_folder_word
    from crystal.app.projects import known_folder

    if text is None or not is_folder_word(text):
        return text
    absolute = os.path.abspath(os.path.expanduser(text))  # noqa: PTH100, PTH111 (links stay: transcripts may name them)
    return known_folder(machine.stores, absolute)


def unknown_project(machine: Machine, project: str | None) -> tuple[str, ...]:
    """Return a note if crystal knows no project with this name, which may be mistyped."""
    from crystal.app.memory_queries import is_folder_word
    from crystal.model.recall import Filters
    from crystal.store.search.scope import project_ids, scope_of

    if not project or is_folder_word(project) or any(project_ids(store, project) for store in machine.stores):
        return ()
    return scope_of(machine.store, Filters(project=project)).notes
