"""Files that were made from what is forgotten: summaries, daily logs, copies of the store, the index, contexts."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

from crystal.config.paths import MEMORY_RECORD, refused, write_private
from crystal.errors import Unavailable
from crystal.memories.record import DAMAGED_SUFFIX
from crystal.search.index import bring_up_to_date, folder_of
from crystal.search.index.files import files_in, path_of, remove_file
from crystal.store import Store
from crystal.store.search import index_log
from crystal.summarize.markdown import file_stem

_MARK = re.compile(rb"<!-- ([a-z0-9_-]+) \d+ -->\s*$")
INDEX_SECONDS = 300.0
TEMPORARY_FILES = ".crystal-*.tmp"
"""What ``crystal.config.paths.write_private`` writes before a file has its name."""
YOUNG_MS = 60_000
FRESH_MS = 60_000
"""So young a file of a hook may still get its note."""


def delete_file(path: Path) -> None:
    """Delete a file if it is there.

    Raises:
        UsageProblem, Unavailable: The system refuses.
    """
    try:
        path.unlink()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise refused(error, path) from error


def copies_of_store(data_dir: Path) -> Iterator[Path]:
    """The copies of crystal.db and of the mirror that an upgrade left, whole or half made."""
    for name in ("crystal.db", "mirror.db"):
        yield from sorted(data_dir.glob(f"{name}.v*.backup*"))


def delete_damaged(data_dir: Path, made_at: int) -> None:
    """Delete the damaged databases that a repair kept, if they were written before something was forgotten, ms."""
    for path in sorted(data_dir.glob("crystal.db.damaged-*")):
        if path.is_file() and path.stat().st_mtime_ns // 1_000_000 <= made_at:
            delete_file(path)


def delete_copies(data_dir: Path, now: int) -> None:
    """Delete copies of the store, contexts that were made of it, and what a recovery or a hook left.

    They are no part of the memory: nothing is lost with them but a way back to an older crystal.
    """
    for path in copies_of_store(data_dir):
        delete_file(path)
    for folder in (data_dir / "context", data_dir / "recovered"):
        with contextlib.suppress(FileNotFoundError):
            for path in sorted(folder.rglob("*")):
                if not path.is_dir() or path.is_symlink():
                    delete_file(path)
    shutil.rmtree(data_dir / "recovered", ignore_errors=True)
    for path in sorted((data_dir / "spool").glob("*.kept")):  # a transcript's second name, of a note that is gone
        if not path.with_suffix(".json").exists() and now - path.lstat().st_ctime_ns // 1_000_000 > FRESH_MS:
            delete_file(path)


def delete_damaged_lines(agents: Path) -> None:
    """Delete damaged lines of the record of memories: what of them was forgotten cannot be told."""
    for path in agents.glob(f"*/memory/{MEMORY_RECORD}{DAMAGED_SUFFIX}"):
        delete_file(path)


def delete_temporaries(folders: Iterable[Path], now: int) -> None:
    """Delete what killed processes were writing: files that were to get their name when they were whole.

    Raises:
        Unavailable: One is so young that somebody may be writing it just now; or the system refuses.
    """
    for folder in dict.fromkeys(folders):
        for path in folder.rglob(TEMPORARY_FILES):
            with contextlib.suppress(FileNotFoundError):  # it has got its name
                is_young = abs(now - path.stat().st_mtime_ns // 1_000_000) < YOUNG_MS
                if is_young and _may_live(path.name.split("-")[1]):
                    raise Unavailable(f"{path} is being written just now", hint="it goes on at the next run")
                delete_file(path)


def _may_live(process: str) -> bool:
    """Whether another process of this number may be there. This one writes nothing while it looks."""
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
    """Let no file of the derived index hold what was deleted from the store.

    Raises:
        Unavailable: The index cannot be written now, or is not ready yet.
    """
    if index_log.read_state(store) is None:
        return
    folder = folder_of(store.path)
    try:
        if bring_up_to_date(store, now=now, budget_seconds=INDEX_SECONDS):
            raise Unavailable(f"the search index {folder} is not up to date", hint="it goes on at the next run")
        # Former files wait for searches that began with them; they have what was deleted since.
        old = [name for name in index_log.retired(store) if remove_file(path_of(folder, name))]
        with store.transaction():
            index_log.forget(store, old)
        known = {path_of(folder, name) for name in index_log.listed(store)}
        for path in files_in(folder):
            if path not in known:
                remove_file(path)
    except OSError as error:
        raise Unavailable(f"the search index {folder}: {error}", hint="check the folder and its disk") from error


def documents_with(folder: Path, holds: Callable[[bytes], bool]) -> Iterator[Path]:
    """Summaries, daily logs and journals below an agents folder that hold something."""
    for kind in ("sessions", "daily", "journals"):
        for path in sorted(folder.glob(f"*/memory/{kind}/*.md")):
            with contextlib.suppress(OSError):
                if holds(path.read_bytes()):
                    yield path


def without_session(content: bytes, session_ids: Collection[str]) -> bytes:
    """A daily log without the lines of some sessions."""
    stems = {file_stem(session).encode() for session in session_ids}
    kept = []
    for line in content.splitlines(keepends=True):
        match = _MARK.search(line)
        if match is None or match[1] not in stems:
            kept.append(line)
    return b"".join(kept)


def clean_daily(folder: Path, session_id: str) -> None:
    """Take a session's lines out of an agent's daily logs. A log that has no other line is deleted.

    Raises:
        Unavailable: The system refuses.
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
        rest = without_session(content, [session_id])
        if rest == content:
            continue
        if any(line.strip() and not line.startswith(b"# ") for line in rest.splitlines()):
            write_private(path, rest)
        else:
            delete_file(path)
