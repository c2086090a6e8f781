"""Open a relay with SQLite as the source or the target of a move."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from relay_worker.errors import CannotServeError
from relay_worker.store import operator
from relay_worker.store.database import lock, part_of
from relay_worker.store.files import BodyFiles, sync_path
from relay_worker.store.moving import COMPLETE, MoveEnd
from relay_worker.store.rows import FILES


@contextlib.contextmanager
def folder_source(folder: Path) -> Iterator[MoveEnd]:
    """Open a data directory for reading, and lock it if no server has locked it.

    Raises:
        CannotServeError: There is no relay in it.
    """
    with contextlib.ExitStack() as opened:
        rows = opened.enter_context(operator.opened(folder))
        try:
            opened.enter_context(lock(folder))
            is_serving = False
        except CannotServeError:
            is_serving = True
        rows.db.execute("BEGIN")
        yield MoveEnd(rows, is_serving, lambda: rows.db, BodyFiles(folder))


@contextlib.contextmanager
def folder_target(folder: Path) -> Iterator[MoveEnd]:
    """Open a new data directory for writing. It has another name until it is complete.

    Raises:
        CannotServeError: It exists, or another move writes it.
    """
    if folder.exists() and any(folder.iterdir()):
        ended = COMPLETE if (folder / "relay.db").exists() else ""
        raise CannotServeError(f"{folder} exists already", hint=f"{ended}name a folder that does not exist")
    folder, part = folder.resolve(), part_of(folder)
    operator.create(part)
    files = BodyFiles(part)
    files.prepare()
    with lock(part), operator.opened(part) as rows:
        files.sweep({name for (name,) in rows.all(FILES)})
        end = MoveEnd(rows, False, lambda: rows.db, files)
        yield end
    if end.is_complete:
        if folder.exists():
            folder.rmdir()
        part.rename(folder)
        sync_path(folder.parent)
