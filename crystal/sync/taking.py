"""Process opened blobs of a device: conversations are ingested, control messages executed.

The cursor of the stream moves in the transaction that writes the data. Parsing comes before, so that malformed input
never fails a transaction.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from crystal.errors import WatermarkMovedError
from crystal.ingest import archive
from crystal.ingest.ingest import IngestReport, Prepared, prepare
from crystal.memories.serialize import InvalidMemoryError, memory_from_dict
from crystal.model.capture import is_unicode
from crystal.store import Store
from crystal.store.capture import privacy, turns
from crystal.store.memories import memories
from crystal.store.memories.memories import Version
from crystal.store.sync import inbox, relay_peers
from crystal.store.sync.inbox import InStream
from crystal.store.sync.relay_peers import Peer
from crystal.sync.arrival import NOTHING, Arrivals, arrive
from crystal.sync.envelope.blob import Opened
from crystal.sync.envelope.content import PayloadKind
from crystal.sync.forgotten import take_from_device
from crystal.sync.tombstones import read_tombstones
from crystal.sync.wire import MAX_KEY, InvalidRecordError, Sent, decode_segment

MAX_MESSAGE = 768 << 20
"""Maximum bytes of a message that is assembled from parts: a transcript line with its metadata."""


@dataclass(frozen=True, slots=True)
class PartialMessage:
    """Part of a message whose end has not arrived."""

    body: bytes


@dataclass(frozen=True, slots=True)
class Captured:
    """Segment and its parsed content."""

    sent: Sent
    prepared: Prepared


@dataclass(frozen=True, slots=True)
class ControlMessage:
    """Control message, validated."""

    kind: str
    fields: dict[str, Any]


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
        """Store of the memory."""
        return self.arrivals.store

    def read(self, known: InStream, seq: int, opened: Opened) -> OpenedBlob:
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

    def take(self, peer: Peer, known: InStream, run: Sequence[OpenedBlob], now: int) -> IngestReport:
        """Process the next blobs of a conversation stream: all of them, or none.

        Raises:
            WatermarkMovedError: Another poller processed them.
            StoreFullError, StoreBusyError, Unavailable: Nothing was written; try again later.
        """
        if run[0].seq != known.last_seq + 1:
            raise WatermarkMovedError(f"stream {known.stream.hex()[:8]}: the cursor is not before number {run[0].seq}")
        total = [0, 0, 0, 0, 0]
        written: archive.Written = {}
        with self.store.transaction():
            inbox.advance(self.store, known, run[-1].seq, run[-1].tag)
            relay_peers.heard(self.store, peer.id, now)
            for one in run:
                report = self._take(peer, known, one, now, written)
                total = [a + b for a, b in zip(total, _counts(report), strict=True)]
            archive.make_durable(written)
        return IngestReport(*total)

    def _take(self, peer: Peer, known: InStream, one: OpenedBlob, now: int, written: archive.Written) -> IngestReport:
        message = one.message
        if isinstance(message, PartialMessage):
            inbox.add_fragment(self.store, known.id, one.seq, message.body)
            return NOTHING
        inbox.drop_fragments(self.store, known.id)
        if isinstance(message, ControlMessage):
            CONTROL_KINDS[message.kind].apply(self, peer, message.fields, now)
            return NOTHING
        sent = message.sent
        if known.lane != sent.lane:
            inbox.bind(self.store, known.id, peer.id, known.channel, sent.lane)
        said = sent.segment.origin
        origin = said._replace(device=self._device(peer, said.device), agent=self._agent(peer, said.agent))
        trusted = replace(sent, segment=sent.segment._replace(origin=origin))
        report = arrive(self.arrivals, trusted, message.prepared, known.stream, now=now, written=written)
        if report.turns and sent.lane == "live":
            turns.reopen_session(self.store, origin.session_id)
        return report

    def _device(self, peer: Peer, said: str) -> str:
        """Return the origin device: the owner of the key, unless that machine was home and hands over others' data."""
        return said if peer.vouches and said != peer.name else peer.name

    def _agent(self, peer: Peer, said: str) -> str:
        """Return the agent id to store: the one claimed, or the device's own if that belongs to another."""
        return said if peer.vouches else relay_peers.take_agent(self.store, peer, said, self.own_agent)

    def end_session(self, peer: Peer, fields: dict[str, Any], now: int) -> None:
        """Note that a session has ended, if it is the device's own."""
        if peer.vouches or inbox.is_session_of(self.store, fields["session"], peer.name):
            turns.end_session(self.store, fields["session"], min(fields["at"], now))

    def keep_private(self, _: Peer, fields: dict[str, Any], __: int) -> None:
        """Note lines that are kept out."""
        privacy.add_private_lines(self.store, fields["uuids"])

    def forget(self, peer: Peer, fields: dict[str, Any], now: int) -> None:
        """Store a device's tombstones."""
        take_from_device(self.store, [one._replace(device=peer.name) for one in fields["tombstones"]], now)

    def do_nothing(self, _: Peer, __: dict[str, Any], ___: int) -> None:
        """Do nothing: the message means nothing."""

    def remember(self, peer: Peer, fields: dict[str, Any], _: int) -> None:
        """Store a memory if it is newer than the stored one. Its author is the device that sealed it."""
        said: Version = fields["memory"]
        one = said.memory
        trusted = replace(one, device=self._device(peer, one.device), agent=self._agent(peer, one.agent))
        here = None if one.cwd is None else inbox.project_here(self.store, one.cwd)
        memories.put_version(self.store, Version(trusted, here or said.project))

    def leave_stream(self, peer: Peer, fields: dict[str, Any], now: int) -> None:
        """Handle a stream that continues in another one: stop waiting for it, unless it belongs to a live copy."""
        stream, because = fields["stream"], fields["because"]
        if stream[:8] != peer.up_prefix:
            return
        old = inbox.meet_stream(self.store, stream, now)
        if old.peer not in (None, peer.id):
            return
        if old.peer is None:
            inbox.bind(self.store, old.id, peer.id, old.channel or 1, None)
        if because == "fork":
            relay_peers.note_fork(self.store, peer.id, now)
            inbox.note_forked(self.store, old)
            if old.state != "fork":
                return
        inbox.leave(self.store, old, because, "its device went on in another stream", now)


def _counts(report: IngestReport) -> tuple[int, int, int, int, int]:
    return report.bytes_captured, report.bytes_private, report.turns, report.chunks, report.repeated


def read_words(payload: bytes) -> ControlMessage:
    """Parse a control message.

    Raises:
        InvalidRecordError: It is malformed or unknown to this version.
    """
    try:
        words = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise InvalidRecordError("the message cannot be understood") from error
    if not isinstance(words, dict) or words.get("v") != 1:
        raise InvalidRecordError("the message is of a version that this crystal does not know", hint="update crystal")
    kind = words.get("kind")
    if not isinstance(kind, str) or kind not in CONTROL_KINDS:
        raise InvalidRecordError("the message is of a kind that this crystal does not know")
    return ControlMessage(kind, CONTROL_KINDS[kind].read(words))


def _stream(words: dict[str, Any]) -> bytes:
    try:
        stream = bytes.fromhex(_text(words, "stream", 32))
    except ValueError as error:
        raise InvalidRecordError("the message names no stream") from error
    if len(stream) != 16:
        raise InvalidRecordError("the message names no stream")
    return stream


def _uuids(words: dict[str, Any]) -> list[str]:
    uuids = words.get("uuids")
    if not isinstance(uuids, list) or not all(isinstance(uuid, str) for uuid in uuids):
        raise InvalidRecordError("the message names no lines")
    return [uuid for uuid in uuids if uuid and is_unicode(uuid) and "\0" not in uuid]


def _text(words: dict[str, Any], name: str, most: int) -> str:
    value = words.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= most or not is_unicode(value) or "\0" in value:
        raise InvalidRecordError(f"the message has no {name}")
    return value


def _whole(words: dict[str, Any], name: str) -> int:
    value = words.get(name)
    if type(value) is not int or not 0 <= value < 1 << 53:
        raise InvalidRecordError(f"the message has no {name}")
    return value


def _memory(words: dict[str, Any]) -> Version:
    try:
        return memory_from_dict(words.get("memory"))
    except InvalidMemoryError as error:
        raise InvalidRecordError(error.message, hint=error.hint) from error


@dataclass(frozen=True, slots=True)
class ControlKind:
    """One kind of control message: how its fields are read and checked, and what is done with them."""

    read: Callable[[dict[str, Any]], dict[str, Any]]
    apply: Callable[[MessageHandler, Peer, dict[str, Any], int], None]


CONTROL_KINDS = {
    "ended": ControlKind(
        lambda words: {"session": _text(words, "session", MAX_KEY), "at": _whole(words, "at")},
        MessageHandler.end_session,
    ),
    "continues": ControlKind(
        lambda words: {"stream": _stream(words), "because": _text(words, "because", 40)}, MessageHandler.leave_stream
    ),
    "private": ControlKind(lambda words: {"uuids": _uuids(words)}, MessageHandler.keep_private),
    "forget": ControlKind(
        lambda words: {"tombstones": read_tombstones(words.get("tombstones"), "")}, MessageHandler.forget
    ),
    "memory": ControlKind(lambda words: {"memory": _memory(words)}, MessageHandler.remember),
    "note": ControlKind(lambda _: {}, MessageHandler.do_nothing),
}
"""Control messages by their kind. Another kind is another row."""
