"""Reading the bytes of a database that this process has open.

Closing any handle on such a file lets go of all POSIX locks that the process has on it, SQLite's among them: then
another process may change the file under our connection (https://www.sqlite.org/howtocorrupt.html, section 2.2). So
handles on these files stay open until the process ends, one for each file.
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
    """Something that gives the next bytes."""

    def read(self, size: int, /) -> bytes | None:
        """At most so many; none at the end."""


class _Held:
    def __init__(self, handle: int) -> None:
        self._handle, self._at = handle, 0

    def read(self, size: int, /) -> bytes:
        data = os.pread(self._handle, size, self._at)
        self._at += len(data)
        return data


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Readable]:
    """A file, read from its beginning.

    Raises:
        OSError: As ``open``.
    """
    if sys.platform == "win32" or not path.name.endswith(_ENDINGS):  # elsewhere locks belong to the handle
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
