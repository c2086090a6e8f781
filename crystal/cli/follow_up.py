"""Do the work after capture: vectors, index and summaries, while the user waits or in the background."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

import typer

from crystal.app.background import SOON, count_due, count_waiting, enrich
from crystal.app.context import Machine
from crystal.app.progress import Progress, read_progress
from crystal.app.start_worker import start_worker
from crystal.capture.lock import ENRICH_LOCK, try_lock
from crystal.cli.progress import bar_shown
from crystal.cli.render import count_words, say_aside
from crystal.errors import CrystalError
from crystal.model.named_tuple import NamedTuple
from crystal.search.index import why_unusable

SOON_SECONDS = 2.0
DAY_SECONDS = 24 * 3600.0
POLL_SECONDS = 0.3
REST = "the rest follows in the background; see: crystal status"
STEPS = {
    "import": "importing",
    "vectors": "making vectors",
    "index": "making the index",
    "summaries": "writing summaries",
}


class Deferred(NamedTuple):
    """Waiting or finished work: chunks without vector, sessions without summary, and whether the index is made."""

    vectors: int
    summaries: int
    search_index: bool

    def made_since(self, left: Deferred) -> Deferred:
        """Return what was done since this state, if ``left`` is what waits now."""
        done = max(0, self.vectors - left.vectors), max(0, self.summaries - left.summaries)
        return Deferred(*done, self.search_index and not left.search_index)

    @property
    def words(self) -> str:
        """Describe what was done; empty if nothing was."""
        index = "made the search index" if self.search_index else ""
        vectors = f"made {count_words(self.vectors, 'vector')}" if self.vectors else ""
        summaries = f"wrote {self.summaries:,} {'summary' if self.summaries == 1 else 'summaries'}"
        return ", ".join(filter(None, (index, vectors, summaries if self.summaries else "")))


def deferred(machine: Machine) -> Deferred:
    """Return the work that waits."""
    with machine.store.reading():
        waits = why_unusable(machine.store) is not None
    return Deferred(_count_waiting(machine), count_due(machine), waits)


def follow_up(machine: Machine, *, say: bool = True) -> list[str]:
    """Do what takes only a moment, and leave the rest to the background. Return the problems, in words."""
    problems = enrich(machine, budget_seconds=SOON_SECONDS) if _count_waiting(machine) <= SOON else []
    _leave_the_rest(machine, problems, say=say)
    return problems


def enrich_here(machine: Machine, *, seconds: float | None = None, show: bool = True) -> list[str]:
    """Make vectors, index and summaries while the user waits; after an interrupt the background continues.

    Args:
        machine: This machine.
        seconds: Time limit; None waits until all is made, also by a process that is already running.
        show: Whether to show a progress bar.

    Returns:
        The problems, in words.

    Raises:
        Exit: The user interrupted it; with code 130.
    """
    try:
        with ending_as_by_ctrl_c(), bar_shown(enabled=show, remark="left · Ctrl-C is safe") as bar:

            def report(progress: Progress) -> None:
                bar(STEPS[progress.step], progress.done, progress.total)

            if seconds is None:
                _await_others(machine, report)
            problems = enrich(machine, budget_seconds=seconds or DAY_SECONDS, report=report)
        _leave_the_rest(machine, problems, say=show)
        return problems
    except KeyboardInterrupt:
        stop(machine, REST)


def stop(machine: Machine, words: str) -> NoReturn:
    """Leave the rest to the background, print how it continues, and exit like Ctrl-C."""
    start_worker(machine.places)
    with contextlib.suppress(OSError):  # the terminal may be gone
        say_aside("crystal: ", f"stopped; {words}")
    raise typer.Exit(130) from None


def _leave_the_rest(machine: Machine, problems: Sequence[str], *, say: bool) -> None:
    """Start a worker for the remaining work, and print what remains. After a problem, vectors are not counted."""
    waiting = 0 if problems else _count_waiting(machine)
    left = [("vectors of", waiting, "chunk"), ("summaries of", count_due(machine), "session")]
    words = " and ".join(f"{made} {count_words(number, what)}" for made, number, what in left if number)
    if words:
        start_worker(machine.places)
    if words and say:
        say_aside("crystal: ", f"{words} follow in the background; see: crystal status")


def _count_waiting(machine: Machine) -> int:
    with contextlib.suppress(CrystalError):  # no vectors can be made: enriching reports why, and does the rest
        return count_waiting(machine)
    return 0


def _await_others(machine: Machine, report: Callable[[Progress], None]) -> None:
    while True:
        with try_lock(machine.places.data_dir / ENRICH_LOCK) as is_free:
            if is_free:
                return
        progress = read_progress(machine.places.data_dir)
        if progress is not None:
            report(progress)
        time.sleep(POLL_SECONDS)


@contextlib.contextmanager
def ending_as_by_ctrl_c() -> Iterator[None]:
    """Treat a closed terminal or a request to terminate like Ctrl-C."""

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
