"""What was left out on other machines stays out here too, as far as the mirror tells."""

from __future__ import annotations

from crystal.app.mirror import open_mirror
from crystal.config.paths import Places
from crystal.store import Store
from crystal.store.capture.privacy import add_private_lines
from crystal.store.sync.past import private_uuids

PRIVATE_AT_ONCE = 10_000


def take_private(store: Store, places: Places) -> None:
    """Learn from the mirror which lines were left out on other machines: their copies here stay out too."""
    with open_mirror(places) as mirrored:
        if mirrored is None or mirrored.store is None:
            return
        after = ""
        while uuids := private_uuids(mirrored.store, after, PRIVATE_AT_ONCE):
            with store.transaction():
                add_private_lines(store, uuids)
            after = uuids[-1]
