"""Lookups of sessions, folders and rows in a mirror, before an object is applied."""

from __future__ import annotations

import json
from collections.abc import Collection

from crystal.store.connection import Row, Store
from crystal.store.sync.mirror_content import KINDS


def sessions(mirror: Store, ids: Collection[int]) -> dict[int, Row]:
    """Return sessions in their transfer form, by id."""
    columns = ", ".join(KINDS["session"].columns)
    rows = mirror.rows(
        f"SELECT {columns} FROM sessions WHERE id IN (SELECT value FROM json_each(?))", (json.dumps(sorted(ids)),)
    )
    return {int(row[0]): row for row in rows}


def folders(mirror: Store) -> dict[int, str]:
    """Return folders of projects, by id."""
    return {int(ident): str(cwd) for ident, cwd in mirror.rows("SELECT id, cwd FROM projects")}


def ids_there(mirror: Store, table: str, ids: Collection[int]) -> set[int]:
    """Return which of some rows a table has."""
    assert table in ("turns", "memories")
    rows = mirror.rows(
        f"SELECT id FROM {table} WHERE id IN (SELECT value FROM json_each(?))", (json.dumps(sorted(ids)),)
    )
    return {int(ident) for (ident,) in rows}
