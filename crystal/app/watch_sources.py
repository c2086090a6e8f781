"""Keep the memory equal to the folders of sources while this process runs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from threading import Event

from crystal.app.background import enrich
from crystal.app.context import Machine, default_paths, open_kept_machine
from crystal.app.sources import list_sources, sync_sources
from crystal.capture.lock import try_lock
from crystal.errors import CrystalError, NotFoundError, UnavailableError
from crystal.sources.sync import SyncReport
from crystal.sources.watch import LOOK_MS, changed_roots

WATCH_LOCK = "sources-watch.lock"
ENRICH_SECONDS = 60.0

Tell = Callable[[list[SyncReport], list[str]], None]
"""Called with what a sync did, and what went wrong."""


def watch_sources(tell: Tell, stop: Event) -> None:
    """Sync every source now, and again each time that something changes in its folder. Ends by ``stop``.

    Raises:
        UnavailableError: Another process watches already.
        NotFoundError: There is no source.
        NotConfiguredError: The package watchfiles is not installed.
    """
    with try_lock(default_paths().data_dir / WATCH_LOCK) as held:
        if held is None:
            raise UnavailableError("another process watches the sources already")
        while not stop.is_set():
            _watch_these(tell, stop)


def _watch_these(tell: Tell, stop: Event) -> None:
    """Watch the folders that are there now, until there are others."""
    roots = _roots()
    missed = set(roots)
    for changed in _changes(roots, stop):
        # What was written just before watching began is not told: once more, the first time that nothing changes.
        for root in changed or missed:
            _sync(roots[root][0], tell)
        missed = missed if changed else set()
        if _roots() != roots:
            return


def _changes(roots: Collection[Path], stop: Event) -> Iterator[set[Path]]:
    """Yield all folders, then those in which something changes, none from time to time."""
    yield set(roots)
    if roots:
        yield from changed_roots(list(roots), stop)
    else:
        stop.wait(LOOK_MS / 1000)


def _roots() -> dict[Path, tuple[str, int, int]]:
    """Return the folders of sources that are there: the source's name, and the folder's device and inode.

    Raises:
        NotFoundError: There is no source.
    """
    with open_kept_machine() as machine:
        listed = list_sources(machine)
    if not listed:
        raise NotFoundError("there is no folder to watch", hint="crystal sources add PATH")
    found = {}
    for one in listed:
        with contextlib.suppress(OSError):  # it is away; it is looked for again
            status = Path(one.folder).stat()
            found[Path(one.folder)] = (one.name, status.st_dev, status.st_ino)
    return found


def _sync(name: str, tell: Tell) -> None:
    with open_kept_machine() as machine:
        try:
            reports, problems = sync_sources(machine, name)
        except CrystalError as error:  # such as a folder that went away: the others are still watched
            reports, problems = [], [error.message]
        tell(reports, [*problems, *_enriched(machine, reports)])


def _enriched(machine: Machine, reports: list[SyncReport]) -> list[str]:
    if not any(one.chunks_new or one.removed or one.changed for one in reports):
        return []
    return enrich(machine, budget_seconds=ENRICH_SECONDS)
