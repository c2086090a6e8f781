"""Implement ``crystal export``: write sessions to a folder, for people, other programs, or another crystal."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from crystal.app.context import open_reader
from crystal.cli import render
from crystal.cli.json_output import answer
from crystal.cli.options import AsJson, OnlyProject, OnlySession, flag, option
from crystal.cli.progress import progress_bar
from crystal.cli.values import project_value, time_span
from crystal.errors import UsageError
from crystal.text.harmless import harmless

SHORT_PASSPHRASE = 12


def export(
    to: Annotated[Path, option("A new folder to write into.", "FOLDER")],
    form: Annotated[str, option("markdown, jsonl or html.", "FORM", "--as")],
    session: OnlySession = None,
    project: OnlyProject = None,
    since: Annotated[str | None, option("Only sessions that went on since: 24h, 7d, 2026-11-20 ...", "TIME")] = None,
    everything: Annotated[bool, flag("Every session.", "--all")] = False,
    sealed: Annotated[bool, flag("With html: encrypt the page with a passphrase.", "--sealed")] = False,
    as_json: AsJson = False,
) -> None:
    """Write sessions to a folder: complete JSON Lines, Markdown, or one HTML page that needs no network.

    --sealed asks for the passphrase twice on a terminal; otherwise it is the first line of standard input.
    """
    from crystal import __version__
    from crystal.app.export import FORMS, choose_sessions
    from crystal.app.export import export as write
    from crystal.export.labels import Wording

    chosen_form = next((one for one in FORMS if one == form), None)
    if chosen_form is None:
        raise UsageError(f"--as is {form!r}", hint=f"use one of: {', '.join(FORMS)}")
    _check_choice(session, project, since, everything=everything)
    if sealed and form != "html":
        raise UsageError(f"--sealed does not go with --as {form}", hint="use --as html")
    folder = Path(os.path.abspath(to))  # noqa: PTH100 - a name such as "x/.." is not followed through links
    with open_reader() as machine:
        start, _ = time_span(machine.now(), since, None)
        chosen, notes = choose_sessions(machine, session=session, project=project_value(machine, project), since=start)
        passphrase = _read_passphrase() if sealed else None
        wording = Wording(render.speaker, render.agent_title, harmless)
        with progress_bar("exporting", sum(one.turns for one in chosen)) as advance:
            done = write(machine, chosen, folder, chosen_form, wording, advance, __version__, passphrase)
        if machine.mirror_store is not None:
            notes = (*notes, "this is the memory of this machine; to export all of home's, run the command there")
    counted = f"{render.count_words(done.sessions, 'session')}, {render.count_words(done.turns, 'turn')}"
    lines = [f"exported {counted} to {done.folder}: {render.size_words(done.bytes)}"]
    told = {**dataclasses.asdict(done), "folder": str(done.folder), "notes": notes}
    answer(told, lines, as_json=as_json, notes=notes)


def _check_choice(session: str | None, project: str | None, since: str | None, *, everything: bool) -> None:
    narrowed = project is not None or since is not None
    if not (session is not None or narrowed or everything):
        raise UsageError("nothing is chosen to export", hint="use --all, --project, --since or --session")
    if (session is not None) + narrowed + everything > 1:
        hint = "use one of them; only --project and --since can be combined"
        raise UsageError("--session, --all and --project or --since do not go together", hint=hint)


def _read_passphrase() -> str:
    """Read a passphrase from standard input: twice and hidden on a terminal; never from the command line."""
    if sys.stdin.isatty():
        said = str(typer.prompt("passphrase for the page", hide_input=True, confirmation_prompt=True, err=True))
    else:
        said = sys.stdin.readline().rstrip("\r\n")
    if not said.strip():
        raise UsageError("the passphrase is missing", hint="give it on standard input")
    if len(said) < SHORT_PASSPHRASE:
        render.note(
            f"a passphrase of fewer than {SHORT_PASSPHRASE} characters can be guessed; several words are better"
        )
    return said
