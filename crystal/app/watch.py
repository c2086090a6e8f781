"""Act as soon as a file changes, for agents without a hook and for sources (extra ``watch``). One process at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePath
from threading import Event
from typing import TypeVar

from crystal.app.agents import tells_of_turns
from crystal.app.background import enrich
from crystal.app.capture import run_capture
from crystal.app.capture_engine import capture_folders
from crystal.app.context import default_paths, open_kept_machine
from crystal.app.source_list import list_sources
from crystal.app.sources import sync_sources
from crystal.app.start_worker import start_worker
from crystal.capture.engine import Capture, Tally
from crystal.capture.finder import LOG_SUFFIX
from crystal.capture.lock import try_lock
from crystal.config.harnesses import HARNESSES, Root
from crystal.errors import CrystalError, NotFoundError, UnavailableError
from crystal.sources.sync import SyncReport
from crystal.sources.watch import Watched, changed_paths, is_any_of, load_watchfiles, present

Places = TypeVar("Places")


def watch_places(
    name: str,
    look: Callable[[], tuple[Places, Watched]],
    act: Callable[[Places, set[str] | None], None],
    stop: Event,
    begin: Callable[[], object],
) -> None:
    """Act on all places, and again on those in which something changes, until ``stop``. One process does it at a time.

    Args:
        name: The command, which names the lock.
        look: Returns the places, and what of them is there to be watched.
        act: Called with the places, and the paths that have changed; None stands for everything.
        stop: Ends it.
        begin: Called once nothing prevents it.

    Raises:
        UnavailableError: Another process watches already, or the system does not watch so many folders.
        NotConfiguredError: The package watchfiles is not installed.
    """
    with try_lock(default_paths().data_dir / f"{name.replace(' ', '-')}.lock") as held:
        if held is None:
            raise UnavailableError(f"crystal {name} runs already", hint="end that one first")
        places, watched = look()
        load_watchfiles()
        begin()
        while not stop.is_set():
            act(places, None)
            is_new = True  # changes just before watching began are not reported: act on everything once after it
            for changed in changed_paths(map(Path, watched), stop):
                if changed or is_new:
                    act(places, changed or None)
                is_new = is_new and bool(changed)
                if look() != (places, watched):
                    break
            places, watched = look()


# ----------------------------------------------------------------------------------------------------------- agents

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


# ---------------------------------------------------------------------------------------------------------- sources

ENRICH_SECONDS = 60.0

TellSync = Callable[[list[SyncReport], list[str]], None]
"""Called with what a sync did, and what went wrong."""


def watch_sources(tell: TellSync, stop: Event | None = None, begin: Callable[[], object] = lambda: None) -> None:
    """Sync every source now, and again each time that something changes in its folder. Ends by Ctrl-C or ``stop``.

    ``begin`` is called once nothing prevents it.

    Raises:
        UnavailableError: Another process watches already.
        NotFoundError: No folder of a source is there.
        NotConfiguredError: The package watchfiles is not installed.
    """
    if not _watched_sources()[0]:
        raise NotFoundError("there is no folder to watch", hint="crystal sources add PATH")

    def act(roots: dict[Path, str], changed: set[str] | None) -> None:
        for root, name in roots.items():
            if changed is None or is_any_of(changed, root):
                _sync(name, tell)

    watch_places("sources watch", _watched_sources, act, stop or Event(), begin)


def _watched_sources() -> tuple[dict[Path, str], Watched]:
    """Return the folders that are there, each with its source, and which folders they are."""
    with open_kept_machine() as machine:
        roots = {Path(one.folder): one.name for one in list_sources(machine) if one.is_here}
    return roots, present(roots)


def _sync(name: str, tell: TellSync) -> None:
    with open_kept_machine() as machine:
        try:
            reports, problems = sync_sources(machine, name)
        except CrystalError as error:  # such as a folder that went away: the others are still watched
            reports, problems = [], [error.message]
        if any(one.chunks_new or one.removed or one.changed for one in reports):
            problems += enrich(machine, budget_seconds=ENRICH_SECONDS)
        tell(reports, problems)
