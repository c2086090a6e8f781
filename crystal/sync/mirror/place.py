"""State of the mirror next to it: the newest manifest, and what could not be fetched.

``mirror.json`` holds keys, so only its owner can read it. One process at a time fetches; the lock is released when its
holder dies.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from crystal.config.paths import make_private_dir, refused, write_private
from crystal.errors import Damaged

if sys.platform == "win32":  # untested
    import msvcrt
else:
    import fcntl

MAX_EPOCHS = 64

ROLLBACK = "rollback"
"""Code for an offered older state."""


@dataclass(slots=True)
class Wanted:
    """The last manifest from home.

    Attributes:
        serial: Serial of the document.
        manifest: Its body.
        epochs: Every epoch ever accepted, in hexadecimal, newest last.
        bad: Objects that could not be fetched or opened: id to number of failures in a row.
        problem: The problem in words, or None.
        code: The same as a code.
        starts_over: The mirror must be built from scratch, because it does not continue the published history.
    """

    serial: int = 0
    manifest: Mapping[str, Any] | None = None
    epochs: list[str] = field(default_factory=list)
    bad: dict[str, int] = field(default_factory=dict)
    problem: str | None = None
    code: str | None = None
    starts_over: bool = False


def read_wanted(path: Path) -> Wanted:
    """Return the last manifest; an empty one if there is none or the file is damaged: home sends it again."""
    try:
        fields = json.loads(path.read_bytes())
        return Wanted(**{name: fields[name] for name in Wanted.__slots__ if name in fields})
    except FileNotFoundError:
        return Wanted()
    except OSError as error:
        raise Damaged(f"{path} cannot be read: {error.strerror}", hint="check its permissions") from error
    except (ValueError, TypeError, RecursionError):
        return Wanted()


def write_wanted(path: Path, wanted: Wanted) -> None:
    """Store the last manifest."""
    make_private_dir(path.parent)
    write_private(path, json.dumps(asdict(wanted)).encode())


@contextlib.contextmanager
def try_alone(path: Path) -> Iterator[bool]:
    """Try to acquire the lock. Return True if it was free."""
    make_private_dir(path.parent)
    flags = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)  # a link would open another file
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o600)
    except OSError as error:
        raise refused(error, path) from error
    try:
        try:
            if sys.platform == "win32":
                msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
            else:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True
    finally:
        os.close(handle)


def remove_file(path: Path) -> None:
    """Delete a database and its log."""
    for name in ("", "-wal", "-shm"):
        path.with_name(path.name + name).unlink(missing_ok=True)
