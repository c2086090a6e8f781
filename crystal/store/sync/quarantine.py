"""Refused blobs: the few that are kept, within a budget, and counts of all others.

Nothing here is acknowledged to the relay. A genuine blob that is not kept still waits there and on its device.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

from crystal.store.connection import Store

NOBODY = 0
"""The peer of streams that belong to no paired device."""
MAX_KEPT_PER_PLACE = 4
"""Maximum number of different blobs kept for one number of one stream."""
ROW_BYTES = 8192
"""Maximum overhead of a kept blob: its row, its index entries and the rest of its last page."""


class Amount(NamedTuple):
    """A number of blobs, and their size in bytes including the overhead of each row."""

    blobs: int = 0
    bytes: int = 0


class Budget(NamedTuple):
    """The most that is kept, in total and of one device."""

    total: Amount = Amount(1000, 64 << 20)
    device: Amount = Amount(250, 16 << 20)


DEFAULT_BUDGET = Budget()


class RefusedBlob(NamedTuple):
    """A blob that was fetched and refused.

    Attributes:
        peer: The row of who may write the stream.
        stream: The stream.
        seq: The number.
        data: The blob as it came.
        code: The code of the envelope's error.
        detail: The same in words.
        is_proved: Whether it was sealed with the peer's key.
    """

    peer: int
    stream: bytes
    seq: int
    data: bytes
    code: str
    detail: str
    is_proved: bool


class QuarantinedBlob(NamedTuple):
    """A refused blob that is kept, without its bytes."""

    peer: int
    stream: bytes
    seq: int
    code: str
    detail: str
    first_at: int
    last_at: int
    times: int
    size: int


class RefusalCount(NamedTuple):
    """What is not kept, for one reason; see the table ``refusals``."""

    peer: int
    code: str
    streams: int
    blobs: int
    first_at: int
    last_at: int


def quarantine(store: Store, refused: RefusedBlob, budget: Budget, now: int) -> bool:
    """Keep a refused blob if the budget allows it; else count it. A proved one displaces unproved ones.

    Returns:
        True if it is kept, now or since earlier.
    """
    sha = hashlib.sha256(refused.data).digest()
    place = (refused.stream, refused.seq)
    with store.transaction():
        store.execute(
            "UPDATE quarantine SET times = times + 1, last_at = ? WHERE stream = ? AND seq = ? AND sha256 = ?",
            (now, *place, sha),
        )
        if store.value("SELECT changes()"):
            return True
        kept = store.value("SELECT count(*) FROM quarantine WHERE stream = ? AND seq = ?", place)
        if int(kept) >= MAX_KEPT_PER_PLACE or not _make_room(store, refused, budget):
            count_refusal(store, refused.peer, "budget", now)
            return False
        store.execute(
            "INSERT INTO quarantine (peer, stream, seq, sha256, code, detail, proved, first_at, last_at, times, blob)"
            " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8, 1, ?9)",
            (refused.peer, *place, sha, refused.code, refused.detail, refused.is_proved, now, refused.data),
        )
    return True


def _make_room(store: Store, refused: RefusedBlob, budget: Budget) -> bool:
    """Return True if a blob fits; for a proved one, unproved ones are deleted first."""
    for peer, most in ((refused.peer, budget.device), (None, budget.total)):
        used = amount_kept(store, peer)
        blobs = used.blobs + 1 - most.blobs
        size = used.bytes + len(refused.data) + ROW_BYTES - most.bytes
        if blobs <= 0 and size <= 0:
            continue
        if not refused.is_proved or most.blobs < 1 or len(refused.data) + ROW_BYTES > most.bytes:
            return False
        if not _drop_unproved(store, peer, blobs, size):
            return False
    return True


def _drop_unproved(store: Store, peer: int | None, blobs: int, size: int) -> bool:
    """Delete the oldest unproved blobs, at least so many and so many bytes; False if there are too few."""
    chosen: list[int] = []
    for ident, length in store.rows(
        "SELECT id, length(blob) FROM quarantine WHERE NOT proved AND peer = coalesce(?, peer) ORDER BY id", (peer,)
    ):
        if len(chosen) >= blobs and size <= 0:
            break
        chosen.append(ident)
        size -= length + ROW_BYTES
    if len(chosen) < blobs or size > 0:
        return False
    store.execute_many("DELETE FROM quarantine WHERE id = ?", [(ident,) for ident in chosen])
    return True


def amount_kept(store: Store, peer: int | None = None) -> Amount:
    """Count what is kept, of one peer or of all."""
    row = store.row(
        "SELECT count(*), coalesce(sum(length(blob)), 0) FROM quarantine WHERE peer = coalesce(?, peer)", (peer,)
    )
    blobs, size = row or (0, 0)
    return Amount(blobs, size + ROW_BYTES * blobs)


def quarantined(store: Store) -> list[QuarantinedBlob]:
    """List what is kept, oldest first."""
    rows = store.rows(
        "SELECT peer, stream, seq, code, detail, first_at, last_at, times, length(blob) FROM quarantine ORDER BY id"
    )
    return [QuarantinedBlob(peer, bytes(stream), *rest) for peer, stream, *rest in rows]


def quarantined_at(store: Store, stream: bytes, seq: int) -> list[bytes]:
    """Read the kept blobs of one number of a stream."""
    rows = store.rows("SELECT blob FROM quarantine WHERE stream = ? AND seq = ? ORDER BY id", (stream, seq))
    return [bytes(blob) for (blob,) in rows]


def count_refusal(store: Store, peer: int, code: str, now: int) -> None:
    """Count a blob that was fetched, refused and not kept."""
    store.execute(
        "INSERT INTO refusals (peer, code, streams, blobs, first_at, last_at) VALUES (?1, ?2, 0, 1, ?3, ?3)"
        " ON CONFLICT DO UPDATE SET blobs = blobs + 1, last_at = ?3",
        (peer, code, now),
    )


def set_listed(store: Store, listed: Mapping[tuple[int, str], tuple[int, int]], now: int) -> None:
    """Note what the relay lists and nobody fetches: (streams, blobs) by peer and reason. Writes only what changed."""
    known = {(one.peer, one.code): one for one in refusals(store) if one.streams}
    with store.transaction():
        for peer, code in known.keys() - listed.keys():
            store.execute("DELETE FROM refusals WHERE peer = ? AND code = ?", (peer, code))
        for (peer, code), (streams, blobs) in listed.items():
            before = known.get((peer, code))
            if before is not None and (before.streams, before.blobs) == (streams, blobs):
                continue
            store.execute(
                "INSERT INTO refusals (peer, code, streams, blobs, first_at, last_at) VALUES (?1, ?2, ?3, ?4, ?5, ?5)"
                " ON CONFLICT DO UPDATE SET streams = ?3, blobs = ?4, last_at = ?5",
                (peer, code, streams, blobs, now),
            )


def refusals(store: Store) -> list[RefusalCount]:
    """List what is not kept, by reason."""
    rows = store.rows("SELECT peer, code, streams, blobs, first_at, last_at FROM refusals ORDER BY peer, code")
    return [RefusalCount(*row) for row in rows]


def purge(store: Store, peer: int | None = None) -> None:
    """Delete what is kept and counted, of one peer or of all, with the streams in which nothing ever opened.

    Inside a transaction. What the relay still lists is counted again by the next poll.
    """
    store.execute("DELETE FROM quarantine WHERE peer = coalesce(?, peer)", (peer,))
    store.execute("DELETE FROM refusals WHERE peer = coalesce(?, peer)", (peer,))
    store.execute(
        "DELETE FROM relay_in WHERE peer IS NULL AND channel = 0 AND last_seq = 0 AND state <> 'left' AND"
        " (?1 IS NULL OR substr(stream, 1, 8) = (SELECT up_prefix FROM relay_peers WHERE id = ?1))",
        (peer,),
    )
