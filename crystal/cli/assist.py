"""``crystal assist``: what agents are told unasked, measured on your own past sessions."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from crystal.app.context import open_reader
from crystal.assist.replay import ReplayTally
from crystal.cli.json_output import print_json
from crystal.cli.options import AsJson
from crystal.cli.render import count_words, say
from crystal.text.harmless import harmless

commands = typer.Typer(help="Measure what agents are told unasked.", no_args_is_help=True)
TITLES = {"edit": "before an edit", "failure": "after a failed command"}


@commands.callback()
def assist() -> None:
    """Measure what agents are told unasked."""


@commands.command("replay", short_help="Show how often your past sessions would have been told something.")
def replay(
    show: Annotated[bool, typer.Option("--show", help="Print each thing that would have been told.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show how often your past sessions would have been told something unasked, and how often in vain.

    Only what was known before a moment counts, and only from other sessions. It was used if user or agent named or ran
    something new of it afterwards; "by chance" is how often the same holds for what another moment was told.
    """
    from crystal.app.assist_replay import replay

    with open_reader() as machine:
        found = replay(machine)
    if as_json:
        print_json({kind: _record(tally) for kind, tally in found.items()})
        return
    for kind, tally in found.items():
        told, moments = count_words(tally.spoke, "time"), count_words(tally.moments, "moment")
        say(f"{TITLES[kind]}: {moments}, spoke {told}, used {tally.used}, in vain {tally.vain:.1%} of the moments")
        if tally.spoke:
            say(f"    by chance {tally.by_chance} would count as used; {tally.tokens:,} tokens in all")
        for moment, text, is_used in tally.told if show else ():
            say(f"  {moment.session[:8]} {'used' if is_used else 'in vain'}: {harmless(text)}")


def _record(tally: ReplayTally) -> dict[str, Any]:
    names = ("moments", "spoke", "used", "by_chance", "tokens")
    figures: dict[str, Any] = {name: getattr(tally, name) for name in names}
    told = [{"session": one.session, "at": one.at, "text": text, "used": used} for one, text, used in tally.told]
    return {**figures, "vain_share": round(tally.vain, 4), "told": told}
