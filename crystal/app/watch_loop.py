"""Loop that waits for changes in folders (extra ``watch``)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import TypeVar

from crystal.app.context import default_paths
from crystal.capture.lock import try_lock
from crystal.errors import UnavailableError
from crystal.sources.watch import Watched, changed_paths, load_watchfiles

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
