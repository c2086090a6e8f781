"""Show progress on standard error: a bar on a terminal, otherwise nothing or a line for each long step."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from crystal.cli.render import lasting

Show = Callable[[str, int, int], None]
"""Function of the name of a step, how much of it is done, and the total (0: unknown)."""
QUIET_SECONDS = 5.0
"""Without a terminal, minimum seconds before the first line and between two lines."""
AGAIN_SECONDS = 30.0
"""Seconds after which a line for the same step is printed again, with the remaining time."""


@contextlib.contextmanager
def bar_shown(*, enabled: bool = True, remark: str = "") -> Iterator[Show]:
    """Yield a function that shows a step in a bar; it does nothing if standard error is no terminal."""
    if not (enabled and sys.stderr.isatty()):
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    bar = Progress(*columns, TextColumn(remark), console=Console(stderr=True, get_time=time.monotonic), transient=True)
    task = bar.add_task("", total=None)

    def show(step: str, done: int, total: int) -> None:
        bar.start()  # not earlier: a command that is refused immediately must show no bar
        if bar.tasks[0].description != step:
            bar.reset(task, description=step)
        bar.update(task, completed=done, total=total or None)

    try:
        yield show
    finally:
        bar.stop()


@contextlib.contextmanager
def progress_bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that advances a bar by the amount done since its last call."""
    done = 0
    with bar_shown(enabled=total > 0) as show:

        def advance(more: int) -> None:
            nonlocal done
            done += more
            show(what, done, total)

        yield advance


@contextlib.contextmanager
def steps_shown() -> Iterator[Show]:
    """Yield a function that shows a step: in a bar on a terminal, else in a line for each long step."""
    if not sys.stderr.isatty():
        yield _lines()
        return
    with bar_shown() as show:
        yield show


def _lines() -> Show:
    printed, shown = time.monotonic(), ""
    started, first, current = printed, 0, ""

    def show(step: str, done: int, total: int) -> None:
        nonlocal printed, shown, started, first, current
        now = time.monotonic()
        if step != current:
            started, first, current = now, done, step
        if now - printed >= (QUIET_SECONDS if step != shown else AGAIN_SECONDS):
            printed, shown = now, step
            print(f"crystal: {step} ...{_left(now - started, done - first, total - done)}", file=sys.stderr)

    return show


def _left(seconds: float, done: int, left: int) -> str:
    """Estimate the remaining time of a step from its speed so far; empty if unknown."""
    if left <= 0 or done <= 0 or seconds < QUIET_SECONDS:
        return ""
    return f" about {lasting(seconds * left / done)} left"
