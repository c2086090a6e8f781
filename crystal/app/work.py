"""Read from the work index what was done here before: the files that agents edited, and why."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from crystal.app.context import Machine
from crystal.app.file_paths import FilePaths
from crystal.app.renames import current_names
from crystal.sessions.reading import find_session
from crystal.store import Store
from crystal.store.search.scope import project_ids
from crystal.store.sessions.conversations import find_session_row
from crystal.store.work import queries
from crystal.store.work.queries import RecordedCall, RunEnd
from crystal.work.command_ranking import RankedCommand, rank_commands, steps

MAX_RUNS = 2_000
"""Successful commands that are looked at, the latest."""
MAX_COMMANDS = 10
MAX_RENAME_SECONDS = 2.0
"""Time in which the present names of files are looked for: git is asked once and more for each project."""


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """A file that agents edited.

    Attributes:
        path: The file, below the project's folder where it is in it.
        project: The project.
        edits: How many edits.
        added: Lines that they added, a line as often as it was added.
        removed: Lines that they removed.
        sessions: The sessions, latest last.
        last_at: The time of the latest edit.
        now: Its path now, if it was renamed since.
    """

    path: str
    project: str | None
    edits: int
    added: int
    removed: int
    sessions: tuple[str, ...]
    last_at: int
    now: str | None = None


@dataclass(frozen=True, slots=True)
class KnownCommand:
    """A command that did something here, in its usual form.

    Attributes:
        command: The command on one line, without secrets, in the form that most sessions used.
        about: What the agent said that it does.
        certainty: Which share of the question it answers, 0 to 1, or how often just its words described this command;
            from 0.7 on it is seldom wrong.
        runs: How often it succeeded.
        sessions: In how many sessions.
        call: The latest run in this form.
        seconds: How long that took until its result was there, None if nobody knows.
        passed: Tests that passed in it, None if no known runner says so.
        failed: Tests that failed in it.
    """

    command: str
    about: str
    certainty: float
    runs: int
    sessions: int
    call: RecordedCall
    seconds: float | None
    passed: int | None
    failed: int | None


def changed(
    machine: Machine,
    *,
    session: str | None = None,
    since: int | None = None,
    before: int | None = None,
    project: str | None = None,
) -> list[ChangedFile]:
    """Return the files that agents edited in a session or a time, the latest first.

    Args:
        machine: This machine.
        session: Only in this session: its id or the beginning of it.
        since: Only from this time on, ms.
        before: Only before this time, ms.
        project: Only in this project: its name, or a folder.

    Raises:
        UsageError: There is no such session, or several.
    """
    rows: dict[tuple[str, str], queries.ChangedRow] = {}
    name = None if session is None else find_session_among(machine.stores, session)
    for store in machine.stores:
        row = None if name is None else find_session_row(store, name)
        if name is not None and row is None:
            continue
        projects = None if project is None else project_ids(store, project)
        for one in queries.changed_rows(store, session=row, since=since, before=before, projects=projects):
            rows.setdefault((one.session_id, one.call), one)
    files: dict[tuple[str | None, str], list[queries.ChangedRow]] = {}
    paths = FilePaths(*machine.stores)
    for one in sorted(rows.values(), key=lambda one: one.at):
        files.setdefault((one.project, paths.inside(one.path, one.cwd, one.folder)), []).append(one)
    moved = _names_now(machine, files)
    found = [
        replace(_changed_file(path, known, edits), now=moved.get((known, path)))
        for (known, path), edits in files.items()
    ]
    return sorted(found, key=lambda one: one.last_at, reverse=True)


def _names_now(
    machine: Machine, files: dict[tuple[str | None, str], list[queries.ChangedRow]]
) -> dict[tuple[str | None, str], str]:
    """Return the paths that files have now, of those that were renamed: the latest projects' as far as time allows."""
    edited = dict[tuple[str | None, str], dict[str, int]]()
    for (known, path), edits in sorted(files.items(), key=lambda one: one[1][-1].at, reverse=True):
        if folder := edits[-1].folder:
            edited.setdefault((known, folder), {})[path] = edits[-1].at
    moved, until = dict[tuple[str | None, str], str](), time.monotonic() + MAX_RENAME_SECONDS
    for (known, folder), paths in edited.items():
        if time.monotonic() >= until:
            break
        moved |= {(known, path): now for path, now in current_names(machine.stores, folder, paths).items()}
    return moved


def how(machine: Machine, question: str, *, project: str | None = None) -> list[KnownCommand]:
    """Return the commands that did something here and succeeded, best first.

    Args:
        machine: This machine.
        question: What is to be done, in a few words: ``deploy``, ``run the tests``.
        project: Only in this project: its name, or a folder; None for all.
    """
    found = list[tuple[RankedCommand, RecordedCall, RunEnd]]()
    for store in machine.stores:
        projects = None if project is None else project_ids(store, project)
        known = rank_commands(queries.latest_runs(store, projects, MAX_RUNS), question)[:MAX_COMMANDS]
        turns = {one.run.turn for one in known}
        told, ends = queries.calls(store, turns, machine.memory_of(store)), queries.run_ends(store, turns)
        found += [(one, told[one.run.turn], ends[one.run.turn]) for one in known if one.run.turn in told.keys() & ends]
    best = dict[tuple[str, ...], KnownCommand]()
    for one, call, end in sorted(found, key=lambda each: (each[0].score, each[0].run.at), reverse=True):
        command = KnownCommand(one.run.line, one.run.about, one.certainty, one.runs, one.sessions, call, *end)
        best.setdefault(steps(one.run.line), command)
    return list(best.values())[:MAX_COMMANDS]


def find_session_among(stores: Sequence[Store], wanted: str) -> str:
    """Return the id of a session of several stores, from its beginning.

    Raises:
        UsageError: There is none, or several.
    """
    for store in stores[1:]:
        if find_session_row(store, wanted) is not None:
            return wanted
    return find_session(stores[0], wanted)


def _changed_file(path: str, project: str | None, edits: Sequence[queries.ChangedRow]) -> ChangedFile:
    sessions = tuple(dict.fromkeys(one.session_id for one in reversed(edits)))[::-1]
    added, removed = sum(one.added for one in edits), sum(one.removed for one in edits)
    return ChangedFile(path, project, len(edits), added, removed, sessions, edits[-1].at)
