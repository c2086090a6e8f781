"""Store home's list of published mirror objects, their keys, and the objects to delete.

Positions number the steps of publishing, without gaps. An object covers a range of positions; the objects of the
list cover each position once. A row of the list without a hash is a step that was decided and not uploaded yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass

from crystal.store.connection import Store, columns_of
from crystal.store.sync.mirror_content import KINDS, VectorSpace

LOST, FORGOTTEN = 1, 2
"""Reasons why an object is stale: the relay has lost it, or it holds content that was deleted since."""

MARK_BYTES = 8
MAX_STRAY = 1000
"""Maximum number of unknown objects queued for deletion: a relay may list anything."""

Random = Callable[[int], bytes]


@dataclass(frozen=True, slots=True)
class Published:
    """The progress of publishing, see the table ``mirror_home``."""

    stream: bytes
    position: int
    number: int
    generation: int
    is_changed: int
    published_at: int


@dataclass(frozen=True, slots=True)
class Listed:
    """An object of the list: the positions ``first`` to ``last``, and its data at the relay."""

    last: int
    first: int
    marks: bytes
    number: int
    sha256: bytes | None
    size: int
    raw: int
    level: int
    sealed_by: int
    made_at: int
    stale: int


# ------------------------------------------------------------------------------------------------------------ home


def home(store: Store) -> Published | None:
    """Return the progress of publishing, or None if nothing was ever published."""
    return next(iter(store.select(Published, "mirror_home")), None)


def begin(store: Store, random: Random, now: int) -> Published:
    """Begin publishing, if it has not begun: changes are recorded from now on."""
    found = home(store)
    if found is not None:
        return found
    with store.transaction():
        if home(store) is None:
            store.insert("mirror_home", "id, stream", 1, random(16))
            store.insert("mirror_keys", "link, made_at", random(32), now)
            for name, kind in KINDS.items():
                if kind.first is not None:
                    rows = f"SELECT ?, {kind.key}, 0 FROM {kind.table} t WHERE {kind.first}"
                    store.execute(f"INSERT OR IGNORE INTO mirror_rows {rows}", (name,))
    begun = home(store)
    assert begun is not None
    return begun


def next_number(store: Store) -> int:
    """Return the number of the next sealed object; no number is returned twice."""
    with store.transaction():
        return int(store.value("UPDATE mirror_home SET number = number + 1 RETURNING number"))


def note_published(store: Store, now: int, refresh_ms: int) -> bool:
    """Record that nothing is left to publish. Return whether the list differs from that of the newest manifest.

    If it is the same, the time is renewed only when it is older than ``refresh_ms``, so that manifests are few.
    """
    at = home(store)
    if at is None or (not at.is_changed and 0 <= now - at.published_at < refresh_ms):
        return False
    with store.transaction():
        store.execute("UPDATE mirror_home SET is_changed = 0, published_at = ?", (now,))
        return bool(at.is_changed)


def space_of(store: Store, generation: int) -> VectorSpace | None:
    """Return the model of an embedding generation, or None if it is gone."""
    return next(iter(store.select(VectorSpace, "embedding_generations WHERE id = ?", (generation,))), None)


# ------------------------------------------------------------------------------------------------------------ keys


def newest_key(store: Store) -> tuple[int, bytes]:
    """Return (number, key) of the key for new objects."""
    row = store.row("SELECT id, link FROM mirror_keys ORDER BY id DESC LIMIT 1")
    assert row is not None
    return int(row[0]), bytes(row[1])


def add_key(store: Store, link: bytes, now: int) -> None:
    """Add a key for all later objects."""
    with store.transaction():
        store.insert("mirror_keys", "link, made_at", link, now)
        store.execute("UPDATE mirror_home SET is_changed = 1")


def keys_in_use(store: Store) -> list[bytes]:
    """Return the keys of the objects of the list, and the newest key."""
    return store.all(
        bytes,
        "SELECT link FROM mirror_keys WHERE id IN (SELECT sealed_by FROM mirror_objects WHERE sha256 IS NOT NULL)"
        " OR id = (SELECT max(id) FROM mirror_keys) ORDER BY id",
    )


# ------------------------------------------------------------------------------------------------------------ list


def listed(store: Store) -> list[Listed]:
    """Return the objects that are at the relay, in order."""
    return store.select(Listed, "mirror_objects WHERE sha256 IS NOT NULL ORDER BY last")


def decided(store: Store) -> list[Listed]:
    """Return steps that were decided and not uploaded yet, in order."""
    return store.select(Listed, "mirror_objects WHERE sha256 IS NULL ORDER BY last")


def replace(store: Store, old: Sequence[Listed], new: Listed) -> None:
    """Replace neighbours of the list, or a decided step, by one object; do nothing if the list has changed meanwhile.

    An object with deleted content goes to the trash immediately, others after the grace period.
    """
    bounds = (old[0].first, old[-1].last)
    with store.transaction():
        rows = store.rows("SELECT sha256, stale FROM mirror_objects WHERE last BETWEEN ? AND ? ORDER BY last", bounds)
        if [sha for sha, _ in rows] != [one.sha256 for one in old]:
            return
        for sha, stale in rows:
            if sha is not None:
                put_in_trash(store, sha, 0 if stale == FORGOTTEN else new.made_at)
        store.execute("DELETE FROM mirror_objects WHERE last BETWEEN ? AND ?", bounds)
        store.insert("mirror_objects", columns_of(Listed), *astuple(new))
        store.execute(
            "DELETE FROM mirror_rows AS r WHERE position BETWEEN ? AND ? AND EXISTS (SELECT 1 FROM mirror_rows n"
            " WHERE n.kind = r.kind AND n.key = r.key AND n.position > r.position)",
            bounds,
        )
        store.execute("DELETE FROM mirror_trash WHERE object = substr(?, 1, 16)", (new.sha256,))
        store.execute("UPDATE mirror_home SET is_changed = 1")


def put_in_trash(store: Store, sha256: bytes, since: int) -> None:
    """Queue an object for deletion at the relay some time after ``since``, unless the list contains it by then."""
    store.execute("INSERT OR REPLACE INTO mirror_trash (object, since) VALUES (?, ?)", (sha256[:16], since))


def mark_lost(store: Store, objects: Iterable[bytes], made_before: int, now: int) -> None:
    """Mark objects, by id, that the relay has lost or keeps damaged.

    Objects made between ``made_before`` and ``now`` are not marked.
    """
    with store.transaction():
        store.execute_many(
            "UPDATE mirror_objects SET stale = max(stale, ?) WHERE substr(sha256, 1, 16) = ?"
            " AND NOT made_at BETWEEN ? AND ?",
            [(LOST, ident, made_before, now) for ident in objects],
        )


# ------------------------------------------------------------------------------------------ comparison with the relay


def is_due(store: Store, every_ms: int, now: int) -> bool:
    """Return True if it is time to check which objects the relay has."""
    looked_at = int(store.value("SELECT looked_at FROM mirror_home") or 0)
    return not 0 <= now - looked_at < every_ms


def look_soon(store: Store) -> None:
    """Make the check of the relay's objects due now."""
    store.execute("UPDATE mirror_home SET looked_at = 0")


def note_look(store: Store, there: set[bytes], now: int) -> int:
    """Compare the relay's objects with the list: mark missing ones as lost, queue unknown ones for deletion.

    Rows of ``learned_from`` that were never published are queued too: publishing that began before 28 November 2026
    left out those that existed then.

    Returns:
        The number of missing objects.
    """
    listed_ids = {one.sha256[:16] for one in listed(store) if one.sha256}
    mark_lost(store, listed_ids - there, now + 1, now)  # regardless of their age
    with store.transaction():
        trashed = set(store.all(bytes, "SELECT object FROM mirror_trash"))
        for ident in sorted(there - listed_ids - trashed)[: max(0, MAX_STRAY - len(trashed))]:
            put_in_trash(store, ident, now)
        store.execute(
            "INSERT INTO mirror_rows SELECT 'learned', id, 0 FROM learned_from"
            " WHERE id NOT IN (SELECT key FROM mirror_rows WHERE kind = 'learned')"
        )
        store.execute("UPDATE mirror_home SET looked_at = ?", (now,))
    return len(listed_ids - there)


def trash(store: Store, grace_ms: int, now: int) -> list[bytes]:
    """Return objects due for deletion; a time in the future comes from a wrong clock and counts as due."""
    sql = "SELECT object FROM mirror_trash WHERE NOT since BETWEEN ? AND ?"
    return store.all(bytes, sql, (now - grace_ms, now))


def forget_trash(store: Store, ident: bytes) -> None:
    """Record that an object was deleted."""
    store.execute("DELETE FROM mirror_trash WHERE object = ?", (ident,))
