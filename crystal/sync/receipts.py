"""Write and process receipts, by which home confirms each stream's last committed blob and requests others.

A receipt names, for every stream, the last committed number and its tag. A blob counts as received only if the tag
equals the device's own: two copies of one device never use each other's receipts. A receipt for less than an earlier
one means that home has lost data; the device then sends it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from crystal.store import Store
from crystal.store.sync import inbox, outbox, relay_peers
from crystal.store.sync.outbox import OutStream
from crystal.store.sync.relay_peers import Peer
from crystal.sync.envelope.blob import Channel
from crystal.sync.sending import Link, is_damaged, seal_again
from crystal.sync.wire import InvalidRecordError

FORK = "another copy of this machine used its stream; crystal began a new one"
LOST = "home needs blobs that are no longer kept here; everything archived here is sent again"


def receipts_for(store: Store, peer: Peer) -> dict[str, Any]:
    """Return the receipts of a device: the last committed blob of each stream, where to resend from, and forks."""
    streams: dict[str, list[Any]] = {}
    resend: dict[str, int] = {}
    fork: list[str] = []
    for one in inbox.all_streams(store):
        is_new = one.peer is None and one.channel == 0 and one.stream[:8] == peer.up_prefix
        if not is_new and (one.peer != peer.id or one.channel != Channel.CONVERSATIONS):
            continue
        name = one.stream.hex()
        streams[name] = [one.last_seq, one.last_tag.hex()]
        if one.resend is not None:
            resend[name] = one.resend
        if one.state in ("fork", "left"):
            fork.append(name)  # its writer must continue in another stream: home no longer reads this one
    stale = {"stale": dict(peer.stale)} if peer.stale else {}
    return {"streams": streams, "resend": resend, "fork": fork, "generation": peer.accepted_from, **stale}


@dataclass(frozen=True, slots=True)
class Receipts:
    """Receipts for this device's streams: (last committed number, its tag), where to send again from, forks."""

    streams: Mapping[str, tuple[int, bytes]]
    resend: Mapping[str, int]
    fork: frozenset[str]


def read_receipts(body: Mapping[str, Any]) -> Receipts:
    """Parse the receipts in home's document.

    Raises:
        InvalidRecordError: They are malformed.
    """
    try:
        streams = {str(name): (int(upto), bytes.fromhex(tag)) for name, (upto, tag) in body["streams"].items()}
        resend = {str(name): int(start) for name, start in body["resend"].items()}
        fork = frozenset(str(name) for name in body["fork"])
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InvalidRecordError(f"the receipts cannot be understood ({type(error).__name__})") from error
    return Receipts(streams, resend, fork)


def act_on_receipts(
    store: Store, link: Link, receipts: Receipts, *, now: int, send_all: Callable[[], None]
) -> list[str]:
    """Delete committed blobs and send again what home asks for. Return notices in words.

    Args:
        store: The device's store.
        link: The link to home.
        receipts: The receipts from home.
        now: The time, ms.
        send_all: Marks everything archived here to be sent again: home has lost more than the outbox still keeps.
    """
    noticed: list[str] = []
    for stream in outbox.streams(store, link.peer.id):
        if stream.channel == Channel.CONVERSATIONS:
            noticed += _apply_receipt(store, link, stream, receipts, now, send_all)
        elif stream.stream.hex() in receipts.resend and stream.closed_at is None:
            relay_peers.tell_again(store, link.peer.id)
    return noticed


def _apply_receipt(
    store: Store, link: Link, stream: OutStream, receipts: Receipts, now: int, send_all: Callable[[], None]
) -> list[str]:
    name = stream.stream.hex()
    upto, tag = receipts.streams.get(name, (0, b""))
    view = _compare(store, stream, upto, tag)
    if view == "ahead":
        with store.transaction():
            outbox.mark_receipted(store, stream.id, upto, now)
    if view == "other":  # home's position in another history does not apply here: send all kept blobs again
        return _send_from(store, link, stream, outbox.first_kept(store, stream.id), now, send_all, is_fork=True)
    if name in receipts.fork:
        return _send_from(store, link, stream, upto + 1, now, send_all, is_fork=True)
    start = upto + 1 if view == "behind" else receipts.resend.get(name)
    return [] if start is None else _send_from(store, link, stream, start, now, send_all, is_fork=False)


def _compare(
    store: Store, stream: OutStream, upto: int, tag: bytes
) -> Literal["ahead", "same", "behind", "other", "unknown"]:
    """Compare a receipt with the previous one of the stream.

    A receipt without a tag means that home skipped a number that it never received completely; wait for the next
    receipt.
    """
    own = stream.last_tag if upto == stream.last_seq else outbox.tag_at(store, stream.id, upto)
    if upto and tag and (upto > stream.last_seq or (own is not None and own != tag)):
        return "other"
    if upto < stream.verified:
        return "behind"
    if upto == stream.verified:
        return "same"
    return "ahead" if tag and own == tag else "unknown"


def _reason(*, is_fork: bool, is_lost: bool, is_rotated: bool) -> str | None:
    """Return why a stream is sealed again, None if it is not."""
    if is_fork:
        return "fork"
    return "resend" if is_lost else "rotated" if is_rotated else None


def _send_from(
    store: Store, link: Link, stream: OutStream, start: int, now: int, send_all: Callable[[], None], *, is_fork: bool
) -> list[str]:
    """Send a stream to home again from ``start`` on; a fork in another stream, once.

    Blobs that home needs and that are no longer in the outbox, or damaged there, are made again from the archive.
    """
    kept = outbox.kept_from(store, stream.id, start)
    if is_fork and stream.closed_at is not None and not kept:
        return []
    is_lost = start <= outbox.stream_by_id(store, stream.id).verified and (not kept or kept[0].seq > start)
    is_lost = is_lost or (bool(kept) and is_damaged(store, link, stream, kept[0].seq))
    is_rotated = bool(kept) and stream.generation != link.peer.generation
    because = _reason(is_fork=is_fork, is_lost=is_lost, is_rotated=is_rotated)
    if because is None:
        outbox.mark_again(store, stream.id, [blob.seq for blob in kept if blob.sent_at is not None])
        return []
    seal_again(store, link, stream, start, now, because)
    with store.transaction():
        outbox.lower_verified(store, stream.id, start - 1)
    if is_lost:
        send_all()
    noticed = ((FORK, is_fork and stream.closed_at is None), (LOST, is_lost))
    return [what for what, holds in noticed if holds]


def mend_streams(store: Store, link: Link, now: int) -> None:
    """Seal blobs again that wait under keys no longer in use, because a crash interrupted the change of keys.

    Raises:
        NotConfiguredError: The old keys are missing.
    """
    for stream in outbox.streams(store, link.peer.id):
        if stream.channel == Channel.CONVERSATIONS and stream.generation != link.peer.generation:
            waiting = outbox.unreceipted(store, stream.id, 1)
            if waiting:
                seal_again(store, link, stream, waiting[0].seq, now, "rotated")
