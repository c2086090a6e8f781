"""Run the command line in this process, with what it prints and its exit code."""

from __future__ import annotations

import contextlib
import functools
import io
import sys
from dataclasses import dataclass

import pytest
import typer.main

from crystal.cli.app import main

# Typer reads all signatures at each call, which in a process of its own is once.
read_signatures = functools.cache(typer.main.get_command)


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str


class Terminal(io.StringIO):
    """A stream before which a person sits."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def crystal(*words: str, typed: str = "", terminal: bool = False) -> Done:
    """Run ``crystal WORDS`` with something on standard input, which may be a terminal; the output is none."""
    out, err = io.StringIO(), io.StringIO()
    code = 0
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.setattr(typer.main, "get_command", read_signatures)
        patch.setattr(sys, "argv", ["crystal", *words])
        patch.setattr(sys, "stdin", (Terminal if terminal else io.StringIO)(typed))
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    return Done(code, out.getvalue(), err.getvalue())
