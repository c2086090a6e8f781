"""Write files under a temporary name before they replace another file, and delete those of killed processes.

The writer holds a lock on the file, which the system releases however the process ends. A process id would be less
reliable: another process may have it by now, and another container numbers its processes separately.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

if sys.platform != "win32":
    import fcntl

TEMPORARY_FILES = ".crystal-*.tmp"
"""Pattern of their names."""
YOUNG_SECONDS = 60
"""Without locks, a temporary file that was not written for this long is abandoned."""


def temporary_name(target: Path) -> Path:
    """Return a new name beside a file."""
    return target.with_name(f".crystal-{os.getpid()}-{os.urandom(6).hex()}.tmp")


def make_temporary(target: Path) -> tuple[Path, int]:
    """Create a temporary file beside ``target`` and lock it; return its path and a handle for writing.

    Raises:
        OSError: The system refuses.
    """
    while True:
        path = temporary_name(target)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
        hold(handle)
        if path.exists():  # not deleted as abandoned before it was locked
            return path, handle
        os.close(handle)


def hold(handle: int) -> None:
    """Lock a temporary file until it is closed, to show that it is being written; does nothing without locks."""
    if sys.platform != "win32":
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)  # never long: ``delete_left_behind`` releases it soon


def delete_left_behind(path: Path, delete: Callable[[Path], object] = Path.unlink) -> bool:
    """Delete a temporary file that no process has locked; without locks, one that was not written for a minute.

    Returns:
        Whether it was abandoned.

    Raises:
        OSError: The file is gone, or the system refuses.
    """
    is_old = abs(time.time() - path.stat().st_mtime) >= YOUNG_SECONDS
    if sys.platform == "win32":
        if is_old:
            delete(path)
        return is_old
    with path.open("r+b") as file:  # locked until deletion, so that a process that has just created it notices
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # a file system without locks
            if not is_old:
                return False
        delete(path)
        return True
