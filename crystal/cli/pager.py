"""Show long output in a pager, as git does: ``$CRYSTAL_PAGER``, else ``$PAGER``, else ``less``."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import TextIO

LESS_OPTIONS = "FRX"
"""Options for ``less``: end at once if all fits on the screen, show colours, and leave the text on the screen."""


@contextlib.contextmanager
def paged(*, enabled: bool) -> Iterator[None]:
    """Send standard output through a pager if it is a terminal. Ending the pager early is no error."""
    command = pager_command(os.environ, sys.stdout) if enabled else None
    process = None if command is None else _started(command)
    if process is None or process.stdin is None:
        yield
        return
    encoding = sys.stdout.encoding or "utf-8"
    pipe = io.TextIOWrapper(process.stdin, encoding=encoding, errors="replace", write_through=True)
    try:
        with contextlib.suppress(BrokenPipeError), contextlib.redirect_stdout(pipe):
            yield
    finally:
        with contextlib.suppress(BrokenPipeError):
            pipe.close()
        _wait(process)


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


def _started(command: list[str]) -> subprocess.Popen[bytes] | None:
    env = {"LESS": LESS_OPTIONS, "LV": "-c", **os.environ}
    try:
        return subprocess.Popen(command, stdin=subprocess.PIPE, env=env)
    except OSError:
        return None


def _wait(process: subprocess.Popen[bytes]) -> None:
    """Wait until the user has ended the pager, which handles Ctrl-C itself."""
    while True:
        with contextlib.suppress(KeyboardInterrupt):
            process.wait()
            return
