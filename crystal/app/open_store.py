"""Checks before the store is opened: that it is not lost, and that no link leads to another user's files."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from crystal.config.paths import MEMORY_RECORD, Places, refused
from crystal.errors import ForeignStoreError, NewerStoreError, StoreLostError, UsageError
from crystal.store.private_record import RECORD_FILE
from crystal.store.upgrade import refuse_foreign


def archives_of(places: Places) -> list[Path]:
    """Return the archive files of all agents, in order. Raises what ``archive_names`` does."""
    return sorted(map(Path, archive_names(places)))


def archive_names(places: Places) -> Iterator[str]:
    """Yield the paths of the archive files of all agents, as text: a path object for each of thousands takes time.

    Raises:
        CrystalError: The system refuses to list a folder. An archive that cannot be seen is not one that is not there.
    """
    top = places.ldm_home / "agents"
    _, agents, _ = next(os.walk(top, onerror=_refuse), ("", [], []))
    for agent in agents:
        for folder, _, names in os.walk(top / agent / "memory" / "transcripts", onerror=_refuse):
            yield from (f"{folder}{os.sep}{name}" for name in names if name.endswith(".jsonl.zst"))


def _refuse(error: OSError) -> None:
    if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
        raise refused(error, Path(error.filename)) from error


def refuse_lost(places: Places) -> None:
    """Refuse a missing database, or another file in its place, if there was a memory before.

    Raises:
        StoreLostError: The archive, or the record of what is private, is still here. Nothing is made.
        UsageError: A link leads to nothing.
    """
    words = "the database is gone"
    if _is_something(places.db):
        try:
            refuse_foreign(places.db)
        except NewerStoreError:
            return
        except ForeignStoreError as error:
            words = f"the database is lost: {error.message}"
        else:
            return
    refuse_links(places, dangling=True)
    if _is_elsewhere(places):
        return
    sessions = len({_session_of(path) for path in archives_of(places) if not path.name.startswith("agent-")})
    memories = (places.ldm_home / "agents").glob(f"*/memory/{MEMORY_RECORD}")
    if not sessions and not (places.ldm_home / RECORD_FILE).exists() and next(memories, None) is None:
        return
    noun = "session" if sessions == 1 else "sessions"
    here = f", but the archive of {sessions:,} {noun} is here" if sessions else ""
    raise StoreLostError(words + here, hint="run: crystal verify --repair")


def _session_of(archive: Path) -> str:
    """Return the session in an archive's name: a copy in another folder has ``~``, a further generation ``+`` in it."""
    return re.split(r"[~+]", archive.name.removesuffix(".jsonl.zst"), maxsplit=1)[0]


def _is_something(path: Path) -> bool:
    """Return True if a file with content, or anything that is no file, is at a path.

    Raises:
        CrystalError: The system refuses access.
    """
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return path.is_symlink()
    except OSError as error:
        if error.errno == errno.ELOOP:
            return True
        raise refused(error, path) from error
    return found.st_size > 0 or not stat.S_ISREG(found.st_mode)


def _is_elsewhere(places: Places) -> bool:
    """Return True if the archive's database is at its usual place and another place was chosen for this run."""
    usual = places.ldm_home / "memory" / "crystal.db"
    return usual != places.db and usual.exists()


def links_to(places: Places) -> Iterator[tuple[Path, Path, bool]]:
    """Yield the links among the places where crystal writes: (link, target, whether the target is the user's own)."""
    for path in dict.fromkeys((places.ldm_home, places.data_dir, places.db)):
        if path.is_symlink():
            target = Path(os.path.realpath(path))
            try:
                own = not hasattr(os, "geteuid") or target.stat().st_uid == os.geteuid()
            except OSError:
                own = False
            yield path, target, own


def refuse_links(places: Places, *, dangling: bool = False) -> None:
    """Refuse to write through links to files that are not the user's, or to nothing.

    With ``dangling`` refuse only what cannot be read either: a link to nothing. The database's own link is left to
    ``crystal verify --repair``, which replaces it.

    Raises:
        UsageError: It does. Nothing was written.
    """
    for path, target, own in links_to(places):
        if not own and not (dangling and (path == places.db or target.exists())):
            words, hint = describe_link(path, target)
            raise UsageError(words, hint=hint)


def describe_link(path: Path, target: Path) -> tuple[str, str]:
    """Return what is wrong with a link that may not be followed, and what to do."""
    import shlex  # noqa: PLC0415 - for an error alone, and every hook's worker loads this file

    words = "does not belong to you" if os.path.exists(target) else "is not there"  # noqa: PTH110 - never raises
    return f"{path} is a link to {target}, which {words}", f"remove the link: rm {shlex.quote(str(path))}"
