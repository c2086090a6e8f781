"""Finding transcripts on disk: all of them, or one session's, under Claude Code's folders."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from crystal import transcript
from crystal.paths import refused

_SESSION_ID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_FIRST_LINES = 50


@dataclass(frozen=True, slots=True)
class Found:
    """A transcript file on disk. ``modified`` is ms."""

    path: Path
    size: int
    modified: int
    dev: int
    inode: int


def look_at(path: Path) -> Found | None:
    """What the disk says of one file, None when it is no readable regular file."""
    try:
        return _found(path, path.stat())
    except (OSError, ValueError):
        return None


def look_into(path: Path, file: BinaryIO) -> Found | None:
    """The same of an open file, whatever stands at its path by now."""
    return _found(path, os.fstat(file.fileno()))


def _found(path: Path, status: os.stat_result) -> Found | None:
    if not stat.S_ISREG(status.st_mode):
        return None
    return Found(path, status.st_size, status.st_mtime_ns // 1_000_000, status.st_dev, status.st_ino)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a transcript for reading.

    Raises:
        FileNotFoundError: It is not there.
        Unavailable: The system refuses to open it, or to read on.
    """
    try:
        with path.open("rb") as file:
            yield file
    except FileNotFoundError:
        raise
    except OSError as error:
        raise refused(error, path) from error


def _pass_over(_path: Path, _error: OSError) -> None:
    pass


def all_transcripts(roots: Sequence[Path], refusal: Callable[[Path, OSError], None] = _pass_over) -> Iterator[Found]:
    """Every transcript under the roots (``<config>/projects``), subagents' included.

    A project's folder may be a link; deeper links to folders are not followed.

    Args:
        roots: Claude Code's transcript folders.
        refusal: Told of a folder that the system refuses to list.
    """
    for root in roots:
        for project in _folders(root, refusal, links=True):
            yield from _transcripts_in(project, refusal)
            for session in _folders(project):
                yield from _subagents_in(session)


def under(path: Path) -> Iterator[Found]:
    """Every transcript below any folder, or the file itself; for paths that a person names."""
    if not os.path.isdir(path):  # noqa: PTH112 - never raises
        found = look_at(path)
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


def of_session(roots: Sequence[Path], session_id: str) -> Iterator[Path]:
    """Where a session's transcript may be: in any project folder, whatever folder the hook named."""
    if not _is_plain_name(session_id):
        return
    for root in roots:
        for project in _folders(root, links=True):
            path = project / f"{session_id}.jsonl"
            if look_at(path) is not None:
                yield path


def is_session_id(name: str) -> bool:
    """Whether a name has the form of Claude Code's session ids."""
    return _SESSION_ID.fullmatch(name) is not None


def session_in(path: Path) -> str | None:
    """The session that the first lines of a transcript name, None when they name none."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        for _ in range(_FIRST_LINES):
            line = file.readline(1 << 20)
            if not line:
                return None
            session = transcript.line_facts(line).session_id
            if session is not None:
                return session
    return None


def subagents_of(transcript: Path) -> list[Path]:
    """The transcripts of a session's subagents, beside the session's own."""
    return sorted(found.path for found in _subagents_in(transcript.with_suffix("")))


def _folders(folder: Path, refusal: Callable[[Path, OSError], None] = _pass_over, *, links: bool = False) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return sorted(Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=links))
    except FileNotFoundError:
        return []
    except OSError as error:
        refusal(folder, error)
        return []


def _transcripts_in(folder: Path, refusal: Callable[[Path, OSError], None]) -> Iterator[Found]:
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.path for entry in entries if entry.name.endswith(".jsonl"))
    except OSError as error:
        refusal(folder, error)
        return
    for name in names:
        found = look_at(Path(name))
        if found is not None:
            yield found


def _subagents_in(session: Path) -> Iterator[Found]:
    for folder, _, files in os.walk(session / "subagents"):
        for name in sorted(files):
            if name.startswith("agent-") and name.endswith(".jsonl"):
                found = look_at(Path(folder, name))
                if found is not None:
                    yield found


def _is_plain_name(name: str) -> bool:
    return bool(name) and name not in (".", "..") and not set(name) & set("/\\\x00*?[") and len(name) < 200
