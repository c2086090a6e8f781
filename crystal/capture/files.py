"""Finding transcripts on disk: all of them, or one session's, under Claude Code's folders."""

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar

from crystal import transcript
from crystal.capture import safe_open
from crystal.capture.safe_open import ANYWHERE, Folders, TranscriptBlockedError, TranscriptRefusedError
from crystal.config.paths import refused
from crystal.errors import CrystalError

_SESSION_ID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_FIRST_LINES = 50
_FIRST_BYTES = 4 << 20

T = TypeVar("T")


class TranscriptFile(NamedTuple):
    """A transcript file on disk. ``modified`` is ms."""

    path: Path
    size: int
    modified: int
    dev: int
    inode: int


def look_at(path: Path, folders: Folders = ANYWHERE) -> TranscriptFile | None:
    """Return the state of one file on disk, None if it is no readable regular file in ``folders``."""
    try:
        return examine(path, folders)
    except (CrystalError, OSError, ValueError):
        return None


def examine(path: Path, folders: Folders) -> TranscriptFile | None:
    """Return the state of one file on disk, None if it does not exist.

    Raises:
        TranscriptRefusedError: It is no regular file, or not in ``folders``.
        TranscriptBlockedError: It does not answer.
        Unavailable, UsageError: The system refuses.
    """
    try:
        return _found(path, safe_open.status_of(path, folders))
    except (FileNotFoundError, ValueError):
        return None
    except OSError as error:
        raise refused(error, path) from error


def look_into(path: Path, file: BinaryIO) -> TranscriptFile:
    """Return the state of an open file, whatever is at its path by now."""
    return _found(path, os.fstat(file.fileno()))


def _found(path: Path, status: os.stat_result) -> TranscriptFile:
    return TranscriptFile(path, status.st_size, status.st_mtime_ns // 1_000_000, status.st_dev, status.st_ino)


def opened(path: Path, folders: Folders = ANYWHERE) -> AbstractContextManager[BinaryIO]:
    """Open a transcript for reading, see ``safe_open.open_regular``."""
    return safe_open.open_regular(path, folders)


def _pass_over(_path: Path, _error: Exception) -> None:
    pass


Refusal = Callable[[Path, Exception], None]
"""Told of a file or folder that is left out, and why."""


def all_transcripts(
    roots: Sequence[Path], refusal: Refusal = _pass_over, folders: Folders | None = None
) -> Iterator[TranscriptFile]:
    """Yield every transcript under the roots (``<config>/projects``), subagents' included.

    A link, of a project's folder or of a file, is followed where it leads to one of ``folders``; deeper links to
    folders are not followed.

    Args:
        roots: Claude Code's transcript folders.
        refusal: Told of what is left out: the system refuses to list it, it leads elsewhere, it does not answer.
        folders: Where links may lead; the roots alone by default.
    """
    folders = folders or Folders(tuple(roots))
    for root in roots:
        for project in _listed(root, partial(_projects, root, folders, refusal), refusal):
            yield from _listed(project, partial(_transcripts_in, project, folders, refusal), refusal)


def _listed(folder: Path, listing: Callable[[], Iterator[T]], refusal: Refusal) -> list[T]:
    try:
        return safe_open.call_with_deadline(lambda: list(listing()), folder, safe_open.LISTING_SECONDS)
    except FileNotFoundError:
        return []
    except (TranscriptBlockedError, TranscriptRefusedError, OSError) as error:
        refusal(folder, error)
        return []


def under(path: Path) -> Iterator[TranscriptFile]:
    """Yield every transcript below any folder, or the file itself; for paths that a person names.

    Raises:
        TranscriptRefusedError: It is a file, and no regular one.
        TranscriptBlockedError: It does not answer.
    """
    if not safe_open.call_with_deadline(lambda: os.path.isdir(path), path):  # noqa: PTH112 - never raises
        found = examine(path, ANYWHERE)
        if found is not None:
            yield found
        return
    for folder, names, files in os.walk(path):
        names[:] = sorted(name for name in names if name not in ("tool-results", "memory"))
        for name in sorted(files):
            if name.endswith(".jsonl") and name != "history.jsonl":
                found = look_at(Path(folder, name))
                if found is not None:
                    yield found


def of_session(folders: Folders, session_id: str) -> Iterator[Path]:
    """Yield the possible paths of a session's transcript: in any project folder, whatever folder the hook named."""
    if not _is_plain_name(session_id):
        return
    for root in folders.roots:
        yield from _listed(root, partial(_named, root, f"{session_id}.jsonl", folders), _pass_over)


def _named(root: Path, name: str, folders: Folders) -> Iterator[Path]:
    for project in _projects(root, folders, _pass_over):
        path = project / name
        with contextlib.suppress(OSError, TranscriptRefusedError):
            safe_open.check_status(path, folders)
            yield path


def is_session_id(name: str) -> bool:
    """Return whether a name has the form of Claude Code's session ids."""
    return _SESSION_ID.fullmatch(name) is not None


def session_in(path: Path, folders: Folders) -> str | None:
    """Return the session that the first lines of a transcript name, None if they name none."""
    with contextlib.suppress(OSError, CrystalError), opened(path, folders) as file:
        for line in file.read(_FIRST_BYTES).split(b"\n")[:_FIRST_LINES]:
            session = transcript.line_facts(line).session_id
            if session is not None:
                return session
    return None


def subagents_of(transcript: Path, folders: Folders) -> list[Path]:
    """Return the transcripts of a session's subagents, beside the session's own."""
    session = transcript.with_suffix("")
    return [found.path for found in _listed(session, partial(_subagents_in, session, folders, _pass_over), _pass_over)]


def _projects(root: Path, folders: Folders, refusal: Refusal) -> Iterator[Path]:
    with os.scandir(root) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            path = Path(entry.path)
            try:
                if entry.is_symlink():
                    safe_open.check_link(path, folders)
                if entry.is_dir():
                    yield path
            except (TranscriptRefusedError, OSError) as error:
                refusal(path, error)


def _transcripts_in(project: Path, folders: Folders, refusal: Refusal) -> Iterator[TranscriptFile]:
    """Yield a project's transcripts, and after them those of its sessions' subagents."""
    with os.scandir(project) as entries:
        listed = sorted(entries, key=lambda entry: entry.name)
    for entry in listed:
        if entry.name.endswith(".jsonl"):
            yield from _regular(entry, folders, refusal)
    for entry in listed:
        if entry.is_dir(follow_symlinks=False):
            yield from _subagents_in(Path(entry.path), folders, refusal)


def _subagents_in(session: Path, folders: Folders, refusal: Refusal) -> Iterator[TranscriptFile]:
    top = session / "subagents"
    if not os.path.isdir(top):  # noqa: PTH112 - never raises
        return
    safe_open.check_link(top, folders)
    for folder, _, _ in os.walk(top):
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                if entry.name.startswith("agent-") and entry.name.endswith(".jsonl"):
                    yield from _regular(entry, folders, refusal)


def _regular(entry: os.DirEntry[str], folders: Folders, refusal: Refusal) -> Iterator[TranscriptFile]:
    """Yield a regular file in a folder that was checked; a link only if its target is allowed."""
    path = Path(entry.path)
    try:
        if entry.is_symlink():
            yield _found(path, safe_open.check_status(path, folders))
        elif entry.is_file(follow_symlinks=False):
            yield _found(path, entry.stat(follow_symlinks=False))
        elif not entry.is_dir(follow_symlinks=False):
            refusal(path, safe_open.not_regular(path))
    except FileNotFoundError:
        pass
    except (TranscriptRefusedError, OSError) as error:
        refusal(path, error)


def _is_plain_name(name: str) -> bool:
    return bool(name) and name not in (".", "..") and not set(name) & set("/\\\x00*?[") and len(name) < 200
