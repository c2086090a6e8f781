"""What follows a capture: vectors, index and summaries, made here with a bar or left to the background."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import typer

from crystal.cli.capture import count_words, progress_bar
from crystal.errors import CrystalError

if TYPE_CHECKING:
    from crystal.app.context import Machine
    from crystal.app.progress import Progress
    from crystal.capture.backfill import Past
    from crystal.capture.engine import Tally

SOON_SECONDS = 2.0
DAY_SECONDS = 24 * 3600.0
POLL_SECONDS = 0.3
STEPS = {"vectors": "making vectors", "index": "making the index", "summaries": "writing summaries"}


def import_with_bar(machine: Machine, past: Sequence[Past]) -> Tally:
    """Import past transcripts; what is imported stays when the user interrupts it.

    Raises:
        Exit: The user interrupted it; with code 130.
    """
    from crystal.app.import_past import import_sessions

    try:
        with progress_bar("importing", sum(one.todo for one in past)) as advance:
            return import_sessions(machine, past, advance)
    except KeyboardInterrupt:
        typer.echo("crystal: stopped; what is imported stays; to continue: crystal backfill", err=True)
        raise typer.Exit(130) from None


def follow_up(machine: Machine, *, say: bool = True) -> list[str]:
    """Make what takes a blink, and leave the rest to the background. Gives what went wrong, in words."""
    from crystal.app.background import SOON, count_waiting, enrich
    from crystal.app.start_worker import start_worker

    try:
        if count_waiting(machine) <= SOON:
            problems = enrich(machine, budget_seconds=SOON_SECONDS)
            if problems or not count_waiting(machine):
                return problems
        waiting = count_words(count_waiting(machine), "chunk")
    except CrystalError:  # no vectors can be made: enriching says why, and does the rest
        return enrich(machine, budget_seconds=SOON_SECONDS)
    start_worker(machine.places)
    if say:
        typer.echo(f"crystal: {waiting} get vectors in the background; see: crystal status", err=True)
    return []


def enrich_here(machine: Machine, *, seconds: float | None = None, show: bool = True) -> list[str]:
    """Make vectors, index and summaries while the user waits; interrupted, they go on in the background.

    Args:
        machine: This machine.
        seconds: How long at most; without, until all is made, also by a process that works already.
        show: Whether there may be a bar.

    Returns:
        What went wrong, in words.

    Raises:
        Exit: The user interrupted it; with code 130.
    """
    from crystal.app.background import enrich
    from crystal.app.start_worker import start_worker

    try:
        with _ending_as_by_ctrl_c(), _bar(show=show) as report:
            if seconds is None:
                _await_others(machine, report)
            problems = enrich(machine, budget_seconds=seconds or DAY_SECONDS, report=report)
        if not problems:
            _leave_the_rest(machine, say=show)
        return problems
    except KeyboardInterrupt:
        start_worker(machine.places)
        with contextlib.suppress(OSError):  # the terminal may be gone
            words = "crystal: stopped; the rest follows in the background; see: crystal status"
            typer.echo(words, err=True)
        raise typer.Exit(130) from None


def _leave_the_rest(machine: Machine, *, say: bool) -> None:
    """Say who does what there was no time for, or what another process does already."""
    from crystal.app.background import count_waiting
    from crystal.app.progress import read_progress
    from crystal.app.start_worker import start_worker

    with contextlib.suppress(CrystalError):
        if not count_waiting(machine):
            return
        if read_progress(machine.places.data_dir) is None:
            start_worker(machine.places)
        if say:
            typer.echo("crystal: the rest follows in the background; see: crystal status", err=True)


def _await_others(machine: Machine, report: Callable[[Progress], None]) -> None:
    from crystal.app.background import ENRICH_LOCK
    from crystal.app.progress import read_progress
    from crystal.capture.lock import try_lock

    while True:
        with try_lock(machine.places.data_dir / ENRICH_LOCK) as is_free:
            if is_free:
                return
        progress = read_progress(machine.places.data_dir)
        if progress is not None:
            report(progress)
        time.sleep(POLL_SECONDS)


@contextlib.contextmanager
def _ending_as_by_ctrl_c() -> Iterator[None]:
    """Let a closed terminal, or being asked to end, do what Ctrl-C does."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    names = [name for name in ("SIGHUP", "SIGTERM") if hasattr(signal, name)]
    before = {}
    with contextlib.suppress(ValueError):  # not in the main thread
        before = {name: signal.signal(getattr(signal, name), interrupt) for name in names}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(getattr(signal, name), handler)


@contextlib.contextmanager
def _bar(*, show: bool) -> Iterator[Callable[[Progress], None]]:
    """Show progress with the time left on standard error, if that is a terminal."""
    if not show or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = TextColumn("{task.description}"), BarColumn(24), TaskProgressColumn(), TimeRemainingColumn()
    left = TextColumn("left · Ctrl-C is safe")
    with Bar(*columns, left, console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, TaskID] = {}

        def report(progress: Progress) -> None:
            for step, task in tasks.items():
                bar.update(task, visible=step == progress.step)
            if progress.step not in tasks:
                tasks[progress.step] = bar.add_task(STEPS[progress.step], total=None)
            bar.update(tasks[progress.step], completed=progress.done, total=progress.total)

        yield report
