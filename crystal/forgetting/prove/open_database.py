"""Read the bytes of a database that this process has open.

Closing any handle on such a file releases all POSIX locks of the process on it, including SQLite's: then another
process may change the file while it is open here (https://www.sqlite.org/howtocorrupt.html, section 2.2). So handles on
these files stay open until the process ends, one for each file.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

_ENDINGS = (".db", "-shm")
_held: dict[tuple[int, int], int] = {}


class Readable(Protocol):
    """Source of bytes."""

    def read(self, size: int, /) -> bytes | None:
        """Return the next bytes, at most ``size``; none at the end."""


class _Held:
    def __init__(self, handle: int) -> None:
        self._handle, self._at = handle, 0

    def read(self, size: int, /) -> bytes:
        data = os.pread(self._handle, size, self._at)
        self._at += len(data)
        return data


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Readable]:
    """Return a file positioned at its start.

    Raises:
        OSError: As ``open``.
    """
    if sys.platform == "win32" or not path.name.endswith(_ENDINGS):  # on other systems locks belong to the handle
        with path.open("rb", buffering=0) as file:
            yield file
        return
    found = path.stat()
    key = (found.st_dev, found.st_ino)
    if key not in _held:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        found = os.fstat(handle)
        key = (found.st_dev, found.st_ino)
        _held[key] = handle
    yield _Held(_held[key])
