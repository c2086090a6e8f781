"""Progress of work that consists of steps, on standard error: a bar on a terminal, else a line for each long step."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Show = Callable[[str, int, int], None]
QUIET_SECONDS = 5.0
"""Without a terminal nothing is printed before so long, and at most one line in so long."""


@contextmanager
def steps_shown() -> Iterator[Show]:
    """Give a function that shows a step by its name, how much of it is done, and how much there is (0: not known)."""
    if not sys.stderr.isatty():
        yield _lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda step, done, total: bar.update(task, description=step, completed=done, total=total or None)


def _lines() -> Show:
    printed, last = time.monotonic(), ""

    def show(step: str, _: int, __: int) -> None:
        nonlocal printed, last
        if step != last and time.monotonic() - printed >= QUIET_SECONDS:
            printed, last = time.monotonic(), step
            print(f"crystal: {step} ...", file=sys.stderr)

    return show
