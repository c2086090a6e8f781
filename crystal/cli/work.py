"""Implement ``crystal changed``, ``blame``, ``how``, ``fix`` and ``about``: show past work and its reasons."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from shlex import quote
from typing import TYPE_CHECKING, Annotated

from crystal.app.context import Machine, current_folder, open_reader
from crystal.cli import render
from crystal.cli.json_output import answer, record
from crystal.cli.options import AsJson, Limit, OnlyProject, argument, flag, option
from crystal.cli.render import cells, count_words, look_of, one_line, padded
from crystal.cli.values import project_value, time_span, unknown_project, whole_number
from crystal.errors import UsageError
from crystal.store.notes import count_unindexed
from crystal.timewords.parse import clock

if TYPE_CHECKING:
    from crystal.app.about import Event, ThingHistory
    from crystal.app.blame import BlamedLines
    from crystal.app.fixes import KnownFix
    from crystal.app.work import ChangedFile, KnownCommand
    from crystal.store.work.queries import RecordedCall

SHORT_ID = 8
MAX_RELATED = 5


def changed(
    session: Annotated[str | None, option("Only this session: its id, or the beginning of it.", "SESSION")] = None,
    since: Annotated[str | None, option("From this time on: 7d, 2026-11-20 ... Default: 1d.")] = None,
    before: Annotated[str | None, option("Before this time.", "TIME")] = None,
    project: OnlyProject = None,
    limit: Limit = "50",
    as_json: AsJson = False,
) -> None:
    """List the files that agents edited in a session, or since a time, the latest first."""
    from crystal.app.work import changed

    most = whole_number(limit, "--limit")
    with open_reader() as machine:
        now = machine.now()
        start, end = time_span(now, since or (None if session or before else "1d"), before)
        place = project_value(machine, project)
        found = changed(machine, session=session, since=start, before=end, project=place)
        notes = _notes(machine, project)
    known = "no known edit" + ("" if session or since or before else " in the last day")
    nothing = known, "see every edit: crystal changed --since 2000-01-01"
    told = {"files": record(found[:most]), "number": len(found), "notes": notes}
    notes = [*notes, *_more(found, most)]
    answer(told, _changed_lines(found[:most], now), as_json=as_json, notes=notes, nothing=nothing)


def _more(found: Sequence[object], most: int) -> list[str]:
    left = len(found) - most
    return [f"{left} more: add --limit {len(found)} to the same command"] if left > 0 else []


def _changed_lines(files: Sequence[ChangedFile], now: int) -> Iterator[str]:
    """Yield one line for each file; on a terminal, two lines if it is too long."""
    look, times = look_of(sys.stdout), [clock(one.last_at, now) for one in files]
    for when, one in zip(times, files, strict=True):
        path = one_line(f"{one.path} (now {one.now})" if one.now else one.path)
        size = f"{padded(when, max(map(len, times)))}  {padded(f'+{one.added} -{one.removed}', 12)}"
        edits, sessions = count_words(one.edits, "edit"), " ".join(name[:SHORT_ID] for name in one.sessions[-3:])
        names = f"{look.dim(edits)} in {sessions}"
        if look.is_terminal and cells(f"{size} {path}  {edits} in {sessions}") > look.width:
            yield from (path, f"  {size} {names}")
        else:
            yield f"{size} {path}  {names}"


def blame(
    place: Annotated[str, argument("A file, or some of its lines: FILE:LINE or FILE:LINE-LINE.", "FILE")],
    project: OnlyProject = None,
    as_json: AsJson = False,
) -> None:
    """Show which session wrote the lines of a file, and what the user had asked for.

    Spaces and a new file name do not matter. In a git repository, git says when each line came. In a copy of a
    repository that no agent has worked in, name the project with --project.
    """
    from crystal.app.blame import blame

    with open_reader() as machine:
        found, now = blame(machine, place, project=project_value(machine, project)), machine.now()
        notes = _notes(machine, project)
    told = {**record(found), "notes": [*notes, *found.notes]}
    answer(told, _blame_lines(found.lines, now), as_json=as_json, notes=told["notes"])
    if found.project is None and not as_json:
        render.note("crystal knows no session in this folder")
        render.hint(f"if it is a copy of a project, run: crystal blame {quote(place)} --project NAME")


def _blame_lines(lines: Sequence[BlamedLines], now: int) -> Iterator[str]:
    """Yield who wrote the lines; lines that no session wrote share one row, whatever commits they are from."""
    from crystal.app.blame import line_span

    look, told = look_of(sys.stdout), set[str]()
    for call, group in groupby(lines, key=lambda one: one.call):
        same = list(group)
        span = line_span(same[0].first, same[-1].last)
        if call is None:
            commits = {one.commit for one in same}
            commit = f" (commit {same[0].commit[:10]})" if same[0].commit and len(commits) == 1 else ""
            these = "these lines" if span.startswith("lines") else "this line"
            yield f"{span}: no session is known to have written {these}{commit}"
            continue
        yield f"{look.bold(span)}: session {look.name(call.session_id[:SHORT_ID])}, {_place(call, now)}"
        if call.uuid not in told:
            yield from (*_why(call), _show(call, "  "))
        told.add(call.uuid)


def how(
    question: Annotated[list[str], argument("What is to be done, in a few words.", "WORDS")],
    project: OnlyProject = None,
    everywhere: Annotated[bool, flag("Of all projects, not only of this folder's.", "--all")] = False,
    limit: Limit = "3",
    as_json: AsJson = False,
) -> None:
    """Show the commands that did something here and succeeded, with what the agent said that they do."""
    from crystal.app.work import how

    most, words = whole_number(limit, "--limit"), " ".join(question)
    if not words.strip():
        raise UsageError("there is nothing to look for", hint="run: crystal how run the tests")
    with open_reader() as machine:
        now, place = machine.now(), _here(machine, project, everywhere=everywhere)
        found = how(machine, words, project=place)[:most]
        notes = _notes(machine, project)
    wider = f"crystal search {quote(words)}" if place is None else f"crystal how --all {quote(words)}"
    nothing = "no known command did this" + (" here" if place else ""), f"try: {wider}"
    lines = (line for one in found for line in _command_lines(one, now))
    answer({"commands": record(found), "notes": notes}, lines, as_json=as_json, notes=notes, nothing=nothing)


def _command_lines(one: KnownCommand, now: int) -> Iterator[str]:
    from crystal.work.command_ranking import SURE

    perhaps = "" if one.certainty >= SURE else "perhaps: "
    yield f"{perhaps}{look_of(sys.stdout).bold(one_line(one.command))}"
    count = f"succeeded {count_words(one.runs, 'time')} in {count_words(one.sessions, 'session')}"
    told = [f"  {one_line(one.about)}"] if one.about else []
    yield from (f"  {count}, in this form last {_place(one.call, now)}", *_end(one), *told, _show(one.call, "  "))


def _end(one: KnownCommand) -> list[str]:
    """Return a line with the duration of the last run and its passed tests; empty if both are unknown."""
    took = f"took {render.lasting(one.seconds)}" if one.seconds else ""
    tests = f"{count_words(one.passed, 'test')} passed" if one.passed is not None else ""
    return [f"  {', '.join(filter(None, (took, tests)))}"] if took or tests else []


def fix(
    error: Annotated[
        list[str] | None, argument("What was printed, or a line of it. Default: standard input.", "ERROR")
    ] = None,
    project: OnlyProject = None,
    limit: Limit = "1",
    as_json: AsJson = False,
) -> None:
    """Show what cured an error before: the edits or commands after which the command that failed succeeded.

    crystal looks in this folder's project first, then in all. Paths, numbers, times and hashes may differ.
    """
    from crystal.app.fixes import fix
    from crystal.work.errors import MAX_TEXT

    most, text = whole_number(limit, "--limit"), " ".join(error or ["-"])
    if text == "-":
        text = "" if sys.stdin.isatty() else sys.stdin.read(MAX_TEXT)
    if not text.strip():
        raise UsageError("there is no error to look for", hint="run: COMMAND 2>&1 | crystal fix")
    with open_reader() as machine:
        now = machine.now()
        found = fix(machine, text, project=_here(machine, project), is_only=project is not None)[:most]
        notes = _notes(machine, project)
    words = one_line(text.strip().splitlines()[-1])
    nothing = "no known cure of this error", f"search for it: crystal search {quote(words[:100])}"
    lines = (line for one in found for line in _fix_lines(one, now))
    answer({"fixes": record(found), "notes": notes}, lines, as_json=as_json, notes=notes, nothing=nothing)


def _fix_lines(one: KnownFix, now: int) -> Iterator[str]:
    yield look_of(sys.stdout).bold(one_line(one.error))
    yield from (f"  failed: {one_line(one.command)}", f"    {_place(one.failed, now)}", _show(one.failed, "    "))
    for step in one.steps:
        yield from (f"  then: {one_line(step.command or f'edited {step.file}')}", _show(step.call, "    "))
        yield from (f"    - {one_line(line)}" for line in step.removed)
        yield from (f"    + {one_line(line)}" for line in step.added)
    yield from ("  then it succeeded", _show(one.succeeded, "    "))


def about(
    thing: Annotated[list[str], argument("A file, a symbol, an error, a package, a person, a branch, #123.", "THING")],
    project: OnlyProject = None,
    everywhere: Annotated[bool, flag("Of all projects, not only of this folder's.", "--all")] = False,
    limit: Limit = "20",
    as_json: AsJson = False,
) -> None:
    """Show the history of a thing: what was edited, run, cured, decided and said about it.

    crystal looks in this folder's project first, then in all. What matters most is shown, the latest first.
    For a person, a pull request or a commit it also shows commits in this project's repository.
    """
    from crystal.app.about import about
    from crystal.app.file_paths import FilePaths

    most, name = whole_number(limit, "--limit"), " ".join(thing)
    if not name.strip():
        raise UsageError("there is nothing to look for", hint="run: crystal about src/cart.py")
    with open_reader() as machine:
        now, folder = machine.now(), _here(machine, project)
        name = FilePaths(machine.store).asked(name, current_folder() or folder or "/")
        place = _here(machine, project, everywhere=True) if everywhere else folder
        found = about(machine, name, project=place, is_only=project is not None, folder=folder)
        notes = _notes(machine, project)
    notes += found.notes
    nothing = f"nothing is known of {one_line(name)}", f"search for it: crystal search {quote(name)}"
    more, lines = _more(found.events, most), _history_lines(found, most, now) if found.events else ()
    told = {**record(found), "notes": notes}
    answer(told, lines, as_json=as_json, notes=[*notes, *more], nothing=nothing)


def _history_lines(found: ThingHistory, most: int, now: int) -> Iterator[str]:
    from crystal.app.about import most_telling

    look = look_of(sys.stdout)
    kind = "" if found.kind == "name" else f" ({found.kind})"
    where = f" in {count_words(found.sessions, 'session')}" if found.sessions else ""
    yield f"{look.bold(one_line(found.thing))}{kind}: {count_words(len(found.events), 'event')}{where}"
    for one in most_telling(found.events, most):
        yield from _event_lines(one, look, now)
    if found.related:
        files = [f"{one_line(file)} ({number})" for file, number in found.related[:MAX_RELATED]]
        yield f"edited in the same sessions: {', '.join(files)}"


def _event_lines(one: Event, look: render.Look, now: int) -> Iterator[str]:
    """Yield an event, its reason, and where to read it."""
    times = f" {one.times} times" if one.times > 1 else ""
    yield f"{look.name(one.what)}{times}{one.size}: {one_line(one.text)}"
    if one.why:
        yield f"  {render.clipped(one_line(one.because), look.width - 2)}"
    place = ", ".join(part for part in (clock(one.at, now), one.project, one.place) if part)
    yield f"  {look.dim(place)}"


def _here(machine: Machine, project: str | None, *, everywhere: bool = False) -> str | None:
    """Return the named project, or the one of this folder."""
    from crystal.app.projects import find_home

    folder = None if everywhere else current_folder()
    home = None if folder is None else find_home(machine.stores, folder)
    return project_value(machine, project) or (home[0] if home else None)


def _notes(machine: Machine, project: str | None) -> list[str]:
    """Return the reasons why an answer may be incomplete."""
    behind = count_unindexed(machine.store)
    missing = f"answers may be missing: {behind:,} calls and results are not indexed yet; now: crystal sync"
    return [*unknown_project(machine, project), *([missing] if behind else [])]


def _place(call: RecordedCall, now: int) -> str:
    return ", ".join(part for part in (clock(call.at, now), call.project, call.device) if part)


def _show(call: RecordedCall, indent: str) -> str:
    """Return the line that says how to read a call."""
    return f"{indent}crystal show {call.uuid}"


def _why(call: RecordedCall) -> list[str]:
    words = (("asked", call.request), ("agent", call.reason))
    return [f"  {who}: {render.clipped(one_line(text), 300)}" for who, text in words if text]
