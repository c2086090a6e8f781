"""Seal messages into this machine's streams, in the transaction that writes the data.

A stream is one hash chain under one key. If its chain cannot continue (another copy of this machine wrote the same
number, home was restored, the keys were rotated), everything without a receipt is sealed again in a new stream; home
recognizes duplicates by their byte ranges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from crystal.errors import NotConfiguredError, WatermarkMovedError
from crystal.model.capture import UNSENT
from crystal.store import Store
from crystal.store.problems import record_problem
from crystal.store.sync import outbox, past, relay_peers
from crystal.store.sync.outbox import OutStream
from crystal.store.sync.relay_forgotten import send_all_again
from crystal.store.sync.relay_peers import Peer
from crystal.sync.envelope.blob import Channel, VerifiedBlob, open_blob, read_header, seal, split_payload, tag_of
from crystal.sync.envelope.link import LinkKeys
from crystal.sync.envelope.packing import PayloadKind
from crystal.sync.envelope.refusals import EnvelopeError
from crystal.sync.wire import Lane, control_message


@dataclass(frozen=True, slots=True)
class Link:
    """One link as this machine writes to it.

    Attributes:
        peer: The other end.
        keys_of: Returns our outgoing keys of a generation, None if they are missing.
        prefix: The first 8 bytes of our streams.
        random: Returns random bytes.
    """

    peer: Peer
    keys_of: Callable[[int], LinkKeys | None]
    prefix: bytes
    random: Callable[[int], bytes]

    @property
    def keys(self) -> LinkKeys:
        """Return the keys in use.

        Raises:
            NotConfiguredError: They are missing.
        """
        return self.kept_keys(self.peer.generation)

    def kept_keys(self, generation: int) -> LinkKeys:
        """Return the keys of a generation.

        Raises:
            NotConfiguredError: They are missing.
        """
        keys = self.keys_of(generation)
        if keys is None:
            raise NotConfiguredError(
                f"the key for {self.peer.name}, generation {generation}, is missing",
                hint="restore the key, or pair this machine again: crystal relay join",
            )
        return keys


def put_message(store: Store, link: Link, payload: bytes, *, kind: PayloadKind, lane: Lane, now: int) -> None:
    """Seal a message into the open conversation stream. Runs inside the transaction that writes the data.

    Raises:
        WatermarkMovedError: The link's keys were rotated meanwhile: load the link again.
    """
    if relay_peers.peer_by_id(store, link.peer.id).generation != link.peer.generation:
        raise WatermarkMovedError(f"the keys for {link.peer.name} were rotated meanwhile")
    stream = _writable(store, link, Channel.CONVERSATIONS, lane, now)
    _append_message(store, link, stream, kind, payload, now)


def put_control(store: Store, link: Link, kind: str, fields: Mapping[str, Any], *, lane: Lane, now: int) -> None:
    """Seal a control message, see ``put_message``."""
    put_message(store, link, control_message(kind, fields), kind=PayloadKind.CONTROL, lane=lane, now=now)


def seal_document(store: Store, link: Link, channel: Channel, payload: bytes, now: int) -> tuple[bytes, int, bytes]:
    """Seal a document that replaces all earlier ones. Return its stream, its number and the blob, which is not kept."""
    with store.transaction():
        stream, blob = _seal_next(
            link, _writable(store, link, channel, "latest", now), PayloadKind.CONTROL, payload, now
        )
        outbox.advance(store, stream.id, stream.last_seq, stream.last_tag)
    return stream.stream, stream.last_seq, blob


def _seal_next(
    link: Link, target: OutStream, kind: PayloadKind, payload: bytes, created_at: int, *, more: bool = False
) -> tuple[OutStream, bytes]:
    """Seal a payload as the next blob of a stream. Return the stream after it, and the blob."""
    seq = target.last_seq + 1
    place = {"channel": target.channel, "stream": target.stream, "seq": seq, "prev": target.last_tag}
    blob = seal(link.keys, payload, kind=kind, salt=link.random(32), created_at=created_at, more=more, **place)  # type: ignore[arg-type]
    return replace(target, last_seq=seq, last_tag=tag_of(blob)), blob


def _writable(store: Store, link: Link, channel: Channel, lane: str, now: int) -> OutStream:
    stream = outbox.open_stream(store, link.peer.id, channel, lane)
    if stream is not None and stream.generation == link.peer.generation:
        return stream
    return open_another(store, link, channel, lane, now, "first" if stream is None else "rotated")


def open_another(store: Store, link: Link, channel: Channel, lane: str, now: int, because: str) -> OutStream:
    """Open a new stream in place of the open one. Runs inside a transaction."""
    stream = link.prefix + link.random(8)
    return outbox.new_stream(store, stream, link.peer.id, channel, lane, link.peer.generation, now, because)


@dataclass(frozen=True, slots=True)
class KeptMessage:
    """Message of the outbox, opened: its blobs and its content."""

    opened: tuple[VerifiedBlob, ...]

    @property
    def seqs(self) -> list[int]:
        """Return the sequence numbers of its blobs."""
        return [one.header.seq for one in self.opened]

    @property
    def kind(self) -> PayloadKind:
        """Return the kind of payload."""
        return self.opened[0].kind

    @property
    def created_at(self) -> int:
        """Return the time of the first sealing, ms."""
        return self.opened[0].created_at

    @property
    def payload(self) -> bytes:
        """Return the complete message."""
        return b"".join(one.payload for one in self.opened)


Change = Callable[[KeptMessage], tuple[PayloadKind, bytes] | None]
"""Returns the replacement of a message, or None if it stays as it is."""


def _as_it_is(_: KeptMessage) -> None:
    """Leave every message unchanged."""


def seal_again(store: Store, link: Link, old: OutStream, start: int, now: int, because: str) -> None:
    """Seal the kept blobs of a stream again from ``start`` on, in the lane's open stream or a new one.

    The old stream is not written any more. A message of several parts is moved as a whole, so it may begin before
    ``start``. If one is damaged, everything archived here is sent again.

    Raises:
        NotConfiguredError: A key is missing. Nothing was changed.
    """
    with store.transaction():
        seal_changed(store, link, old, start, now, because)


def seal_changed(
    store: Store,
    link: Link,
    old: OutStream,
    start: int,
    now: int,
    because: str,
    *,
    change: Change = _as_it_is,
    ahead: Sequence[bytes] = (),
) -> None:
    """Seal again like ``seal_again``, with some messages replaced. Runs inside a transaction.

    Args:
        store: The store.
        link: The link.
        old: The stream.
        start: The first number to seal again.
        now: The time, ms.
        because: The reason, as sent to home.
        change: Returns the replacement of a message.
        ahead: Control messages that home must process first.

    Raises:
        NotConfiguredError: A key is missing. Roll back the transaction.
    """
    old = outbox.stream_by_id(store, old.id)
    if old.closed_at is None:
        target = open_another(store, link, Channel(old.channel), old.lane, now, because)
    else:
        target = _writable(store, link, Channel(old.channel), old.lane, now)
    start = _message_start(store, old, start)
    words = {"stream": old.stream.hex(), "from": start, "because": because}
    for payload in (control_message("continues", words), *ahead):  # home must no longer wait for the old stream
        target = _append_message(store, link, target, PayloadKind.CONTROL, payload, now)
    damaged = {blob.seq for blob in outbox.kept_from(store, old.id, start)}
    kept = sorted(damaged)
    for message in kept_messages(store, link, old, start):
        damaged.difference_update(message.seqs)
        kind, payload = change(message) or (message.kind, message.payload)
        target = _append_message(store, link, target, kind, payload, message.created_at)
    if damaged:
        lost = past.leave_unsent(store, outbox.sealed_at(store, old.id, sorted(damaged)))
        if lost:
            record_problem(store, UNSENT, f"{lost:,} bytes for home were damaged here; they are read again", now)
        past.begin(store)
        send_all_again(store)
    outbox.drop_blobs(store, old.id, kept)


def kept_messages(store: Store, link: Link, stream: OutStream, start: int = 1) -> Iterator[KeptMessage]:
    """Yield the kept messages of a stream from a number on, opened with our own keys, without damaged ones.

    Raises:
        NotConfiguredError: The key is missing.
    """
    parts: list[VerifiedBlob] = []
    is_damaged = False
    for blob in outbox.kept_from(store, stream.id, start):
        sealed = outbox.sealed_blob(store, stream.id, blob.seq) or b""
        opened = _opened(link, stream, blob.seq, sealed)
        is_damaged |= opened is None
        parts += [opened] if opened is not None else []
        if not _has_more(sealed):
            if parts and not is_damaged:
                yield KeptMessage(tuple(parts))
            parts, is_damaged = [], False
    if parts and not is_damaged:
        yield KeptMessage(tuple(parts))


def is_damaged(store: Store, link: Link, stream: OutStream, seq: int) -> bool:
    """Return True if a blob that is kept was damaged here: home would refuse it whenever it is sent.

    Raises:
        NotConfiguredError: The key is missing.
    """
    return _opened(link, stream, seq, outbox.sealed_blob(store, stream.id, seq) or b"") is None


def _opened(link: Link, stream: OutStream, seq: int, sealed: bytes) -> VerifiedBlob | None:
    keys = link.kept_keys(stream.generation)
    try:
        return open_blob(sealed, keys, channel=stream.channel, stream=stream.stream, seq=seq, prev=None)
    except EnvelopeError:
        return None


def _has_more(sealed: bytes) -> bool:
    """Return True if the message goes on in the next blob, as far as the header of this one can be read."""
    try:
        return read_header(sealed).more
    except EnvelopeError:
        return False


def _append_message(
    store: Store, link: Link, target: OutStream, kind: PayloadKind, payload: bytes, created_at: int
) -> OutStream:
    """Seal a message as the next blobs of a stream, and keep them. Return the stream after them."""
    for part, more in split_payload(payload):
        target, blob = _seal_next(link, target, kind, part, created_at, more=more)
        outbox.put_blob(store, target.id, target.last_seq, target.last_tag, blob, created_at)
    outbox.advance(store, target.id, target.last_seq, target.last_tag)
    return target


def _message_start(store: Store, old: OutStream, start: int) -> int:
    """Return the first kept part of the message that the blob ``start`` belongs to."""
    while start > 1 and (before := outbox.sealed_blob(store, old.id, start - 1)) and _has_more(before):
        start -= 1
    return start
