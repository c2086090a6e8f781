"""Keep the memory equal to the folders of sources while this process runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event

from crystal.app.background import enrich
from crystal.app.context import Machine, open_kept_machine
from crystal.app.source_list import list_sources
from crystal.app.sources import sync_sources
from crystal.app.watch_loop import watch_places
from crystal.errors import CrystalError, NotFoundError
from crystal.sources.sync import SyncReport
from crystal.sources.watch import Watched, is_any_of, present

ENRICH_SECONDS = 60.0

Tell = Callable[[list[SyncReport], list[str]], None]
"""Called with what a sync did, and what went wrong."""


def watch_sources(tell: Tell, stop: Event | None = None, begin: Callable[[], object] = lambda: None) -> None:
    """Sync every source now, and again each time that something changes in its folder. Ends by Ctrl-C or ``stop``.

    ``begin`` is called once nothing prevents it.

    Raises:
        UnavailableError: Another process watches already.
        NotFoundError: No folder of a source is there.
        NotConfiguredError: The package watchfiles is not installed.
    """
    if not _watched()[0]:
        raise NotFoundError("there is no folder to watch", hint="crystal sources add PATH")

    def act(roots: dict[Path, str], changed: set[str] | None) -> None:
        for root, name in roots.items():
            if changed is None or is_any_of(changed, root):
                _sync(name, tell)

    watch_places("sources watch", _watched, act, stop or Event(), begin)


def _watched() -> tuple[dict[Path, str], Watched]:
    """Return the folders that are there, each with its source, and which folders they are."""
    with open_kept_machine() as machine:
        roots = {Path(one.folder): one.name for one in list_sources(machine) if one.is_here}
    return roots, present(roots)


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
