"""Whether this machine's database is damaged: asked where an error's cause is sought."""

from __future__ import annotations

from crystal.app.context import default_paths
from crystal.errors import CrystalError, StoreDamaged
from crystal.store.health.checks import damage


def damage_here() -> CrystalError | None:
    """What is wrong with this machine's database, None when nothing is; for an error of which the cause is sought."""
    places = default_paths()
    try:
        found = damage(places.db) if places.db.exists() else None
    except CrystalError as error:
        return error
    if found is None:
        return None
    return StoreDamaged(f"{places.db} is damaged: {found}", hint="run: crystal verify --repair")
