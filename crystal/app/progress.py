"""Progress of deferred work, kept in a small file so that other processes can read it."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from crystal.app.context import now_ms
from crystal.config.paths import write_derived
from crystal.model.named_tuple import NamedTuple

PROGRESS_FILE = "progress.json"
PENDING_IMPORT_FILE = "import.json"
"""Names the transcripts that an interrupted import has still to read."""
STALE_MS = 15 * 60_000
"""Age at which progress counts as stale; one step of the index takes a few minutes at most."""
MIN_WRITE_SECONDS = 0.2

Report = Callable[["Progress"], None]


class Progress(NamedTuple):
    """Progress of one step. Times are ms since the epoch.

    Attributes:
        step: ``import``, ``vectors``, ``index`` or ``summaries``.
        done: How many are made.
        total: How many there are to make.
        before: How many were made before this process began with the step.
        started_at: When it began.
        at: When this was so.
        pid: The process that does it.
    """

    step: str
    done: int
    total: int
    before: int
    started_at: int
    at: int
    pid: int

    @property
    def seconds_left(self) -> float | None:
        """Return the estimated seconds left at the speed so far; None while nothing is done."""
        made = self.done - self.before
        if made <= 0:
            return None
        return max(0, self.total - self.done) * (self.at - self.started_at) / made / 1000


def read_progress(data_dir: Path) -> Progress | None:
    """Read the progress of the process that works now, or None."""
    try:
        found = Progress(**json.loads((data_dir / PROGRESS_FILE).read_bytes()))
        is_fresh = now_ms() - found.at < STALE_MS
    except (OSError, ValueError, TypeError):
        return None
    return found if is_fresh and _is_alive(found.pid) else None


def _is_alive(pid: int) -> bool:
    if os.name == "nt":  # asking there would end it
        return True
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True


def read_pending_import(data_dir: Path) -> dict[str, bool]:
    """Return the transcripts that an interrupted import has not read yet, and whether a person named each."""
    try:
        return dict(json.loads((data_dir / PENDING_IMPORT_FILE).read_bytes()))
    except (OSError, ValueError, TypeError):
        return {}


class ProgressFile:
    """Writes progress, some times a second at most. Used under the enrich lock: there is one writer."""

    def __init__(self, data_dir: Path, also: Report = lambda _: None) -> None:
        self._file, self._also = data_dir / PROGRESS_FILE, also
        self._began: dict[str, tuple[int, int]] = {}
        self._written = 0.0
        self.has_advanced = False

    def __call__(self, step: str, done: int, total: int) -> None:
        """Record that ``done`` of ``total`` are finished in a step."""
        if not total:
            return
        now = now_ms()
        before, started = self._began.setdefault(step, (done, now))
        self.has_advanced |= done > before
        progress = Progress(step, done, total, before, started, now, os.getpid())
        self._also(progress)
        if time.monotonic() - self._written > MIN_WRITE_SECONDS or done in (before, total):
            self._written = time.monotonic()
            self._write(progress)

    def _write(self, progress: Progress) -> None:
        with contextlib.suppress(OSError):  # on a full disk the work itself says so
            write_derived(self._file, json.dumps(progress._asdict()).encode())

    def clear(self) -> None:
        """Delete the file: no process is working any more."""
        with contextlib.suppress(OSError):
            self._file.unlink(missing_ok=True)
