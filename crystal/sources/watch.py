"""Wait for changes in folders, at no cost while there are none (extra ``watch``)."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

from crystal.config.packages import install_command
from crystal.errors import NotConfiguredError, UnavailableError
from crystal.sources.scan import SKIPPED_FOLDERS

DEBOUNCE_MS = 1_500
"""Changes within this time are one change: an editor writes a file beside the old one and renames it."""
LOOK_MS = 60_000
"""Without a change, an empty one is reported after this time, so that the caller can look for new folders."""
Watched = dict[str, tuple[int, int]]
"""Watched paths, each with its device and inode."""


def load_watchfiles() -> Any:
    """Import the package that watches.

    Raises:
        NotConfiguredError: It is not installed.
    """
    try:
        return importlib.import_module("watchfiles")
    except ImportError as error:
        hint = install_command("watchfiles")
        raise NotConfiguredError("the package watchfiles is not installed", hint=hint) from error


def present(paths: Iterable[Path]) -> Watched:
    """Return those of some paths that are there: one that was made anew is another one."""
    found: Watched = {}
    for path in paths:
        with contextlib.suppress(OSError):
            status = path.stat()
            found[str(path)] = (status.st_dev, status.st_ino)
    return found


def changed_paths(roots: Iterable[Path], stop: Event) -> Iterator[set[str]]:
    """Yield the files that have changed in some folders; none if nothing has for a while, or a folder is gone.

    Raises:
        NotConfiguredError: The package watchfiles is not installed.
        UnavailableError: The system cannot watch so many folders.
    """
    watchfiles, folders = load_watchfiles(), list(roots)
    if not folders:
        if not stop.wait(LOOK_MS / 1000):
            yield set()
        return
    try:
        for changes in watchfiles.watch(
            *folders, watch_filter=None, debounce=DEBOUNCE_MS, step=DEBOUNCE_MS, rust_timeout=LOOK_MS,
            yield_on_timeout=True, stop_event=stop, raise_interrupt=True,
        ):  # fmt: skip
            yield {path for _, path in changes}
    except (OSError, watchfiles._rust_notify.WatchfilesRustInternalError) as error:  # noqa: SLF001 - it has no other name
        if not all(folder.exists() for folder in folders):  # gone since the caller looked
            yield set()
            return
        hint = "allow more with: sudo sysctl fs.inotify.max_user_watches=524288"
        raise UnavailableError(f"the system does not watch these folders: {error}", hint=hint) from error


def is_any_of(paths: Iterable[str], root: Path) -> bool:
    """Return True if a changed path is in a folder, and not where nobody writes."""
    folder = str(root).rstrip("/")
    below = [path[len(folder) :] for path in paths if path == folder or path.startswith(f"{folder}/")]
    return any(SKIPPED_FOLDERS.isdisjoint(path.split("/")) for path in below)
