"""Hand over the role of home to another machine: one document sealed for the new home.

It contains the root key, home's relay token, every device with its key generation, and how far each stream is
committed. So devices continue where they were without any action.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from crystal.store import Store
from crystal.store.sync import inbox, relay_peers
from crystal.store.sync.relay_peers import NewLink, link_of
from crystal.sync.wire import InvalidRecordError


@dataclass(frozen=True, slots=True)
class KnownStream:
    """A device's stream and the last committed blob in it."""

    stream: bytes
    channel: int
    lane: str
    last_seq: int
    last_tag: bytes


@dataclass(frozen=True, slots=True)
class KnownDevice:
    """A device as the old home knew it."""

    link: NewLink
    streams: tuple[KnownStream, ...] = ()


@dataclass(frozen=True, slots=True)
class Handover:
    """Content of a handover. Its repr shows no secret.

    Attributes:
        root: The root key.
        token: The relay's token for home.
        name: The new home's name as a device: its rows are stored under this name.
        devices: All other devices, including the old home as a device.
    """

    root: bytes = field(repr=False)
    token: str = field(repr=False)
    name: str
    devices: tuple[KnownDevice, ...]
    v: Literal[2] = 2


def known_devices(store: Store, *, but: bytes) -> tuple[KnownDevice, ...]:
    """Return every device of this home except one."""
    streams = inbox.all_streams(store)
    found = []
    for peer in relay_peers.all_peers(store, "device"):
        known = tuple(
            KnownStream(one.stream, one.channel, one.lane or "live", one.last_seq, one.last_tag)
            for one in streams
            if one.peer == peer.id and one.last_seq
        )
        if peer.device_id != but:
            found.append(KnownDevice(link_of(peer), known))
    return tuple(found)


def from_words(words: Mapping[str, Any]) -> Handover:
    """Decode a handover.

    Raises:
        InvalidRecordError: It is malformed, or of another version.
    """
    try:
        return msgspec.convert(words, Handover)
    except ValueError as error:  # of msgspec, or text that is not UTF-8
        raise InvalidRecordError("the handover document cannot be read", hint="update both machines") from error


def take_devices(store: Store, devices: tuple[KnownDevice, ...], now: int) -> None:
    """Make this machine the home of the devices. Runs inside a transaction. Idempotent."""
    known = {peer.device_id for peer in relay_peers.all_peers(store)}
    for one in devices:
        if one.link.device_id in known:
            continue
        ident = relay_peers.add_peer(store, one.link, now)
        for stream in one.streams:
            met = inbox.meet_stream(store, stream.stream, now)
            inbox.bind(store, met.id, ident, stream.channel, stream.lane)
            if not met.last_seq:
                inbox.advance(store, met, stream.last_seq, stream.last_tag)
