"""Process opened blobs of a device: conversations are ingested, control messages executed.

The cursor of the stream moves in the transaction that writes the data. Parsing comes before, so that malformed input
never fails a transaction.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from crystal.errors import WatermarkMovedError
from crystal.ingest import archive
from crystal.ingest.ingest import Prepared, prepare
from crystal.memories.serialize import InvalidMemoryError, memory_from_dict
from crystal.model.capture import is_unicode
from crystal.store import Store
from crystal.store.capture import privacy, turns
from crystal.store.memories import memories
from crystal.store.memories.memories import Version
from crystal.store.sync import inbox, relay_peers
from crystal.store.sync.inbox import InStream
from crystal.store.sync.relay_peers import Peer
from crystal.sync.answers import Id, from_hex
from crystal.sync.arrival import Arrivals, arrive
from crystal.sync.envelope.blob import VerifiedBlob
from crystal.sync.envelope.packing import PayloadKind
from crystal.sync.forgotten import take_from_device
from crystal.sync.tombstones import read_tombstones
from crystal.sync.wire import TEXT, InvalidRecordError, Key, SentSegment, decode_segment

MAX_MESSAGE = 768 << 20
"""Maximum bytes of a message that is assembled from parts: a transcript line with its metadata."""


@dataclass(frozen=True, slots=True)
class PartialMessage:
    """A part of a message whose end has not arrived."""

    body: bytes


@dataclass(frozen=True, slots=True)
class Captured:
    """A segment and its parsed content."""

    sent: SentSegment
    prepared: Prepared


class ControlMessage(Struct, frozen=True, tag_field="kind"):
    """A validated control message. Each kind is a subclass with a method that executes it."""

    v: Literal[1]

    def act(self, home: MessageHandler, peer: Peer, now: int) -> None:
        """Execute a peer's message. Runs inside the transaction that moves the stream's cursor."""


class SessionEnded(ControlMessage, tag="ended", frozen=True):
    """A session has ended."""

    session: Key
    at: Annotated[int, Meta(ge=0, lt=1 << 53)]

    def act(self, home: MessageHandler, peer: Peer, now: int) -> None:
        """Record that a session has ended, if the device owns it."""
        if peer.vouches or inbox.is_session_of(home.store, self.session, peer.name):
            turns.end_session(home.store, self.session, min(self.at, now))


class StreamContinues(ControlMessage, tag="continues", frozen=True):
    """A stream continues in the stream of this message."""

    stream: Id
    because: Annotated[str, Meta(max_length=40, pattern=TEXT)]

    def act(self, home: MessageHandler, peer: Peer, now: int) -> None:
        """Stop waiting for the stream, unless it belongs to a live copy of the device."""
        if self.stream[:8] != peer.up_prefix:
            return
        old = inbox.meet_stream(home.store, self.stream, now)
        if old.peer not in (None, peer.id):
            return
        if old.peer is None:
            inbox.bind(home.store, old.id, peer.id, old.channel or 1, None)
        if self.because == "fork":
            relay_peers.set_fields(home.store, peer.id, forked_at=now)
            inbox.note_forked(home.store, old)
            if old.state != "fork":
                return
        inbox.leave(home.store, old, self.because, "its device went on in another stream", now)


class PrivateLines(ControlMessage, tag="private", frozen=True):
    """Ids of private lines."""

    uuids: tuple[str, ...]

    def act(self, home: MessageHandler, peer: Peer, now: int) -> None:  # noqa: ARG002 - the others use them
        """Store the ids of private lines."""
        uuids = [uuid for uuid in self.uuids if uuid and is_unicode(uuid) and "\0" not in uuid]
        privacy.add_private_lines(home.store, uuids)


class Forget(ControlMessage, tag="forget", frozen=True):
    """Tombstones."""

    tombstones: list[Any]

    def __post_init__(self) -> None:
        read_tombstones(self.tombstones, "")

    def act(self, home: MessageHandler, peer: Peer, now: int) -> None:
        """Store a device's tombstones."""
        take_from_device(home.store, read_tombstones(self.tombstones, peer.name), now)


class Remember(ControlMessage, tag="memory", frozen=True):
    """A memory."""

    memory: dict[str, Any]

    def __post_init__(self) -> None:
        memory_from_dict(self.memory)

    def act(self, home: MessageHandler, peer: Peer, now: int) -> None:  # noqa: ARG002 - the others use it
        """Store a memory if it is newer than the stored one. Its author is the device that sealed it."""
        said = memory_from_dict(self.memory)
        one = said.memory
        trusted = replace(one, device=home.device_of(peer, one.device), agent=home.agent_of(peer, one.agent))
        here = None if one.cwd is None else inbox.project_here(home.store, one.cwd)
        memories.put_version(home.store, Version(trusted, here or said.project))


class ForgottenMessage(ControlMessage, tag="note", frozen=True):
    """Placeholder of a message that was forgotten."""


Message = PartialMessage | Captured | ControlMessage


@dataclass(frozen=True, slots=True)
class OpenedBlob:
    """Opened blob, its number, and its content."""

    seq: int
    tag: bytes
    message: Message


@dataclass(frozen=True, slots=True)
class MessageHandler:
    """Writes what devices sent into the home machine's memory.

    Attributes:
        arrivals: This machine's memory.
        own_agent: The agent id of this machine, which no device may use.
    """

    arrivals: Arrivals
    own_agent: str

    @property
    def store(self) -> Store:
        """Return the store of the memory."""
        return self.arrivals.store

    def read(self, known: InStream, seq: int, opened: VerifiedBlob) -> OpenedBlob:
        """Parse a blob together with the earlier parts of its message. Writes nothing.

        Raises:
            InvalidRecordError: It is authentic but malformed.
        """
        waiting = inbox.fragments_bytes(self.store, known.id)
        if waiting + len(opened.payload) > MAX_MESSAGE:
            raise InvalidRecordError(f"the message is longer than {MAX_MESSAGE >> 20} MiB")
        if opened.header.more:
            return OpenedBlob(seq, opened.tag, PartialMessage(opened.payload))
        before = inbox.fragments(self.store, known.id) if waiting else []
        payload = b"".join([*before, opened.payload]) if before else opened.payload
        if opened.kind is PayloadKind.CONTROL:
            return OpenedBlob(seq, opened.tag, read_words(payload))
        sent = decode_segment(payload)
        return OpenedBlob(seq, opened.tag, Captured(sent, prepare(sent.segment)))

    def take(self, peer: Peer, known: InStream, run: Sequence[OpenedBlob], now: int) -> Counter[str]:
        """Process the next blobs of a conversation stream: all of them, or none. Return what ``arrive`` counts.

        Raises:
            WatermarkMovedError: Another poller processed them.
            StoreFullError, StoreBusyError, Unavailable: Nothing was written; try again later.
        """
        if run[0].seq != known.last_seq + 1:
            raise WatermarkMovedError(f"stream {known.stream.hex()[:8]}: the cursor is not before number {run[0].seq}")
        new: Counter[str] = Counter()
        written: archive.Written = {}
        with self.store.transaction():
            inbox.advance(self.store, known, run[-1].seq, run[-1].tag)
            relay_peers.heard(self.store, peer.id, now)
            for one in run:
                new += self._take(peer, known, one, now, written)
            archive.make_durable(written)
        return new

    def _take(self, peer: Peer, known: InStream, one: OpenedBlob, now: int, written: archive.Written) -> Counter[str]:
        message = one.message
        if isinstance(message, PartialMessage):
            inbox.add_fragment(self.store, known.id, one.seq, message.body)
            return Counter()
        inbox.drop_fragments(self.store, known.id)
        if isinstance(message, ControlMessage):
            message.act(self, peer, now)
            return Counter()
        sent = message.sent
        if known.lane != sent.lane:
            inbox.bind(self.store, known.id, peer.id, known.channel, sent.lane)
        said = sent.segment.origin
        origin = said._replace(device=self.device_of(peer, said.device), agent=self.agent_of(peer, said.agent))
        trusted = replace(sent, segment=sent.segment._replace(origin=origin))
        new = arrive(self.arrivals, trusted, message.prepared, known.stream, now=now, written=written)
        if new["turns"] and sent.lane == "live":
            turns.reopen_session(self.store, origin.session_id)
        return new

    def device_of(self, peer: Peer, said: str) -> str:
        """Return the origin device: the owner of the key, unless that machine was home and hands over others' data."""
        return said if peer.vouches and said != peer.name else peer.name

    def agent_of(self, peer: Peer, said: str) -> str:
        """Return the agent id to store: the one claimed, or the device's own if that belongs to another."""
        return said if peer.vouches else relay_peers.take_agent(self.store, peer, said, self.own_agent)


def read_words(payload: bytes) -> ControlMessage:
    """Parse a control message.

    Raises:
        InvalidRecordError: It is malformed or unknown to this version.
    """
    try:
        message: ControlMessage = msgspec.convert(json.loads(payload), AnyControl, dec_hook=from_hex)
    except InvalidMemoryError as error:
        raise InvalidRecordError(error.message, hint=error.hint) from error
    except (ValueError, RecursionError) as error:
        raise InvalidRecordError("the message cannot be understood", hint="update crystal") from error
    return message


AnyControl = SessionEnded | StreamContinues | PrivateLines | Forget | Remember | ForgottenMessage
