"""Ask the user before an action that cannot be undone."""

from __future__ import annotations

import sys

import typer

from crystal.cli.render import say_aside
from crystal.errors import UsageError


def confirm(question: str, *, yes: bool, consequence: str) -> None:
    """Return if the user agrees after reading the consequence.

    Args:
        question: The question on a terminal.
        yes: The user agreed on the command line; nothing is printed.
        consequence: What will happen, printed before the question.

    Raises:
        UsageError: There is no terminal to ask on.
        typer.Abort: The user said no.
    """
    if yes:
        return
    for line in consequence.splitlines():
        say_aside("", line)
    if not sys.stdin.isatty():
        raise UsageError("crystal must ask first, but there is no terminal", hint="to agree, run it again with --yes")
    ask(question)


def ask(question: str, refused: str = "nothing was changed") -> None:
    """Return if the user says yes; otherwise print ``refused`` and end the command."""
    try:
        typer.confirm(question, abort=True, err=True)
    except typer.Abort:
        say_aside("crystal: ", refused)
        raise
