"""Remove forgotten lines from the outbox. Its blobs are sealed, but they contain the text.

Messages that home has confirmed are deleted. Waiting messages are sealed again without the lines, in another stream,
which first sends the tombstones. Source: docs/spec/relay-messages.md, section 7.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from crystal.ingest.forgotten_filter import forgotten_lines, is_touched, name_touched, without_lines
from crystal.store import Store
from crystal.store.forget.forgetting import (
    Tombstones,
    is_session_forgotten,
    open_tombstones,
    read_blocks,
)
from crystal.store.memories import memories
from crystal.store.sync import outbox
from crystal.store.sync.outbox import OutStream
from crystal.sync.envelope.blob import Channel
from crystal.sync.envelope.packing import PayloadKind
from crystal.sync.sending import KeptMessage, Link, kept_messages, seal_changed
from crystal.sync.tombstones import messages
from crystal.sync.wire import InvalidRecordError, SentSegment, control_message, decode_segment, encode_segment

BECAUSE = "forgotten"
"""Reason for ending a stream, as sent to home."""
NOTHING = control_message("note", {})


@dataclass(frozen=True, slots=True)
class SealedOutbox:
    """Outbox of a device, opened with its own keys.

    Attributes:
        store: The device's store, open for writing.
        links: The links that streams were written over, by row id of the peer.
        clock: Returns the time, ms.
        device: This machine's name.
    """

    store: Store
    links: Callable[[], Mapping[int, Link]]
    clock: Callable[[], int]
    device: str = ""

    def payloads(self) -> Iterator[tuple[str, bytes]]:
        """Yield the place and the plain bytes of every kept message.

        Raises:
            NotConfiguredError: The key is missing.
        """
        for link, stream in self._streams():
            for message in kept_messages(self.store, link, stream):
                yield f"{stream.stream.hex()} {message.seqs[0]}", message.payload

    def clean(self) -> None:
        """Remove every forgotten line, session and memory from the outbox.

        Each stream is cleaned in one transaction. Idempotent, also after a crash.

        Raises:
            NotConfiguredError: The key is missing.
        """
        streams = list(self._streams())
        self._note_touched(streams)
        for link, stream in streams:
            with self.store.transaction():
                self._clean(link, stream)

    def unopened(self) -> int:
        """Count the kept conversation blobs for a former home whose key is gone: they cannot be opened."""
        opened = {stream.id for _, stream in self._streams()}
        return sum(
            len(outbox.kept_from(self.store, stream.id, 1))
            for stream in outbox.streams(self.store)
            if stream.channel == Channel.CONVERSATIONS and stream.id not in opened
        )

    def _note_touched(self, streams: Sequence[tuple[Link, OutStream]]) -> None:
        """Record the sessions of forgotten lines that are only in the outbox."""
        blocks = read_blocks(self.store)
        segments = (
            sent.segment
            for link, stream in streams
            for message in kept_messages(self.store, link, stream)
            if (sent := _segment(message)) is not None
        )
        touched = {one.origin.session_id for one in segments if blocks is not None and is_touched(blocks, one)}
        new = [one for one in sorted(touched) if not is_session_forgotten(self.store, one)]
        if new:
            with self.store.transaction():
                name_touched(self.store, new, self.device, self.clock())

    def _streams(self) -> Iterator[tuple[Link, OutStream]]:
        kept = [
            stream
            for stream in outbox.streams(self.store)
            if stream.channel == Channel.CONVERSATIONS and outbox.first_kept(self.store, stream.id) <= stream.last_seq
        ]
        links = self.links() if kept else {}
        for stream in kept:
            if stream.peer in links:
                yield links[stream.peer], stream

    def _clean(self, link: Link, stream: OutStream) -> None:
        blocks = read_blocks(self.store)
        waits = next((blob.seq for blob in outbox.unreceipted(self.store, stream.id, 1)), None)
        done: list[int] = []
        start: int | None = None
        for message in kept_messages(self.store, link, stream):
            if _changed(self.store, blocks, message) is None:
                continue
            if waits is None or message.seqs[-1] < waits:
                done += message.seqs
            else:
                start = waits
        outbox.drop_blobs(self.store, stream.id, done)
        if start is not None:
            ahead = list(messages([tombstone for _, tombstone in open_tombstones(self.store)]))
            seal_changed(
                self.store,
                link,
                stream,
                start,
                self.clock(),
                BECAUSE,
                change=lambda message: _changed(self.store, blocks, message),
                ahead=ahead,
            )


def _changed(store: Store, blocks: Tombstones | None, message: KeptMessage) -> tuple[PayloadKind, bytes] | None:
    """Return the replacement for a message, or None if it stays."""
    if message.kind is PayloadKind.CONTROL:
        return (PayloadKind.CONTROL, NOTHING) if _is_of_forgotten_memory(store, message.payload) else None
    sent = _segment(message)
    if sent is None or blocks is None:
        return None
    kept = without_lines(sent.segment, forgotten_lines(blocks, sent.segment))
    return None if kept is sent.segment else (message.kind, encode_segment(kept, sent.projects, sent.lane))


def _segment(message: KeptMessage) -> SentSegment | None:
    if message.kind is not PayloadKind.RECORDS:
        return None
    try:
        return decode_segment(message.payload)
    except InvalidRecordError:  # sealed by an older version; home will refuse it
        return None


def _is_of_forgotten_memory(store: Store, payload: bytes) -> bool:
    try:
        words = json.loads(payload)
    except (ValueError, RecursionError):
        return False
    memory = words.get("memory") if isinstance(words, dict) and words.get("kind") == "memory" else None
    uid = memory.get("id") if isinstance(memory, dict) else None
    return isinstance(uid, str) and memories.is_forgotten(store, uid)
