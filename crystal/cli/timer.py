"""Implement ``--install-timer``, ``--remove-timer``, ``--install`` and ``--remove``."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

import typer

from crystal.app.context import this_home
from crystal.app.watcher import this_host
from crystal.install import timer
from crystal.install.claude_settings.claude_file import locations_to_bake

COMMAND_SECONDS = 60


def change_timer(*, install: bool, dry_run: bool = False, schedules: Sequence[timer.Schedule] = (timer.SWEEP,)) -> None:
    """Install or remove the timers of this machine and the watcher."""
    host, is_watch = this_host(), timer.WATCH in schedules
    undo = "--remove" if is_watch else "--remove-timer"
    for schedule in schedules if install else ():
        kind = timer.find_kind(host, run, schedule)
        plan = timer.plan_install(kind, this_job(schedule), host, run)
        when = f"every {schedule.minutes} minutes from now on" if schedule.minutes else "now and after each login"
        _do(plan, f"{schedule.command} runs {when} ({kind})", undo, dry_run=dry_run)
    if not install:
        plan = timer.plan_remove(host, run, schedules)
        what = "timer" if not is_watch else "watcher" if len(schedules) == 1 else "timer or watcher"
        _do(plan, f"the {what} is removed" if plan else f"there is no crystal {what}", undo, dry_run=dry_run)


def _do(plan: timer.Steps, done: str, undo: str, *, dry_run: bool) -> None:
    if dry_run:
        typer.echo(timer.describe(plan), nl=False)
        return
    timer.apply(plan, run, undo)
    typer.echo(done)


def this_job(schedule: timer.Schedule = timer.SWEEP) -> timer.Job:
    """Return the job that the timer of this installation runs, with the folders set in this environment."""
    words = (sys.executable, "-I", "-m", *schedule.command.split(), "--quiet")
    return timer.Job(words, locations_to_bake(os.environ, this_home()), schedule)


def run(words: Sequence[str], text: str | None) -> timer.Ran:
    """Run a system command in the C locale, because its output is parsed."""
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
