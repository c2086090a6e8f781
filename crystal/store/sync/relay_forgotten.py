"""How far the other machines have heard of what was forgotten: what is still to be told, and who has confirmed what.

Numbers are those of the table ``tombstones`` at home. They mean nothing without home's series, and a mark of all the
uids up to a number tells whether the two ends mean the same ones.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from crystal.store.connection import Store
from crystal.store.forget.forgetting import Tombstone
from crystal.store.notes import read_note, write_note

_SERIES = "forgotten_series"
_STAND = "forgotten_relay"

NO_MARK = ""
_COUNT = "count(DISTINCT made_at || ' ' || device)"
"""What was forgotten at once counts once, in however many parts."""


# ---------------------------------------------------------------------------------------------------------- at home


@dataclass(frozen=True, slots=True)
class Confirmed:
    """How far a device has home's tombstones: the number and its mark, in a series of numbers."""

    series: str
    number: int
    mark: str


def series(store: Store, device_id: bytes, random: Callable[[int], bytes]) -> str:
    """The series of numbers that a device is told in; begun at the first call."""
    found = read_note(store, f"{_SERIES} {device_id.hex()}")
    return found if found is not None else begin_series(store, device_id, random)


def begin_series(store: Store, device_id: bytes, random: Callable[[int], bytes]) -> str:
    """Begin another series: the device is told everything from the start, and tells everything that it has."""
    made = random(16).hex()
    write_note(store, f"{_SERIES} {device_id.hex()}", made)
    return made


def mark_at(store: Store, number: int) -> str:
    """What all tombstones up to a number come to: two stores with the same mark have the same ones, in that order."""
    if number <= 0:
        return NO_MARK
    found = hashlib.sha256()
    for (uid,) in store.rows("SELECT uid FROM tombstones WHERE id <= ? ORDER BY id", (number,)):
        found.update(uid.encode())
    return found.hexdigest()[:16]


def confirmed_by(told: Mapping[str, Any]) -> Confirmed | None:
    """What a device says in its heartbeat that it has; None where it says nothing that can be understood."""
    match told.get("forgotten"):
        case [str(name), int(number), str(mark)] if type(number) is int and 0 <= number < 1 << 53:
            return Confirmed(name, number, mark) if max(len(name), len(mark)) <= 64 else None
    return None


def is_of_this_history(store: Store, own_series: str, said: Confirmed) -> bool:
    """Whether a device of this series has what this home has up to the number that it names.

    If not, this home was put back from a backup: it has given out numbers that it does not know any more.
    """
    if said.series != own_series:
        return True  # of another home, or of this one before: it is told everything
    newest = int(store.value("SELECT max(id) FROM tombstones") or 0)
    return said.number <= newest and said.mark == mark_at(store, said.number)


def number_of(said: Confirmed | None, own_series: str) -> int:
    """How far a device is in a series; 0 where it has said nothing of it."""
    return said.number if said is not None and said.series == own_series else 0


def behind(store: Store, device_id: bytes, told: Mapping[str, Any]) -> tuple[int, int] | None:
    """How many forgettings a device has not confirmed, and when the oldest of them was; None when it has all."""
    own = read_note(store, f"{_SERIES} {device_id.hex()}")
    number = 0 if own is None else number_of(confirmed_by(told), own)
    row = store.row(f"SELECT {_COUNT}, min(made_at) FROM tombstones WHERE id > ?", (number,))
    return None if row is None or not row[0] else (int(row[0]), int(row[1]))


# ------------------------------------------------------------------------------------------------------ on a device


@dataclass(frozen=True, slots=True)
class Stand:
    """How a device stands with its home.

    Attributes:
        home: Which pairing this is about.
        sealed: Its own tombstones up to this number are sealed for home, at ``sealed_at``.
        series, number, mark: How far it has home's.
    """

    home: str
    sealed: int = 0
    sealed_at: int = 0
    series: str = ""
    number: int = 0
    mark: str = NO_MARK

    @property
    def confirms(self) -> list[Any]:
        """What the heartbeat says: always something, so that a device that was put back takes back what it said."""
        return [self.series, self.number, self.mark]


def read_stand(store: Store) -> Stand | None:
    """How this device stands with the home that it was told of last; None before the first."""
    text = read_note(store, _STAND)
    return None if text is None else Stand(**json.loads(text))


def begin_stand(store: Store, home: str) -> Stand:
    """How this device stands with a home; with another one than before nothing is confirmed. Inside a transaction."""
    stand = read_stand(store)
    if stand is not None and stand.home == home:
        return stand
    forget_heard(store)
    stand = Stand(home)
    write_stand(store, stand)
    return stand


def write_stand(store: Store, stand: Stand) -> None:
    """Note it. Inside the transaction of what it tells."""
    write_note(store, _STAND, json.dumps(asdict(stand)))


def forget_heard(store: Store) -> None:
    """Home may have nothing of what it confirmed: it was put back, or is another one. Inside a transaction."""
    store.execute("UPDATE tombstones SET heard_at = NULL WHERE heard_at IS NOT NULL")


def tell_all_again(store: Store) -> None:
    """Let home be told of everything that is forgotten here once more: it has lost what it had. In a transaction."""
    stand = read_stand(store)
    if stand is not None:
        forget_heard(store)
        write_stand(store, replace(stand, sealed=0, sealed_at=0))


def untold(store: Store, after: int, limit: int) -> list[tuple[int, Tombstone]]:
    """Tombstones after a number that home is not known to have, in order, with their numbers."""
    rows = store.rows(
        "SELECT id, uid, kind, value, until_at, made_at, device FROM tombstones WHERE id > ? AND heard_at IS NULL"
        " ORDER BY id LIMIT ?",
        (after, limit),
    )
    return [
        (int(number), Tombstone(uid, kind, json.loads(value), until_at, made_at, device))
        for number, uid, kind, value, until_at, made_at, device in rows
    ]


def note_heard(store: Store, uids: Iterable[str], as_of: int) -> None:
    """Note that home has these, and when it said so, by its clock. Inside a transaction."""
    store.execute_many(
        "UPDATE tombstones SET heard_at = ? WHERE uid = ? AND heard_at IS NULL", [(as_of, uid) for uid in uids]
    )


def not_published(store: Store, published_at: int) -> list[Tombstone]:
    """Tombstones that home did not know, or may not have known, when it published its memory; times by its clock."""
    rows = store.rows(
        "SELECT uid, kind, value, until_at, made_at, device FROM tombstones WHERE heard_at IS NULL OR heard_at >= ?",
        (published_at,),
    )
    return [
        Tombstone(uid, kind, json.loads(value), until_at, made_at, device)
        for uid, kind, value, until_at, made_at, device in rows
    ]


def open_again(store: Store, after: int) -> None:
    """Let tombstones after a number be worked at again: something came in while they were."""
    store.execute("UPDATE tombstones SET done_at = NULL WHERE id > ? AND done_at IS NOT NULL", (after,))


def unheard(store: Store) -> tuple[int, int | None]:
    """How many forgettings home has not confirmed, and when the oldest of them was."""
    row = store.row(f"SELECT {_COUNT}, min(made_at) FROM tombstones WHERE heard_at IS NULL")
    return (0, None) if row is None else (int(row[0]), row[1])
