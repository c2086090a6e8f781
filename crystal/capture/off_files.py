"""Capture that is switched off although nothing can be written: an empty file, for which a full disk has room, says so.

Its name is ``off-<time, ms>-<session>``; it waits for a run that can write the private time into the store.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from crystal.capture.spool import FAR_FUTURE_MS
from crystal.store.capture import privacy
from crystal.store.capture.privacy import PrivatePeriod

if TYPE_CHECKING:
    from crystal.capture.engine import Capture


def leave_off_file(folder: Path, session: str | None, now: int) -> None:
    """Switch capture off from now on, for one session or for all; return when that is durable, else raise OSError."""
    if not any(period.session_id == session for period in off_periods(folder)):
        (folder / f"off-{now}-{quote(session or '', safe='')}").touch(0o600)


def off_periods(folder: Path) -> tuple[PrivatePeriod, ...]:
    """Return the private times that such files tell of, oldest first.

    They end far in the future: what was said before is not captured yet, so each line counts by its time.
    """
    names = [path.name.split("-", 2) for path in _files(folder)]
    return tuple(PrivatePeriod(unquote(end) or None, "off", int(at), FAR_FUTURE_MS) for _, at, end in names)


def settle_off_files(capture: Capture, folder: Path) -> bool:
    """Capture what was said before, then write each private time into the store and remove its file.

    Returns:
        Whether there was such a file.

    Raises:
        StoreFullError, StoreBusyError, UnavailableError: The files stay, and hold.
    """
    files, periods = _files(folder), off_periods(folder)
    if files:
        capture.sweep()
    for path, period in zip(files, periods, strict=True):
        privacy.open_mark(capture.store, period.session_id, period.reason, period.from_at)
        path.unlink(missing_ok=True)
    return bool(files)


def _files(folder: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return sorted(path for path in folder.glob("off-*-*") if path.name.split("-")[1].isdecimal())
    return []
