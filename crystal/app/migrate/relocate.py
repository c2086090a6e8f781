"""Move a legacy database to another place: copy it, compare the rows of all tables, and leave a link at the old path.

The original stays beside the link, as it was. It can be stopped anywhere and run again.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from crystal.app.capture import LOCK_SECONDS
from crystal.app.migrate.found import SIDES
from crystal.capture.lock import CAPTURE_LOCK, wait_lock
from crystal.capture.safe_open import ANYWHERE
from crystal.capture.source import beside, opened_source
from crystal.config.paths import Places, make_private_dir, sync_folder, system_errors
from crystal.errors import DamagedError
from crystal.transcript.tables import counts_of

KEPT = ".before-crystal"
PARTIAL = ".partial"
LOG = "-wal"


def relocate(old: Path, new: Path) -> int:
    """Move a database; return the number of its rows. Does nothing where a link is already.

    Raises:
        DamagedError: The copy has other rows than the original, or another database has its place. Nothing is changed.
        SourceError, UnavailableError: It cannot be read, or its owner is writing to it.
    """
    kept = beside(old, KEPT)
    with system_errors(old):
        if not kept.exists():
            _copy(old, new)
            os.link(old, kept)
        for side in SIDES:
            if side and beside(old, side).exists() and not old.is_symlink():
                beside(old, side).rename(beside(kept, side))
        if not old.is_symlink():
            link = beside(old, PARTIAL)
            link.unlink(missing_ok=True)
            link.symlink_to(new)
            link.replace(old)
        sync_folder(old.parent)
    return sum(_counts(new).values())


def move_own(places: Places) -> tuple[int, Path]:
    """Move crystal's own memory from the legacy folder to the usual one; return its rows and its new path.

    The database is last: once it is there, the usual folder is the one in use.

    Raises:
        As for ``relocate``.
    """
    usual = places.ldm_home / "memory"
    new = usual / places.db.name
    with wait_lock(places.data_dir / CAPTURE_LOCK, seconds=LOCK_SECONDS), system_errors(usual):
        make_private_dir(usual)
        databases = (*(places.db.name + side for side in SIDES), "*.lock", places.db.name + KEPT + "*")
        shutil.copytree(places.data_dir, usual, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*databases))
        return relocate(places.db, new), new


def _copy(old: Path, new: Path) -> None:
    """Copy a database and its log, and give the copy its name when it has the same rows."""
    make_private_dir(new.parent)
    partial, before = beside(new, PARTIAL), _counts(old)
    for side in ("", LOG):
        beside(partial, side).unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(beside(old, side), beside(partial, side))
            beside(partial, side).chmod(0o600)
    if _counts(partial) != before or _counts(old) != before:
        raise DamagedError(f"the copy of {old} differs from the original", hint="end what writes to it, then try again")
    if new.exists() and _counts(new) != before:
        raise DamagedError(f"{new} exists already and differs from {old}", hint="move one of them away, then try again")
    for side in (LOG, ""):
        if beside(partial, side).exists():
            with beside(partial, side).open("rb") as file:
                os.fsync(file.fileno())
            beside(partial, side).replace(beside(new, side))
    sync_folder(new.parent)


def _counts(path: Path) -> dict[str, int]:
    with opened_source(path, "database", ANYWHERE, {}) as source:
        return counts_of(source)
