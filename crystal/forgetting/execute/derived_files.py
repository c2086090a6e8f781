"""Clean files derived from forgotten text: summaries, daily logs, copies of the store, the index, contexts."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from crystal.config.paths import MEMORY_RECORD, refused, write_private
from crystal.errors import UnavailableError
from crystal.memories.record import DAMAGED_SUFFIX
from crystal.search.index import bring_up_to_date, folder_of
from crystal.search.index.files import files_in, path_of, remove_file
from crystal.store import Store
from crystal.store.search import index_log
from crystal.summarize.markdown import file_stem

_MARK = re.compile(rb"<!-- ([a-z0-9_-]+) \d+ -->\s*$")
INDEX_SECONDS = 300.0
TEMPORARY_FILES = ".crystal-*.tmp"
"""Names of files that ``crystal.config.paths.write_private`` writes before it renames them."""
YOUNG_MS = 60_000
FRESH_MS = 60_000
"""A hook's file younger than this may still get its note."""


def delete_file(path: Path) -> None:
    """Delete a file if it exists.

    Raises:
        UsageError, Unavailable: The system refuses.
    """
    try:
        path.unlink()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise refused(error, path) from error


def leftovers(ldm_home: Path, data_dir: Path, made_at: int, now: int) -> Iterator[Path]:
    """Yield files that hold copies of the memory and are no part of it.

    Copies of the store that an upgrade left, complete or not; damaged databases kept by a repair before something was
    forgotten (ms); contexts; what a recovery left; transcripts linked for a hook whose note is gone; damaged lines of
    the record of memories, of which nobody knows what they hold.
    """
    for name in ("crystal.db", "mirror.db"):
        yield from data_dir.glob(f"{name}.v*.backup*")
    damaged = [path for path in data_dir.glob("crystal.db.damaged-*") if path.is_file()]
    yield from (path for path in damaged if path.stat().st_mtime_ns // 1_000_000 <= made_at)
    for folder in ("context", "recovered"):
        yield from (path for path in (data_dir / folder).rglob("*") if not path.is_dir() or path.is_symlink())
    linked = [path for path in (data_dir / "spool").glob("*.kept") if not path.with_suffix(".json").exists()]
    yield from (path for path in linked if now - path.lstat().st_ctime_ns // 1_000_000 > FRESH_MS)
    yield from ldm_home.glob(f"agents/*/memory/{MEMORY_RECORD}{DAMAGED_SUFFIX}")


def delete_leftovers(ldm_home: Path, data_dir: Path, made_at: int, now: int) -> None:
    """Delete these files; only the way back to an older version is lost.

    Raises:
        UsageError, Unavailable: The system refuses.
    """
    for path in sorted(leftovers(ldm_home, data_dir, made_at, now)):
        delete_file(path)
    shutil.rmtree(data_dir / "recovered", ignore_errors=True)


def delete_temporaries(folders: Iterable[Path], now: int) -> None:
    """Delete temporary files of killed processes, which were never renamed.

    Raises:
        UnavailableError: A file is so young that a process may still be writing it, or the system refuses.
    """
    for folder in dict.fromkeys(folders):
        for path in folder.rglob(TEMPORARY_FILES):
            with contextlib.suppress(FileNotFoundError):  # it was renamed
                is_young = abs(now - path.stat().st_mtime_ns // 1_000_000) < YOUNG_MS
                if is_young and _may_live(path.name.split("-")[1]):
                    raise UnavailableError(f"{path} is being written", hint="the next run continues")
                delete_file(path)


def _may_live(process: str) -> bool:
    """Return True if another process with this number may exist. This process writes nothing at that time."""
    if sys.platform == "win32" or not process.isdecimal():
        return True
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return int(process) != os.getpid()


def purge_index(store: Store, now: int) -> None:
    """Remove what was deleted from the store from all files of the derived index.

    Raises:
        UnavailableError: The index cannot be written now or is not ready yet.
    """
    if index_log.read_state(store) is None:
        return
    folder = folder_of(store.path)
    try:
        if bring_up_to_date(store, now=now, budget_seconds=INDEX_SECONDS):
            raise UnavailableError(f"the search index {folder} is not up to date", hint="the next run continues")
        # Replaced files are kept for running searches; they hold what was deleted since.
        old = [name for name in index_log.retired(store) if remove_file(path_of(folder, name))]
        with store.transaction():
            index_log.forget(store, old)
        known = {path_of(folder, name) for name in index_log.listed(store)}
        for path in files_in(folder):
            if path not in known:
                remove_file(path)
    except OSError as error:
        raise UnavailableError(f"the search index {folder}: {error}", hint="check the folder and its disk") from error


def without_sessions(content: bytes, session_ids: Collection[str]) -> bytes:
    """Return a daily log without the lines of some sessions."""
    stems = {file_stem(session).encode() for session in session_ids}
    kept = []
    for line in content.splitlines(keepends=True):
        match = _MARK.search(line)
        if match is None or match[1] not in stems:
            kept.append(line)
    return b"".join(kept)


def clean_daily(folder: Path, session_id: str) -> None:
    """Remove a session's lines from an agent's daily logs. A log without other lines is deleted.

    Raises:
        UnavailableError: The system refuses.
    """
    stem = file_stem(session_id).encode()
    for path in sorted((folder / "daily").glob("*.md")):
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise refused(error, path) from error
        if stem not in content:
            continue
        rest = without_sessions(content, [session_id])
        if rest == content:
            continue
        if any(line.strip() and not line.startswith(b"# ") for line in rest.splitlines()):
            write_private(path, rest)
        else:
            delete_file(path)
