"""Implement ``crystal agents``: list the agents on this machine, and how much of their conversations is captured."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from crystal.app.agents import AgentState, describe_percent, list_agents, look_at_files
from crystal.app.context import default_paths, open_reader
from crystal.app.migrate.found import open_or_empty
from crystal.app.transcript_formats import describe_kinds
from crystal.app.watcher import watcher_state
from crystal.cli.json_output import answer, json_row
from crystal.cli.options import AsJson
from crystal.cli.render import Look, cells, count_words, item, look_of, padded, size_words
from crystal.config.harnesses import CLAUDE_CODE, EXPORTS
from crystal.install.live.mechanisms import ONLY_BY_NAME
from crystal.timewords.parse import ago

JSON_KEYS = (
    "name", "title", "folders", "files", "last_at", "sessions", "captured", "private", "before", "waiting",
    "unreadable", "percent", "since", "cleanup", "unknown_percent", "unknown_kinds", "live",
)  # fmt: skip


def agents(*, as_json: AsJson = False) -> None:
    """List the agents found here: how much of their conversations is captured, and since when."""
    is_set_up = default_paths().db.exists()
    with open_reader() if is_set_up else open_or_empty() as machine:
        found, now = list_agents(machine, look_at_files(machine)), machine.now()
        watched = watcher_state(machine.places).is_running
    look = look_of(sys.stdout)
    here = [one for one in found if one.is_here]
    width = max((cells(one.title) for one in here), default=0)
    lines = [line for one in here for line in _agent_lines(one, width, now, look)]
    lines += [] if here else ["no agent has written a conversation on this machine yet"]
    lines += _how_lines(found, here, watched, look)
    notes = _next_steps(here, watched) if is_set_up else [_first_step(here)]
    answer({"agents": [json_row(one, *JSON_KEYS) for one in found]}, lines, as_json=as_json, notes=notes)


def _how_lines(found: Sequence[AgentState], here: Sequence[AgentState], watched: bool, look: Look) -> Iterator[str]:
    """Print how each agent is captured, and which agents were not found."""
    readable = [one for one in found if one.name not in EXPORTS]
    swept = [one for one in here if one in readable and not one.live]
    for label, some in (
        ("captured as each turn ends: ", [one for one in here if one.live]),
        (f"captured by crystal {'watch' if watched else 'sync'}: ", swept),
        ("not found here: ", [one for one in readable if one not in here]),
    ):
        if some:
            yield from item(label, ", ".join(one.title for one in some), look, style=look.dim)


def _first_step(here: Sequence[AgentState]) -> str:
    others = {one.name for one in here if one.name not in EXPORTS} - {CLAUDE_CODE}
    return f"to capture what they write: crystal init{' --all' if others else ''}"


def _next_steps(here: Sequence[AgentState], watched: bool) -> Iterator[str]:
    if any(one.live is False and one.name not in ONLY_BY_NAME for one in here):
        yield "capture more of them as each turn ends: crystal init --all"
    if not watched and any(one.live is None and one.name not in EXPORTS for one in here):
        yield "capture agents without a hook as they write: crystal watch --install"
    if any(one.before for one in here):
        yield "import past sessions: crystal backfill"


def _agent_lines(one: AgentState, width: int, now: int, look: Look) -> Iterator[str]:
    label, indent = padded(one.title, width) + "  ", " " * (width + 2)
    if one.since is None or one.percent is None:
        yield from item(label, "nothing captured yet", look, style=look.name)
    else:
        known = size_words(one.captured + one.before + one.waiting)
        share = f"{describe_percent(one.percent)} of {known} captured, first {ago(one.since, now)}"
        yield from item(label, f"{count_words(one.sessions, 'session')}, {share}", look, style=look.name)
    for size, words in (
        (one.waiting, "not captured yet"),
        (one.before, "from before crystal, not imported"),
        (one.private, "private, left out"),
    ):
        if size:
            yield from item(indent, f"{size_words(size)} {words}", look)
    if one.unreadable:
        yield from item(
            indent, f"{count_words(one.unreadable, 'file')} cannot be read; crystal doctor names the reason", look
        )
    if one.unknown_percent >= 1:
        kinds = describe_kinds(list(one.unknown_kinds))
        yield from item(
            indent, f"{one.unknown_percent:.0f} % of its newest records are of unknown kinds ({kinds})", look
        )
    if one.cleanup:
        yield from item(indent, f"deletes {one.cleanup}", look)
