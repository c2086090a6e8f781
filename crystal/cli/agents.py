"""Implement ``crystal agents``: list the agents on this machine, and how much of their conversations is captured."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from crystal.app.agents import AgentState, describe_percent, list_agents, look_at_files
from crystal.app.context import default_paths, open_reader
from crystal.app.migrate.found import open_or_empty
from crystal.app.transcript_formats import describe_kinds
from crystal.app.watcher import watcher_state
from crystal.cli.json_output import json_row, print_json
from crystal.cli.options import AsJson
from crystal.cli.render import Look, cells, count_words, look_of, note, padded, say, say_item, size_words
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
    if as_json:
        print_json({"agents": [json_row(one, *JSON_KEYS) for one in found]})
        return
    look = look_of(sys.stdout)
    here = [one for one in found if one.is_here]
    width = max((cells(one.title) for one in here), default=0)
    for one in here:
        _say_agent(one, width, now, look)
    if not here:
        say("no agent has written a conversation on this machine yet")
    _say_how(found, here, watched, look)
    note(*(_next_steps(here, watched) if is_set_up else [_first_step(here)]))


def _say_how(found: Sequence[AgentState], here: Sequence[AgentState], watched: bool, look: Look) -> None:
    """Print how each agent is captured, and which agents were not found."""
    readable = [one for one in found if one.name not in EXPORTS]
    swept = [one for one in here if one in readable and not one.live]
    for label, some in (
        ("captured as each turn ends: ", [one for one in here if one.live]),
        (f"captured by crystal {'watch' if watched else 'sync'}: ", swept),
        ("not found here: ", [one for one in readable if one not in here]),
    ):
        if some:
            say_item(label, ", ".join(one.title for one in some), look, style=look.dim)


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


def _say_agent(one: AgentState, width: int, now: int, look: Look) -> None:
    label, indent = padded(one.title, width) + "  ", " " * (width + 2)
    if one.since is None or one.percent is None:
        say_item(label, "nothing captured yet", look, style=look.name)
    else:
        known = size_words(one.captured + one.before + one.waiting)
        share = f"{describe_percent(one.percent)} of {known} captured, first {ago(one.since, now)}"
        say_item(label, f"{count_words(one.sessions, 'session')}, {share}", look, style=look.name)
    for size, words in (
        (one.waiting, "not captured yet"),
        (one.before, "from before crystal, not imported"),
        (one.private, "private, left out"),
    ):
        if size:
            say_item(indent, f"{size_words(size)} {words}", look)
    if one.unreadable:
        say_item(indent, f"{count_words(one.unreadable, 'file')} cannot be read; crystal doctor names the reason", look)
    if one.unknown_percent >= 1:
        kinds = describe_kinds(list(one.unknown_kinds))
        say_item(indent, f"{one.unknown_percent:.0f} % of its newest records are of unknown kinds ({kinds})", look)
    if one.cleanup:
        say_item(indent, f"deletes {one.cleanup}", look)
