"""Show long output in a pager, as git does: ``$CRYSTAL_PAGER``, else ``$PAGER``, else ``less``."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from typing import TextIO

from crystal.cli.render import say

LESS_OPTIONS = "FRX"
"""Options for ``less``: end at once if all fits on the screen, show colours, and leave the text on the screen."""


def say_paged(lines: Iterable[str], *, enabled: bool) -> None:
    """Print lines, through a pager if standard output is a terminal. Ending the pager early is no error."""
    command = pager_command(os.environ, sys.stdout) if enabled else None
    try:
        env = {"LESS": LESS_OPTIONS, "LV": "-c", **os.environ}
        process = subprocess.Popen(command, stdin=subprocess.PIPE, env=env) if command else None
    except OSError:
        process = None
    if process is None or process.stdin is None:
        say(*lines)
        return
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt), process.stdin as pipe:
        pipe.writelines(f"{line}\n".encode(sys.stdout.encoding or "utf-8", "replace") for line in lines)
    while process.returncode is None:  # the user ends the pager, which handles Ctrl-C itself
        with contextlib.suppress(KeyboardInterrupt):
            process.wait()


def pager_command(env: Mapping[str, str], stream: TextIO) -> list[str] | None:
    """Return the pager's command line; None if output is not a terminal, or no pager is wanted or installed."""
    if not stream.isatty() or env.get("TERM") == "dumb":
        return None
    chosen = env.get("CRYSTAL_PAGER", env.get("PAGER", "less")).strip()
    try:
        words = shlex.split(chosen)
    except ValueError:
        return None
    if not words or words[0] == "cat" or shutil.which(words[0]) is None:
        return None
    return words
