"""``crystal search``: find what was said."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from crystal.app.context import Machine
    from crystal.cli.render import Look
    from crystal.model.recall import Filters, Hit, Neighbour
    from crystal.search.request import MemorySource, SearchRequest, SearchResult
    from crystal.store import Store


def search(
    query: Annotated[
        list[str] | None, typer.Argument(help='What to look for. "Words in quotation marks" are a phrase.')
    ] = None,
    limit: Annotated[str | None, typer.Option("-n", "--limit", help="How many hits at most.", metavar="N")] = None,
    since: Annotated[
        str | None, typer.Option(help="Not older than: 24h, 7d, yesterday, 2026-11-20 ...", metavar="TIME")
    ] = None,
    before: Annotated[
        str | None, typer.Option(help="Older than: 24h, 7d, today, 2026-11-20 ...", metavar="TIME")
    ] = None,
    project: Annotated[
        str | None, typer.Option(help="Only this project: its name, or a folder and all below it.", metavar="PROJECT")
    ] = None,
    session: Annotated[
        str | None, typer.Option(help="Only this session: its id, or the beginning of it.", metavar="ID")
    ] = None,
    role: Annotated[
        str | None,
        typer.Option(
            help="Only user, assistant, thinking, tool, tool_call, tool_result, subagent, summary, memory; several by"
            " commas.",
            metavar="ROLE",
        ),
    ] = None,
    agent: Annotated[str | None, typer.Option(help="Only this agent, by its id.", metavar="ID")] = None,
    device: Annotated[str | None, typer.Option(help="Only this machine.", metavar="NAME")] = None,
    branch: Annotated[str | None, typer.Option(help="Only this git branch.", metavar="NAME")] = None,
    source: Annotated[
        str | None, typer.Option(help="Only what comes from: conversation, file, memory.", metavar="SOURCE")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Search everything, also inside the folder of a known project.")
    ] = False,
    as_of: Annotated[
        str | None,
        typer.Option("--as-of", help="Search the memory as it was: 2026-05-01, 30d, yesterday ...", metavar="TIME"),
    ] = None,
    recency: Annotated[
        str | None,
        typer.Option(help="How much to prefer newer hits: off, light, strong.", metavar="HOW"),
    ] = None,
    fusion: Annotated[
        str | None, typer.Option(help="How to combine keywords and vectors: weighted, rrf, similarity.", metavar="HOW")
    ] = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Ask a model for other wordings and the order (see deep.provider).")
    ] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Show each engine's rank and score of every hit.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Find what was said.

    Inside the folder of a project that crystal knows, that project is searched first, and everything if it has
    nothing. The exit code is 0 also when nothing is found.
    """
    from crystal.app.context import open_reader
    from crystal.app.search import checked_role, prepare_search, unreadable_mirror_notes
    from crystal.cli.status import warn_if_not_capturing
    from crystal.errors import UsageError
    from crystal.model.recall import Filters

    question = " ".join(query or ())
    if not question.strip():
        raise UsageError("the question is empty", hint='try: crystal search "database migration"')
    with open_reader() as machine:
        start, end = time_span(machine.now(), since, before)
        folder = None if project is None else project_value(_stores(machine), project)
        filters = Filters(folder, session, checked_role(role, "--role"), agent, device, branch, source, start, end)
        count = machine.config.search_limit if limit is None else whole_number(limit, "--limit")
        sources, request = prepare_search(
            machine, machine.mirror, question, count, filters,
            recency=recency, fusion=fusion, as_of=as_of, deep=deep,
        )  # fmt: skip
        is_narrowed = everything or project is not None or session is not None
        result, scope = _ask(sources, request, None if is_narrowed else _home(_stores(machine)))
        result = replace(result, notes=(*result.notes, *unreadable_mirror_notes(machine)))
        warn_if_not_capturing(machine.config, machine.store)
        if as_json:
            print(json.dumps(_as_json(result, scope, explain=explain)))
        elif not result.hits and _is_empty(machine):
            _say_empty(machine.store)
        else:
            _show(machine, result, request, scope, explain=explain)
            if not result.hits:
                _say_nothing_found(result, filters, as_of)


def _ask(
    sources: Sequence[MemorySource], request: SearchRequest, home: tuple[str, str] | None
) -> tuple[SearchResult, str | None]:
    """Search; give also the name of the project if only it was searched."""
    from crystal.cli import render
    from crystal.search import engine

    if home is None:
        return engine.search(sources, request), None
    folder, name = home
    result, is_inside = engine.search_project_first(sources, request, folder)
    if not is_inside and result.hits:
        render.note(f"nothing in project {name}; these are from everywhere")
    return result, name if is_inside else None


# ----------------------------------------------------------------------------------------------------------- scope


def _stores(machine: Machine) -> list[Store | None]:
    """Return this machine's own store, and the mirror if there is one."""
    return [machine.store, machine.mirror_store]


def _home(stores: list[Store | None]) -> tuple[str, str] | None:
    """Return the known project of the current folder, as (folder, name)."""
    from crystal.app.projects import find_home

    try:
        cwd = str(Path.cwd())
    except OSError:  # the folder is gone
        return None
    return find_home([store for store in stores if store is not None], cwd)


def time_span(now: int, since: str | None, before: str | None) -> tuple[int | None, int | None]:
    """Return the times that ``--since`` and ``--before`` name."""
    from crystal.errors import UsageError
    from crystal.timewords.parse import parse_when

    start = None if since is None else parse_when(since, now=now, name="--since")
    end = None if before is None else parse_when(before, now=now, name="--before")
    if start is not None and end is not None and start >= end:
        raise UsageError(f"--since {since} is not before --before {before}", hint="swap them")
    return start, end


def whole_number(text: str, name: str) -> int:
    """Return the number that an option gives."""
    from crystal.errors import UsageError

    try:
        return int(text)
    except ValueError as error:
        raise UsageError(f"{name} is {text!r}, which is not a whole number", hint=f"try: {name} 10") from error


def project_value(stores: list[Store | None], text: str) -> str:
    """Return what ``--project`` means: a name, or a folder as an absolute path."""
    from crystal.app.projects import known_folder

    separators = [os.sep, os.altsep or os.sep]
    if text not in (".", "..", "~") and not any(separator in text for separator in separators):
        return text
    absolute = os.path.abspath(os.path.expanduser(text))  # noqa: PTH100, PTH111 (links stay: transcripts may name them)
    return known_folder([store for store in stores if store is not None], absolute)


# ---------------------------------------------------------------------------------------------------------- output


def _as_json(result: SearchResult, scope: str | None, *, explain: bool) -> dict[str, Any]:
    return {
        "schema": 1,
        "query": result.query,
        "mode": result.mode,
        "scope": scope,
        "notes": list(result.notes),
        **({"explained": list(result.explained)} if explain else {}),
        "hits": [hit_json(hit, explain=explain) for hit in result.hits],
    }


def hit_json(hit: Hit, *, explain: bool) -> dict[str, Any]:
    """Return a hit as the JSON output shows it."""
    from crystal.timewords.parse import iso

    shown = asdict(hit)
    ranks, scores = shown.pop("ranks"), shown.pop("scores")
    for said in (shown, shown["before"], shown["after"]):
        if said is not None:
            said["timestamp"] = iso(said["timestamp"])
    shown |= {"session_id": hit.session_id or None, "uuid": hit.uuid or None, "from": shown.pop("memory")}
    return {**shown, "explain": {"ranks": ranks, "scores": scores}} if explain else shown


def _show(machine: Machine, result: SearchResult, request: SearchRequest, scope: str | None, *, explain: bool) -> None:
    """Print hits for people, and remember their places for ``crystal show``."""
    from crystal.cli import render
    from crystal.cli.last_search import remember_hits

    if scope is not None:
        render.note(f"searched project {scope} alone; --all searches everything")
    render.note(*result.notes, *(result.explained if explain else ()))
    # Before they are printed: `crystal search x | head` ends the printing early.
    remember_hits(machine.places.data_dir, [_name(hit) for hit in result.hits])
    _print(machine, result, render.look_of(sys.stdout), request.now, explain=explain)


def _print(machine: Machine, result: SearchResult, look: Look, now: int, *, explain: bool) -> None:
    from crystal.cli import render
    from crystal.search.highlight import match_spans

    margin = len(str(len(result.hits))) + 2
    indent, width = " " * margin, look.width - margin
    seen = {hit.uuid for hit in result.hits}
    for number, hit in enumerate(result.hits, 1):
        spans = match_spans(machine.store, result.query, hit.text)
        render.say(look.dim(f"{number}.".ljust(margin)) + _headline(hit, look, now, width, here=machine.config.device))
        _print_neighbour("before", hit.before, look, indent, seen)
        render.say(*render.snippet(hit.text, spans, look, indent=indent))
        _print_neighbour("after", hit.after, look, indent, seen)
        if explain:
            render.say(*(indent + look.dim(line) for line in textwrap.wrap(_explained(hit), width)))
        render.say(indent + look.dim(f"crystal show {_name(hit)}"), "")


def _print_neighbour(where: str, said: Neighbour | None, look: Look, indent: str, seen: set[str]) -> None:
    """Print what was said beside a hit, unless it was printed already."""
    from crystal.cli.render import clipped, one_line, say, speaker

    if said is None or said.uuid in seen:
        return
    seen.add(said.uuid)
    line = f"{where}, {speaker(said.role, None)}: {one_line(said.text)}"
    say(indent + look.dim(clipped(line, look.width - len(indent))))


def _name(hit: Hit) -> str:
    """Return the name that ``crystal show`` takes: for a memory its own id, which is the same on every machine."""
    from crystal.model.capture import hit_name

    return hit.uuid if hit.category is not None else hit_name(hit.id)


def _headline(hit: Hit, look: Look, now: int, width: int, *, here: str) -> str:
    from crystal.cli.render import cells, clipped, one_line, shown_branch, speaker
    from crystal.timewords.parse import ago, clock

    who = clipped(speaker(hit.role, hit.tool), width)
    when = "time unknown" if hit.timestamp is None else f"{ago(hit.timestamp, now)} ({clock(hit.timestamp, now)})"
    kind = [hit.category, f"key {hit.key}" if hit.key else None] if hit.category else []
    parts = [*kind, when, hit.project, shown_branch(hit.branch), hit.freshness]
    if hit.subagent and hit.role != "subagent":
        parts.append("subagent")
    if hit.copies > 1:
        parts.append(f"said {hit.copies} times")
    if hit.similar:
        parts.append(f"{hit.similar} nearly the same")
    if hit.device != here:
        parts.append(f"from {hit.device}")
    rest = " · ".join(one_line(part) for part in parts if part)
    return look.name(who) + look.dim(clipped(" · " + rest, max(0, width - cells(who))))


def _explained(hit: Hit) -> str:
    names = {"keywords": "BM25", "context": "BM25 with its neighbours", "vectors": "cosine"}
    engines = [
        f"{engine} #{rank}" + (f" ({names[engine]} {hit.scores[engine]:.3g})" if engine in hit.scores else "")
        for engine, rank in hit.ranks.items()
        if engine != "exact"
    ]
    others = {"session": "session", "late": "words by meaning"}
    engines += [f"{words} {hit.scores[name]:.3g}" for name, words in others.items() if name in hit.scores]
    exact = ["word for word"] if "exact" in hit.ranks else []
    return f"score {hit.score:.4f}: {', '.join((*exact, *engines)) or 'by time alone'}"


def _is_empty(machine: Machine) -> bool:
    """Return True if neither this machine nor the mirror of home has anything to find."""
    from crystal.store.health.stats import counts

    known = [counts(store) for store in _stores(machine) if store is not None]
    return not any(each["turns"] or each["memories"] for each in known)


def _say_empty(store: Store) -> None:
    from crystal.cli.render import say
    from crystal.store.health.stats import bytes_by_state

    say("Nothing is remembered yet. Use Claude Code for one turn, then search again.", stream=sys.stderr)
    if bytes_by_state(store).get("before-crystal"):
        say("crystal: hint: past sessions are here; import them with: crystal backfill", stream=sys.stderr)


def _say_nothing_found(result: SearchResult, filters: Filters, as_of: str | None) -> None:
    """Say on stderr what was searched and what to try: an empty answer is empty output."""
    from crystal.cli.render import clipped, one_line, say

    names = {"project": "project", "session": "session", "role": "role", "agent": "agent", "device": "device",
             "branch": "branch", "source": "source", "since": "--since", "before": "--before"}  # fmt: skip
    used = [name for field, name in names.items() if getattr(filters, field) is not None]
    used += [] if as_of is None else ["--as-of"]
    where = f" (narrowed by {', '.join(used)})" if used else ""
    say(f"crystal: nothing found for {clipped(one_line(result.query), 60)!r}{where}", stream=sys.stderr)
    fresh_start = "use fewer or other words; crystal backfill imports past sessions"
    hint = f"leave out {' or '.join(used)}" if used else fresh_start
    say(f"crystal: hint: {hint}", stream=sys.stderr)
