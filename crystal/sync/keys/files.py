"""Secrets in files: read only if nobody else could read or replace them, written so that a crash does no harm."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from crystal.config.paths import alone_in, make_private_dir, refused, sync_folder
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


def read_own_file(path: Path) -> bytes | None:
    """Return a secret that crystal keeps: a regular file of this user, closed to everybody else, no symbolic link.

    Returns:
        Its bytes, or None if ``path`` does not exist.

    Raises:
        NotConfiguredError: The file is not safe or not readable.
    """
    try:
        handle = os.open(path, _READ_FLAGS | _NO_FOLLOW)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unreadable(path, error) from error
    return _checked_read(path, handle, problem_of_own_file)


def read_given_file(path: Path, *, managed: bool) -> bytes:
    """Return a secret from a file that the user names. Links are followed, the target is checked.

    Args:
        path: The value of CRYSTAL_KEY_FILE.
        managed: Whether systemd or a container engine put it there, see ``is_managed``.

    Raises:
        NotConfiguredError: It is absent, not safe or not readable.
    """
    try:
        handle = os.open(path, _READ_FLAGS)
    except OSError as error:
        raise _unreadable(path, error) from error
    return _checked_read(path, handle, problem_of_managed_file if managed else problem_of_given_file)


def is_managed(path: Path, env: Mapping[str, str]) -> bool:
    """Return True if systemd (LoadCredential) or a container engine (secrets) placed the file.

    Their folder protects the files: they may belong to root or to a user of the host, with mode 0440 or 0444.
    """
    place = os.path.abspath(path)  # noqa: PTH100 - a link inside the folder still lies in it
    given = env.get("CREDENTIALS_DIRECTORY", "").strip()
    folders = [*_MANAGED, os.path.normpath(given)] if len(given) > 1 and given.startswith("/") else _MANAGED
    return any(place.startswith(folder + "/") for folder in folders)


def problem_of_own_file(info: os.stat_result, me: int) -> str | None:
    """Return why a file that only crystal writes cannot be trusted, or None if only this user owns and reads it."""
    if info.st_uid != me:
        return f"belongs to user {info.st_uid}, not to you ({me})"
    if stat.S_IMODE(info.st_mode) & 0o077:
        return f"can be used by others (mode {stat.S_IMODE(info.st_mode):04o})"
    return None


def problem_of_given_file(info: os.stat_result, me: int) -> str | None:
    """Return why a file that the user names cannot be trusted, or None.

    It must belong to the user or root and be writable by nobody else. Root may let a group read it (0440), but not
    everybody.
    """
    mode = stat.S_IMODE(info.st_mode)
    if info.st_uid not in (me, 0):
        return f"belongs to user {info.st_uid}, neither to you ({me}) nor to root"
    allowed = 0o740 if info.st_uid == 0 else 0o700
    if mode & ~allowed & 0o777:
        return f"can be used by others (mode {mode:04o})"
    return None


def problem_of_managed_file(info: os.stat_result, me: int) -> str | None:
    """Return why a file from systemd or a container engine cannot be trusted, or None."""
    del me
    if info.st_mode & stat.S_IWOTH:
        return f"can be written by everybody (mode {stat.S_IMODE(info.st_mode):04o})"
    return None


def write_own_file(path: Path, data: bytes, *, replace: bool) -> Path | None:
    """Write a secret with mode 0600 in a folder of mode 0700. After a crash either the old or the new one is there.

    Writing the same bytes changes nothing. A replaced secret is kept as ``.bak``, or the first free ``.bak.2``,
    ``.bak.3``: it may still be needed to open data in transit.

    Returns:
        The path of the old secret, or None.

    Raises:
        UsageError: Another secret is there and ``replace`` is not given, or ``path`` is not a regular file.
        UnavailableError: The system refuses. The old file is untouched.
    """
    make_private_dir(path.parent)
    try:
        with alone_in(path.parent):
            return _write_alone(path, data, replace=replace)
    except OSError as error:
        raise refused(error, path) from error


def _write_alone(path: Path, data: bytes, *, replace: bool) -> Path | None:
    for rest in path.parent.glob(f".{path.name}.*.tmp"):  # a crash left it between writing and renaming
        rest.unlink(missing_ok=True)
    old, backup = _old_bytes(path), None
    if old == data and not _is_open(path):
        return None
    if old not in (None, data):
        if not replace:
            hint = "to replace it: --replace; the old one is kept as a backup"
            raise UsageError(f"{path} exists already and is not overwritten", hint=hint)
        backup = next(one for one in map(path.with_name, backup_names(path.name)) if not os.path.lexists(one))
        _place(backup, old)
    _place(path, data)
    return backup


def _place(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path`` atomically."""
    handle, temporary = tempfile.mkstemp(".tmp", f".{path.name}.", path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o600)  # regardless of the umask
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise
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


def _is_open(path: Path) -> bool:
    return sys.platform != "win32" and problem_of_own_file(path.lstat(), os.geteuid()) is not None


def backup_names(name: str) -> Iterator[str]:
    """Yield the names under which replaced secrets are kept beside ``name``, in order."""
    yield f"{name}.bak"
    yield from (f"{name}.bak.{number}" for number in itertools.count(2))


def _checked_read(path: Path, handle: int, problem_of: Callable[[os.stat_result, int], str | None]) -> bytes:
    """Read an open file if it is safe, and close it."""
    try:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode):
            hint = "name a file; what a command prints is taken from CRYSTAL_KEY_COMMAND"
            raise NotConfiguredError(f"{path} is not an ordinary file", hint=hint)
        problem = None if sys.platform == "win32" else problem_of(info, os.geteuid())
        if problem is not None:
            mend = f"chmod 600 {path}" if info.st_uid == os.geteuid() else f"sudo chown {os.geteuid()} {path}"
            raise NotConfiguredError(f"{path} {problem}", hint=f"if nobody else can have read it, run: {mend}")
        data = os.read(handle, MAX_FILE_BYTES + 1)
    except OSError as error:
        raise _unreadable(path, error) from error
    finally:
        os.close(handle)
    if len(data) > MAX_FILE_BYTES:
        raise NotConfiguredError(
            f"{path} is larger than {MAX_FILE_BYTES} bytes, no key is so big", hint="name another file"
        )
    return data


def _unreadable(path: Path, error: OSError) -> NotConfiguredError:
    if error.errno in (errno.ELOOP, errno.EMLINK) and path.is_symlink():
        hint = f"put the file itself there, or name it: CRYSTAL_KEY_FILE={path}"
        return NotConfiguredError(f"{path} is a symbolic link, which is not followed here", hint=hint)
    reason = (error.strerror or "cannot be read").lower()
    return NotConfiguredError(f"{path}: {reason}", hint=f"make it readable for you alone: {path}")
