"""Copy of the tombstones in a file next to the archives, for a database that is lost or restored from a backup.

The file holds ids only, as tombstones do. A tombstone unknown to the store is added to it, and what came back is
forgotten again.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from crystal.config.paths import make_private_dir, write_own
from crystal.store import Store
from crystal.store.forget.forgetting import (
    NAMES_FILE,
    Tombstone,
    add_tombstones,
    names_agree,
    note_names,
    tombstones_after,
)
from crystal.sync.tombstones import read_tombstones
from crystal.sync.wire import InvalidRecordError

ALL = -1
"""No limit."""


def reconcile_tombstones(store: Store, ldm_home: Path, now: int) -> None:
    """Make file and store have the same tombstones. Cheap if they are equal.

    Raises:
        UnavailableError: The file cannot be written; the store has all tombstones of the file.
    """
    path = ldm_home / NAMES_FILE
    if names_agree(store, path):
        return
    told = {tombstone.uid: tombstone for tombstone in _read(path)}
    with store.transaction():
        add_tombstones(store, told.values(), now)
    known = {tombstone.uid: tombstone for _, tombstone in tombstones_after(store, 0, ALL)}
    if told.keys() != known.keys():
        make_private_dir(ldm_home)
        rows = [tombstone._asdict() for tombstone in known.values()]
        write_own(path, json.dumps({"schema": 1, "tombstones": rows}, indent=0).encode() + b"\n")
    note_names(store, path)


def _read(path: Path) -> Iterator[Tombstone]:
    """Return the tombstones of the file. Malformed ones are skipped, and written again."""
    try:
        rows = list(json.loads(path.read_bytes())["tombstones"])
    except (OSError, ValueError, RecursionError, LookupError, TypeError):
        return
    for row in rows:
        with contextlib.suppress(InvalidRecordError):
            yield from read_tombstones([row], None)
