"""Read the small files that crystal keeps beside the archive, most of them JSON."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from crystal.config.paths import refused
from crystal.errors import DamagedError, UsageError

T = TypeVar("T")


def read_json(path: Path, make: Callable[[Any], T], hint: str) -> T | None:
    """Parse a file and return ``make(content)``; return None if there is no file.

    Raises:
        DamagedError: It is not JSON, or ``make`` rejects its content. ``hint`` says what to do.
        UsageError: Something else than a file is in its place.
        CrystalError: The system refuses to read it.
    """
    content = read_regular(path)
    try:
        return None if content is None else make(json.loads(content))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedError(f"{path} is damaged", hint=hint) from error


def read_regular(path: Path) -> bytes | None:
    """Read a regular file; return None if it does not exist. Never blocks, as reading a pipe could.

    Raises:
        UsageError: Something else than a file is in its place.
        CrystalError: The system refuses to read it.
    """
    try:
        with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:  # noqa: PTH123 - a handle
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise refused(error, path) from error
    from crystal.config.file_access import move_away  # noqa: PLC0415 - for an error alone

    raise UsageError(f"{path} is not a regular file", hint=move_away(path))
