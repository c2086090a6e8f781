"""Lock for one server per data directory; the operating system releases it when the process ends."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from relay_worker.errors import CannotServe

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl


class DataLock:
    """Held from construction to ``release``.

    Raises:
        CannotServe: Another process holds it.
    """

    def __init__(self, path: Path) -> None:
        self._number = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            _lock(self._number)
        except OSError as error:
            os.close(self._number)
            raise CannotServe(
                f"another crystal-relay serves {path.parent}", hint="stop it, or set CRYSTAL_RELAY_DATA_DIR"
            ) from error

    def release(self) -> None:
        """Release the lock. Idempotent."""
        if self._number >= 0:
            os.close(self._number)
            self._number = -1


def _lock(number: int) -> None:
    if sys.platform == "win32":
        msvcrt.locking(number, msvcrt.LK_NBLCK, 1)
    else:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
