"""Implement ``crystal assist``: measure on past sessions whether facts for the agent are used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from crystal.app.context import open_reader
from crystal.assist.replay import ReplayTally
from crystal.cli.json_output import answer, json_row
from crystal.cli.options import AsJson, flag
from crystal.cli.render import count_words, note
from crystal.store.notes import count_unindexed
from crystal.text.harmless import harmless

commands = typer.Typer(help="Count facts for the agent in past sessions, and how many it used.", no_args_is_help=True)
TITLES = {"prompt": "with a prompt", "edit": "before an edit", "failure": "after a failed command",
          "compaction": "after a compaction", "subagent": "to a subagent"}  # fmt: skip


@commands.callback()
def assist() -> None:
    """Count facts for the agent in past sessions, and how many it used."""


@commands.command("replay", short_help="Replay your past sessions, and count the facts.")
def replay(
    show: Annotated[bool, flag("Print each fact.", "--show")] = False,
    as_json: AsJson = False,
) -> None:
    """Replay your past sessions: at how many moments crystal had a fact for the agent, and how often it was used.

    Only facts count that were known before the moment. A fact counts as used if you or the agent afterwards named or
    ran something new from it; "by chance" is how often the fact of another moment would count.
    """
    from crystal.app.assist_replay import replay

    with open_reader() as machine:
        found, waiting = replay(machine), count_unindexed(machine.store)
    if waiting:
        note(f"figures may be low: {waiting:,} calls and results are not indexed yet; now: crystal sync")
    lines = (line for kind, tally in found.items() for line in _lines(TITLES[kind], tally, show=show))
    answer({kind: _record(tally) for kind, tally in found.items()}, lines, as_json=as_json)


def _lines(title: str, tally: ReplayTally, *, show: bool) -> Iterator[str]:
    moment_name = title.split(" ", 2)[2]
    moments, unused = count_words(tally.moments, moment_name), tally.with_fact - tally.used
    if not tally.with_fact:
        yield f"{title}: {moments}, none with a fact" if tally.moments else f"{title}: no {moment_name} yet"
        return
    counts = f"{tally.with_fact} with a fact, {tally.used} used, {unused} not used"
    yield f"{title}: {moments}, {counts} ({100 * tally.unused_share:.1f} % of all)"
    yield f"    {tally.tokens:,} tokens in all; {tally.by_chance} would count as used by chance"
    for moment, text, is_used in tally.told if show else ():
        yield f"  {moment.session[:8]} {'used' if is_used else 'not used'}: {harmless(text)}"


def _record(tally: ReplayTally) -> dict[str, Any]:
    figures = json_row(tally, "moments", "with_fact", "used", "by_chance", "tokens")
    told = [{"session": one.session, "at": one.at, "text": text, "used": used} for one, text, used in tally.told]
    return {**figures, "unused_share": round(tally.unused_share, 4), "facts": told}
