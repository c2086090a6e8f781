"""Files that are written under a name of their own before they replace another, and what killed processes leave.

Who writes one holds a lock on it, which the system takes back however the process ends. Its number would tell less:
another process may have it by now, and in another container every process has other numbers.
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
"""Matches their names."""
YOUNG_SECONDS = 60
"""Where there are no locks: a temporary file without a write for so long is abandoned."""


def temporary_name(target: Path) -> Path:
    """Return a new name beside a file."""
    return target.with_name(f".crystal-{os.getpid()}-{os.urandom(6).hex()}.tmp")


def make_temporary(target: Path) -> tuple[Path, int]:
    """Make a temporary file beside a file and hold it; return its path and a handle to write it with.

    Raises:
        OSError: The system refuses.
    """
    while True:
        path = temporary_name(target)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
        hold(handle)
        if path.exists():  # nobody took it for a file that was left, before it was held
            return path, handle
        os.close(handle)


def hold(handle: int) -> None:
    """Show that a temporary file is being written, until it is closed; without effect where there are no locks."""
    if sys.platform != "win32":
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)  # nobody waits long for it: who asks below lets it go at once


def delete_left_behind(path: Path, delete: Callable[[Path], object] = Path.unlink) -> bool:
    """Delete a temporary file that nobody holds, or without locks one in which nothing was written for a minute.

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
    with path.open("r+b") as file:  # held until it is deleted: who has just made it waits for that, and sees it
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # a file system without locks
            if not is_old:
                return False
        delete(path)
        return True
