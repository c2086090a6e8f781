"""Files that are written under a name of their own before they replace another, and what killed processes leave."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

TEMPORARY_FILES = ".crystal-*.tmp"
"""Matches their names."""
YOUNG_SECONDS = 60
"""Longest pause of a process between two writes to a file that it is not done with."""


def temporary_name(target: Path) -> Path:
    """Return a new name beside a file; it tells which process writes there."""
    return target.with_name(f".crystal-{os.getpid()}-{os.urandom(6).hex()}.tmp")


def is_left_behind(path: Path) -> bool:
    """Return whether a temporary file is abandoned: its process has ended, or wrote nothing for a minute.

    A file of this process counts as left: ask where it writes none.

    Raises:
        OSError: The file is gone, or the system refuses.
    """
    is_young = abs(time.time() - path.stat().st_mtime) < YOUNG_SECONDS
    return not (is_young and may_live(path.name.split("-")[1]))


def may_live(process: str) -> bool:
    """Return whether another process with this number may exist."""
    if sys.platform == "win32" or not process.isdecimal():
        return True
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return int(process) != os.getpid()
