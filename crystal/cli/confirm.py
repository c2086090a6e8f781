"""Ask before something that cannot be taken back."""

from __future__ import annotations

import sys

import typer

from crystal.cli.render import say_aside
from crystal.errors import UsageError


def confirm(question: str, *, yes: bool, consequence: str) -> None:
    """Return if the user agrees, after reading what will happen.

    Args:
        question: What is asked on a terminal.
        yes: The user agreed on the command line; nothing is shown.
        consequence: What will happen, for the user to read before the answer.

    Raises:
        UsageError: Nobody can be asked.
        typer.Abort: The user said no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(
            f"crystal must ask first, but there is no terminal: {consequence}",
            hint="to agree, run it again with --yes",
        )
    for line in consequence.splitlines():
        say_aside("", line)
    ask(question)


def ask(question: str, refused: str = "nothing was changed") -> None:
    """Return if the user says yes; else say what that means, and end the command."""
    try:
        typer.confirm(question, abort=True, err=True)
    except typer.Abort:
        say_aside("crystal: ", refused)
        raise
