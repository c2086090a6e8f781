"""Implement ``crystal handoff``: continue a session in another agent."""

from __future__ import annotations

import contextlib
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from crystal.app.context import open_reader
from crystal.cli import render
from crystal.cli.json_output import answer
from crystal.cli.last_search import named_by_place
from crystal.cli.options import AsJson, argument, flag, option
from crystal.cli.values import whole_number
from crystal.errors import CrystalError

MIN_TOKENS = 100

if TYPE_CHECKING:
    from crystal.app.handoff import HandedOver


def handoff(
    session: Annotated[str, argument("A session's id or its beginning, or a hit of one (2, @2, h17).", "SESSION")],
    to: Annotated[str | None, option("The agent to go on in.", "AGENT")] = None,
    project: Annotated[Path | None, option("Go on in this folder instead of the session's own.", "FOLDER")] = None,
    brief: Annotated[bool, flag("Print a prompt for any agent; write nothing.", "--brief")] = False,
    tokens: Annotated[str | None, option("With --brief: at most so many tokens. Default: 4000.", "N")] = None,
    dry_run: Annotated[bool, flag("Only show what would be written.", "--dry-run")] = False,
    as_json: AsJson = False,
) -> None:
    """Go on with a session in another agent: write it as a session of that agent, and print the command to type."""
    from crystal.app.handoff import brief_of, write_session_for
    from crystal.config.harnesses import agent_named
    from crystal.errors import UsageError
    from crystal.handoff.brief import BRIEF_TOKENS
    from crystal.handoff.target import TARGETS

    if to is None and not brief:
        raise UsageError("--to is missing", hint=f"name the agent: --to {', '.join(TARGETS)}; for any other: --brief")
    if tokens is not None and not brief:
        raise UsageError("--tokens goes with --brief", hint="a session is handed over in full")
    limit = BRIEF_TOKENS if tokens is None else whole_number(tokens, "--tokens")
    if limit < MIN_TOKENS:
        raise UsageError(f"--tokens is {limit}", hint=f"use {MIN_TOKENS} or more")
    with open_reader() as machine:
        wanted = named_by_place(machine.places.data_dir, session, by_person=sys.stdin.isatty())
        if brief:
            source, prompt = brief_of(machine, wanted, limit)
            answer({"session": source.id, "to": to, "brief": prompt}, [prompt], as_json=as_json)
            return
        folder = None if project is None else project.absolute()
        done = write_session_for(machine, wanted, agent_named(str(to), TARGETS), folder, dry_run=dry_run)
    if not dry_run:
        _capture(done.to)
    _print(done, dry_run=dry_run, as_json=as_json)


def _capture(harness: str) -> None:
    """Capture what the agent wrote last, so that the session is complete; after a failure, the next sync does it."""
    from crystal.app.capture import run_capture
    from crystal.app.context import open_machine

    with contextlib.suppress(CrystalError), open_machine() as machine:
        run_capture(machine, lambda capture: capture.sweep(harness))


def _print(done: HandedOver, *, dry_run: bool, as_json: bool) -> None:
    native = done.native
    place = "" if done.cwd == Path.cwd() else f"cd {shlex.quote(str(done.cwd))} && "
    command = place + shlex.join(native.resume)
    undo = shlex.join(done.undo)
    told = {
        "session": done.source.id, "to": done.to, "new_session": native.session, "dry_run": dry_run,
        "file": None if native.path is None else str(native.path), "bytes": len(native.data),
        "command": command, "undo": undo,
    }  # fmt: skip
    where = f"session {native.session}" if native.path is None else str(native.path)
    lines = [f"{'would write' if dry_run else 'wrote'} {where} ({render.size_words(len(native.data))})"]
    lines += [] if dry_run else [f"go on with: {command}", f"undo with: {undo}"]
    answer(told, lines, as_json=as_json)
