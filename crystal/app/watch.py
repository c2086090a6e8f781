"""Capture as soon as a file changes, for agents that do not report the end of a turn (extra ``watch``)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePath
from threading import Event

from crystal.app.agents import tells_of_turns
from crystal.app.capture import run_capture
from crystal.app.capture_engine import capture_folders
from crystal.app.context import open_kept_machine
from crystal.app.start_worker import start_worker
from crystal.app.watch_loop import watch_places
from crystal.capture.engine import Capture, Tally
from crystal.capture.finder import LOG_SUFFIX
from crystal.config.harnesses import HARNESSES, Root
from crystal.errors import CrystalError
from crystal.sources.watch import Watched, present

Tell = Callable[[Tally], object]
"""Told of what was captured."""


def watch_agents(tell: Tell, stop: Event, begin: Callable[[], object] = lambda: None) -> None:
    """Sweep now, and an agent's conversations each time that one of its files changes, until ``stop``.

    ``begin`` is called once nothing prevents it.

    Raises:
        UnavailableError: Another process watches already, or the system does not watch so many folders.
        NotConfiguredError: There is no memory yet, or the package watchfiles is not installed.
    """

    def act(roots: list[Root], changed: set[str] | None) -> None:
        all_of_them = {root.harness for root in roots}
        _capture(
            all_of_them if changed is None else {name for path in changed for name in _harnesses(path, roots)}, tell
        )

    watch_places("watch", _watched, act, stop, begin)


def _watched() -> tuple[list[Root], Watched]:
    """Return the places of the agents that do not report their turns, and which of these exist."""
    with open_kept_machine() as machine:
        silent = {name for name in HARNESSES if not tells_of_turns(machine, name)}
        roots = [root for root in capture_folders(machine).roots if root.harness in silent]
    return roots, present({path for root in roots for path in _paths_of(root)})


def _paths_of(root: Root) -> list[Path]:
    """Return what to watch of a place: its folder, but in a project only the files, which may not be there."""
    return [root.folder / name for name in root.place.files] if root.place.in_projects else [root.folder]


def _harnesses(path: str, roots: Iterable[Root]) -> Iterator[str]:
    """Yield the agents that may have written a conversation at a path."""
    name = PurePath(path.removesuffix(LOG_SUFFIX))
    for root in roots:
        if path.startswith(f"{root.folder}{os.sep}") and root.place.owns(name):
            yield root.harness


def _capture(harnesses: Iterable[str], tell: Tell) -> None:
    names = sorted(harnesses)
    if not names:
        return

    def sweep(capture: Capture) -> Tally:
        tally = Tally()
        for name in names:
            tally.join(capture.sweep(name))
        return tally

    with open_kept_machine() as machine:  # a newer program's database ends this one; what started it starts the newer
        try:
            tally = run_capture(machine, sweep)
        except CrystalError as error:  # the next change, or the next sync, tries again
            tally = Tally(problems={"not captured": error.message})
        if tally.bytes_captured:
            start_worker(machine.places)
    tell(tally)
