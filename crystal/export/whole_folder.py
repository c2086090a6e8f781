"""A folder that appears as a whole, or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from crystal.config.paths import make_private_dir, sync_folder, system_errors
from crystal.errors import UsageError

PARTIAL = ".partial"
"""Suffix of the folder while it is written."""


@contextlib.contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """Yield a private folder beside ``target`` to write into; it takes the place of ``target`` when the block ends.

    After an error nothing of it is left.

    Raises:
        UsageError: ``target`` exists and is not empty, or another export to it runs or was killed.
        UnavailableError: The system refuses (permissions, full disk).
    """
    partial = target.with_name(target.name + PARTIAL)
    with system_errors(target):
        if os.path.lexists(target) and not (target.is_dir() and not any(target.iterdir())):
            raise UsageError(f"{target} exists already", hint="name a folder that does not exist, or delete this one")
        make_private_dir(target.parent)
        try:
            partial.mkdir(mode=0o700)
        except FileExistsError as error:
            hint = f"if no other export is running, delete it: {partial}"
            raise UsageError(f"{partial} is there: another export runs, or was killed", hint=hint) from error
        try:
            yield partial
            if target.exists():
                target.rmdir()
            partial.rename(target)
            sync_folder(target.parent)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a new file to write, readable by its owner only; it is durable when the block ends."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
    with os.fdopen(handle, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
