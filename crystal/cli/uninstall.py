"""Implement ``crystal uninstall``."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Annotated

import typer

from crystal.app.context import default_paths, open_reader, this_home
from crystal.cli.confirm import confirm
from crystal.cli.options import flag
from crystal.cli.render import warn
from crystal.cli.timer import change_timer
from crystal.config.paths import Places
from crystal.errors import CrystalError
from crystal.install.claude_settings.layers import plugin_removals
from crystal.install.removal import RemovalPlan, apply_removal, plan_removal
from crystal.install.removal import purge as purge_data
from crystal.install.timer import SCHEDULES


def uninstall(
    dry_run: Annotated[bool, flag("Only show what would be done.", "--dry-run")] = False,
    purge: Annotated[bool, flag("Delete the memory too, for good.", "--purge")] = False,
    yes: Annotated[bool, flag("Do not ask before deleting the memory.", "--yes", "-y")] = False,
) -> None:
    """Remove from Claude Code and other agents what init added. The memory stays, unless you give --purge."""
    places = default_paths()
    plan = plan_removal(places, os.environ, this_home())
    warn(*(problem.message for problem in plan.problems))
    if dry_run:
        _show_removal(plan, purge=purge)
        _say_plugin_stays(places)
        return
    if purge:
        _confirm_purge(plan, yes=yes)
    apply_removal(plan, places, os.environ)
    _say_taken_out(plan)
    _say_plugin_stays(places)
    change_timer(install=False, schedules=SCHEDULES)
    if purge:
        purge_data(plan, places)
        typer.echo("memory deleted")
    elif plan.data:
        typer.echo(f"the memory stays in {places.ldm_home}; delete it with: crystal uninstall --purge")
    if plan.problems:
        raise plan.problems[0]


def _show_removal(plan: RemovalPlan, *, purge: bool) -> None:
    differences = [change.diff() for change in plan.settings]
    differences += [each.diff() for each in (*plan.clients, *plan.live) if each.changed]
    typer.echo("".join(differences), nl=False)
    for path in plan.data if purge else ():
        typer.echo(f"would delete {path}")


def _confirm_purge(plan: RemovalPlan, *, yes: bool) -> None:
    """Print what other machines would lose, and ask before deleting the memory.

    Raises:
        UsageError: Standard input is no terminal.
        typer.Abort: The answer is no.
    """
    from crystal.app.sync.roles import describe_unshared

    with suppress(CrystalError), open_reader() as machine:
        warn(*describe_unshared(machine))
    if plan.data:
        files = "\n  ".join(map(str, plan.data))
        confirm("delete all of this for good?", yes=yes, consequence=f"--purge deletes the memory:\n  {files}")


def _say_taken_out(plan: RemovalPlan) -> None:
    for change in plan.settings:
        typer.echo(f"{change.path}: {'hooks removed' if change.changed else 'has no crystal hook'}")
    for each in plan.clients:
        if each.changed:
            typer.echo(f"{each.path}: crystal's server removed")
    for one in plan.live:
        if one.changed:
            typer.echo(f"{one.path}: {'removed' if one.after is None else 'hooks removed'}")


def _say_plugin_stays(places: Places) -> None:
    """Print how to remove the plugin, because only Claude Code can do it."""
    for removal in [each for folder in places.claude_dirs for each in plugin_removals(folder)]:
        typer.echo(f"the plugin stays and still captures; remove it with: {removal}")
