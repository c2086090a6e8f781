"""Wait for changes in folders, at no cost while there are none (extra ``watch``)."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Event

from crystal.config.packages import install_command
from crystal.errors import NotConfiguredError, UnavailableError
from crystal.sources.scan import SKIPPED_FOLDERS

DEBOUNCE_MS = 1_500
"""What changes within so long is one change: an editor writes a file beside the old one and renames it."""
LOOK_MS = 60_000
"""So often an empty change is told, so that the caller can look whether there is another folder."""


def changed_roots(roots: Sequence[Path], stop: Event | None = None) -> Iterator[set[Path]]:
    """Yield all folders at once, then those in which something has changed; none if nothing has for a while.

    What changes while the caller works is yielded afterwards: nothing is missed.

    Raises:
        NotConfiguredError: The package watchfiles is not installed.
        UnavailableError: The system cannot watch so many folders.
    """
    try:
        backend = importlib.import_module(
            "watchfiles._rust_notify"
        )  # https://watchfiles.helpmanual.io/api/rust_backend/
    except ImportError as error:
        hint = install_command("watchfiles")
        raise NotConfiguredError("the package watchfiles is not installed", hint=hint) from error
    named = {str(root): root for root in roots}
    try:
        with backend.RustNotify(list(named), False, False, 0, True, True) as watcher:
            yield set(roots)
            while (found := watcher.watch(DEBOUNCE_MS, DEBOUNCE_MS, LOOK_MS, stop)) != "stop":
                if found == "signal":
                    raise KeyboardInterrupt
                changes = [] if found == "timeout" else [path for _, path in found]
                yield {root for name, root in named.items() if any(_is_of(path, name) for path in changes)}
    except (OSError, backend.WatchfilesRustInternalError) as error:
        hint = "allow more with: sudo sysctl fs.inotify.max_user_watches=524288"
        raise UnavailableError(f"the system does not watch these folders: {error}", hint=hint) from error


def _is_of(path: str, root: str) -> bool:
    """Return True if a changed path is in a folder, and not where nobody writes."""
    if path != root and not path.startswith(f"{root.rstrip('/')}/"):
        return False
    return SKIPPED_FOLDERS.isdisjoint(path[len(root) :].split("/"))
