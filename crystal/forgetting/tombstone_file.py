"""Copy of the tombstones in a file next to the archives, for a database that is lost or restored from a backup.

The file holds ids only, as tombstones do. A tombstone unknown to the store is added to it, and what came back is
forgotten again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from crystal.config.paths import make_private_dir, write_private
from crystal.store import Store
from crystal.store.forget.forgetting import (
    KINDS,
    NAMES_FILE,
    Tombstone,
    add_tombstones,
    names_agree,
    note_names,
    tombstones_after,
)

PAGE = 500


def reconcile_tombstones(store: Store, ldm_home: Path, now: int) -> int:
    """Make file and store have the same tombstones. Return how many were new to the store. Cheap if they are equal.

    Raises:
        Unavailable: The file cannot be written; the store has all tombstones of the file.
    """
    path = ldm_home / NAMES_FILE
    if names_agree(store, path):
        return 0
    told = {tombstone.uid: tombstone for tombstone in _read(path)}
    with store.transaction():
        new = add_tombstones(store, told.values(), now)
    known = dict(_known(store))
    if told.keys() != known.keys():
        make_private_dir(ldm_home)
        rows = [_as_json(tombstone) for tombstone in known.values()]
        write_private(path, json.dumps({"schema": 1, "tombstones": rows}, indent=0).encode() + b"\n")
    note_names(store, path)
    return new


def _known(store: Store) -> Iterator[tuple[str, Tombstone]]:
    at = 0
    while page := tombstones_after(store, at, PAGE):
        yield from ((tombstone.uid, tombstone) for _, tombstone in page)
        at = page[-1][0]


def _read(path: Path) -> Iterator[Tombstone]:
    """Return the tombstones of the file. Malformed ones are skipped, and written again."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return
    rows = content.get("tombstones") if isinstance(content, dict) else None
    for row in rows if isinstance(rows, list) else []:
        tombstone = _tombstone(row) if isinstance(row, dict) else None
        if tombstone is not None:
            yield tombstone


def _tombstone(row: Mapping[str, Any]) -> Tombstone | None:
    uid, value, until, made, device = (row.get(name) for name in ("uid", "value", "until_at", "made_at", "device"))
    kind = next((known for known in KINDS if known == row.get("kind")), None)
    if kind is None or not isinstance(uid, str) or not isinstance(value, dict) or not isinstance(device, str):
        return None
    if type(made) is not int or not (until is None or type(until) is int):
        return None
    return Tombstone(uid, kind, value, until, made, device)


def _as_json(tombstone: Tombstone) -> dict[str, Any]:
    return {
        "uid": tombstone.uid,
        "kind": tombstone.kind,
        "value": dict(tombstone.value),
        "until_at": tombstone.until_at,
        "made_at": tombstone.made_at,
        "device": tombstone.device,
    }
