"""Sealing what this machine says into its streams, in the transaction of what it tells.

A stream is one hash chain under one key. When its chain cannot go on (another copy of this machine wrote the same
number, home was restored, the keys were rotated) what no receipt covers is sealed again in a new stream; home knows
by the byte ranges what it has.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from crystal.envelope import Channel, Kind, LinkKeys, open_blob, read_header, seal, seal_parts, tag_of
from crystal.errors import NotConfigured, WatermarkMoved
from crystal.relay.wire import Lane
from crystal.store import Store, outbox, relay_peers
from crystal.store.outbox import OutStream
from crystal.store.relay_peers import Peer


@dataclass(frozen=True, slots=True)
class Link:
    """One link as this machine writes to it.

    Attributes:
        peer: The other end.
        keys_of: Our outgoing keys of a generation, None when they are gone.
        prefix: The first 8 bytes of our streams.
        random: Gives so many random bytes.
    """

    peer: Peer
    keys_of: Callable[[int], LinkKeys | None]
    prefix: bytes
    random: Callable[[int], bytes]

    @property
    def keys(self) -> LinkKeys:
        """The keys in use.

        Raises:
            NotConfigured: They are gone.
        """
        return self.kept_keys(self.peer.generation)

    def kept_keys(self, generation: int) -> LinkKeys:
        """The keys of a generation.

        Raises:
            NotConfigured: They are gone.
        """
        keys = self.keys_of(generation)
        if keys is None:
            raise NotConfigured(
                f"the key of generation {generation} that seals for {self.peer.name} is not here",
                hint="put the key back where it was, or pair this machine again: crystal relay join",
            )
        return keys


def put_message(store: Store, link: Link, payload: bytes, *, kind: Kind, lane: Lane, now: int) -> None:
    """Seal a message into the conversations' open stream. Inside the transaction of what it tells.

    Raises:
        WatermarkMoved: The link's keys were rotated meanwhile: look at the link again.
    """
    if relay_peers.peer_by_id(store, link.peer.id).generation != link.peer.generation:
        raise WatermarkMoved(f"the keys for {link.peer.name} were rotated just now")
    stream = _writable(store, link, Channel.CONVERSATIONS, lane, now)
    blobs = seal_parts(
        link.keys,
        payload,
        channel=Channel.CONVERSATIONS,
        kind=kind,
        stream=stream.stream,
        seq=stream.last_seq + 1,
        prev=stream.last_tag,
        salts=lambda: link.random(32),
        created_at=now,
    )
    for seq, blob in enumerate(blobs, stream.last_seq + 1):
        outbox.put_blob(store, stream.id, seq, tag_of(blob), blob, now)
    outbox.advance(store, stream.id, stream.last_seq + len(blobs), tag_of(blobs[-1]))


def seal_document(store: Store, link: Link, channel: Channel, payload: bytes, now: int) -> tuple[bytes, int, bytes]:
    """Seal a document that replaces all before it: its stream, its number and the blob, which is not kept."""
    with store.transaction():
        stream = _writable(store, link, channel, "latest", now)
        seq = stream.last_seq + 1
        blob = seal(
            link.keys,
            payload,
            channel=channel,
            kind=Kind.CONTROL,
            stream=stream.stream,
            seq=seq,
            prev=stream.last_tag,
            salt=link.random(32),
            created_at=now,
        )
        outbox.advance(store, stream.id, seq, tag_of(blob))
    return stream.stream, seq, blob


def _writable(store: Store, link: Link, channel: Channel, lane: str, now: int) -> OutStream:
    stream = outbox.open_stream(store, link.peer.id, channel, lane)
    if stream is not None and stream.generation == link.peer.generation:
        return stream
    return open_another(store, link, channel, lane, now, "first" if stream is None else "rotated")


def open_another(store: Store, link: Link, channel: Channel, lane: str, now: int, because: str) -> OutStream:
    """Open a stream in the place of the one that is open. Inside a transaction."""
    stream = link.prefix + link.random(8)
    return outbox.new_stream(store, stream, link.peer.id, channel, lane, link.peer.generation, now, because)


def seal_again(store: Store, link: Link, old: OutStream, start: int, now: int, because: str) -> int:
    """Seal the kept blobs of a stream from ``start`` on again, in the lane's open stream or a new one; gives how many.

    The stream is not written again. A message of several parts goes as a whole, so that it may begin before ``start``.

    Raises:
        NotConfigured: A key is gone. Nothing was changed.
    """
    with store.transaction():
        old = outbox.stream_by_id(store, old.id)
        if old.closed_at is None:
            target = open_another(store, link, Channel(old.channel), old.lane, now, because)
        else:
            target = _writable(store, link, Channel(old.channel), old.lane, now)
        start = _message_start(store, old, start)
        seqs = [blob.seq for blob in outbox.kept_from(store, old.id, start)]
        _say_continues(store, link, target, old, start, now, because)
        target = outbox.stream_by_id(store, target.id)
        seq, prev = target.last_seq, target.last_tag
        for number in seqs:
            blob = outbox.sealed_blob(store, old.id, number) or b""
            keys = link.kept_keys(old.generation)
            opened = open_blob(blob, keys, channel=old.channel, stream=old.stream, seq=number, prev=None)
            seq += 1
            sealed = seal(
                link.keys,
                opened.payload,
                channel=old.channel,
                kind=opened.kind,
                stream=target.stream,
                seq=seq,
                prev=prev,
                salt=link.random(32),
                created_at=opened.created_at,
                more=opened.header.more,
            )
            prev = tag_of(sealed)
            outbox.put_blob(store, target.id, seq, prev, sealed, opened.created_at)
        outbox.advance(store, target.id, seq, prev)
        outbox.drop_blobs(store, old.id, seqs)
    return len(seqs)


def _say_continues(
    store: Store, link: Link, target: OutStream, old: OutStream, start: int, now: int, because: str
) -> None:
    """Tell home, in the new stream, what follows here: it need not wait for the old one any more."""
    words = {"v": 1, "kind": "continues", "stream": old.stream.hex(), "from": start, "because": because}
    blob = seal(
        link.keys,
        json.dumps(words).encode(),
        channel=old.channel,
        kind=Kind.CONTROL,
        stream=target.stream,
        seq=target.last_seq + 1,
        prev=target.last_tag,
        salt=link.random(32),
        created_at=now,
    )
    outbox.put_blob(store, target.id, target.last_seq + 1, tag_of(blob), blob, now)
    outbox.advance(store, target.id, target.last_seq + 1, tag_of(blob))


def _message_start(store: Store, old: OutStream, start: int) -> int:
    """The first part of the message that the blob ``start`` belongs to, as far as its parts are kept."""
    while start > 1 and (before := outbox.sealed_blob(store, old.id, start - 1)) and read_header(before).more:
        start -= 1
    return start
