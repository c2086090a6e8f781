"""Implement ``crystal tui``: ``reading`` reads the memory, ``app`` shows it in the terminal with Textual."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Annotated

from crystal.app.context import open_reader
from crystal.cli.options import argument
from crystal.config.packages import install_command
from crystal.errors import NotConfiguredError, UsageError


def tui(
    query: Annotated[list[str] | None, argument("What to search for first.", "QUESTION")] = None,
) -> None:
    """Search and read in the terminal, with the keyboard alone. Needs the package textual.

    / searches, s lists the sessions, t the days, m the memories; Enter opens, x unfolds, Esc goes back, q ends.
    For the visible turn: a shows the history of its file, b who wrote the file's lines, f what cured its error.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("crystal tui needs a terminal", hint="for scripts: crystal search QUESTION --json")
    try:
        from crystal.cli.tui.app import MemoryBrowser
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "textual":
            raise
        raise NotConfiguredError("textual is not installed", hint=f"run: {install_command('textual')}") from error
    with ThreadPoolExecutor(1) as thread, ExitStack() as opened:
        machine = thread.submit(opened.enter_context, open_reader()).result()
        try:
            MemoryBrowser(machine, thread, " ".join(query or ())).run()
        finally:
            thread.submit(opened.close).result()
