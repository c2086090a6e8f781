"""The mirror of home's memory beside this machine's own: opens it if there is one, and makes notes for its reader.

A mirror that cannot be read costs a note, never an answer of the machine's own memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from crystal.config.paths import Places
from crystal.errors import CrystalError
from crystal.model.named_tuple import NamedTuple
from crystal.store import Store

if TYPE_CHECKING:
    from crystal.sync.mirror.device import Mirror

STALE_MS = 3 * 3_600_000
"""Age at which a mirror counts as old: home reports every hour, also when nothing changes."""

MIRROR_FILE = "mirror.db"


class OpenMirror(NamedTuple):
    """The mirror, open for reading. ``store`` is None when it cannot be read, and ``problem`` says why."""

    store: Store | None
    problem: str | None = None


@contextlib.contextmanager
def open_mirror(places: Places, role: str = "device") -> Iterator[OpenMirror | None]:
    """Open the mirror if there is one; without one it costs one file system lookup.

    A home machine has none: what is left from when it was a device is older than its own memory.
    """
    path = places.data_dir / MIRROR_FILE
    if role == "home" or not path.exists():
        yield None
        return
    try:
        store = Store.open_existing(path)
    except CrystalError as error:
        yield OpenMirror(None, error.message)
        return
    with store:
        yield OpenMirror(store)


@contextlib.contextmanager
def mirror_to_change(places: Places) -> Iterator[Store | None]:
    """Open the mirror of home's memory for writing; yield None if this machine has no mirror."""
    from crystal.store.sync import mirror_apply  # noqa: PLC0415 - only where there is a mirror

    path = places.data_dir / MIRROR_FILE
    with mirror_apply.open_mirror(path) if path.exists() else contextlib.nullcontext() as store:
        yield store


def device_mirror(places: Places) -> Mirror:
    """Return this device's copy of home's memory, which is kept up to date from the relay."""
    from crystal.sync.mirror.device import Mirror  # noqa: PLC0415 - brings what unpacks and verifies a mirror: only devices need it

    return Mirror(places.data_dir / MIRROR_FILE)


def mirror_notes(mirrored: OpenMirror | None, now: int) -> tuple[str, ...]:
    """Return notes for the reader about the mirror: that it cannot be read, or that it is old."""
    if mirrored is None:
        return ()
    if mirrored.store is None:
        return (f"the mirror of home's memory cannot be read: {mirrored.problem}",)
    from crystal.store.sync.mirror_apply import applied  # noqa: PLC0415 - only where there is a mirror
    from crystal.timewords.parse import ago  # noqa: PLC0415 - the same

    as_of = applied(mirrored.store).published_at
    if as_of is None or now - as_of <= STALE_MS:
        return ()
    return (f"mirror of home: as of {ago(as_of, now)}",)
