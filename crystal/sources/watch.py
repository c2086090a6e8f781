"""Wait for changes in folders, without polling (extra ``watch``)."""

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
"""Time within which changes are reported together: an editor writes a new file and then renames it."""
LOOK_MS = 60_000
"""Time after which an empty set is reported if nothing changed, so that the caller can look for new folders."""
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
    """Return the paths that exist, with device and inode: a folder that was deleted and made again differs."""
    found: Watched = {}
    for path in paths:
        with contextlib.suppress(OSError):
            status = path.stat()
            found[str(path)] = (status.st_dev, status.st_ino)
    return found


def changed_paths(roots: Iterable[Path], stop: Event) -> Iterator[set[str]]:
    """Yield sets of changed files; an empty set if nothing changed for ``LOOK_MS``, or a folder was deleted.

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
    """Return True if a changed path is in a folder, but not in one of ``SKIPPED_FOLDERS``."""
    folder = str(root).rstrip("/")
    below = [path[len(folder) :] for path in paths if path == folder or path.startswith(f"{folder}/")]
    return any(SKIPPED_FOLDERS.isdisjoint(path.split("/")) for path in below)
