"""Which of the listed streams are read, and how much is spent on those in which nothing has ever opened.

A relay may list anything. Streams of nobody who is paired, and of revoked devices, are counted and not fetched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from crystal.store.sync.inbox import InStream
from crystal.store.sync.quarantine import NOBODY
from crystal.store.sync.relay_peers import Peer
from crystal.sync.answers import StreamInfo

MAX_UNPROVEN_TRIES = 200
"""How many streams without anything to show for it are fetched in one poll, of those in which nothing ever opened."""
MAX_FRUITLESS_MS = 30_000
"""How long one poll spends on streams in which it takes nothing."""

Listed = dict[tuple[int, str], tuple[int, int]]
"""Streams and blobs that the relay lists and nobody fetches, by peer and reason."""


@dataclass(frozen=True, slots=True)
class Triage:
    """The listed streams, sorted.

    Attributes:
        proven: Something of a device opened in them, or the device names them.
        unproven: Nothing opened in them yet.
        refused: What is not fetched.
    """

    proven: tuple[StreamInfo, ...]
    unproven: tuple[StreamInfo, ...]
    refused: Listed


def triage(
    listed: Iterable[StreamInfo],
    known: Mapping[bytes, InStream],
    writers: Mapping[bytes, Peer],
    own_prefixes: frozenset[bytes],
) -> Triage:
    """Sort what a relay lists.

    Args:
        listed: The relay's list.
        known: The streams that are written down here.
        writers: The devices, revoked ones too, by the first 8 bytes of their streams.
        own_prefixes: Of streams that this machine writes.
    """
    proven: list[StreamInfo] = []
    unproven: list[StreamInfo] = []
    refused: list[tuple[tuple[int, str], StreamInfo]] = []
    for info in listed:
        prefix = info.stream[:8]
        if prefix in own_prefixes:
            continue
        writer, stream = writers.get(prefix), known.get(info.stream)
        if writer is None:
            refused.append(((NOBODY, "unknown"), info))
        elif writer.revoked_at is not None:
            refused.append(((writer.id, "revoked"), info))
        elif stream is not None and (stream.peer is not None or stream.channel):
            proven.append(info)
        else:
            unproven.append(info)
    proven.sort(key=lambda info: (known[info.stream].lane == "past", info.stream))
    unproven.sort(key=lambda info: info.stream)
    return Triage(tuple(proven), tuple(unproven), count_listed(refused))


def count_listed(streams: Iterable[tuple[tuple[int, str], StreamInfo]]) -> Listed:
    """Count streams with blobs in them, and their blobs, by peer and reason."""
    counted: Counter[tuple[int, str]] = Counter()
    blobs: Counter[tuple[int, str]] = Counter()
    for key, info in streams:
        if info.count:
            counted[key] += 1
            blobs[key] += min(info.count, 1 << 40)
    return {key: (streams, min(blobs[key], 1 << 62)) for key, streams in counted.items()}


def starting_after(streams: Sequence[StreamInfo], last: bytes) -> list[StreamInfo]:
    """Give streams in order, beginning with the first one after ``last``, and around."""
    at = next((at for at, info in enumerate(streams) if info.stream > last), 0)
    return [*streams[at:], *streams[:at]]


@dataclass(slots=True)
class Effort:
    """What one poll has spent on streams in which it took nothing.

    Attributes:
        clock: Gives the time, ms.
        tries: Unproven streams that gave nothing.
        spent_ms: The time that went into streams that gave nothing.
    """

    clock: Callable[[], int]
    tries: int = 0
    spent_ms: int = 0

    @property
    def is_over(self) -> bool:
        """Whether no more is to be spent."""
        return self.tries >= MAX_UNPROVEN_TRIES or self.spent_ms >= MAX_FRUITLESS_MS

    def count(self, began: int, *, is_fruitful: bool, is_unproven: bool) -> None:
        """Count a stream that was read from ``began`` until now."""
        if not is_fruitful:
            self.spent_ms += max(0, self.clock() - began)
            self.tries += is_unproven
