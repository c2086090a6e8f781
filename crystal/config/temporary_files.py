"""Files that are written under a name of their own before they replace another, and what killed processes leave.

Who writes one holds a lock on it, which the system takes back however the process ends. Its number would tell less:
another process may have it by now, and in another container every process has other numbers.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path

if sys.platform != "win32":
    import fcntl

TEMPORARY_FILES = ".crystal-*.tmp"
"""Matches their names."""
YOUNG_SECONDS = 60
"""Where there are no locks: longest pause of a process between two writes to a file that it is not done with."""


def temporary_name(target: Path) -> Path:
    """Return a new name beside a file."""
    return target.with_name(f".crystal-{os.getpid()}-{os.urandom(6).hex()}.tmp")


def hold(handle: int) -> None:
    """Show that a temporary file is being written, until it is closed; without effect where there are no locks."""
    if sys.platform != "win32":
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)  # nobody waits long for it: who asks below lets it go at once


def is_left_behind(path: Path) -> bool:
    """Return whether a temporary file is abandoned: nobody holds it. Without locks: nothing was written for a minute.

    An empty one is not before a minute: who has just made it may still take its lock.

    Raises:
        OSError: The file is gone, or the system refuses.
    """
    is_old = abs(time.time() - path.stat().st_mtime) >= YOUNG_SECONDS
    if sys.platform != "win32":
        with path.open("r+b") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return is_old or path.stat().st_size > 0
            except BlockingIOError:
                return False
            except OSError:  # a file system without locks
                pass
    return is_old
