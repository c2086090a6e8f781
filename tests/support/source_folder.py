"""A folder of files that changes, the store that follows it, and what a fresh store would hold."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from crystal.sources.sync import SourceReader, SourceSync, SyncReport
from crystal.store import Store
from crystal.store.sources import source_files
from crystal.store.sources.source_files import Maker

DAY_NS = 86_400_000_000_000


def reader(
    *, clean: Callable[[str], Any] = lambda text: (text, {}), later_ns: int = 0, is_vault: bool = False
) -> SourceReader:
    """Read files as they are; ``later_ns``: as if that much later, so that a new file counts as settled."""
    return SourceReader(clean, b"k" * 32, Maker("agent", "box"), (), "1", lambda: time.time_ns() + later_ns, is_vault)


@contextlib.contextmanager
def quick_store(path: Path) -> Iterator[Store]:
    """A store that does not wait for the disk: a process is killed here, never a machine."""
    with Store.open(path) as store:
        store.execute("PRAGMA synchronous = OFF")
        yield store


def source_in(store: Store, root: Path, name: str = "notes") -> source_files.FileSource:
    """The row of a source; it is made where it is missing."""
    with store.transaction():
        source_files.put_source(store, name, str(root), 1)
    return next(one for one in source_files.all_sources(store) if one.name == name)


def sync(store: Store, root: Path, *, name: str = "notes", **read: Any) -> SyncReport:
    """Sync a folder with the store."""
    return SourceSync(store, source_in(store, root, name), reader(**read)).run()


def held(store: Store) -> list[tuple[Any, ...]]:
    """Everything that a store holds of files, but for its numbers and times."""
    return sorted(
        store.rows(
            "SELECT y.name, f.path, f.sha256, f.chunks, f.why, x.title, x.first_line, x.last_line, c.text,"
            " c.text_sha256, c.source, c.role, c.project, c.agent, c.device FROM source_files f"
            " JOIN source_collections y ON y.id = f.collection LEFT JOIN sources x ON x.file = f.id"
            " LEFT JOIN chunks c ON c.id = x.chunk"
        ),
        key=repr,
    )


class Folder:
    """A folder whose files have times that rise with every change, as on a disk with a fine clock."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._moments = itertools.count(1_600_000_000_000_000_000, 1_000_000)
        root.mkdir(parents=True, exist_ok=True)

    def write(self, path: str, content: bytes) -> None:
        """Write a file; a folder or file that is in its way goes."""
        whole = self.root / path
        for above in [*whole.relative_to(self.root).parents][-2::-1]:
            if (self.root / above).is_file():
                (self.root / above).unlink()
        if whole.is_dir():
            shutil.rmtree(whole)
        whole.parent.mkdir(parents=True, exist_ok=True)
        whole.write_bytes(content)
        moment = next(self._moments)
        os.utime(whole, ns=(moment, moment))

    def rename(self, old: str, new: str) -> None:
        """Move a file, as ``mv`` does; its times stay."""
        content, status = (self.root / old).read_bytes(), (self.root / old).stat()
        (self.root / old).unlink()
        self.write(new, content)
        os.utime(self.root / new, ns=(status.st_atime_ns, status.st_mtime_ns))

    def delete(self, path: str) -> None:
        """Delete a file."""
        (self.root / path).unlink()

    def files(self) -> list[str]:
        """The files that are there."""
        return sorted(path.relative_to(self.root).as_posix() for path in self.root.rglob("*") if path.is_file())
