"""``--install-timer`` and ``--remove-timer``: plan the change, make it, report it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from crystal.app.context import this_home
from crystal.install import timer
from crystal.install.claude_settings.settings_file import locations_to_bake

COMMAND_SECONDS = 60


def change_timer(*, install: bool, dry_run: bool = False, schedules: Sequence[timer.Schedule] = (timer.SWEEP,)) -> None:
    """Install timers of this machine, or take them out."""
    host = this_host()
    for schedule in schedules if install else ():
        kind = timer.find_kind(host, run)
        plan = timer.plan_install(kind, this_job(schedule), host, run)
        _do(plan, f"{schedule.command} runs every {schedule.minutes} minutes from now on ({kind})", dry_run=dry_run)
    if not install:
        plan = timer.plan_remove(host, run, schedules)
        _do(plan, "the timer is removed" if plan else "there is no crystal timer", dry_run=dry_run)


def _do(plan: timer.Steps, done: str, *, dry_run: bool) -> None:
    if dry_run:
        typer.echo(timer.describe(plan), nl=False)
        return
    timer.apply(plan, run)
    typer.echo(done)


def this_host() -> timer.Host:
    """Return the machine that this runs on."""
    home = this_home()
    config_home = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    chosen = config_home if config_home.is_absolute() else home / ".config"
    return timer.Host(sys.platform, home, chosen, os.getuid() if hasattr(os, "getuid") else 0)


def this_job(schedule: timer.Schedule = timer.SWEEP) -> timer.Job:
    """Return what the timer of this installation runs, and the folders that are set in this environment."""
    words = (sys.executable, "-I", "-m", *schedule.command.split(), "--quiet")
    return timer.Job(words, locations_to_bake(os.environ, this_home()), schedule)


def run(words: Sequence[str], text: str | None) -> timer.Ran:
    """Run a command of the system in the C locale; its words are compared."""
    try:
        return subprocess.run(
            words,
            input=text or "",
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            env={**os.environ, "LC_ALL": "C"},
            timeout=COMMAND_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        return timer.Ran(words, 127, "", f"{words[0]} is not installed")
    except (OSError, subprocess.TimeoutExpired) as error:
        return timer.Ran(words, 126, "", str(error))
