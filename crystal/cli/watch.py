"""Implement ``crystal watch``: capture as soon as an agent writes."""

from __future__ import annotations

import signal
import threading
from typing import Annotated

import typer

from crystal.capture.engine import Tally
from crystal.cli.capture import tally_words, warn_of
from crystal.cli.options import Quiet, changes_timer, flag


def watch(
    install: Annotated[bool, flag("Start it now and after each login.", "--install")] = False,
    remove: Annotated[bool, flag("Stop it, and no longer start it at login.", "--remove")] = False,
    dry_run: Annotated[bool, flag("With --install or --remove: only show what would be done.", "--dry-run")] = False,
    quiet: Quiet = False,
) -> None:
    """Capture what agents without a hook write, as soon as they write it. Runs until Ctrl-C.

    Agents that run crystal at the end of each turn are not watched. Needs the package watchfiles.
    """
    from crystal.app.watch import watch_agents

    if changes_timer(install=install, remove=remove, dry_run=dry_run, names="--install or --remove"):
        _install(install=install, dry_run=dry_run)
        return

    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())

    told: set[tuple[str, str]] = set()

    def tell(tally: Tally) -> None:
        problems = {one for one in (tally.problems or {}).items() if one not in told}
        told.update(problems)
        warn_of(Tally(problems=dict(problems)))
        if tally.bytes_captured and not quiet:
            typer.echo(tally_words(tally))

    def begin() -> None:
        if not quiet:
            typer.echo("watching; Ctrl-C ends it", err=True)

    watch_agents(tell, stop, begin)


def _install(*, install: bool, dry_run: bool) -> None:
    """Make the system start this command at login, or no longer."""
    from crystal.app.context import open_kept_machine
    from crystal.cli.timer import change_timer
    from crystal.install.timer import WATCH
    from crystal.sources.watch import load_watchfiles

    if install:
        with open_kept_machine():  # without a memory, or the package, the command would fail
            load_watchfiles()
    change_timer(install=install, dry_run=dry_run, schedules=(WATCH,))
