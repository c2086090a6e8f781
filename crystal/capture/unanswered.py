"""Paths that did not answer, remembered for all processes, and waited for without the lock of capture.

What is remembered is waited for again after a quarter of an hour, when something was mounted or unmounted, and when a
person runs a command that captures.
"""

from __future__ import annotations

import contextlib
import json
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

from crystal.capture.lock import HeldLock
from crystal.capture.safe_open import UnansweredPolicy, waiting_by
from crystal.capture.spool import ASIDE_MS
from crystal.config.paths import write_derived

FILE = "unanswered.json"
MOUNTS = Path("/proc/self/mountinfo")
MAX_PATHS = 1_000


@contextlib.contextmanager
def without_lock(lock: HeldLock, data_dir: Path, *, afresh: bool = False) -> Iterator[None]:
    """Inside of the block, let others have the lock while a path is waited for, and remember what did not answer.

    Args:
        lock: The lock of capture.
        data_dir: Where it is remembered.
        afresh: Forget what is remembered: somebody has mended it, perhaps.
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
    """Return a checksum of what is mounted; to read it touches none of it."""
    try:
        return zlib.crc32(MOUNTS.read_bytes())
    except OSError:
        return 0
