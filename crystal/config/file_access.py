"""Describe how a user gets access to a file or folder that the system refuses."""

from __future__ import annotations

import os
import shlex
import stat
import sys
from pathlib import Path


def way_in(path: Path) -> str | None:
    """Return the command that gives this user access to a path; see ``owner_in_the_way`` for the reason.

    Returns:
        None if neither mode nor owner prevents access, on a read-only disk, and on Windows.
    """
    place = None if sys.platform == "win32" else _refusing(path)
    try:
        return None if place is None or os.statvfs(place).f_flag & os.ST_RDONLY else _command(place)
    except OSError:  # deleted meanwhile
        return None


def owner_in_the_way(path: Path) -> str:
    """Return words for the end of a message if a path is refused because another user owns it or a folder above it."""
    try:
        place = None if sys.platform == "win32" else _refusing(path)
        owner = os.geteuid() if place is None else place.stat().st_uid
    except OSError:  # deleted meanwhile
        return ""
    if place is None or owner == os.geteuid():
        return ""
    return f" ({'it' if place == path else place} belongs to {_name(owner)})"


def move_away(path: Path) -> str:
    """Return how to free the place of one of crystal's own files: what is there is kept, and a device stays."""
    if path.is_char_device() or path.is_block_device():
        return "choose another path: this is a device of the system"
    return f"mv {shlex.quote(str(path))} {shlex.quote(f'{path}.old')}"


def _refusing(path: Path) -> Path | None:
    """Return the path that refuses access: a folder above ``path``, the path itself, or the folder of a file."""
    # In a folder without access, os.path returns False where Path raises.
    for folder in reversed(path.parents):
        if os.path.isdir(folder) and not os.access(folder, os.X_OK):  # noqa: PTH112
            return folder
    if os.path.isdir(path):  # noqa: PTH112
        return None if os.access(path, os.R_OK | os.W_OK | os.X_OK) else path
    for file in (path, *(path.with_name(f"{path.name}{suffix}") for suffix in ("-wal", "-shm"))):  # files of a database
        if os.path.exists(file) and not os.access(file, os.R_OK | os.W_OK):  # noqa: PTH110
            return file
    is_shut = os.path.isdir(path.parent) and not os.access(path.parent, os.W_OK | os.X_OK)  # noqa: PTH112
    return path.parent if is_shut else None


def _command(place: Path) -> str:
    info, me = place.stat(), os.geteuid()
    is_folder = stat.S_ISDIR(info.st_mode)
    if info.st_uid == me:
        return f"chmod u+rw{'x' if is_folder else ''} {shlex.quote(str(place))}"
    if not _is_in_home(place):  # the owner of /, or of a file in /etc, has to stay
        return f"choose another place, or ask for access to {place}"
    # Usually another user's command (sudo) created it with its contents, or a database with the files beside it.
    quoted = shlex.quote(str(place).removesuffix("-wal").removesuffix("-shm"))
    return f"sudo chown -R {_name(me)} {quoted}" if is_folder else f"sudo chown {_name(me)} {quoted}*"


def _is_in_home(place: Path) -> bool:
    home = Path(os.path.realpath(os.path.expanduser("~")))  # noqa: PTH111 - Path.home() may raise
    return home in Path(os.path.realpath(place)).parents


def _name(user: int) -> str:
    import pwd  # noqa: PLC0415 - not on Windows

    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)
