"""Implement ``crystal_changed``, ``_blame``, ``_how``, ``_fix`` and ``_about``, which ask the index of work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from crystal.app.about import Event
from crystal.app.about import about as history
from crystal.app.blame import BlamedLines, current_name
from crystal.app.blame import blame as blame_lines
from crystal.app.context import Machine
from crystal.app.file_paths import FilePaths
from crystal.app.fixes import FixStep, KnownFix
from crystal.app.fixes import fix as known_fixes
from crystal.app.work import ChangedFile, KnownCommand
from crystal.app.work import changed as changed_files
from crystal.app.work import how as known_commands
from crystal.capture.finder import look_at
from crystal.errors import NotFoundError, UsageError
from crystal.mcp.handlers import ClientContext
from crystal.mcp.items import ShortIds, age_of, excerpt, label, place_of
from crystal.mcp.page import AnswerItem, Json, ToolAnswer, one_page
from crystal.mcp.searching import moment
from crystal.store.notes import count_unindexed
from crystal.store.work.queries import RecordedCall
from crystal.text.quoting import quote_line
from crystal.timewords.parse import iso

MAX_PATH = 300
MAX_SESSIONS = 3
SAID = 300


def changed(client: ClientContext, arguments: Mapping[str, Any]) -> ToolAnswer:
    """Return the files that agents edited."""
    project, session, offset = arguments.get("project"), arguments.get("session"), arguments.get("offset") or 0
    with client.reader() as machine:
        times = {"since": arguments.get("since") or (None if session else "7d"), "before": arguments.get("before")}
        since, before = (moment(times, name, machine.now()) for name in times)
        found = changed_files(machine, session=session, since=since, before=before, project=project)
        ids = ShortIds(machine)
        folders = _folders_above(offset, [one.path for one in found])
        makers = [
            partial(_file_item, one, above, ids, session is None) for one, above in zip(found, folders, strict=True)
        ]
        data = {"offset": offset, "notes": _notes(machine)}
        return one_page(makers, data, "files", client.max_chars, "no known edit", lambda at: f"offset={at}")


def _file_item(one: ChangedFile, folder_before: str, ids: ShortIds, is_named: bool, _: int) -> AnswerItem:
    """Return an edited file, with its last session unless the answer is about one session."""
    sessions = [ids.session(name) for name in one.sessions[-MAX_SESSIONS:]]
    path = quote_line(one.path, MAX_PATH)
    data: Json = {
        "file": path, "project": label(one.project), "edits": one.edits, "added": one.added,
        "removed": one.removed, "sessions": sessions, "last_at": iso(one.last_at),
        "now": quote_line(one.now, MAX_PATH) if one.now else None,
    }  # fmt: skip
    place = (*place_of(one.last_at, one.project, None, ids.device), *(sessions[-1:] if is_named else ()))
    text = (_below(one.path, folder_before) or path) + (f" (now {data['now']})" if one.now else "")
    return AnswerItem(_size(one) or "+0", place, text, data)


def _folders_above(offset: int, paths: Sequence[str]) -> Iterator[str]:
    """Yield for each path the folder of the path above it; empty for the first path of a page."""
    folder = ""
    for number, path in enumerate(paths):
        folder = "" if number == offset else folder
        yield folder
        folder = path.rpartition("/")[0] if path else folder


def _below(path: str, folder: str) -> str | None:
    """Return a path without its folder if the path above has the same; otherwise None."""
    is_below = folder and path.rpartition("/")[0] == folder
    return quote_line(f"…{path[len(folder) :]}", MAX_PATH) if is_below else None


def _size(one: ChangedFile | Event) -> str:
    return f"+{one.added}" * (one.added > 0) + f"-{one.removed}" * (one.removed > 0)


def blame(client: ClientContext, arguments: Mapping[str, Any]) -> ToolAnswer:
    """Return which session wrote lines of a file in the agent's working folder."""
    path, first, project = arguments["file"], arguments.get("first"), arguments.get("project")
    last = arguments.get("last") or first
    if last is not None and last < (first or 1):
        raise UsageError(f"last is {last}, before first", hint="swap them")
    with client.reader() as machine:
        place = _inside(client, machine, path)
        found = blame_lines(machine, str(place) + (f":{first or 1}-{last}" if last else ""), project=project)
        ids = ShortIds(machine)
        groups = dict[tuple[str | None, ...], list[tuple[BlamedLines, RecordedCall]]]()
        for one, call in ((one, one.call) for one in found.lines if one.call is not None):
            groups.setdefault((call.session_id, call.request, call.reason), []).append((one, call))
        asked = dict[str | None, int]()
        for (_, request, _), group in groups.items():
            asked.setdefault(request, group[0][0].first)
        makers = [partial(_lines_item, group, ids, asked[request]) for (_, request, _), group in groups.items()]
        missing = sum(one.last - one.first + 1 for one in found.lines if one.call is None)
        notes = [*[f"{missing} lines of no known session"] * (missing > 0), *found.notes, *_notes(machine)]
        data = {"file": quote_line(path, MAX_PATH), "has_git": found.has_git, "unknown_lines": missing, "offset": 0,
                "notes": notes}  # fmt: skip
        return one_page(makers, data, "lines", client.max_chars, "", lambda _: "ask for fewer lines: first, last")


def _inside(client: ClientContext, machine: Machine, path: str) -> Path:
    place = client.inside(path)
    if place is None:
        raise UsageError("this tool reads only files inside your working folder", hint="give a path inside it")
    if look_at(place) is None:
        now = current_name(machine, place)
        other = quote_line(str(now), MAX_PATH) if now and client.inside(str(now)) else None
        hint = f"it has another name now: {other}" if other else "give a path below your folder, first and last"
        raise NotFoundError(f"there is no file {path[:200]!r}", hint=hint)
    return place


def _lines_item(
    group: list[tuple[BlamedLines, RecordedCall]], ids: ShortIds, asked_at: int, max_chars: int
) -> AnswerItem:
    """Return lines with a common origin: the session, the user's request and the agent's reason.

    The request is shown only with the lines that begin at ``asked_at``.
    """
    call, ranges = group[0][1], [(one.first, one.last) for one, _ in group]
    session, device = ids.session(call.session_id), ids.device
    said = [(who, text) for who, text in (("asked", call.request), ("agent", call.reason)) if text]
    texts = {who: excerpt(text, min(max_chars // 2, SAID))[0] for who, text in said}
    data: Json = {
        "ranges": ranges, "session": session, "line": call.uuid,
        "at": iso(call.at), "project": label(call.project), "device": label(call.device),
        "request": texts.get("asked"), "reason": texts.get("agent"),
    }  # fmt: skip
    numbers = ",".join(f"{first}{f'-{last}' * (last > first)}" for first, last in ranges)
    head = f"{numbers} {session}"
    if call.request and asked_at != ranges[0][0]:
        texts["asked"] = f"as for {asked_at}"
    words = "\n".join(f"{who}: {text}" for who, text in texts.items())
    return AnswerItem(head, place_of(call.at, call.project, call.device, device), words, data)


def how(client: ClientContext, arguments: Mapping[str, Any]) -> ToolAnswer:
    """Return the commands that did the task in this project and succeeded."""
    with client.reader() as machine:
        found = known_commands(machine, arguments["question"], project=_project(client, machine, arguments))
        ids = ShortIds(machine)
        makers = [partial(_command_item, one, ids) for one in found]
        data, none = {"offset": 0, "notes": _notes(machine)}, "no known command did this"
        return one_page(makers, data, "commands", client.max_chars, none, lambda _: "ask with other words")


def _command_item(one: KnownCommand, ids: ShortIds, max_chars: int) -> AnswerItem:
    session, device = ids.session(one.call.session_id), ids.device
    command, about = excerpt(one.command, max_chars)[0], quote_line(one.about, SAID)
    data: Json = {
        "command": command, "about": about, "certainty": one.certainty, "runs": one.runs, "sessions": one.sessions,
        "session": session, "line": one.call.uuid, "at": iso(one.call.at), "project": label(one.call.project),
        "seconds": one.seconds, "passed": one.passed, "failed": one.failed,
    }  # fmt: skip
    doubt = f"{one.certainty:g} " if one.certainty < 1 else ""
    head = f"{doubt}{one.runs}"
    place = (age_of(one.call.at, ids.machine.now()), *place_of(None, one.call.project, one.call.device, device)[1:])
    took = f"{one.seconds:.1f} s" if one.seconds else ""
    tests = f"{one.passed} passed" if one.passed is not None else ""
    told = "; ".join(filter(None, (about, took, tests)))
    return AnswerItem(head, place, f"{command} #{told}" if told else command, data)


def fix(client: ClientContext, arguments: Mapping[str, Any]) -> ToolAnswer:
    """Return what cured an error before."""
    with client.reader() as machine:
        project, is_only = _project(client, machine, arguments), bool(arguments.get("project"))
        found = known_fixes(machine, arguments["error"], project=project, is_only=is_only)
        makers = [partial(_fix_item, one, ShortIds(machine)) for one in found]
        data, none = {"offset": 0, "notes": _notes(machine)}, "no known cure of this error"
        return one_page(makers, data, "fixes", client.max_chars, none, lambda _: "search for the error's words")


def about(client: ClientContext, arguments: Mapping[str, Any]) -> ToolAnswer:
    """Return the history of a thing."""
    offset, is_only = arguments.get("offset") or 0, bool(arguments.get("project"))
    with client.reader() as machine:
        project = _project(client, machine, arguments)
        thing, here = arguments["thing"], client.folder
        thing = FilePaths(machine.store).asked(thing, here) if here else thing
        found = history(machine, thing, project=project, is_only=is_only, folder=client.folder)
        ids, told = ShortIds(machine), {one.text for one in found.events}
        folders = _folders_above(offset, [one.text if one.what == "edited" else "" for one in found.events])
        makers = [partial(_event_item, one, ids, told, above) for one, above in zip(found.events, folders, strict=True)]
        data = {"offset": offset, "kind": found.kind, "sessions": found.sessions,
                "notes": [*_notes(machine), *found.notes],
                "related": [quote_line(one.file, MAX_PATH) for one in found.related]}  # fmt: skip
        return one_page(makers, data, "events", client.max_chars, "nothing is known of it", lambda at: f"offset={at}")


def _event_item(one: Event, ids: ShortIds, told: set[str], folder_before: str, max_chars: int) -> AnswerItem:
    """Return an event; its reason is left out of the text if another event has it as its text."""
    session, text = ids.session(one.session_id) if one.session_id else None, excerpt(one.text, max_chars)[0]
    why = quote_line(one.why, SAID) if one.why else None
    data: Json = {
        "what": one.what, "text": text, "why": why, "at": iso(one.at), "session": session,
        "line": one.uuid if session else None,
        "project": label(one.project), "times": one.times, "added": one.added, "removed": one.removed,
    }  # fmt: skip
    place = (
        *place_of(one.at, one.project, one.device, ids.device),
        session or (one.place if one.what == "committed" else ids.memory(one.uuid)),
    )
    shown = _below(one.text, folder_before) or text
    what = _size(one) if one.what == "edited" else ""
    return AnswerItem(what or one.what, place, f"{shown}\n{why}" if why and one.why not in told else shown, data)


def _project(client: ClientContext, machine: Machine, arguments: Mapping[str, Any]) -> str | None:
    """Return the requested project, or by default that of the agent's working folder."""
    home = None if arguments.get("project") or arguments.get("all") else client.project(machine)
    return home[0] if home else arguments.get("project")


def _notes(machine: Machine) -> list[str]:
    """Return a note that answers may be missing if the index of work is behind."""
    behind = count_unindexed(machine.store)
    return [f"answers may be missing: {behind} calls and results are not indexed yet"] if behind else []


def _fix_item(one: KnownFix, ids: ShortIds, max_chars: int) -> AnswerItem:
    session, device = ids.session(one.failed.session_id), ids.device
    error, command = quote_line(one.error, SAID), quote_line(one.command, SAID)
    steps = [_step_text(step, max_chars // 2 // len(one.steps)) for step in one.steps]
    data: Json = {
        "error": error, "failures": one.failures, "command": command, "steps": steps, "session": session,
        "line": one.failed.uuid, "succeeded": one.succeeded.uuid, "at": iso(one.failed.at),
        "project": label(one.failed.project),
    }  # fmt: skip
    place = place_of(one.failed.at, one.failed.project, one.failed.device, device)
    words = "\n".join([f"{command} failed: {error}", *steps, "then it succeeded"])
    return AnswerItem(f"session {session}", place, words, data)


def _step_text(step: FixStep, max_chars: int) -> str:
    if step.command is not None:
        return f"then: {excerpt(step.command, max_chars)[0]}"
    lines = [*(f"- {line}" for line in step.removed), *(f"+ {line}" for line in step.added)]
    return "\n".join([f"then: edited {quote_line(step.file or '', MAX_PATH)}", excerpt("\n".join(lines), max_chars)[0]])
