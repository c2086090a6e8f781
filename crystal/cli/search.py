"""``crystal search``: find what was said."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from crystal.app.context import Machine
    from crystal.cli.render import Look
    from crystal.model.recall import Filters, Hit, Neighbour
    from crystal.search.engine import SearchResult
    from crystal.store import Store


def search(
    query: Annotated[
        list[str] | None, typer.Argument(help='What to look for. "Words in quotation marks" stand together.')
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
    agent: Annotated[str | None, typer.Option(help="Only this agent of crystal's.", metavar="ID")] = None,
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
        typer.Option(help="Prefer what is new among hits nearly as good: off, light, strong.", metavar="HOW"),
    ] = None,
    fusion: Annotated[
        str | None, typer.Option(help="How engines are put together: weighted, rrf, similarity.", metavar="HOW")
    ] = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Ask a model for other words and for the order (see deep.provider).")
    ] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Show each engine's rank and score of every hit.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Find what was said.

    Inside the folder of a project that crystal knows, that project is searched first, and everything if it has
    nothing. The exit code is 0 also when nothing is found.
    """
    from crystal.app.context import open_reader
    from crystal.app.mirror import mirror_notes
    from crystal.app.search import asking
    from crystal.cli import render
    from crystal.cli.last_search import remember_hits
    from crystal.cli.status import warn_if_not_capturing
    from crystal.errors import UsageProblem
    from crystal.search.engine import search as ask
    from crystal.search.engine import search_home_first

    question = " ".join(query or ())
    if not question.strip():
        raise UsageProblem("the question is empty", hint='try: crystal search "database migration"')
    with open_reader() as machine:
        filters = _filters(machine, since, before, project, session, role, agent, device, branch, source)
        count = machine.config.search_limit if limit is None else whole_number(limit, "--limit")
        asked = asking(machine, machine.mirror, filters, recency=recency, fusion=fusion, as_of=as_of, deep=deep)
        home = None if everything or project is not None or session is not None else _home(_stores(machine))
        if home is None:
            result, scope = ask(machine.store, query=question, limit=count, **asked), None
        else:
            result, inside = search_home_first(machine.store, query=question, home=home[0], limit=count, **asked)
            scope = home[1] if inside else None
            if not inside and result.hits:
                render.note(f"nothing in project {home[1]}; these are from everywhere")
        if machine.mirror is not None and machine.mirror.store is None:
            result = replace(result, notes=(*result.notes, *mirror_notes(machine.mirror, machine.now())))
        warn_if_not_capturing(machine.config, machine.store)
        if as_json:
            print(json.dumps(_as_json(result, scope, explain=explain)))
            return
        if not result.hits and _is_empty(machine):
            _say_empty(machine.store)
            return
        if scope is not None:
            render.note(f"searched project {scope} alone; --all searches everything")
        render.note(*result.notes)
        if explain:
            render.note(*result.explained)
        # Before they are printed: `crystal search x | head` ends the printing early.
        remember_hits(machine.places.data_dir, [_name(hit) for hit in result.hits])
        if not result.hits:
            _say_nothing_found(result, filters, as_of)
            return
        _print(machine, result, render.look_of(sys.stdout), asked["now"], explain=explain)


# ----------------------------------------------------------------------------------------------------------- scope


def _stores(machine: Machine) -> list[Store | None]:
    """Return this machine's own store, and the mirror if there is one."""
    return [machine.store, None if machine.mirror is None else machine.mirror.store]


def _home(stores: list[Store | None]) -> tuple[str, str] | None:
    """Return the known project of the current folder, as (folder, name)."""
    from crystal.app.projects import find_home

    try:
        cwd = str(Path.cwd())
    except OSError:  # the folder is gone
        return None
    return find_home([store for store in stores if store is not None], cwd)


def _filters(
    machine: Machine, since: str | None, before: str | None, project: str | None, session: str | None, role: str | None,
    agent: str | None, device: str | None, branch: str | None, source: str | None,
) -> Filters:  # fmt: skip
    from crystal.errors import UsageProblem
    from crystal.model.recall import Filters
    from crystal.store.search.scope import role_words, roles_named

    if role is not None and not roles_named(role):
        raise UsageProblem(
            f"--role is {role!r}, which is not a role", hint=f"use {role_words()}, or several with commas"
        )
    start, end = time_span(machine.now(), since, before)
    folder = None if project is None else project_value(_stores(machine), project)
    return Filters(folder, session, role, agent, device, branch, source, start, end)


def time_span(now: int, since: str | None, before: str | None) -> tuple[int | None, int | None]:
    """Return the times that ``--since`` and ``--before`` name."""
    from crystal.errors import UsageProblem
    from crystal.timewords.parse import parse_when

    start = None if since is None else parse_when(since, now=now, name="--since")
    end = None if before is None else parse_when(before, now=now, name="--before")
    if start is not None and end is not None and start >= end:
        raise UsageProblem(f"--since {since} is not before --before {before}", hint="exchange them")
    return start, end


def whole_number(text: str, name: str) -> int:
    """Return the number that an option gives."""
    from crystal.errors import UsageProblem

    try:
        return int(text)
    except ValueError as error:
        raise UsageProblem(f"{name} is {text!r}, which is not a whole number", hint=f"try: {name} 10") from error


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

    shown: dict[str, Any] = {
        "id": hit.id,
        "score": hit.score,
        "text": hit.text,
        "role": hit.role,
        "session_id": hit.session_id or None,
        "uuid": hit.uuid or None,
        "project": hit.project,
        "branch": hit.branch,
        "agent": hit.agent,
        "device": hit.device,
        "timestamp": iso(hit.timestamp),
        "freshness": hit.freshness,
        "source": hit.source,
        "cwd": hit.cwd,
        "subagent": hit.subagent,
        "tool": hit.tool,
        "copies": hit.copies,
        "similar": hit.similar,
        "before": _neighbour_json(hit.before),
        "after": _neighbour_json(hit.after),
        "from": hit.memory,
        "category": hit.category,
        "key": hit.key,
    }
    return {**shown, "explain": {"ranks": hit.ranks, "scores": hit.scores}} if explain else shown


def _neighbour_json(said: Neighbour | None) -> dict[str, Any] | None:
    from crystal.timewords.parse import iso

    if said is None:
        return None
    return {"role": said.role, "text": said.text, "uuid": said.uuid, "timestamp": iso(said.timestamp)}


def _print(machine: Machine, result: SearchResult, look: Look, now: int, *, explain: bool) -> None:
    from crystal.cli import render
    from crystal.search.highlight import match_spans

    width = len(str(len(result.hits))) + 2
    seen = {hit.uuid for hit in result.hits}
    for number, hit in enumerate(result.hits, 1):
        indent = " " * width
        spans = match_spans(machine.store, result.query, hit.text)
        lead = look.dim(f"{number}.".ljust(width))
        render.say(lead + _headline(hit, look, now, look.width - width, here=machine.config.device))
        around = {"before": hit.before, "after": hit.after}
        lines = {where: said for where, said in around.items() if said is not None and said.uuid not in seen}
        seen.update(said.uuid for said in lines.values())
        shown = {where: [look.dim(_around(where, said, look.width - width))] for where, said in lines.items()}
        render.say(*(indent + line for line in shown.get("before", ())))
        render.say(*render.snippet(hit.text, spans, look, indent=indent))
        render.say(*(indent + line for line in shown.get("after", ())))
        if explain:
            render.say(*(indent + look.dim(line) for line in textwrap.wrap(_explained(hit), look.width - width)))
        render.say(indent + look.dim(f"crystal show {_name(hit)}"), "")


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


def _around(where: str, said: Neighbour, width: int) -> str:
    from crystal.cli.render import clipped, one_line, speaker

    text = one_line(said.text)
    head = f"{where}, {speaker(said.role, None)}: "
    return clipped(head + text, width)


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
