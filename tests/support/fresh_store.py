"""Fresh stores, as tests want them by the thousand: the first is made by all migrations, the others copy it."""

from __future__ import annotations

import functools
from pathlib import Path

import apsw

from crystal.store import upgrade
from crystal.store.driver import connect

apply_each = upgrade._apply


def copy_schema(db: apsw.Connection, until: int) -> None:
    """Do what ``migrate._apply`` does; an empty database becomes a copy of one that has all migrations."""
    if until < upgrade.newest() or upgrade.version_of(db) > 0:
        apply_each(db, until)
        return
    with db.backup("main", _empty(), "main") as backup:
        backup.step()


@functools.cache
def _empty() -> apsw.Connection:
    db = connect(Path(":memory:"))
    db.execute(f"PRAGMA page_size = {upgrade.PAGE_SIZE}")
    db.execute("PRAGMA auto_vacuum = INCREMENTAL")
    apply_each(db, upgrade.newest())
    return db
