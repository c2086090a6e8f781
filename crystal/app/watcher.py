"""Find out if ``crystal watch`` runs, and if it starts at login."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from crystal.app.context import this_home
from crystal.capture.lock import lock_holder
from crystal.config.paths import Places
from crystal.install.timer import WATCH, Host

WATCH_LOCK = "watch.lock"
NOT_WATCHING = "crystal watch is installed, but does not run"


@dataclass(frozen=True, slots=True)
class WatcherState:
    """State of the watcher: ``is_running`` now, ``is_installed`` to start at login."""

    is_running: bool
    is_installed: bool


def watcher_state(places: Places) -> WatcherState:
    """Return the state of this machine's watcher. Starts and changes nothing."""
    running = lock_holder(places.data_dir / WATCH_LOCK) is not None
    return WatcherState(running, bool(this_host().files_of(WATCH)))


def describe_watcher(titles: Sequence[str] = ()) -> str:
    """Describe what a running watcher does."""
    return f"{', '.join(titles) or 'agents without a hook'}: captured as soon as they write, by crystal watch"


def status_words(*, is_running: bool, is_installed: bool) -> list[str]:
    """Return what the status says of the watcher; nothing if nobody asked for one."""
    if is_running:
        return [describe_watcher()]
    return [f"{NOT_WATCHING} (fix: crystal watch --install)"] if is_installed else []


def this_host() -> Host:
    """Return the machine that this runs on."""
    home = this_home()
    config_home = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    chosen = config_home if config_home.is_absolute() else home / ".config"
    return Host(sys.platform, home, chosen, os.getuid() if hasattr(os, "getuid") else 0)
