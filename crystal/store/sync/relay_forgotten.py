"""Store the progress of exchanging tombstones: which are still to be sent, and which are confirmed.

Numbers are those of the table ``tombstones`` at home. A hash of all uids up to a number shows whether both ends mean
the same tombstones: a home restored from a backup assigns its numbers again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from crystal.store.connection import Store
from crystal.store.forget.forgetting import Tombstone, select_tombstones
from crystal.store.json_columns import read_fields
from crystal.store.notes import write_note

_PROGRESS = "forgotten_relay"

NO_MARK = ""
_COUNT = "count(DISTINCT made_at || ' ' || device)"
"""SQL that counts the parts of one deletion once."""


# ---------------------------------------------------------------------------------------------------------- at home


def mark_at(store: Store, number: int) -> str:
    """Return a hash of all tombstones up to a number: stores with equal hashes have the same ones in the same order."""
    if number <= 0:
        return NO_MARK
    found = hashlib.sha256()
    for (uid,) in store.rows("SELECT uid FROM tombstones WHERE id <= ? ORDER BY id", (number,)):
        found.update(uid.encode())
    return found.hexdigest()[:16]


def confirmed_by(store: Store, told: Mapping[str, Any]) -> int | None:
    """Return the number up to which a device confirms this home's tombstones; None if it confirms others.

    0 if its heartbeat contains no valid number.
    """
    match told.get("forgotten"):
        case [int(number), str(mark)] if type(number) is int and 0 <= number < 1 << 53:
            return number if mark == mark_at(store, number) else None
    return 0


def behind(store: Store, told: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return how many deletions a device has not confirmed, and the time of the oldest; None if it has all."""
    row = store.row(f"SELECT {_COUNT}, min(made_at) FROM tombstones WHERE id > ?", (confirmed_by(store, told) or 0,))
    return None if row is None or not row[0] else (int(row[0]), int(row[1]))


# ------------------------------------------------------------------------------------------------------ on a device


@dataclass(frozen=True, slots=True)
class TombstoneProgress:
    """Progress of a device and its home in exchanging tombstones.

    Attributes:
        home: The pairing.
        sealed: Its own tombstones up to this number are sealed for home, at ``sealed_at``.
        number, mark: The newest of home's tombstones that it has, and the hash up to it.
    """

    home: str
    sealed: int = 0
    sealed_at: int = 0
    number: int = 0
    mark: str = NO_MARK


def read_tombstone_progress(store: Store) -> TombstoneProgress | None:
    """Return this device's progress with its latest home; None before the first."""
    return read_fields(store, _PROGRESS, TombstoneProgress)


def confirmed_tombstones(store: Store) -> list[Any]:
    """Return the number and mark for the heartbeat; never empty, so that a restored device withdraws its last."""
    progress = read_tombstone_progress(store) or TombstoneProgress("")
    return [progress.number, progress.mark]


def progress_with(store: Store, home: str) -> TombstoneProgress:
    """Return the progress with a home; with a new home nothing is confirmed. Inside a transaction."""
    progress = read_tombstone_progress(store)
    if progress is not None and progress.home == home:
        return progress
    clear_confirmations(store)
    progress = TombstoneProgress(home)
    write_tombstone_progress(store, progress)
    return progress


def write_tombstone_progress(store: Store, progress: TombstoneProgress) -> None:
    """Store the progress. Inside the transaction of what it records."""
    write_note(store, _PROGRESS, json.dumps(asdict(progress)))


def clear_confirmations(store: Store) -> None:
    """Clear home's confirmations, because home is another one or was restored. Inside a transaction."""
    store.execute("UPDATE tombstones SET heard_at = NULL WHERE heard_at IS NOT NULL")


def send_all_again(store: Store) -> None:
    """Send all tombstones to home again, because it lost them. Inside a transaction."""
    progress = read_tombstone_progress(store)
    if progress is not None:
        clear_confirmations(store)
        write_tombstone_progress(store, replace(progress, sealed=0, sealed_at=0))


def unconfirmed_tombstones(store: Store, after: int, limit: int) -> list[tuple[int, Tombstone]]:
    """Return (number, tombstone) after a number that home has not confirmed, in order."""
    return select_tombstones(store, "id > ? AND heard_at IS NULL ORDER BY id LIMIT ?", after, limit)


def note_confirmed(store: Store, uids: Iterable[str], as_of: int) -> None:
    """Record that home has these tombstones, with the time of its clock. Inside a transaction."""
    store.execute_many(
        "UPDATE tombstones SET heard_at = ? WHERE uid = ? AND heard_at IS NULL", [(as_of, uid) for uid in uids]
    )


def not_published(store: Store, published_at: int) -> list[Tombstone]:
    """Return tombstones that home may not have had when it published its memory; times by home's clock."""
    return [one for _, one in select_tombstones(store, "heard_at IS NULL OR heard_at >= ?", published_at)]


def open_again(store: Store, after: int) -> None:
    """Open finished tombstones after a number again, because content arrived while they were processed."""
    store.execute("UPDATE tombstones SET done_at = NULL WHERE id > ? AND done_at IS NOT NULL", (after,))


def count_unconfirmed(store: Store) -> tuple[int, int | None]:
    """Return how many deletions home has not confirmed, and the time of the oldest."""
    [(count, since)] = store.rows(f"SELECT {_COUNT}, min(made_at) FROM tombstones WHERE heard_at IS NULL")
    return count, since
