"""Ask before something that cannot be taken back."""

from __future__ import annotations

import sys

import typer

from crystal.errors import UsageProblem


def confirm(question: str, *, yes: bool, consequence: str) -> None:
    """Return if the user agrees.

    Args:
        question: What is asked on a terminal.
        yes: The user agreed on the command line.
        consequence: What would happen; the error without a terminal.

    Raises:
        UsageProblem: Nobody can be asked.
        typer.Abort: The user said no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageProblem(f"nobody was asked: {consequence}", hint="add --yes")
    typer.confirm(question, abort=True, err=True)
