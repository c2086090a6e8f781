"""What is done with a blob of a device that opened: conversations are ingested, documents remembered.

Each way ends with the stream's cursor moved in the transaction of what the blob told.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace

from crystal.envelope import Kind, Opened
from crystal.ingest import IngestReport
from crystal.paths import AGENT_ID
from crystal.relay.arrival import NOTHING, Arrivals, arrive
from crystal.relay.wire import BadRecord, Sent, decode_segment, is_unicode
from crystal.store import Store, inbox, privacy, relay_peers, turns
from crystal.store.inbox import InStream
from crystal.store.relay_peers import Peer

MOST_MESSAGE = 768 << 20
"""The longest message, in bytes, that parts are collected for: a line of a transcript, and what stands with it."""


@dataclass(frozen=True, slots=True)
class Taker:
    """Takes what devices said into the home machine's memory.

    Attributes:
        arrivals: This machine's memory.
        own_agent: The agent id of this machine, which no device may use.
    """

    arrivals: Arrivals
    own_agent: str

    @property
    def store(self) -> Store:
        """The memory's store."""
        return self.arrivals.store

    def take(self, peer: Peer, known: InStream, seq: int, opened: Opened, now: int) -> IngestReport:
        """Take the next blob of a conversations' stream.

        Raises:
            WatermarkMoved: Another poller took it.
            BadRecord: It is authentic and makes no sense.
            StoreFull, StoreBusy, Unavailable: Nothing happened; try again later.
        """

        def advance() -> None:
            inbox.advance(self.store, known, seq, opened.tag)
            relay_peers.heard(self.store, peer.id, now)

        if opened.header.more:
            if inbox.fragments_bytes(self.store, known.id) + len(opened.payload) > MOST_MESSAGE:
                raise BadRecord(f"the message is longer than {MOST_MESSAGE >> 20} MiB")
            with self.store.transaction():
                advance()
                inbox.add_fragment(self.store, known.id, seq, opened.payload)
            return NOTHING
        payload = b"".join([*inbox.fragments(self.store, known.id), opened.payload])
        if opened.kind is Kind.CONTROL:
            return self._control(peer, known, payload, advance, now)
        return self._segment(peer, known, decode_segment(payload), advance, now)

    def _segment(self, peer: Peer, known: InStream, sent: Sent, advance: Callable[[], None], now: int) -> IngestReport:
        def advance_whole() -> None:
            advance()
            inbox.bind(self.store, known.id, peer.id, known.channel, sent.lane)
            inbox.drop_fragments(self.store, known.id)

        origin = replace(
            sent.segment.origin,
            device=self._device(peer, sent.segment.origin.device),
            agent=self._agent(peer, sent.segment.origin.agent),
        )
        trusted = replace(sent, segment=replace(sent.segment, origin=origin))
        return arrive(self.arrivals, trusted, known.stream, advance=advance_whole, now=now)

    def _device(self, peer: Peer, said: str) -> str:
        """Who said it: the one whose key it is, unless that machine was home and hands over what others said."""
        return said if peer.vouches and said != peer.name else peer.name

    def _agent(self, peer: Peer, said: str) -> str:
        """The agent id that it is kept under: the device's own, whatever it claims, where that is another's."""
        if peer.vouches:
            return said
        if said != self.own_agent and relay_peers.own_agent(self.store, said, peer.id):
            return said
        own = AGENT_ID.fullmatch(f"{said}-{peer.name}")
        if own is not None and relay_peers.own_agent(self.store, own[0], peer.id):
            return own[0]
        return f"device-{peer.device_id.hex()}"

    def _control(
        self, peer: Peer, known: InStream, payload: bytes, advance: Callable[[], None], now: int
    ) -> IngestReport:
        words = _control_words(payload)
        with self.store.transaction():
            advance()
            inbox.drop_fragments(self.store, known.id)
            kind = words.get("kind")
            if kind == "ended":
                turns.end_session(self.store, _text(words, "session"), min(_whole(words, "at"), now))
            elif kind == "continues":
                self._continues(peer, words, now)
            elif kind == "private":
                privacy.add_private_lines(self.store, _uuids(words))
            elif kind != "note":
                raise BadRecord("the message is of a kind that this crystal does not know")
        return NOTHING

    def _continues(self, peer: Peer, words: dict[str, object], now: int) -> None:
        """A stream goes on in another one: wait for nothing more of it, unless it is a copy's that still lives."""
        try:
            old = inbox.find_stream(self.store, bytes.fromhex(_text(words, "stream")))
        except ValueError as error:
            raise BadRecord("the message names no stream") from error
        because = _text(words, "because")
        if old is None or old.peer != peer.id:
            return
        if because == "fork":
            relay_peers.note_fork(self.store, peer.id, now)
            if old.state != "fork":
                return
        inbox.leave(self.store, old.stream, because, "its device went on in another stream", now)


def _control_words(payload: bytes) -> dict[str, object]:
    try:
        words = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise BadRecord("the message cannot be understood") from error
    if not isinstance(words, dict) or words.get("v") != 1:
        raise BadRecord("the message is of a version that this crystal does not know", hint="update crystal")
    return words


def _uuids(words: dict[str, object]) -> list[str]:
    uuids = words.get("uuids")
    if not isinstance(uuids, list) or not all(isinstance(uuid, str) for uuid in uuids):
        raise BadRecord("the message names no lines")
    return [uuid for uuid in uuids if is_unicode(uuid)]


def _text(words: dict[str, object], name: str) -> str:
    value = words.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= 400:
        raise BadRecord(f"the message has no {name}")
    return value


def _whole(words: dict[str, object], name: str) -> int:
    value = words.get(name)
    if type(value) is not int or not 0 <= value < 1 << 53:
        raise BadRecord(f"the message has no {name}")
    return value
