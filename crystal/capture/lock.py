"""Allow one worker at a time: an advisory lock that the kernel releases when the process ends.

Paths that did not answer are waited for without it, and remembered for all processes: for a quarter of an hour, until
something is mounted or unmounted, or until a person runs a command that captures.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from crystal.capture.safe_open import UnansweredPolicy, waiting_by
from crystal.capture.spool import ASIDE_MS
from crystal.config.paths import make_private_dir, refused, write_derived
from crystal.errors import CrystalError, UnavailableError, UsageError
from crystal.model.named_tuple import NamedTuple

CAPTURE_LOCK = "capture.lock"
"""The file in the data folder that a capturing process locks."""
BACKFILL_LOCK = "backfill.lock"
"""The file that a process importing past transcripts locks."""
ENRICH_LOCK = "enrich.lock"
"""The file that a process making vectors, summaries and the index locks."""

POLL_SECONDS = 0.02
TELL_SECONDS = 1.0
BUSY_SECONDS = 30.0
"""Time limit for waiting for another process, in a command that a person waits for."""

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


def _unlock(descriptor: int) -> None:
    if sys.platform == "win32":
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)
    else:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def _open(path: Path) -> int:
    """Open a lock file, and make it where it is missing. A link is not followed: it would lead to another file.

    One of another user that may be read is as good: the lock is on the file, nothing is written into it.
    """
    make_private_dir(path.parent)
    flags = os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        try:
            return os.open(path, os.O_RDWR | flags, 0o600)
        except PermissionError:
            return os.open(path, os.O_RDONLY | flags & ~os.O_CREAT)
    except OSError as error:
        raise _unusable(path, error) from error


def _unusable(path: Path, error: OSError) -> CrystalError:
    """Return why a lock file cannot be used, and what to do: it contains nothing, so it may be deleted."""
    import shlex  # noqa: PLC0415 - for an error alone, and every hook's worker loads this file

    command = f"rm {shlex.quote(str(path))}"
    if path.is_symlink():
        return UsageError(f"{path} is a link, but a lock must be a regular file", hint=command)
    if path.is_dir():
        from crystal.config.file_access import move_away  # noqa: PLC0415 - as above

        return UsageError(f"{path} is a folder, but a lock must be a regular file", hint=move_away(path))
    if path.exists() and path.stat().st_uid != os.geteuid():
        return UnavailableError(
            f"{path} belongs to another user", hint=command if os.access(path.parent, os.W_OK) else f"sudo {command}"
        )
    return refused(error, path)


def lock_problem(path: Path) -> CrystalError | None:
    """Return why an existing lock file cannot be used, or None. Does not take the lock."""
    try:
        os.close(_open(path))
    except CrystalError as error:
        return error
    return None


class HeldLock(NamedTuple):
    """A lock that this process holds: the open, locked file."""

    descriptor: int

    @contextlib.contextmanager
    def released(self) -> Iterator[None]:
        """Let others have it for a while, then wait for it again."""
        _unlock(self.descriptor)
        try:
            yield
        finally:
            while not _try(self.descriptor):
                time.sleep(POLL_SECONDS)


@contextlib.contextmanager
def try_lock(path: Path) -> Iterator[HeldLock | None]:
    """Hold the lock if it is free; yield None if another process has it.

    Raises:
        UsageError, UnavailableError: The lock file cannot be used.
    """
    with await_lock(path, seconds=0) as held:
        yield held


@contextlib.contextmanager
def await_lock(path: Path, *, seconds: float, on_wait: Callable[[], None] = lambda: None) -> Iterator[HeldLock | None]:
    """Hold the lock, waiting while another process has it; yield None if it was not free within ``seconds``.

    ``on_wait`` is called once, if that takes long enough for a person to wonder.
    """
    descriptor = _open(path)
    try:
        began, has_told = time.monotonic(), False
        held = _try(descriptor)
        while not held and (waited := time.monotonic() - began) < seconds:
            if waited > TELL_SECONDS and not has_told:
                has_told = True
                on_wait()
            time.sleep(POLL_SECONDS)
            held = _try(descriptor)
        yield HeldLock(descriptor) if held else None
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def wait_lock(path: Path, *, seconds: float, on_wait: Callable[[], None] = lambda: None) -> Iterator[HeldLock]:
    """Hold the lock, waiting while another process has it; see ``await_lock``.

    Raises:
        UnavailableError: It was not free within ``seconds``.
    """
    with await_lock(path, seconds=seconds, on_wait=on_wait) as held:
        if held is None:
            raise UnavailableError(f"{path} is held by another crystal process", hint="try again when it has finished")
        yield held


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


FILE = "unanswered.json"
MOUNTS = Path("/proc/self/mountinfo")
MAX_PATHS = 1_000


@contextlib.contextmanager
def without_lock(lock: HeldLock, data_dir: Path, *, afresh: bool = False) -> Iterator[None]:
    """Inside the block, release the lock while waiting for a path, and remember paths that did not answer.

    Args:
        lock: The lock of capture.
        data_dir: Where it is remembered.
        afresh: Forget what is remembered: the paths may work again.
    """
    file = data_dir / FILE
    if afresh:
        with contextlib.suppress(OSError):
            file.unlink(missing_ok=True)
    with waiting_by(UnansweredPolicy(lock.released, lambda path: _add(file, path)), _read(file)):
        yield


def _add(file: Path, path: str) -> None:
    known = {**_read(file), path: int(time.time())}
    kept = dict(list(known.items())[-MAX_PATHS:])
    with contextlib.suppress(OSError):  # then the next process waits for it, too
        write_derived(file, json.dumps({"mounts": _mounts(), "paths": kept}).encode())


def _read(file: Path) -> dict[str, int]:
    """Return the paths that are not waited for, each with the time in seconds when it did not answer."""
    try:
        found = json.loads(file.read_bytes())
        paths = found["paths"].items() if found["mounts"] == _mounts() else ()
        now = time.time()
        return {str(path): int(at) for path, at in paths if 0 <= now - at < ASIDE_MS / 1000}
    except (OSError, ValueError, TypeError, LookupError, AttributeError):
        return {}


def _mounts() -> int:
    """Return a checksum of the mount table, without accessing the mounted file systems."""
    try:
        return zlib.crc32(MOUNTS.read_bytes())
    except OSError:
        return 0
