"""Remove forgotten lines from the outbox. Its blobs are sealed, but they contain the text.

Messages that home has confirmed are deleted. Waiting messages are sealed again without the lines, in another stream,
which first sends the tombstones. Source: docs/spec/relay-messages.md, section 7.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crystal.errors import NotConfigured
from crystal.ingest.forgotten_filter import forgotten_lines, is_touched, name_touched, without_lines
from crystal.model.capture import Segment
from crystal.store import Store
from crystal.store.forget.forgetting import (
    Blocks,
    Tombstone,
    add_tombstones,
    forgotten_memories,
    is_session_forgotten,
    open_tombstones,
    read_blocks,
)
from crystal.store.sync import outbox
from crystal.store.sync.outbox import OutStream
from crystal.sync.envelope import Channel, Kind
from crystal.sync.sending import KeptMessage, Link, kept_messages, seal_changed
from crystal.sync.tombstones import messages
from crystal.sync.wire import BadRecord, Sent, decode_segment, encode_segment
from crystal.transcript import line_facts, parse_turns

BECAUSE = "forgotten"
"""Reason for ending a stream, as sent to home."""
UNKNOWN: list[Any] = ["", 0, 0, []]
"""Location of a match that may be anywhere in the outbox."""
NOTHING = json.dumps({"v": 1, "kind": "note"}).encode()

Found = list[Any]
"""One message: its stream in hex, its first and last number, and the offsets of lines to remove for their text."""


@dataclass(frozen=True, slots=True)
class SealedOutbox:
    """Outbox of a device, opened with its own keys.

    Attributes:
        store: The device's store, open for writing.
        links: The links that streams were written over, by row id of the peer.
        clock: Returns the time, ms.
        device: This machine's name.
        by_words: Remove lines by their text as well as by id. Used on a machine without a memory of its own, where only
            the outbox knows the ids.
    """

    store: Store
    links: Callable[[], Mapping[int, Link]]
    clock: Callable[[], int]
    device: str = ""
    by_words: bool = False

    def find(self, matches: Callable[[bytes], bool]) -> list[Found]:
        """Return the kept messages whose plain bytes match, with the offsets of matching lines but no text.

        Without the key the result is unknown; then all kept messages are checked by id once the key is back.
        """
        try:
            return [
                found
                for link, stream in self._streams()
                for message in kept_messages(self.store, link, stream)
                if (found := _found(stream, message, matches, by_words=self.by_words)) is not None
            ]
        except NotConfigured:
            return [UNKNOWN]

    def clean(self, found: Sequence[Found]) -> None:
        """Remove everything that was found, and every forgotten line, session or memory, from the outbox.

        Each stream is cleaned in one transaction. Idempotent, also after a crash. If a found message is missing,
        another process has sealed it again: then all kept messages are checked.

        Raises:
            NotConfigured: The key is missing.
        """
        wanted: dict[str, dict[int, frozenset[int]]] = {}
        for name, first, _, lines, *_ in found:
            wanted.setdefault(str(name), {})[int(first)] = frozenset(lines)
        streams = list(self._streams())
        is_moved = any(not self._is_kept(streams, name, first) for name, starts in wanted.items() for first in starts)
        is_moved = self._note_touched(streams) or is_moved
        for link, stream in streams:
            starts = wanted.get(stream.stream.hex(), {})
            if starts or is_moved:
                self._clean(link, stream, starts, only=None if is_moved else frozenset(starts))

    def unopened(self) -> int:
        """Count the kept conversation blobs that cannot be opened: those for a former home, whose key is gone."""
        opened = {stream.id for _, stream in self._streams()}
        return sum(
            len(outbox.kept_from(self.store, stream.id, 1))
            for stream in outbox.streams(self.store)
            if stream.channel == Channel.CONVERSATIONS and stream.id not in opened
        )

    def _note_touched(self, streams: Sequence[tuple[Link, OutStream]]) -> bool:
        """Record the sessions with forgotten lines, which only the outbox knows. Return True if one is new."""
        blocks = read_blocks(self.store)
        segments = (
            sent.segment
            for link, stream in streams
            for message in kept_messages(self.store, link, stream)
            if (sent := _segment(message, message.payload)) is not None
        )
        touched = {one.origin.session_id for one in segments if blocks is not None and is_touched(blocks, one)}
        new = [one for one in sorted(touched) if not is_session_forgotten(self.store, one)]
        if new:
            with self.store.transaction():
                name_touched(self.store, new, self.device, self.clock())
        return bool(new)

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

    def _is_kept(self, streams: Sequence[tuple[Link, OutStream]], name: str, seq: int) -> bool:
        return any(one.stream.hex() == name and outbox.tag_at(self.store, one.id, seq) for _, one in streams)

    def _name(self, link: Link, stream: OutStream, lines: Mapping[int, frozenset[int]]) -> None:
        """Write tombstones for lines removed for their text: home may have stored them. Runs inside a transaction."""
        names: set[str] = set()
        for message in kept_messages(self.store, link, stream) if any(lines.values()) else ():
            sent, gone = _segment(message, message.payload), lines.get(message.seqs[0], frozenset())
            found = () if sent is None else _said(sent.segment)
            names |= {uuid for at, line in found if at in gone and (uuid := line_facts(line).uuid) is not None}
        if names:
            uid = hashlib.sha256("\n".join(("outbox", *sorted(names))).encode("utf-8", "replace")).hexdigest()[:32]
            made = Tombstone(uid, "lines", {"lines": sorted(names), "sessions": []}, None, self.clock(), self.device)
            add_tombstones(self.store, [made], self.clock())

    def _clean(
        self, link: Link, stream: OutStream, lines: Mapping[int, frozenset[int]], *, only: frozenset[int] | None
    ) -> None:
        with self.store.transaction():
            self._name(link, stream, lines)
            blocks = read_blocks(self.store)
            waits = next((blob.seq for blob in outbox.unreceipted(self.store, stream.id, 1)), None)
            done: list[int] = []
            start: int | None = None
            for message in kept_messages(self.store, link, stream):
                first, last = message.seqs[0], message.seqs[-1]
                asked = lines.get(first, frozenset())
                if (only is not None and first not in only) or _changed(self.store, blocks, message, asked) is None:
                    continue
                if waits is None or last < waits:
                    done += message.seqs
                else:
                    start = waits
            outbox.drop_blobs(self.store, stream.id, done)
            if start is None:
                return
            ahead = list(messages([tombstone for _, tombstone in open_tombstones(self.store)]))
            seal_changed(
                self.store,
                link,
                stream,
                start,
                self.clock(),
                BECAUSE,
                change=lambda message: _changed(self.store, blocks, message, lines.get(message.seqs[0], frozenset())),
                ahead=ahead,
            )


def _found(
    stream: OutStream, message: KeptMessage, matches: Callable[[bytes], bool], *, by_words: bool
) -> Found | None:
    payload = message.payload
    if not matches(payload):
        return None
    sent = _segment(message, payload) if by_words and not matches(b"") else None
    lines = [] if sent is None else _saying(sent.segment, matches)
    return [stream.stream.hex(), message.seqs[0], message.seqs[-1], lines]


def _saying(segment: Segment, matches: Callable[[bytes], bool]) -> list[int]:
    """Return the offsets of lines whose text matches.

    Other fields are ignored: the next line refers to its predecessor by id.
    """
    lines, subagent = list(_said(segment)), segment.origin.subagent is not None
    turns = parse_turns(lines, segment.before.transcript, subagent=subagent)
    return sorted({turn.offset for turn in turns if matches(turn.text.encode("utf-8", "surrogatepass"))})


def _changed(
    store: Store, blocks: Blocks | None, message: KeptMessage, lines: frozenset[int]
) -> tuple[Kind, bytes] | None:
    """Return the replacement for a message, or None if it stays."""
    payload = message.payload
    if message.kind is Kind.CONTROL:
        return (Kind.CONTROL, NOTHING) if _is_of_forgotten_memory(store, payload) else None
    sent = _segment(message, payload)
    if sent is None:
        return None
    gone = lines if blocks is None else lines | forgotten_lines(blocks, sent.segment)
    kept = without_lines(sent.segment, gone)
    return None if kept is sent.segment else (message.kind, encode_segment(kept, sent.projects, sent.lane))


def _segment(message: KeptMessage, payload: bytes) -> Sent | None:
    if message.kind is not Kind.RECORDS:
        return None
    try:
        return decode_segment(payload)
    except BadRecord:  # sealed by an older version; home will refuse it
        return None


def _said(segment: Segment) -> Iterator[tuple[int, bytes]]:
    for piece in segment.pieces:
        yield from piece.lines


def _is_of_forgotten_memory(store: Store, payload: bytes) -> bool:
    try:
        words = json.loads(payload)
    except (ValueError, RecursionError):
        return False
    memory = words.get("memory") if isinstance(words, dict) and words.get("kind") == "memory" else None
    uid = memory.get("id") if isinstance(memory, dict) else None
    return isinstance(uid, str) and bool(forgotten_memories(store, [uid]))
