"""Hand a session over to another agent: write it in that agent's format, or make a brief of it."""

from __future__ import annotations

import contextlib
import os
import shlex
import tempfile
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from crystal.app.context import Machine
from crystal.config.paths import make_private_dir, system_errors
from crystal.errors import NotConfiguredError, NotFoundError, UnavailableError, UsageError
from crystal.export.whole_folder import new_file
from crystal.handoff.brief import BRIEF_TOKENS, make_prompt
from crystal.handoff.program import run_program
from crystal.handoff.talk import make_talk
from crystal.handoff.target import NativeSession, writer_of
from crystal.sessions.origin import read_whole
from crystal.sessions.reading import SessionSummary, ShownTurn, find_target, read
from crystal.store.search.isolated import isolated_projects
from crystal.text.fence import new_nonce


@dataclass(frozen=True, slots=True)
class HandedOver:
    """A session written for another agent (with ``dry_run``, one that would be written).

    Attributes:
        source: The session that it repeats.
        to: The agent.
        native: What was written.
        cwd: The folder in which the agent goes on.
        undo: The command that removes it again.
    """

    source: SessionSummary
    to: str
    native: NativeSession
    cwd: Path
    undo: tuple[str, ...]


def find_conversation(machine: Machine, wanted: str) -> tuple[SessionSummary, Sequence[ShownTurn]]:
    """Return a session with its turns, from this machine's memory or the mirror of home's.

    Args:
        machine: This machine.
        wanted: A session's id or its beginning, or a hit, which means its session.

    Raises:
        NotFoundError: There is no such session, or it has no turns.
        UsageError: It is the beginning of several.
    """
    found = read(machine.stores, find_target(machine.stores, wanted))
    if found.session is not None:
        found = read_whole(machine.stores, found.session.id)
    if found.session is None or not found.turns:
        raise NotFoundError(f"no session with messages matches {wanted!r}", hint="run: crystal sessions")
    return found.session, found.turns


def brief_of(machine: Machine, wanted: str, tokens: int = BRIEF_TOKENS) -> tuple[SessionSummary, str]:
    """Return a session, and a prompt with which any agent continues it."""
    session, turns = find_conversation(machine, wanted)
    return session, make_prompt(session, turns, now=machine.now(), nonce=new_nonce(), tokens=tokens)


def write_session_for(machine: Machine, wanted: str, to: str, project: Path | None, *, dry_run: bool) -> HandedOver:
    """Write a session for another agent, beside its own and under a new id.

    Args:
        machine: This machine.
        wanted: As ``find_conversation``.
        to: The agent.
        project: The folder to go on in; None for the session's own.
        dry_run: Only return what would be written.

    Raises:
        UsageError: crystal cannot write sessions of this agent, or the folder is gone.
        NotConfiguredError: The agent's program is needed and not here.
        UnavailableError: The program, or the system, refuses.
    """
    write = writer_of(to)
    source, turns = find_conversation(machine, wanted)
    cwd = _folder(source, project)
    isolated = isolated_projects(machine.stores, machine.config.isolated_projects)
    left, new = isolated.at(source.cwd), isolated.at(str(cwd))
    is_isolated = source.harness in machine.config.isolated or left not in (None, new)
    talk = make_talk(
        replace(source, title="", branch=None) if is_isolated else source,
        turns,
        session=str(uuid.uuid4()),
        cwd=str(cwd),
        now=machine.now(),
        nonce=new_nonce(),
    )
    root = next(root.folder for root in machine.places.transcript_roots if root.harness == to)
    try:
        native = write(talk, root)
        made = [str(path) for path in (native.path, *native.beside) if path is not None and not path.exists()]
        done = HandedOver(source, to, native, cwd, native.undo or ("rm", *made))
        if not dry_run:
            _write(done)
    except (NotConfiguredError, UnavailableError) as error:
        brief = f"crystal handoff {shlex.quote(source.id)} --brief"
        error.hint = error.hint or f"give the agent a prompt instead: {brief}"
        raise
    return done


def _folder(source: SessionSummary, project: Path | None) -> Path:
    """Return the folder in which the session continues.

    Raises:
        UsageError: It is gone, or not known.
    """
    folder = project or (None if source.cwd is None else Path(source.cwd))
    if folder is None or not folder.is_dir():
        problem = "the session names no folder" if folder is None else f"the folder {folder} is not there"
        raise UsageError(problem, hint="name the one to go on in: --project FOLDER")
    return Path(os.path.realpath(folder))


def _write(done: HandedOver) -> None:
    native = done.native
    if native.path is None:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "session.json"
            with new_file(file) as out:
                out.write(native.data)
            if native.session not in run_program(*native.load, str(file), cwd=done.cwd):
                raise UnavailableError(f"{' '.join(native.load)} did not import the session")
        return
    for path, data in {**native.beside, native.path: native.data}.items():
        make_private_dir(path.parent)
        with system_errors(path), contextlib.suppress(FileExistsError), new_file(path) as out:
            out.write(data)
