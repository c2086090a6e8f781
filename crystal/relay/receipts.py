"""Receipts: home tells each device how far its streams are committed, and what it is to do.

A receipt names, for every stream, the last committed number and its tag. A blob counts as received only when the tag
agrees with the device's own: two copies of one device never take each other's receipts for their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from crystal.envelope import Channel
from crystal.relay.sending import Link, seal_again
from crystal.relay.wire import BadRecord
from crystal.store import Store, inbox, outbox
from crystal.store.outbox import OutStream
from crystal.store.relay_peers import Peer


def receipts_for(store: Store, peer: Peer) -> dict[str, Any]:
    """What a device is told of its streams: how far each came, from where to send again, which to leave."""
    streams: dict[str, list[Any]] = {}
    resend: dict[str, int] = {}
    fork: list[str] = []
    for one in inbox.all_streams(store):
        if one.peer != peer.id or one.channel != Channel.CONVERSATIONS:
            continue
        name = one.stream.hex()
        streams[name] = [one.last_seq, one.last_tag.hex()]
        if one.resend is not None:
            resend[name] = one.resend
        if one.state == "fork" or (one.state == "left" and one.code == "fork"):
            fork.append(name)
    return {"streams": streams, "resend": resend, "fork": fork}


@dataclass(frozen=True, slots=True)
class Receipts:
    """What home says of this device's streams: (last committed number, its tag), where to send again from, forks."""

    streams: Mapping[str, tuple[int, bytes]]
    resend: Mapping[str, int]
    fork: frozenset[str]


def read_receipts(body: Mapping[str, Any]) -> Receipts:
    """Read the receipts in home's document.

    Raises:
        BadRecord: They cannot be understood.
    """
    try:
        streams = {str(name): (int(upto), bytes.fromhex(tag)) for name, (upto, tag) in body["streams"].items()}
        resend = {str(name): int(start) for name, start in body["resend"].items()}
        fork = frozenset(str(name) for name in body["fork"])
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadRecord(f"the receipts cannot be understood ({type(error).__name__})") from error
    return Receipts(streams, resend, fork)


def act_on_receipts(
    store: Store, link: Link, receipts: Receipts, *, now: int, send_all: Callable[[], None]
) -> list[str]:
    """Let go of what is committed, and send again what home asks for; gives what was noticed, in words.

    Args:
        store: The device's store.
        link: The link to home.
        receipts: What home says.
        now: The time, ms.
        send_all: Lets everything that is archived here be sent again: home has lost more than the outbox still keeps.
    """
    noticed = []
    for stream in outbox.streams(store, link.peer.id):
        if stream.channel != Channel.CONVERSATIONS:
            continue
        name = stream.stream.hex()
        upto, tag = receipts.streams.get(name, (0, b""))
        if name in receipts.fork or not _take(store, stream, upto, tag, now):
            if stream.closed_at is None:
                noticed.append("another copy of this machine wrote in its stream; a new stream was begun")
                seal_again(store, link, stream, outbox.stream_by_id(store, stream.id).verified + 1, now, "fork")
        elif name in receipts.resend:
            noticed += _send_again(store, link, stream, receipts.resend[name], now, send_all)
    return noticed


def mend_closed(store: Store, link: Link, now: int) -> None:
    """Seal again what still waits in streams that are closed: a crash came between the closing and the sealing."""
    for stream in outbox.streams(store, link.peer.id):
        if stream.closed_at is not None and stream.channel == Channel.CONVERSATIONS:
            waiting = outbox.unreceipted(store, stream.id, 1)
            if waiting and stream.generation != link.peer.generation:
                seal_again(store, link, stream, waiting[0].seq, now, "rotated")


def _take(store: Store, stream: OutStream, upto: int, tag: bytes, now: int) -> bool:
    """Note a receipt; False when it speaks of another history than ours.

    One without a tag says that home has skipped a number that it never got whole: the next receipt says more.
    """
    if upto <= stream.verified or not tag:
        return True
    own = outbox.tag_at(store, stream.id, upto)
    if own is None or own != tag:
        return False
    with store.transaction():
        outbox.mark_receipted(store, stream.id, upto, now)
    return True


def _send_again(
    store: Store, link: Link, stream: OutStream, start: int, now: int, send_all: Callable[[], None]
) -> list[str]:
    kept = outbox.kept_from(store, stream.id, start)
    if start <= stream.verified and (not kept or kept[0].seq > start):
        send_all()
        return ["home asks for what is kept no more as it was sealed; everything archived here is sent again"]
    if stream.generation != link.peer.generation:
        seal_again(store, link, stream, start, now, "rotated")
    else:
        outbox.mark_again(store, stream.id, [blob.seq for blob in kept if blob.sent_at is not None])
    return []
