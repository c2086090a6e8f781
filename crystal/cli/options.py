"""Define options and arguments of several commands."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from crystal.errors import NotFoundError, UsageError


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
        UsageError: One is neither a regular file nor a folder.
    """
    for path in paths or ():
        if not path.exists():
            raise NotFoundError(f"{path} does not exist", hint=hint)
        if not (path.is_file() or path.is_dir()):  # a device or a pipe may never end
            raise UsageError(f"{path} is no regular file and no folder", hint=hint)
    return list(paths or ())
