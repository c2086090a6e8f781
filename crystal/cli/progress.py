"""Progress on standard error: a bar on a terminal; elsewhere nothing, or a line for each long step."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

Show = Callable[[str, int, int], None]
"""Takes the name of a step, how much of it is done, and how much there is (0: not known)."""
QUIET_SECONDS = 5.0
"""Without a terminal nothing is printed before so long, and at most one line in so long."""


@contextlib.contextmanager
def bar_shown(*, enabled: bool = True, remark: str = "") -> Iterator[Show]:
    """Yield a function that shows a step in a bar; it does nothing where standard error is no terminal."""
    if not (enabled and sys.stderr.isatty()):
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    bar = Progress(*columns, TextColumn(remark), console=Console(stderr=True), transient=True)
    task = bar.add_task("", total=None)

    def show(step: str, done: int, total: int) -> None:
        bar.start()  # not before: a command that is refused at once draws none
        if bar.tasks[0].description != step:
            bar.reset(task, description=step)
        bar.update(task, completed=done, total=total or None)

    try:
        yield show
    finally:
        bar.stop()


@contextlib.contextmanager
def progress_bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that moves a bar by what was done since it was called last."""
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
    printed, last = time.monotonic(), ""

    def show(step: str, _: int, __: int) -> None:
        nonlocal printed, last
        if step != last and time.monotonic() - printed >= QUIET_SECONDS:
            printed, last = time.monotonic(), step
            print(f"crystal: {step} ...", file=sys.stderr)

    return show
