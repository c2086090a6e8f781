"""Gather the facts of each project that an agent may be told, and write the file from which the hook reads them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from crystal.app.context import Machine
from crystal.app.file_paths import FilePaths
from crystal.app.fixes import FixStep, KnownFix, known_cures
from crystal.app.session_context_content import LOCK, LOCK_SECONDS, ContextSources, seen_folders
from crystal.assist.decisions import find_reason
from crystal.assist.facts import HEAD, Fact, cure_fact, edited, encode_facts, failure_fact, ran, reason_fact, written
from crystal.capture.lock import await_lock
from crystal.config.paths import delete_file, system_errors, write_derived
from crystal.hook.assist import SUFFIX
from crystal.hook.matching import plain_error, plain_line
from crystal.hook.session_start import context_file, stamp_of
from crystal.model.capture import Memory, Project
from crystal.store import Store
from crystal.store.capture.privacy import store_key
from crystal.store.forget.forgetting import is_work_left
from crystal.store.sessions.contexts import state_of_memory
from crystal.store.work.index import calls_in
from crystal.store.work.queries import ChangedRow, calls, changed_rows
from crystal.timewords.parse import local
from crystal.work.calls import file_name

MAX_EDITS = 2_000
"""Edits of a project that are looked at, the latest."""

MAX_STEPS = 3
REFRESH_MS = 600_000
"""A file is made again after this time: what it lacks until then is from the session that runs."""


def refresh_facts(machine: Machine, pause: Callable[[], None]) -> None:
    """Write the file of each project again, unless all of them are fresh; ``pause`` is called after each."""
    folder = machine.places.data_dir / "context"
    old = [path for path in folder.glob(f"*{SUFFIX}") if not _is_fresh(machine, path)]
    if not folder.exists() or (not old and any(folder.glob(f"*{SUFFIX}"))):
        return
    known = set[Path]()
    for _, here, projects in seen_folders(machine):
        for project in projects:
            place = project.git_root or project.cwd
            path = folder / f"{context_file(place)}{SUFFIX}"
            if project.cwd == place and path not in known:
                known.add(path)
                if not _is_fresh(machine, path):
                    _write(machine, here, project, path)
                pause()
    for path in set(old) - known:
        delete_file(path)


def _is_fresh(machine: Machine, path: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return 0 <= machine.now() - path.stat().st_mtime_ns // 1_000_000 < REFRESH_MS
    return False


def _write(machine: Machine, here: ContextSources, project: Project, path: Path) -> None:
    """Write the file of a project.

    Raises:
        UsageError, UnavailableError: The system refuses.
    """
    before, facts = state_of_memory(machine.store), list[Fact]()
    for side, rows in here.rows_of(project):
        found = facts_in(side, here.machine.memory_of(side), list(rows))
        gone = here.forgotten(side, [fact.session for fact in found])
        facts += [fact for fact in found if fact.session not in gone]
    origin = HEAD.format(project=project.name)
    write_facts(
        machine, path, encode_facts(project.cwd, origin, facts, os.urandom(16), store_key(machine.store)), before
    )


def write_facts(machine: Machine, path: Path, content: bytes, before: tuple[int, ...]) -> None:
    """Write a file of facts, unless something was forgotten since ``before``, or waits to be, or settings changed.

    The lock is held for a moment only: a process that waits longer for it deletes the contexts.
    Nothing can be marked as forgotten during the transaction, and forgetting deletes the file after it: no crash leaves
    it behind.

    Raises:
        UsageError, UnavailableError: The system refuses.
    """
    with await_lock(machine.places.data_dir / LOCK, seconds=LOCK_SECONDS) as held:
        if not held or not path.parent.exists():
            return  # what may be told was switched off
        with machine.store.transaction(), system_errors(path):
            is_as_set = stamp_of(str(machine.places.config_file)) == machine.config.stamp
            if is_as_set and state_of_memory(machine.store) == before and not is_work_left(machine.store):
                write_derived(path, content)
            else:
                path.unlink(missing_ok=True)


def facts_in(store: Store, memory: Memory, projects: Sequence[int]) -> list[Fact]:
    """Return what may be told in a project, from one store."""
    edits = changed_rows(store, projects=projects)[-MAX_EDITS:]
    return [*_reasons(store, memory, edits), *_cures(known_cures(store, memory, projects))]


def _reasons(store: Store, memory: Memory, edits: Sequence[ChangedRow]) -> Iterator[Fact]:
    """Yield what edits wrote, with why, if the agent gave a reason before and a request had led to it."""
    known = calls(store, {one.turn for one in edits}, memory)
    why = {turn: reason for turn, one in known.items() if one.request and (reason := find_reason(one.reason))}
    made, paths = calls_in(store, known), FilePaths(store)
    for one in edits:
        calls_here = made.get(one.turn, [])[one.part : one.part + 1]
        lines = [plain for call in calls_here for plain in map(plain_line, call.added) if plain]
        if lines:
            edit = written(paths.inside(one.path, one.cwd, one.folder), lines, one.at, one.session_id)
            reason, request = why.get(one.turn), known[one.turn].request or ""
            yield edit if reason is None else reason_fact(edit, _day(one.at), request, reason)


def _cures(fixes: Iterable[KnownFix]) -> Iterator[Fact]:
    """Yield what cured errors, and for the files of these cures, which command failed when they were edited."""
    for fix in fixes:
        at, session, plain = fix.succeeded.at or 0, fix.failed.session_id, plain_error(fix.error)
        done = dict.fromkeys(filter(None, (_step(one, fix.error) for one in fix.steps)))
        if plain and done:
            yield cure_fact(plain, fix.command, [*done][:MAX_STEPS], at, session, _day(at))
        for path in {one.file for one in fix.steps if one.file}:
            yield failure_fact(path, fix.command, at, session, _day(at))


def _step(step: FixStep, error: str) -> str:
    return ran(step.command or "") if step.file is None else edited(file_name(step.file), step.added, error)


def _day(ms: int) -> str:
    return local(ms, None).strftime("%Y-%m-%d")
