"""Exchange tombstones: up in the device's stream, down in home's documents, until confirmed.

A tombstone has the same uid on every machine, so it may arrive any number of times, by any path, in any order. Source:
docs/spec/relay-messages.md, section 7.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from crystal.store import Store
from crystal.store.forget.forgetting import Tombstone, add_tombstones, newest_tombstone, tombstones_after
from crystal.store.sync import outbox, relay_forgotten, relay_peers
from crystal.store.sync.relay_peers import Peer
from crystal.sync.envelope.packing import PayloadKind
from crystal.sync.sending import Link, put_message
from crystal.sync.tombstones import MAX_TIME, messages, read_tombstones, words_of
from crystal.sync.wire import InvalidRecordError

MAX_TOLD = 1 << 20
"""Approximate maximum bytes of tombstones in one document; the rest follows when these are confirmed."""
AT_ONCE = 500
MAX_MARK = 64
AGAIN_MS = 6 * 3_600_000
"""After this time, tombstones that home received but never confirmed are sent again."""


# ---------------------------------------------------------------------------------------------------------- upwards


def pairing_of(peer: Peer) -> str:
    """Return the key of a device's progress with its home; a new pairing starts from zero."""
    return f"{peer.device_id.hex()} {peer.paired_at}"


def put_forgotten(store: Store, link: Link, now: int) -> int:
    """Seal the tombstones that home lacks, and return their number. Runs inside a transaction.

    Raises:
        NotConfiguredError: The key is missing.
        WatermarkMovedError: The keys were rotated meanwhile.
    """
    progress = relay_forgotten.progress_with(store, pairing_of(link.peer))
    told, at = 0, progress.sealed
    while some := relay_forgotten.unconfirmed_tombstones(store, at, AT_ONCE):
        for payload in messages([tombstone for _, tombstone in some]):
            put_message(store, link, payload, kind=PayloadKind.CONTROL, lane="live", now=now)
        told, at = told + len(some), some[-1][0]
    if told:
        relay_forgotten.write_tombstone_progress(store, replace(progress, sealed=at, sealed_at=now))
    return told


def put_again(store: Store, link: Link, now: int) -> None:
    """Queue tombstones again that were sent but never confirmed. Runs inside a transaction."""
    progress = relay_forgotten.progress_with(store, pairing_of(link.peer))
    is_fresh = 0 <= now - progress.sealed_at < AGAIN_MS
    if (
        progress.sealed
        and not is_fresh
        and relay_forgotten.count_unconfirmed(store)[0]
        and not outbox.count_unreceipted(store, "live")
    ):
        relay_forgotten.write_tombstone_progress(store, replace(progress, sealed=0, sealed_at=now))


def take_from_device(store: Store, tombstones: Sequence[Tombstone], now: int) -> None:
    """Store a device's tombstones. Runs inside a transaction.

    A scope never covers future lines: a device can remove existing text, not block later text.
    """
    known = [one._replace(until_at=None if one.until_at is None else min(one.until_at, now)) for one in tombstones]
    add_tombstones(store, known, now)


# ---------------------------------------------------------------------------------------------------------- downwards


def forgotten_for(store: Store, peer: Peer) -> dict[str, Any] | None:
    """Return the tombstones for a device; None if it has confirmed all of them.

    If there are too many for one document, only the first are returned; the rest follows after confirmation. A device
    that confirmed tombstones which this home lacks gets all of home's, with a flag: home was restored from a backup,
    and the device in turn sends all of its own.
    """
    confirmed = relay_forgotten.confirmed_by(store, peer.told)
    start = confirmed or 0
    if start >= newest_tombstone(store) and confirmed is not None:
        return None
    rows: list[dict[str, Any]] = []
    size, upto = 0, start
    while size < MAX_TOLD and (some := tombstones_after(store, upto, AT_ONCE)):
        for number, tombstone in some:
            words = {**words_of(tombstone), "device": tombstone.device}
            length = len(json.dumps(words))
            if rows and size + length > MAX_TOLD:
                size = MAX_TOLD
                break
            rows.append(words)
            size, upto = size + length, number
    mark = relay_forgotten.mark_at(store, upto)
    return {"from": start, "tombstones": rows, "upto": upto, "mark": mark, "lost": confirmed is None}


@dataclass(frozen=True, slots=True)
class TombstoneBatch:
    """Tombstones sent by home: those after ``start``, up to ``upto``.

    ``is_lost``: home lacks tombstones that the device confirmed.
    """

    start: int
    upto: int
    mark: str
    is_lost: bool
    tombstones: tuple[Tombstone, ...]


def read_tombstone_batch(found: object) -> TombstoneBatch | None:
    """Parse the field ``forgotten`` of home's state document; None if it is missing.

    Raises:
        InvalidRecordError: The field is malformed.
    """
    match found:
        case None:
            return None
        case {"from": int(start), "upto": int(upto), "mark": str(mark), "lost": bool(lost), "tombstones": list(rows)}:
            if type(start) is type(upto) is int and 0 <= start <= upto < MAX_TIME and len(mark) <= MAX_MARK:
                return TombstoneBatch(start, upto, mark, lost, read_tombstones(rows, None, most=MAX_TOLD))
    raise InvalidRecordError("what home says of what was forgotten cannot be understood")


def take_from_home(store: Store, peer: Peer, told: TombstoneBatch, *, now: int, as_of: int) -> None:
    """Store home's tombstones and the number to confirm. Runs inside a transaction.

    A home that lost tombstones which this device confirmed was restored from a backup: this device then sends all its
    own ones. A batch with a gap is ignored; the heartbeat reports the confirmed number again. ``as_of`` is the time of
    the document by home's clock.
    """
    progress = relay_forgotten.progress_with(store, pairing_of(peer))
    is_lost = told.is_lost and (told.upto, told.mark) != (progress.number, progress.mark)
    if told.start != progress.number and not is_lost:
        relay_peers.tell_again(store, peer.id)
        return
    if is_lost:
        relay_forgotten.clear_confirmations(store)
        progress = replace(progress, sealed=0, sealed_at=0)
    add_tombstones(store, told.tombstones, now)
    relay_forgotten.note_confirmed(store, [one.uid for one in told.tombstones], as_of)
    relay_forgotten.write_tombstone_progress(store, replace(progress, number=told.upto, mark=told.mark))
