"""The documentation's code blocks: finding them, running them as a reader would, comparing what comes out.

A line that begins with ``$ `` is a command (it goes on after a backslash at its end), what follows it is the output:
``...`` stands for what varies, on a line of its own for any number of lines. ``crystal`` alone runs in this process,
which is many times faster; anything else is given to bash, with a ``crystal`` on its PATH.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from crystal.cli.app import main

ROOT = Path(__file__).resolve().parent.parent.parent
BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>[^\n]*?) -->\n+)?^(?P<fence>```+)(?P<language>\w*)\n(?P<text>.*?)^(?P=fence)$",
    re.MULTILINE | re.DOTALL,
)
NOT_RUN = "not run: "
SHELL = re.compile(r"[|&;<>$*?~`]|^\w+=")


@dataclass(frozen=True)
class Block:
    """One fenced block of a page. ``why_not`` says why it is not run, None when it is."""

    page: Path
    line: int
    language: str
    text: str
    why_not: str | None

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


@dataclass(frozen=True)
class Step:
    """A command and what it should print."""

    command: str
    expected: str


def blocks_of(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text("utf-8")
    for match in BLOCK.finditer(text):
        mark = match["mark"] or ""
        why_not = mark.removeprefix(NOT_RUN) if mark.startswith(NOT_RUN) else None
        if mark.startswith("command: "):
            why_not = "run by .ci/run, in an environment of its own"
        yield Block(page, text.count("\n", 0, match.start("fence")) + 1, match["language"], match["text"], why_not)


def steps_of(block: Block) -> list[Step]:
    """The commands of a console block; every line is one where none has a prompt (the README's, to be copied)."""
    if not re.search(r"^\$ ", block.text, re.MULTILINE):
        return [Step(line, "") for line in block.text.splitlines()]
    steps: list[Step] = []
    for line in block.text.splitlines():
        if steps and steps[-1].command.endswith("\\"):
            steps[-1] = Step(steps[-1].command[:-1] + line.removeprefix("> ").lstrip(), "")
        elif line.startswith("$ "):
            steps.append(Step(line[2:], ""))
        elif steps:
            steps[-1] = Step(steps[-1].command, f"{steps[-1].expected}{line}\n")
        else:
            raise AssertionError(f"{block.place}: output before the first command: {line!r}")
    return steps


def run_command(command: str, home: Path) -> str:
    """What a command prints on both streams, with the home folder shown as ``/home/you``."""
    words = shlex.split(command)
    in_process = words[0] == "crystal" and not SHELL.search(command)
    return (_in_process(words) if in_process else _in_bash(command)).replace(str(home), "/home/you")


def _in_process(words: list[str]) -> str:
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        patch.setattr(sys, "argv", words)
        patch.setattr(sys, "stdin", io.StringIO(""))
        with contextlib.suppress(SystemExit):
            main()
    return out.getvalue()


def _in_bash(command: str) -> str:
    done = subprocess.run(
        ["bash", "-c", command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        check=False,
        timeout=60,
    )
    return done.stdout.decode()


def install_shim(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """A ``crystal`` for bash, first on the PATH."""
    folder.mkdir(parents=True)
    shim = folder / "crystal"
    shim.write_text(
        f'#!/bin/sh\nCRYSTAL_DEVICE=laptop exec {shlex.quote(sys.executable)} -c "from crystal.cli.app import main; main()" "$@"\n'
    )
    shim.chmod(0o755)
    patch.setenv("PATH", str(folder), prepend=os.pathsep)
    patch.setenv("PYTHONPATH", str(ROOT))


def agrees(expected: str, printed: str) -> bool:
    """Whether an output is what a page shows, where ``...`` stands for anything."""
    pattern = ""
    for line in expected.splitlines():
        pattern += (
            r"(?:.*\n)*?"
            if line.strip() == "..."
            else ".*?".join(map(re.escape, line.rstrip().split("..."))) + r"[ ]*\n"
        )
    return re.fullmatch(pattern, printed if not printed or printed.endswith("\n") else printed + "\n") is not None


def run_python(block: Block, names: dict[str, Any]) -> None:
    """Run a block of Python: with prompts as a doctest, without them as a script."""
    if ">>>" not in block.text:
        exec(compile("\n" * block.line + block.text, str(block.page), "exec"), names)
        return
    test = doctest.DocTestParser().get_doctest(block.text, names, block.place, str(block.page), block.line)
    report = io.StringIO()
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    result = runner.run(test, out=report.write, clear_globs=False)
    names.update(test.globs)
    assert not result.failed, report.getvalue()
