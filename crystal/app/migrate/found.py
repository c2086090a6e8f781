"""The stores of other memory programs on this machine."""

from __future__ import annotations

import contextlib
import os
import shlex
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from crystal.app.context import Machine, default_paths, open_reader, this_config, this_home
from crystal.app.migrate.lance import copied_tables
from crystal.app.open_store import refuse_lost
from crystal.capture import finder
from crystal.capture.safe_open import ANYWHERE
from crystal.capture.snapshots import Container
from crystal.config.harness import Place
from crystal.config.harnesses import HARNESSES, Root
from crystal.config.paths import home_of
from crystal.config.stores import LANCEDB, MEMORY_CRYSTAL, MEMORY_STORES, MOVED
from crystal.config.table import Config
from crystal.errors import ForeignStoreError, NotFoundError, UsageError
from crystal.store import Store
from crystal.store.upgrade import refuse_foreign
from crystal.transcript.reader import reader_of
from crystal.transcript.stores import StoreReader

LEGACY = "legacy"
"""Names memory-crystal's database in the legacy folder: it is taken over, and moved."""
LEGACY_NUMBER = 1
SIDES = ("-shm", "-wal", "")
"""The files of a database, in the order in which they are moved: without its log it is not the newest state."""


@dataclass(frozen=True, slots=True)
class FoundStore:
    """A store: the program that wrote it, and where it is; ``is_named``: a person said where."""

    name: str
    path: Path
    number: int = 0
    is_named: bool = False

    @property
    def command(self) -> str:
        """Return the command that takes it over."""
        return f"crystal migrate {self.name}" + (f" --from {shlex.quote(str(self.path))}" if self.is_named else "")

    @property
    def title(self) -> str:
        """Return the program's name for people."""
        return HARNESSES[self.name].title

    @property
    def reader(self) -> StoreReader:
        """Return who reads it."""
        reader = reader_of(self.name)
        assert isinstance(reader, StoreReader)
        return reader

    @contextlib.contextmanager
    def opened(self, machine: Machine) -> Iterator[Container]:
        """Yield the file to read: of LanceDB tables a copy in one database, until the end of the block.

        Raises:
            UsageError: The store does not exist.
        """
        with contextlib.ExitStack() as stack:
            path = stack.enter_context(copied_tables(machine, self.path)) if self.name == LANCEDB else self.path
            found = finder.examine(path, ANYWHERE)
            if found is None:
                raise UsageError(f"{path} does not exist", hint="see which stores are here: crystal migrate")
            yield Container(found, Root(path.parent, self.name, self.number))


def _usual(place: Place) -> Path:
    return home_of(place, os.environ, this_home()) / place.folder / place.files[0]


def find_stores() -> list[FoundStore]:
    """Return the stores on this machine. A database of crystal's own does not count."""
    found: dict[Path, FoundStore] = {}
    for name, harness in MEMORY_STORES.items():
        for number, path in enumerate(map(_usual, harness.places)):
            if path.exists() and not path.is_symlink() and not (path.is_file() and is_own(path)):
                found.setdefault(path, FoundStore(name, path, number))
    return list(found.values())


def named_store(name: str, path: Path | None) -> FoundStore:
    """Return the store of a program: the one at a path, else the first that is found.

    Raises:
        UsageError: No program is called so.
        NotFoundError: It has no store here.
    """
    if name not in (*MEMORY_STORES, LEGACY):
        known = ", ".join((*MEMORY_STORES, LEGACY))
        raise UsageError(f"crystal does not know the memory program {name!r}", hint=f"known: {known}")
    if path is not None:
        if not path.exists():
            raise NotFoundError(f"{path} does not exist", hint="name the file of the store")
        if name != LANCEDB and not path.is_file():
            raise UsageError(f"{path} is no file", hint="name the file of the store")
        return FoundStore(name, path, is_named=True)
    for one in find_stores():
        if one.name == name or (name == LEGACY and (one.name, one.number) == (MEMORY_CRYSTAL, LEGACY_NUMBER)):
            return one
    link = _usual(MEMORY_STORES[MEMORY_CRYSTAL].places[LEGACY_NUMBER])
    if name == LEGACY and link.is_symlink() and link.is_file() and not is_own(link):  # it was moved by an earlier run
        return FoundStore(MEMORY_CRYSTAL, link.resolve(), LEGACY_NUMBER)
    program = "memory-crystal in its old folder" if name == LEGACY else name
    raise NotFoundError(
        f"nothing of {program} was found", hint=f"if it is elsewhere: crystal migrate {name} --from FILE"
    )


def legacy_is_own() -> bool:
    """Return whether crystal's own memory is in the legacy folder."""
    places = default_paths()
    return places.data_dir_source.startswith("legacy") and places.db.exists() and is_own(places.db)


def is_own(path: Path) -> bool:
    """Return whether a file is a database of crystal's."""
    try:
        refuse_foreign(path)
    except ForeignStoreError:
        return False
    return True


def move_aside(config: Config, store: FoundStore) -> FoundStore:
    """Move memory-crystal's database away from the place of crystal's own. Its files stay as they are.

    Raises:
        UsageError: Another one was moved there before.
    """
    if store.name != MEMORY_CRYSTAL or store.path != config.places.db:
        return store
    new = store.path.with_name(MOVED)
    if new.exists():  # the database itself is moved last
        raise UsageError(f"{new} exists already", hint="move it elsewhere, then try again")
    for side in SIDES:
        old = store.path.with_name(store.path.name + side)
        if old.exists():
            old.rename(old.with_name(MOVED + side))
    return FoundStore(store.name, new, store.number, store.is_named)


@contextlib.contextmanager
def open_or_empty() -> Iterator[Machine]:
    """Open this machine's memory for reading, or an empty temporary one if there is no memory yet.

    Raises:
        StoreLostError: It is gone, and can be made again.
    """
    config = this_config()
    refuse_lost(config.places)
    with contextlib.ExitStack() as stack:
        if config.places.db.exists() and is_own(config.places.db):
            yield stack.enter_context(open_reader())
        else:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="crystal-"))
            yield Machine(config, stack.enter_context(Store.open(Path(folder) / "crystal.db")))
