"""Search and print the hits. ``crystal search`` runs it also without typer, so nothing here may need typer."""

from __future__ import annotations

import os
import re
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from crystal.app.context import Machine, current_folder, open_reader
from crystal.app.projects import find_home
from crystal.app.search import EMPTY_MEMORY, checked_role, is_memory_empty, prepare_search, unreadable_mirror_notes
from crystal.app.validity import with_validity
from crystal.cli import render
from crystal.cli.capture_warning import warn_if_not_capturing
from crystal.cli.json_output import print_json, record
from crystal.cli.last_search import remember_hits
from crystal.cli.render import Look, agent_title, cells, clipped, file_words, one_line, say, shown_branch, speaker
from crystal.cli.values import project_value, time_span, whole_number
from crystal.config.harnesses import CLAUDE_CODE
from crystal.errors import UsageError
from crystal.model.capture import hit_name
from crystal.model.quick_dataclass import replace
from crystal.model.recall import Filters, Hit, Neighbour
from crystal.search import engine
from crystal.search.highlight import match_spans, why_found
from crystal.search.request import MemorySource, SearchRequest, SearchResult
from crystal.store import Store
from crystal.store.health.stats import bytes_by_state
from crystal.timewords.parse import ago, clock

_HEADING = re.compile(r"\A#{1,6} [^\n]*\n\s*(?=\S)")


def run_search(
    query: Sequence[str] | None,
    *,
    limit: str | None = None,
    since: str | None = None,
    before: str | None = None,
    project: str | None = None,
    session: str | None = None,
    role: str | None = None,
    agent: str | None = None,
    device: str | None = None,
    branch: str | None = None,
    source: str | None = None,
    everything: bool = False,
    as_of: str | None = None,
    recency: str | None = None,
    fusion: str | None = None,
    deep: bool = False,
    explain: bool = False,
    as_json: bool = False,
) -> None:
    """Search with what the command line gave, by the names of the command's parameters, and print what is found."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy reads it at its import; more threads only wait
    question = " ".join(query or ())
    if not question.strip():
        raise UsageError("the question is empty", hint='try: crystal search "database migration"')
    with open_reader() as machine:
        start, end = time_span(machine.now(), since, before)
        folder = project_value(machine, project)
        filters = Filters(folder, session, checked_role(role, "--role"), agent, device, branch, source, start, end)
        count = machine.config.search_limit if limit is None else whole_number(limit, "--limit")
        sources, request = prepare_search(
            machine, question, count, filters,
            recency=recency, fusion=fusion, as_of=as_of, deep=deep,
        )  # fmt: skip
        is_narrowed = everything or project is not None or session is not None
        result, scope = _ask(sources, request, None if is_narrowed else _home(machine))
        hits = tuple(with_validity(machine, result.hits, current_folder()))
        result = replace(result, hits=hits, notes=(*result.notes, *unreadable_mirror_notes(machine)))
        warn_if_not_capturing(machine, paused_too=True)
        if as_json:
            print_json(_as_json(result, scope, explain=explain))
        elif not result.hits and is_memory_empty(machine):
            say(EMPTY_MEMORY, stream=sys.stderr)
            _hint_at_past(machine.store)
        else:
            _show(machine, result, request, scope, explain=explain)
            if not result.hits:
                _say_nothing_found(result, filters, as_of)
                _hint_at_past(machine.store)


def _ask(
    sources: Sequence[MemorySource], request: SearchRequest, home: tuple[str, str] | None
) -> tuple[SearchResult, str | None]:
    """Run a search; also return the project's name if only this project was searched."""
    if home is None:
        return engine.search(sources, request), None
    folder, name = home
    result, is_inside = engine.search_project_first(sources, request, folder)
    if not is_inside and result.hits:
        render.note(f"nothing in project {name}; these are from everywhere")
    return result, name if is_inside else None


# ----------------------------------------------------------------------------------------------------------- scope


def _home(machine: Machine) -> tuple[str, str] | None:
    """Return the known project of the current folder, as (folder, name)."""
    cwd = current_folder()
    return None if cwd is None else find_home(machine.stores, cwd)


# ---------------------------------------------------------------------------------------------------------- output


def _as_json(result: SearchResult, scope: str | None, *, explain: bool) -> dict[str, Any]:
    return {
        "query": result.query,
        "mode": result.mode,
        "scope": scope,
        "notes": result.notes,
        **({"explained": result.explained} if explain else {}),
        "hits": [_hit_json(hit, explain=explain) for hit in result.hits],
    }


def _hit_json(hit: Hit, *, explain: bool) -> dict[str, Any]:
    shown = record(hit) | {"session_id": hit.session_id or None, "uuid": hit.uuid or None}
    explained = {"ranks": shown.pop("ranks"), "scores": shown.pop("scores")}
    return {**shown, "explain": explained} if explain else shown


def _show(machine: Machine, result: SearchResult, request: SearchRequest, scope: str | None, *, explain: bool) -> None:
    """Print hits for people, and remember their places for ``crystal show``."""
    if scope is not None:
        render.note(f"searched project {scope} alone; --all searches everything")
    render.note(*result.notes, *(result.explained if explain else ()))
    # Before printing: `crystal search x | head` ends the printing early.
    try:
        remember_hits(machine.places.data_dir, [_name(hit) for hit in result.hits])
    except OSError:
        render.note("crystal show 1 does not open these hits: nothing can be written; use the command below each")
    _print(machine, result, render.look_of(sys.stdout), request.now, explain=explain)


def _print(machine: Machine, result: SearchResult, look: Look, now: int, *, explain: bool) -> None:
    margin = len(str(len(result.hits))) + 2
    indent, width = " " * margin, look.width - margin
    seen = {hit.uuid for hit in result.hits}
    for number, hit in enumerate(result.hits, 1):
        text = _shown_text(hit)
        spans = match_spans(machine.store, result.query, text)
        render.say(look.dim(f"{number}.".ljust(margin)) + _headline(hit, look, now, width, here=machine.config.device))
        if hit.validity is not None and (explain or hit.validity.state != "unchanged"):
            render.say(indent + look.warning(clipped(render.validity_words(hit.validity), width)))
        _print_neighbour("before", hit.before, hit.harness, look, indent, seen)
        render.say(*render.snippet(text, spans, look, indent=indent))
        _print_neighbour("after", hit.after, hit.harness, look, indent, seen)
        if explain:
            render.say(
                *(indent + look.dim(line) for line in textwrap.wrap(f"score {hit.score:.4f}: {why_found(hit)}", width))
            )
        render.say(indent + look.dim(f"crystal show {_name(hit)}"), "")


def _print_neighbour(
    where: str, said: Neighbour | None, harness: str | None, look: Look, indent: str, seen: set[str]
) -> None:
    """Print the message beside a hit, unless it was already printed."""
    if said is None or said.uuid in seen:
        return
    seen.add(said.uuid)
    line = f"{where}, {speaker(said.role, None, harness)}: {one_line(said.text)}"
    say(indent + look.dim(clipped(line, look.width - len(indent))))


def _shown_text(hit: Hit) -> str:
    """Return the text of a hit; for a file, without the heading that the line above shows."""
    return hit.text if hit.file is None else _HEADING.sub("", hit.text)


def _name(hit: Hit) -> str:
    """Return the name for ``crystal show``: for a memory its id, which is the same on every machine."""
    return hit.uuid if hit.category is not None else hit_name(hit.id)


def _headline(hit: Hit, look: Look, now: int, width: int, *, here: str) -> str:
    who = clipped(speaker(hit.role, hit.tool, hit.harness), width)
    when = ago(hit.timestamp, now)
    if hit.timestamp is not None and hit.file is None:
        when += f" ({clock(hit.timestamp, now)})"
    kind = [hit.category, f"key {hit.key}" if hit.key else None] if hit.category else file_words(hit.file)
    parts = [*kind, when, hit.project, shown_branch(hit.branch), hit.freshness]
    if hit.subagent and hit.role != "subagent":
        parts.append("subagent")
    if hit.copies > 1:
        parts.append(f"said {hit.copies} times")
    if hit.similar:
        parts.append(f"{hit.similar} nearly the same")
    if hit.harness not in (None, CLAUDE_CODE) and hit.role != "assistant":
        parts.append(agent_title(hit.harness))
    if hit.device != here:
        parts.append(f"from {hit.device}")
    rest = " · ".join(one_line(part) for part in parts if part)
    return look.name(who) + look.dim(clipped(" · " + rest, max(0, width - cells(who))))


def _hint_at_past(store: Store) -> None:
    if bytes_by_state(store).get("before-crystal"):
        render.hint("past sessions are here; import them with: crystal backfill")


def _say_nothing_found(result: SearchResult, filters: Filters, as_of: str | None) -> None:
    """Print to standard error what was searched and what to try; standard output stays empty."""
    narrowed = [field.name for field in fields(filters) if getattr(filters, field.name) not in (None, False)]
    used = [f"--{name}" for name in narrowed if name != "general"]
    used += [] if as_of is None else ["--as-of"]
    where = f" (narrowed by {', '.join(used)})" if used else ""
    wider = "use fewer or other words, or look through: crystal sessions"
    next_step = f"leave out {' or '.join(used)}" if used else wider
    render.say_nothing(f"nothing found for {clipped(one_line(result.query), 60)!r}{where}", next_step)
