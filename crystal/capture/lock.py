"""One worker at a time: an advisory lock that the kernel frees when its holder dies, however it dies."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from crystal.errors import Unavailable

CAPTURE_LOCK = "capture.lock"
"""The file in the data folder that whoever captures holds."""

if sys.platform == "win32":  # untested
    import msvcrt
else:
    import fcntl


def _try(descriptor: int) -> bool:
    try:
        if sys.platform == "win32":
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _open(path: Path) -> int:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)


@contextlib.contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Hold the lock if nobody does; gives whether it is held."""
    descriptor = _open(path)
    try:
        yield _try(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def await_lock(path: Path, *, seconds: float) -> Iterator[bool]:
    """Hold the lock, waiting for whoever has it; gives whether it was free within ``seconds``."""
    descriptor = _open(path)
    try:
        deadline = time.monotonic() + seconds
        held = _try(descriptor)
        while not held and time.monotonic() < deadline:
            time.sleep(0.02)
            held = _try(descriptor)
        yield held
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def wait_lock(path: Path, *, seconds: float) -> Iterator[None]:
    """Hold the lock, waiting for whoever has it.

    Raises:
        Unavailable: It was not free within ``seconds``.
    """
    with await_lock(path, seconds=seconds) as held:
        if not held:
            raise Unavailable(f"{path} is held by another crystal process", hint="try again when it has finished")
        yield


LOOKS = 3
"""The list may lack a line when locks come and go while it is read."""


def lock_holder(path: Path) -> int | None:
    """Find out who holds a lock, without getting into the way of anybody who wants it.

    Returns:
        A process id, 0 where the system does not say which, None if nobody holds it.
    """
    try:
        found = path.stat()
    except OSError:
        return None
    try:
        for _ in range(LOOKS):
            with Path("/proc/locks").open(encoding="ascii", errors="replace") as file:
                holder = _holder_in(file, f":{found.st_ino}")
            if holder is not None:
                return holder
        return None
    except OSError:  # no such file outside of Linux
        with try_lock(path) as free:
            return None if free else 0


def _holder_in(lines: Iterable[str], inode: str) -> int | None:
    """Read lines such as ``1: FLOCK  ADVISORY  WRITE 4242 08:01:131 0 EOF``; those who wait have ``->`` in front."""
    for line in lines:
        words = line.split()
        if len(words) > 5 and words[1] == "FLOCK" and words[5].endswith(inode):
            return max(0, int(words[4]))
    return None
