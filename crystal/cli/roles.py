"""Implement ``crystal promote`` and ``crystal demote``: change which machine is home."""

from __future__ import annotations

import re
import sys
from typing import Annotated

import typer

from crystal.app.context import Machine, open_machine
from crystal.app.sync.handover import is_promoting
from crystal.app.sync.roles import RoleChange, become_home, has_token, promote_from_paper
from crystal.app.sync.roles import demote as give_up
from crystal.app.sync.roles import promote as take_over
from crystal.cli.confirm import confirm
from crystal.cli.options import Yes, flag, option
from crystal.errors import UsageError
from crystal.store.sync.relay_peers import home_peer
from crystal.sync.keys.word_codes import parse_paper

HOME_PROMPT = "the relay's token for home"


def promote(
    relay: Annotated[str | None, option("The relay's address.", "URL")] = None,
    paper_key: Annotated[
        bool, flag("The old home is lost: read its 24 words from standard input.", "--paper-key")
    ] = False,
    token_stdin: Annotated[bool, flag("Read the relay's token for home from standard input.", "--token-stdin")] = False,
    yes: Yes = False,
) -> None:
    """Make this machine the home of the others: after demote --to on the old home, or from the paper key."""
    with open_machine() as machine:
        if paper_key:
            confirm("go on?", yes=yes, consequence="this machine becomes home in the place of the lost one")
            words = _read_secret("the paper key of 24 words", lines=24)
            token = _read_secret(HOME_PROMPT)
            _say(promote_from_paper(machine, parse_paper(words), url=relay, token=token))
        elif home_peer(machine.store) is not None or is_promoting(machine.store):
            confirm("go on?", yes=yes, consequence="this machine becomes the home of the others")
            _say(take_over(machine))
        elif machine.config.role == "home":
            raise UsageError("this machine is home already", hint="crystal devices lists its devices")
        else:
            _say(make_home(machine, relay, asks=sys.stdin.isatty(), token_stdin=token_stdin))


def demote(
    to: Annotated[str | None, option("The device that becomes home.", "NAME")] = None,
    force: Annotated[
        bool, flag("Leave home although it has not confirmed everything, or leave the devices of this home.", "--force")
    ] = False,
    yes: Yes = False,
) -> None:
    """Hand home over to one of the devices; or, on a device, leave home and become standalone."""
    with open_machine() as machine:
        if machine.config.role != "standalone":  # else there is nothing to give up, and the error says so
            leaves = "this machine gives up its role and shares no memory any more"
            confirm("go on?", yes=yes, consequence=f"{to} becomes home, this machine its device" if to else leaves)
        _say(give_up(machine, to, force=force))


def make_home(machine: Machine, relay: str | None, *, asks: bool, token_stdin: bool) -> RoleChange:
    """Make a standalone machine the home; read its relay token if given on standard input, or missing and ``asks``."""
    must_read = token_stdin or (asks and not has_token(machine))
    return become_home(machine, url=relay, token=_read_secret(HOME_PROMPT) if must_read else None)


def _read_secret(what: str, *, lines: int = 1) -> str:
    """Read a secret from standard input, hidden on a terminal; never from the command line.

    Args:
        what: The name of the secret, for the prompt.
        lines: For a secret of several words: their number. Numbers between the words do not count.
    """
    if sys.stdin.isatty():
        return str(typer.prompt(what, hide_input=lines == 1, err=True)).strip()
    text = ""
    for line in sys.stdin:
        text += " " + line.strip()
        if len(text.split() if lines == 1 else re.findall(r"[^\W\d_]+", text)) >= lines:
            return text.strip()
    raise UsageError(f"{what} is missing", hint="give it on standard input")


def _say(change: RoleChange) -> None:
    other = f" (its home is {change.other})" if change.other and change.role == "device" else ""
    typer.echo(f"this machine is {change.role} now{other}")
    for note in change.notes:
        typer.echo(f"  {note}")
