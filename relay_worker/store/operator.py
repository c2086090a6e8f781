"""Implement the database operations of the operator's commands, also while a server runs."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import apsw

from relay_worker.errors import CannotServeError
from relay_worker.store import accounts
from relay_worker.store.database import SqliteRows, connect, part_of, prepare, refuse_incomplete
from relay_worker.store.files import BodyFiles, sync_path
from relay_worker.store.rows import FILES


def prune_bodies(folder: Path, files: BodyFiles, now: int) -> None:
    """Delete files without a row at the server's start, and make every client list everything again."""
    with opened(folder) as rows:
        files.sweep({name for (name,) in rows.all(FILES)})
        with rows.db:
            accounts.raise_floors(rows, now)


def create(folder: Path) -> None:
    """Create the data directory and the database if missing."""
    refuse_incomplete(folder)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    prepare(folder / "relay.db")


def back_up(folder: Path, target: Path) -> tuple[int, int]:
    """Copy the database and its bodies, also while a server runs. Return the numbers of bodies and of missing ones.

    The copy has another name until it is complete. A body acknowledged while copying may be missing from it; a relay
    started on the copy answers ``body-lost`` for it.
    """
    part = part_of(target)
    with opened(folder) as rows:
        if target.exists():
            raise CannotServeError(f"{target} exists already", hint="give the folder of a new backup")
        shutil.rmtree(part, ignore_errors=True)
        try:
            part.mkdir(mode=0o700, parents=True)
            counts = _copy(rows.db, BodyFiles(folder), part)
            part.rename(target)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
    sync_path(target.parent)
    return counts


def _copy(db: apsw.Connection, bodies: BodyFiles, part: Path) -> tuple[int, int]:
    kept = BodyFiles(part)
    kept.prepare()
    copied = lost = 0
    with contextlib.closing(apsw.Connection(str(part / "relay.db"))) as copy:
        with copy.backup("main", db, "main") as run:
            while not run.done:
                run.step(-1)
        for name in [str(row[0]) for row in copy.execute(FILES)]:
            try:
                shutil.copyfile(bodies.path(name), kept.path(name))
                kept.path(name).chmod(0o600)
                copied += 1
            except FileNotFoundError:
                lost += 1
    (part / "relay.db").chmod(0o600)
    for one in [*part.rglob("*"), part]:
        sync_path(one)
    return copied, lost


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[SqliteRows]:
    """Open the database of the relay in a folder.

    Raises:
        CannotServeError: There is none, or it cannot be used.
    """
    path = folder / "relay.db"
    if not path.exists():
        raise CannotServeError(
            f"there is no relay in {folder}",
            hint="start it first: crystal-relay serve; it is elsewhere: --data-dir FOLDER; "
            "make a new one: crystal-relay token make --create --label home --scope home",
            exit_code=3,
        )
    prepare(path)
    try:
        db = connect(path)
        try:
            yield SqliteRows(db)
        finally:
            db.close()
    except apsw.FullError as error:  # its own message is "not an error"
        raise CannotServeError(f"{path}: the disk is full, or that of the copy", hint="free some disk space") from error
    except apsw.Error as error:
        raise CannotServeError(f"{path}: {error}", hint="check its disk and the folder's permissions") from error
