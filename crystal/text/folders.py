"""Compare paths and folders as text only, because the paths may be another machine's."""

import fnmatch
import os
import re
from collections.abc import Iterable


def is_folder(text: str) -> bool:
    """Return True if a project filter is a folder, that is, an absolute path."""
    return text.startswith(("/", "\\\\")) or re.match(r"[A-Za-z]:[\\/]", text) is not None


def is_within(path: str, folder: str) -> bool:
    """Return True if ``path`` is ``folder`` or below it, with either separator."""
    path, folder = _plain(path), _plain(folder)
    return path == folder or path.startswith(folder + "/") or folder == ""


def is_root(folder: str) -> bool:
    """Return True if a folder is the root of a file system, which contains everything and so identifies no project."""
    return re.fullmatch(r"|[A-Za-z]:", _plain(folder)) is not None


def is_same_folder(one: str, other: str) -> bool:
    """Return True if two paths are the same folder, without access to the disk."""
    return _plain(one) == _plain(other)


def _plain(path: str) -> str:
    is_windows = path[1:2] in (":", "\\") and re.match(r"[A-Za-z]:|\\\\", path) is not None
    plain = path.replace("\\", "/") if is_windows else path
    return plain.rstrip("/")


def outermost(patterns: Iterable[str], path: str) -> str | None:
    """Return the outermost folder above a path, or the path itself, that matches a pattern; None if none does."""
    folder, found = path.rstrip("/\\") or path, None
    while True:
        found = folder if any(fnmatch.fnmatchcase(folder, one) for one in patterns) else found
        parent = os.path.dirname(folder)  # noqa: PTH120 (patterns are text)
        if parent == folder or not parent:
            return found
        folder = parent
