"""Read secrets from files that nobody else could read or replace, and write them so that a crash does no harm."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from crystal.config.paths import alone_in, make_private_dir, replace_file, sync_folder, system_errors
from crystal.config.temporary_files import TEMPORARY_FILES, delete_left_behind
from crystal.errors import NotConfiguredError, UsageError

MAX_FILE_BYTES = 4096

_MANAGED = ("/run/secrets", "/var/run/secrets", "/run/credentials")
_READ_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NONBLOCK", 0)  # opening a pipe without a writer would block forever
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_BINARY", 0)
)
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)


Trust = Literal["own", "given", "managed"]
"""``own``: only crystal writes the file; ``given``: the user names it; ``managed``: see ``is_managed``."""


def read_secret_file(path: Path, trust: Trust) -> bytes | None:
    """Return a secret from a regular file that nobody else could have read or replaced, see ``problem_of_file``.

    An own file must not be a symbolic link. Links of other files are followed, and the target is checked.

    Returns:
        Its bytes, or None if an own file does not exist.

    Raises:
        NotConfiguredError: The file is not safe or not readable, or a given one is absent.
    """
    try:
        handle = os.open(path, _READ_FLAGS | (_NO_FOLLOW if trust == "own" else 0))
    except OSError as error:
        if trust == "own" and isinstance(error, FileNotFoundError):
            return None
        raise _unreadable(path, error) from error
    try:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode):
            hint = "name a file; what a command prints is taken from CRYSTAL_KEY_COMMAND"
            raise NotConfiguredError(f"{path} is not an ordinary file", hint=hint)
        problem = None if sys.platform == "win32" else problem_of_file(info, os.geteuid(), trust)
        if problem is not None:
            mend = f"chmod 600 {path}" if info.st_uid == os.geteuid() else f"sudo chown {os.geteuid()} {path}"
            raise NotConfiguredError(f"{path} {problem}", hint=f"if nobody else can have read it, run: {mend}")
        data = os.read(handle, MAX_FILE_BYTES + 1)
    except OSError as error:
        raise _unreadable(path, error) from error
    finally:
        os.close(handle)
    if len(data) > MAX_FILE_BYTES:
        problem = f"{path} is larger than {MAX_FILE_BYTES} bytes, no key is so big"
        raise NotConfiguredError(problem, hint="name another file")
    return data


def is_managed(path: Path, env: Mapping[str, str]) -> bool:
    """Return True if systemd (LoadCredential) or a container engine (secrets) placed the file.

    Their folder protects the files: they may belong to root or to a user of the host, with mode 0440 or 0444.
    """
    place = os.path.abspath(path)  # noqa: PTH100 - a link inside the folder still is in it
    given = env.get("CREDENTIALS_DIRECTORY", "").strip()
    folders = [*_MANAGED, os.path.normpath(given)] if len(given) > 1 and given.startswith("/") else _MANAGED
    return any(place.startswith(folder + "/") for folder in folders)


def problem_of_file(info: os.stat_result, me: int, trust: Trust) -> str | None:
    """Return why a file cannot be trusted, or None.

    An own file must belong to the user alone. A given file must belong to the user or root and be writable by nobody
    else; root may let a group read it (0440), but not everybody. A managed file must only not be writable by everybody.
    """
    mode = stat.S_IMODE(info.st_mode)
    if trust == "managed":
        return f"can be written by everybody (mode {mode:04o})" if mode & stat.S_IWOTH else None
    if trust == "own" and info.st_uid != me:
        return f"belongs to user {info.st_uid}, not to you ({me})"
    if info.st_uid not in (me, 0):
        return f"belongs to user {info.st_uid}, neither to you ({me}) nor to root"
    allowed = 0o740 if trust == "given" and info.st_uid == 0 else 0o700
    return f"can be used by others (mode {mode:04o})" if mode & ~allowed & 0o777 else None


def write_own_file(path: Path, data: bytes, *, replace: bool) -> Path | None:
    """Write a secret with mode 0600 in a folder of mode 0700. After a crash, the file is either the old or the new one.

    Writing the same bytes changes nothing. A replaced secret is kept as ``.bak``, or the first free ``.bak.2``,
    ``.bak.3``: it may still be needed to open data in transit.

    Returns:
        The path of the old secret, or None.

    Raises:
        UsageError: Another secret is stored and ``replace`` is not given, or ``path`` is not a regular file.
        UnavailableError: The system refuses. The old file is untouched.
    """
    make_private_dir(path.parent)
    with system_errors(path), alone_in(path.parent):
        return _write_alone(path, data, replace=replace)


def _write_alone(path: Path, data: bytes, *, replace: bool) -> Path | None:
    for rest in path.parent.glob(TEMPORARY_FILES):  # a crash left it between writing and renaming
        with contextlib.suppress(FileNotFoundError):  # it was renamed
            delete_left_behind(rest)
    old, backup = _old_bytes(path), None
    if old == data and (sys.platform == "win32" or problem_of_file(path.lstat(), os.geteuid(), "own") is None):
        return None
    if old not in (None, data):
        if not replace:
            hint = "to replace it: --replace; the old one is kept as a backup"
            raise UsageError(f"{path} exists already and is not overwritten", hint=hint)
        backup = next(one for one in map(path.with_name, backup_names(path.name)) if not os.path.lexists(one))
        _place(backup, old)
    _place(path, data)
    return backup


def _finish(temporary: Path, handle: int) -> None:
    temporary.chmod(0o600)  # regardless of the umask
    os.fsync(handle)


def _place(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path`` atomically."""
    replace_file(path, data, _finish)
    with contextlib.suppress(OSError):  # not supported by some file systems
        sync_folder(path.parent)


def _old_bytes(path: Path) -> bytes | None:
    """Return the bytes at ``path``. A link, a folder or the like is refused rather than replaced."""
    try:
        info = path.lstat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(info.st_mode):
        raise UsageError(f"{path} is not an ordinary file", hint="move it away, then run the command again")
    with path.open("rb") as file:
        return file.read(MAX_FILE_BYTES + 1)


def backup_names(name: str) -> Iterator[str]:
    """Yield the names under which replaced secrets are kept beside ``name``, in order."""
    yield f"{name}.bak"
    yield from (f"{name}.bak.{number}" for number in itertools.count(2))


def _unreadable(path: Path, error: OSError) -> NotConfiguredError:
    if error.errno in (errno.ELOOP, errno.EMLINK) and path.is_symlink():
        hint = f"put the file itself there, or name it: CRYSTAL_KEY_FILE={path}"
        return NotConfiguredError(f"{path} is a symbolic link, which is not followed here", hint=hint)
    reason = (error.strerror or "cannot be read").lower()
    return NotConfiguredError(f"{path}: {reason}", hint=f"make it readable for you alone: {path}")
