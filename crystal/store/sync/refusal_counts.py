"""Count refused blobs by device and reason; the blobs are not stored.

Nothing here is acknowledged to the relay: a genuine blob still waits there and on its device. The row of the stream
has the number at which it stopped, and why.
"""

from __future__ import annotations

from collections.abc import Mapping

from crystal.model.named_tuple import NamedTuple
from crystal.store.connection import Store

NOBODY = 0
"""The peer of streams that belong to no paired device."""


class RefusalCount(NamedTuple):
    """Blobs that were refused for one reason; see the table ``refusals``."""

    peer: int
    code: str
    streams: int
    blobs: int
    first_at: int
    last_at: int


def count_refusal(store: Store, peer: int, code: str, now: int) -> None:
    """Count a blob that was fetched and refused."""
    store.execute(
        "INSERT INTO refusals (peer, code, streams, blobs, first_at, last_at) VALUES (?1, ?2, 0, 1, ?3, ?3)"
        " ON CONFLICT DO UPDATE SET blobs = blobs + 1, last_at = ?3",
        (peer, code, now),
    )


def set_listed(store: Store, listed: Mapping[tuple[int, str], tuple[int, int]], now: int) -> None:
    """Store what the relay lists and is never fetched: (streams, blobs) by peer and reason. Writes only changes."""
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
    """Return the counts of refused blobs, by peer and reason."""
    return store.select(RefusalCount, "refusals ORDER BY peer, code")


def purge(store: Store, peer: int | None = None) -> None:
    """Delete the counts of one peer or of all, with the streams of which no blob was ever opened.

    Inside a transaction. The next poll counts again what the relay still lists.
    """
    store.execute("DELETE FROM refusals WHERE peer = coalesce(?, peer)", (peer,))
    store.execute(
        "DELETE FROM relay_in WHERE peer IS NULL AND channel = 0 AND last_seq = 0 AND state <> 'left' AND"
        " (?1 IS NULL OR substr(stream, 1, 8) = (SELECT up_prefix FROM relay_peers WHERE id = ?1))",
        (peer,),
    )
