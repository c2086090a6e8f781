"""A relay with SQLite as the source or the target of a move."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from relay_worker.errors import CannotServeError
from relay_worker.store import operator
from relay_worker.store.database import SqliteRows, lock
from relay_worker.store.files import INLINE_BYTES, BodyFiles, sync_path
from relay_worker.store.rows import Rows


class FolderEnd:
    """Data directory; see ``relay_worker.store.moving``."""

    def __init__(self, folder: Path, rows: SqliteRows, *, is_serving: bool) -> None:
        self.rows: Rows = rows
        self.is_serving, self.is_complete = is_serving, False
        self._db = rows.db
        self._files = BodyFiles(folder)

    def body(self, file: str | None, body: bytes | None) -> bytes | None:
        """Return the bytes of a row, None if they are lost."""
        with contextlib.suppress(OSError):
            return body if file is None else self._files.path(file).read_bytes()
        return None

    def keep(self, body: bytes) -> tuple[str | None, bytes | None]:
        """Return the two columns for a body; a large one is on the disk then."""
        return (self._files.save(body), None) if len(body) > INLINE_BYTES else (None, body)

    def transaction(self) -> AbstractContextManager[Any]:
        """Return a transaction for some rows."""
        return self._db


@contextlib.contextmanager
def folder_source(folder: Path) -> Iterator[FolderEnd]:
    """Open a data directory for reading. It is locked if no server has it.

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
        yield FolderEnd(folder, rows, is_serving=is_serving)


@contextlib.contextmanager
def folder_target(folder: Path) -> Iterator[FolderEnd]:
    """Open a new data directory for writing. It has another name until it is complete.

    Raises:
        CannotServeError: It exists, or another move writes it.
    """
    if folder.exists() and any(folder.iterdir()):
        raise CannotServeError(f"{folder} exists already", hint="name a folder that does not exist")
    folder = folder.resolve()  # "." has no name
    part = folder.with_name(f".{folder.name}.part")
    operator.create(part)
    files = BodyFiles(part)
    files.prepare()
    with lock(part), operator.opened(part) as rows:
        files.sweep({name for (name,) in rows.all(operator.FILES)})
        end = FolderEnd(part, rows, is_serving=False)
        yield end
    if end.is_complete:
        if folder.exists():
            folder.rmdir()
        part.rename(folder)
        sync_path(folder.parent)
