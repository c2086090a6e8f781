"""Check whether this machine's database is damaged, to explain another error."""

from __future__ import annotations

from crystal.app.context import default_paths
from crystal.errors import CrystalError, StoreDamagedError
from crystal.store.health.checks import damage


def damage_here() -> CrystalError | None:
    """Return what is wrong with this machine's database, None if nothing is. Called to explain another error."""
    places = default_paths()
    try:
        found = damage(places.db) if places.db.exists() else None
    except CrystalError as error:
        return error
    if found is None:
        return None
    return StoreDamagedError(f"{places.db} is damaged: {found}", hint="run: crystal verify --repair")
