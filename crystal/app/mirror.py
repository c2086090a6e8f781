"""The mirror of home's memory beside this machine's own: opened when it is there, and made ready for a search.

A mirror that cannot be read costs a note, never an answer of the machine's own memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from crystal.config.paths import Places
from crystal.errors import CrystalError
from crystal.store import Store

if TYPE_CHECKING:
    from crystal.app.context import Machine
    from crystal.search.engine import Side

STALE_MS = 3 * 3_600_000
"""When a mirror is said to be old: home tells that it is alive every hour, also when nothing changes."""

PRIVATE_AT_ONCE = 10_000


class Mirrored(NamedTuple):
    """The mirror, open for reading. ``store`` is None when it cannot be read, and ``problem`` says why."""

    store: Store | None
    problem: str | None = None


@contextlib.contextmanager
def open_mirror(places: Places, role: str = "device") -> Iterator[Mirrored | None]:
    """Open the mirror if there is one; costs a look at the folder where there is none.

    A home machine has none: what is left from when it was a device is older than its own memory.
    """
    path = places.data_dir / "mirror.db"
    if role == "home" or not path.exists():
        yield None
        return
    try:
        store = Store.open_existing(path)
    except CrystalError as error:
        yield Mirrored(None, error.message)
        return
    with store:
        yield Mirrored(store)


def mirror_side(machine: Machine, mirrored: Mirrored | None) -> Side | None:
    """The mirror as a search takes it; None where there is none that can be read."""
    if mirrored is None or mirrored.store is None:
        return None
    from crystal.search.engine import Side
    from crystal.store.search.vectors import serving_generation

    embedder, why_not = None, "no embedding model is configured"
    try:
        embedder = machine.asking_embedder(mirrored.store)
    except CrystalError as error:
        why_not = error.message
    serving = serving_generation(mirrored.store)
    if embedder is not None and serving is not None:
        asked = (embedder.provider, embedder.model, embedder.dimension)
        if asked != (serving.provider, serving.model, serving.dimension):
            theirs = f"{serving.provider} {serving.model}"
            embedder, why_not = None, f"its vectors come from {theirs}, which this machine is not set up to ask"
    return Side(mirrored.store, "mirror", embedder, why_not, mirror_notes(mirrored, machine.now()))


def mirror_notes(mirrored: Mirrored | None, now: int) -> tuple[str, ...]:
    """What a reader should know of the mirror: that it cannot be read, or that it is old."""
    if mirrored is None:
        return ()
    if mirrored.store is None:
        return (f"the mirror of home's memory cannot be read: {mirrored.problem}",)
    from crystal.store.sync.mirror_apply import applied
    from crystal.timewords.parse import ago

    as_of = applied(mirrored.store).published_at
    if as_of is None or now - as_of <= STALE_MS:
        return ()
    return (f"mirror of home: as of {ago(as_of, now)}",)


def take_private(store: Store, places: Places) -> None:
    """Learn from the mirror which lines were left out on other machines: their copies here stay out too."""
    from crystal.store.capture.privacy import add_private_lines
    from crystal.store.sync.past import private_uuids

    with open_mirror(places) as mirrored:
        if mirrored is None or mirrored.store is None:
            return
        after = ""
        while uuids := private_uuids(mirrored.store, after, PRIVATE_AT_ONCE):
            with store.transaction():
                add_private_lines(store, uuids)
            after = uuids[-1]
