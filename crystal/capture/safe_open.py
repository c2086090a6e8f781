"""Open untrusted paths: only regular files in known folders, and every call has a deadline.

A path comes from a hook's input or from a folder that others write to. It may name a pipe, a device, a link that
leads elsewhere, a file of ``/proc``, or a file on a mount whose server is gone, where even ``stat`` does not return.
So every call that touches such a path runs in a thread that is abandoned after ``DEADLINE_SECONDS``, the kind of file
and its real path are looked at before it is opened, and a file is read up to the size that it had when it was opened.
"""

import _thread
import contextlib
import errno
import fnmatch
import io
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar
from pathlib import Path
from typing import BinaryIO, TypeVar, cast

from crystal.config.harnesses import Root
from crystal.config.paths import refused
from crystal.errors import CrystalError, UnavailableError
from crystal.model.named_tuple import NamedTuple

DEADLINE_SECONDS = 3.0
"""One call to the system may take so long."""

LISTING_SECONDS = 10.0
"""Listing one folder may take so long."""

READ_SECONDS = 10.0
"""All reads of one open file together may take so long."""

BUFFER_BYTES = 64 << 10

_blocked: set[str] = set()
"""Paths that are not waited for: they did not answer, in this process or in an earlier one."""

GRACE_SECONDS = 0.1
"""After so long a wait the lock of capture is let go until it is over."""


class UnansweredPolicy(NamedTuple):
    """Actions of this process when a path does not answer.

    Attributes:
        aside: Entered for the time of a long wait.
        report: Told of a path that did not answer in time.
    """

    aside: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
    report: Callable[[str], None] = lambda _: None


_waiting: ContextVar[UnansweredPolicy | None] = ContextVar("waiting", default=None)

Result = TypeVar("Result")

REFUSED = "refused transcripts"
"""The problem under which the paths of hooks that were not opened are recorded."""


class TranscriptRefusedError(CrystalError):
    """A path is not a regular file, or not in a folder that transcripts are read from. It was not opened."""

    exit_code = 5


class TranscriptBlockedError(UnavailableError):
    """A file did not answer within the deadline. It is tried again later; its transcript keeps what was said."""


class Folders(NamedTuple):
    """The folders that transcripts are read from.

    Attributes:
        roots: The agents' transcript folders; each may itself be a link.
        allowed: Further folders from the settings, as patterns of whole paths.
        anywhere: Whether any folder is right: a person has named the path.
    """

    roots: tuple[Root, ...] = ()
    allowed: tuple[str, ...] = ()
    anywhere: bool = False

    def contains(self, path: str) -> bool:
        """Return whether an absolute path is in one of them, by its name alone: its links are not followed."""
        path = os.path.normpath(path)
        if self.anywhere or self.root_of(path) is not None:
            return True
        folders = [path, *(str(parent) for parent in Path(path).parents)]
        patterns = [name for pattern in self.allowed for name in (pattern, os.path.realpath(pattern))]
        return any(fnmatch.fnmatchcase(folder, pattern) for folder in folders for pattern in patterns)

    def root_of(self, path: str) -> Root | None:
        """Return the root that an absolute path is in, by its name alone, or None.

        Of several, the deepest with files of this name. Links of roots are followed if none has it by its own name.
        """
        name = Path(path)
        fitting = [root for root in self.roots if root.place.holds(name, root.folder)]
        for name_of in (str, os.path.realpath):
            found = [root for root in fitting if path.startswith(name_of(root.folder).rstrip(os.sep) + os.sep)]
            if found:
                return max(found, key=lambda root: (root.place.owns(name), len(str(root.folder))))
        return None


ANYWHERE = Folders(anywhere=True)


def escape_pattern(path: str) -> str:
    """Return the pattern that only this path fits."""
    return re.sub(r"[*?[]", r"[\g<0>]", path)


def call_with_deadline(step: Callable[[], Result], path: Path | str, seconds: float | None = None) -> Result:
    """Run a step that only touches files in another thread, and wait for it.

    The thread of a step that does not return is abandoned: it holds nothing of the caller's but the step's own file.

    Raises:
        TranscriptBlockedError: It did not return in time, or an earlier step on ``path`` did not.
    """
    name = str(path)
    if name not in _blocked:
        outcome = _outcome_of(step, DEADLINE_SECONDS if seconds is None else max(0.0, seconds))
        if outcome is not None:
            succeeded, result = outcome
            if succeeded:
                return cast("Result", result)
            raise cast("BaseException", result)
        _blocked.add(name)
        (_waiting.get() or UnansweredPolicy()).report(name)
    raise TranscriptBlockedError(
        f"{name} does not answer", hint="check the disk or network mount that it is on; crystal tries again by itself"
    )


def absent_folders(folders: Iterable[Path]) -> set[Path]:
    """Return which folders are not there, in one wait for all: most agents are on no machine.

    One that may not answer is left to the call that lists it, which has its own deadline and is reported.
    """
    asked = [folder for folder in folders if str(folder) not in _blocked]
    outcome = _outcome_of(lambda: set(filter(_is_absent, asked)), DEADLINE_SECONDS)
    return cast("set[Path]", outcome[1]) if outcome else set()


def _is_absent(folder: Path) -> bool:
    try:
        os.stat(folder)  # noqa: PTH116 - a quarter of the time of the method's
    except FileNotFoundError:
        return True
    except (OSError, ValueError):
        return False
    return False


def _outcome_of(step: Callable[[], object], seconds: float) -> tuple[bool, object] | None:
    """Run a step in another thread. Return whether it succeeded, and its result or error; None if it did not end."""
    try:
        worker = _idle.pop()
    except IndexError:
        worker = _Worker()
    if not worker.has_done(step, seconds):
        return None
    outcome, worker.outcome = worker.outcome, _NOTHING
    _idle.append(worker)  # from here on another thread may use it
    return outcome


class _Worker:
    """A thread that runs one step after the other: beginning a thread for each costs more than most steps do."""

    def __init__(self) -> None:
        self.outcome = _NOTHING
        self._step: Callable[[], object] = bool
        self._given, self._done = _thread.allocate_lock(), _thread.allocate_lock()
        self._given.acquire()
        self._done.acquire()
        _thread.start_new_thread(self._run, ())

    def has_done(self, step: Callable[[], object], seconds: float) -> bool:
        """Run a step. Return whether it ended in time; if not, the worker must not be used again."""
        self._step = step
        self._given.release()
        return _is_done(self._done, seconds)

    def _run(self) -> None:
        while True:
            self._given.acquire()
            try:
                self.outcome = (True, self._step())
            except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
                self.outcome = (False, error)
            self._step = bool
            self._done.release()


_NOTHING: tuple[bool, object] = (True, None)
_idle: list[_Worker] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)  # a child has none of its parent's threads


def _is_done(done: _thread.LockType, seconds: float) -> bool:
    if done.acquire(timeout=min(seconds, GRACE_SECONDS)):
        return True
    if seconds <= GRACE_SECONDS:
        return False
    with (_waiting.get() or UnansweredPolicy()).aside():
        return done.acquire(timeout=seconds - GRACE_SECONDS)


@contextlib.contextmanager
def waiting_by(waiting: UnansweredPolicy, known: Iterable[str] = ()) -> Iterator[None]:
    """Apply a policy for slow paths within the block; do not wait for ``known`` ones, which did not answer."""
    token = _waiting.set(waiting)
    _blocked.update(known)
    try:
        yield
    finally:
        _waiting.reset(token)


class BoundedFile(io.RawIOBase):
    """A regular file, read up to the size that it had when it was opened, with a deadline for each read.

    Closing it closes the descriptor, unless an abandoned read still uses it.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._size = os.fstat(descriptor).st_size
        self._position = 0
        self._seconds = READ_SECONDS

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._descriptor

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move the position of the next read."""
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = start + offset
        return self._position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Read into ``buffer``; 0 at the size that the file had when it was opened.

        Raises:
            TranscriptBlockedError: The file does not answer, or reading it takes too long altogether.
            OSError: The system refuses.
        """
        at, wanted = self._position, min(len(buffer), self._size - self._position)
        if wanted <= 0:
            return 0
        start = time.monotonic()
        limit = min(DEADLINE_SECONDS, self._seconds)
        data = call_with_deadline(lambda: os.pread(self._descriptor, wanted, at), self.path, limit)
        self._seconds -= time.monotonic() - start
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def close(self) -> None:
        """Close the file. Closing twice does nothing."""
        if not self.closed and str(self.path) not in _blocked:
            os.close(self._descriptor)
        super().close()


@contextlib.contextmanager
def open_regular(path: Path, folders: Folders = ANYWHERE) -> Iterator[BinaryIO]:
    """Open a transcript for reading.

    Raises:
        FileNotFoundError: It is not there.
        TranscriptRefusedError: It is no regular file, or it is not in ``folders`` when links are followed.
        TranscriptBlockedError: The file or its folder does not answer.
        UnavailableError, UsageError: The system refuses to open it, or to read on.
    """
    try:
        descriptor = call_with_deadline(lambda: _open_checked(path, folders), path)
        with io.BufferedReader(BoundedFile(path, descriptor), BUFFER_BYTES) as file:
            yield cast("BinaryIO", file)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise refused(error, path) from error


def status_of(path: Path, folders: Folders) -> os.stat_result:
    """Return the status of a regular file in ``folders``.

    Raises:
        FileNotFoundError, TranscriptRefusedError, TranscriptBlockedError, OSError: As for ``open_regular``.
    """
    return call_with_deadline(lambda: check_status(path, folders), path)


def check_status(path: Path, folders: Folders) -> os.stat_result:
    """Check the same without a deadline, for callers that have one."""
    _check_name(path, folders)
    try:
        status = path.lstat()
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:  # no file has such a name, now or later
            raise TranscriptRefusedError(f"{str(path)[:120]}... is too long for the name of a file") from error
        raise
    if stat.S_ISLNK(status.st_mode):
        _check_target(path, os.path.normpath(path.parent / path.readlink()), folders)
    real = Path(os.path.realpath(path))
    if real != path:
        check_link(path, folders)
        status = real.lstat()
    return _check_regular(path, status)


def check_link(path: Path, folders: Folders) -> None:
    """Raise ``TranscriptRefusedError`` where a path leads out of ``folders``. Without a deadline."""
    _check_target(path, os.path.realpath(path), folders)


def _check_target(path: Path, real: str, folders: Folders) -> None:
    if not folders.contains(real):
        message = f"{path} leads to {real}, which is not in a folder of transcripts"
        raise TranscriptRefusedError(message, hint=_allow(str(Path(real).parent)))


def not_regular(path: Path) -> TranscriptRefusedError:
    """Return the error for a pipe, a device, a socket or a folder."""
    return TranscriptRefusedError(f"{path} is not a regular file", hint="remove it, or move it out of the folder")


def _open_checked(path: Path, folders: Folders) -> int:
    """Open without following the file where it should not lead, and without any effect on what is no regular file."""
    check_status(path, folders)
    if not hasattr(os, "O_PATH") or not Path("/proc/self/fd").is_dir():
        return _open_checked_twice(path, folders)
    handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        _check_regular(path, os.fstat(handle))
        # The kernel's own name of what was opened: no link that was changed meanwhile can lead out of the folders.
        real = str(Path(f"/proc/self/fd/{handle}").readlink()).removesuffix(" (deleted)")
        _check_name(Path(real), folders)
        return os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    finally:
        os.close(handle)


def _open_checked_twice(path: Path, folders: Folders) -> int:
    """Open where the system has no ``O_PATH``: the file that was checked must be the one that is open."""
    real = Path(os.path.realpath(path))
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(real, flags)
    try:
        _check_regular(path, os.fstat(descriptor))
        if not os.path.samestat(os.fstat(descriptor), check_status(real, folders)):
            raise TranscriptRefusedError(f"{path} was replaced while it was opened", hint="crystal tries again")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check_name(path: Path, folders: Folders) -> None:
    if not folders.contains(str(path)):
        hint = _allow(str(path.parent))
        raise TranscriptRefusedError(f"{path} is not in a folder of transcripts", hint=hint)


def _allow(folder: str) -> str:
    return f"nothing to do; if you keep transcripts in {folder}, add it to capture.transcript_folders"


def _check_regular(path: Path, status: os.stat_result) -> os.stat_result:
    if not stat.S_ISREG(status.st_mode):
        raise not_regular(path)
    return status
