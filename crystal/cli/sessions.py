"""``crystal sessions``: list conversations, newest first."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from crystal.cli.render import Look
    from crystal.sessions.reading import SessionSummary

SHORT_ID = 8


def sessions(
    project: Annotated[
        str | None, typer.Option(help="Only this project: its name, or a folder and all below it.", metavar="PROJECT")
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="Only those that went on since: 24h, 7d, 2026-11-20 ...", metavar="TIME")
    ] = None,
    before: Annotated[
        str | None, typer.Option(help="Only those that began before: today, 2026-11-20 ...", metavar="TIME")
    ] = None,
    limit: Annotated[str, typer.Option("-n", "--limit", help="How many at most.", metavar="N")] = "20",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """List sessions, newest first: when, how many turns, where, what about, and the id for `crystal show`."""
    from crystal.app.context import open_reader
    from crystal.app.mirror import mirror_notes
    from crystal.cli import render
    from crystal.cli.search import project_value, time_span, whole_number
    from crystal.cli.show import session_json
    from crystal.sessions.reading import sessions as list_sessions

    with open_reader() as machine:
        now, count = machine.now(), whole_number(limit, "--limit")
        start, end = time_span(now, since, before)
        mirror = machine.mirror_store
        folder = None if project is None else project_value([machine.store, mirror], project)
        found, notes = list_sessions(machine.store, project=folder, since=start, before=end, limit=count, mirror=mirror)
        notes = (*notes, *mirror_notes(machine.mirror, now))
    if as_json:
        print(json.dumps({"schema": 1, "notes": list(notes), "sessions": [session_json(one) for one in found]}))
        return
    render.note(*notes)
    if found:
        render.say(*_lines(found, now, render.look_of(sys.stdout)))
    elif not notes:
        narrowed = project is not None or since is not None or before is not None
        hint = "widen the filters" if narrowed else "import past sessions: crystal backfill"
        render.say("crystal: no sessions", f"crystal: hint: {hint}", stream=sys.stderr)


def _lines(found: list[SessionSummary], now: int, look: Look) -> list[str]:
    from crystal.cli.render import cells, clipped, one_line, padded, shown_branch
    from crystal.timewords.parse import clock

    whens = [clock(one.last_at, now) if one.last_at is not None else "time unknown" for one in found]
    turns = [f"{one.turns:,}" for one in found]
    projects = [clipped(one_line(one.project or ""), 24) for one in found]
    branches = [clipped(one_line(shown_branch(one.branch) or ""), 20) for one in found]
    ids = short_ids([one.id for one in found])
    wide = [max(map(cells, column)) for column in (ids, whens, turns, projects, branches)]
    lines = []
    for at, one in enumerate(found):
        fields = [padded(ids[at], wide[0]), padded(whens[at], wide[1]), turns[at].rjust(wide[2]),
                  padded(projects[at], wide[3]), padded(branches[at], wide[4])]  # fmt: skip
        used = sum(cells(field) + 2 for field in fields if field)
        title = clipped(one_line(one.title) or "(without words)", max(24, look.width - used))
        coloured = (look.name(fields[0]), look.dim(fields[1]), look.dim(fields[2]), fields[3], look.dim(fields[4]))
        lines.append("  ".join((*(field for field in coloured if field), look.bold(title))).rstrip())
    return lines


def short_ids(ids: list[str]) -> list[str]:
    """Return beginnings of ids that are distinct, at least eight characters long."""
    from crystal.cli.render import harmless

    length = SHORT_ID
    while len({one[:length] for one in ids}) < len(set(ids)):
        length += 4
    return [harmless(one[:length]) for one in ids]
