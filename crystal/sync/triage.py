"""Select the listed streams to read, and limit the effort for streams without any valid blob.

A relay may list anything. Streams of unknown and revoked devices are counted but not fetched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from crystal.store.sync.inbox import InStream
from crystal.store.sync.refusal_counts import NOBODY
from crystal.store.sync.relay_peers import Peer
from crystal.sync.answers import StreamInfo

MAX_UNPROVEN_TRIES = 200
"""Maximum number of fruitless fetches in one poll, among streams of which no blob was ever opened."""
MAX_FRUITLESS_MS = 30_000
"""Maximum time that one poll spends on streams from which it takes nothing, ms."""

Listed = dict[tuple[int, str], tuple[int, int]]
"""Number of streams and blobs that are listed but not fetched, by peer and reason."""


@dataclass(frozen=True, slots=True)
class Triage:
    """The listed streams, sorted.

    Attributes:
        proven: Streams of which a blob was opened, or which a device's heartbeat names.
        unproven: Streams of which no blob was opened yet.
        refused: Not fetched.
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
    """Sort the streams listed by a relay.

    Args:
        listed: The relay's listing.
        known: The streams known to this store.
        writers: The devices, including revoked ones, by the first 8 bytes of their streams.
        own_prefixes: Prefixes of streams that this machine writes.
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
    """Count non-empty streams and their blobs, by peer and reason."""
    counted: Counter[tuple[int, str]] = Counter()
    blobs: Counter[tuple[int, str]] = Counter()
    for key, info in streams:
        if info.count:
            counted[key] += 1
            blobs[key] += min(info.count, 1 << 40)
    return {key: (streams, min(blobs[key], 1 << 62)) for key, streams in counted.items()}


def starting_after(streams: Sequence[StreamInfo], last: bytes) -> list[StreamInfo]:
    """Return streams in order, starting after ``last`` and wrapping around."""
    at = next((at for at, info in enumerate(streams) if info.stream > last), 0)
    return [*streams[at:], *streams[:at]]


@dataclass(slots=True)
class Effort:
    """Effort that one poll has spent on streams without a usable blob.

    Attributes:
        clock: Returns the time, ms.
        tries: Number of fruitless fetches of unproven streams.
        spent_ms: Time spent on fruitless streams, ms.
    """

    clock: Callable[[], int]
    tries: int = 0
    spent_ms: int = 0

    @property
    def is_over(self) -> bool:
        """Return True if the limit is reached."""
        return self.tries >= MAX_UNPROVEN_TRIES or self.spent_ms >= MAX_FRUITLESS_MS

    def count(self, began: int, *, is_fruitful: bool, is_unproven: bool) -> None:
        """Count a stream that was read from ``began`` until now."""
        if not is_fruitful:
            self.spent_ms += max(0, self.clock() - began)
            self.tries += is_unproven
