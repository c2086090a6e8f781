"""What the home machine has published: the list of objects, the keys they are sealed with, what is to be deleted.

Positions number the steps of what was published, without gaps. An object covers a range of them; the objects of the
list cover each position once. A row of the list without a hash is a step that was decided and not uploaded yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from crystal.store.connection import Store
from crystal.store.sync.mirror_content import VectorSpace

LOST, FORGOTTEN = 1, 2
"""Why an object is stale: the relay has lost it, or it holds content that was deleted since."""

MARK_BYTES = 8

Random = Callable[[int], bytes]


@dataclass(frozen=True, slots=True)
class Home:
    """The progress of publishing, see the table ``mirror_home``."""

    stream: bytes
    position: int
    number: int
    generation: int
    is_changed: int
    published_at: int


@dataclass(frozen=True, slots=True)
class Listed:
    """An object of the list: the positions ``first`` to ``last``, and its place at the relay."""

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


@dataclass(frozen=True, slots=True)
class Sealed:
    """A sealed object: its seq, its hash, its size, its size before sealing, and the key."""

    number: int
    sha256: bytes
    size: int
    raw: int
    sealed_by: int


_LISTED = (
    "SELECT last, first, marks, number, sha256, size, raw, level, sealed_by, made_at, stale FROM mirror_objects"
    " WHERE sha256 IS {} NULL ORDER BY last"
)

# ------------------------------------------------------------------------------------------------------------ home


def home(store: Store) -> Home | None:
    """Return the progress of publishing, or None if nothing was ever published."""
    row = store.row("SELECT stream, position, number, generation, is_changed, published_at FROM mirror_home")
    return None if row is None else Home(*row)


def begin(store: Store, random: Random, now: int) -> Home:
    """Begin to publish, if that was not done yet: from now on, changes are noted."""
    found = home(store)
    if found is not None:
        return found
    with store.transaction():
        if home(store) is None:
            store.execute("INSERT INTO mirror_home (id, stream) VALUES (1, ?)", (random(16),))
            store.execute("INSERT INTO mirror_keys (link, made_at) VALUES (?, ?)", (random(32), now))
            for sql in _EVERYTHING:
                store.execute(sql)
    begun = home(store)
    assert begun is not None
    return begun


_EVERYTHING = (
    "INSERT OR IGNORE INTO mirror_rows SELECT 'project', id, 0 FROM projects",
    "INSERT OR IGNORE INTO mirror_rows SELECT 'session', id, 0 FROM sessions",
    "INSERT OR IGNORE INTO mirror_rows SELECT 'memory', id, 0 FROM memories",
    "INSERT OR IGNORE INTO mirror_rows SELECT 'private', uuid, 0 FROM private_lines",
    "INSERT OR IGNORE INTO mirror_rows SELECT 'copy', session || ':' || turn, 0 FROM turn_copies",
    "INSERT OR IGNORE INTO mirror_rows SELECT 'turn', id, 0 FROM turns",
    "INSERT OR IGNORE INTO mirror_rows SELECT 'text', id, 0 FROM chunks",
)


def next_number(store: Store) -> int:
    """Return the number of the next sealed object; never used twice. Inside a transaction."""
    return int(store.value("UPDATE mirror_home SET number = number + 1 RETURNING number"))


def note_published(store: Store, now: int, refresh_ms: int) -> bool:
    """Note that nothing is left to publish. Return whether the list differs from that of the newest manifest.

    If it is the same, the time is renewed when it is older than ``refresh_ms``, so that manifests are few.
    """
    at = home(store)
    if at is None or (not at.is_changed and 0 <= now - at.published_at < refresh_ms):
        return False
    with store.transaction():
        store.execute("UPDATE mirror_home SET is_changed = 0, published_at = ?", (now,))
        return bool(at.is_changed)


def space_of(store: Store, generation: int) -> VectorSpace | None:
    """Return the model of an embedding generation, or None if it is gone."""
    row = store.row("SELECT id, provider, model, dimension FROM embedding_generations WHERE id = ?", (generation,))
    return None if row is None else VectorSpace(*row)


# ------------------------------------------------------------------------------------------------------------ keys


def newest_key(store: Store) -> tuple[int, bytes]:
    """Return the key that new objects are sealed with, with its number."""
    row = store.row("SELECT id, link FROM mirror_keys ORDER BY id DESC LIMIT 1")
    assert row is not None
    return int(row[0]), bytes(row[1])


def add_key(store: Store, link: bytes, now: int) -> None:
    """Add a key that seals all later objects."""
    with store.transaction():
        store.execute("INSERT INTO mirror_keys (link, made_at) VALUES (?, ?)", (link, now))
        store.execute("UPDATE mirror_home SET is_changed = 1")


def keys_in_use(store: Store) -> list[bytes]:
    """Return the keys that open the objects of the list, and the newest."""
    rows = store.rows(
        "SELECT link FROM mirror_keys WHERE id IN (SELECT sealed_by FROM mirror_objects WHERE sha256 IS NOT NULL)"
        " OR id = (SELECT max(id) FROM mirror_keys) ORDER BY id"
    )
    return [bytes(link) for (link,) in rows]


# ------------------------------------------------------------------------------------------------------------ list


def listed(store: Store) -> list[Listed]:
    """Return the objects that are at the relay, in order."""
    return [Listed(*row) for row in store.rows(_LISTED.format("NOT"))]


def decided(store: Store) -> list[Listed]:
    """Return steps that were decided and not uploaded yet, in order."""
    return [Listed(*row) for row in store.rows(_LISTED.format(""))]


def note_upload(store: Store, sha256: bytes, now: int) -> None:
    """Note that an object is about to be uploaded: if it never gets into the list, it is deleted later."""
    _trash(store, sha256, now)


def place(store: Store, step: Listed, sealed: Sealed, now: int) -> bool:
    """Put the uploaded object of a decided step into the list. False if it is there already."""
    with store.transaction():
        placed = store.value(
            "UPDATE mirror_objects SET number = ?, sha256 = ?, size = ?, raw = ?, sealed_by = ?, made_at = ?"
            " WHERE last = ? AND first = ? AND sha256 IS NULL RETURNING 1",
            (sealed.number, sealed.sha256, sealed.size, sealed.raw, sealed.sealed_by, now, step.last, step.first),
        )
        if placed:
            _untrash(store, sealed)
            store.execute("UPDATE mirror_home SET is_changed = 1")
        return bool(placed)


def replace(store: Store, old: Sequence[Listed], sealed: Sealed, level: int, now: int) -> bool:
    """Replace neighbours of the list by one object. False if the list has changed meanwhile: the new one is trash.

    An object that holds deleted content goes to the trash at once, others after the grace period.
    """
    bounds = (old[0].first, old[-1].last)
    with store.transaction():
        rows = store.rows("SELECT sha256, stale FROM mirror_objects WHERE last BETWEEN ? AND ? ORDER BY last", bounds)
        if [sha for sha, _ in rows] != [one.sha256 for one in old]:
            return False
        for sha, stale in rows:
            _trash(store, sha, 0 if stale == FORGOTTEN else now)
        store.execute("DELETE FROM mirror_objects WHERE last BETWEEN ? AND ?", bounds)
        store.execute(
            "INSERT INTO mirror_objects (last, first, marks, number, sha256, size, raw, level, sealed_by, made_at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                old[-1].last, old[0].first, b"".join(one.marks for one in old), sealed.number, sealed.sha256,
                sealed.size, sealed.raw, level, sealed.sealed_by, now,
            ),
        )  # fmt: skip
        store.execute(
            "DELETE FROM mirror_rows AS r WHERE position BETWEEN ? AND ? AND EXISTS (SELECT 1 FROM mirror_rows n"
            " WHERE n.kind = r.kind AND n.key = r.key AND n.position > r.position)",
            bounds,
        )
        _untrash(store, sealed)
        store.execute("UPDATE mirror_home SET is_changed = 1")
        return True


def _trash(store: Store, sha256: bytes, since: int) -> None:
    store.execute("INSERT OR REPLACE INTO mirror_trash (object, since) VALUES (?, ?)", (sha256[:16], since))


def _untrash(store: Store, sealed: Sealed) -> None:
    store.execute("DELETE FROM mirror_trash WHERE object = ?", (sealed.sha256[:16],))


def mark_lost(store: Store, objects: Iterable[bytes], made_before: int, now: int) -> int:
    """Note that the relay has lost objects, by id, or keeps damaged ones. Return how many of them are listed.

    What was made between ``made_before`` and ``now`` is left alone.
    """
    with store.transaction():
        lost = 0
        for ident in objects:
            lost += bool(
                store.value(
                    "UPDATE mirror_objects SET stale = max(stale, ?) WHERE substr(sha256, 1, 16) = ?"
                    " AND NOT made_at BETWEEN ? AND ? RETURNING 1",
                    (LOST, ident, made_before, now),
                )
            )
        return lost
