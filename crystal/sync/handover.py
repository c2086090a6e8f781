"""Hand over the role of home to another machine: one document sealed for the new home.

It holds the root key, home's relay token, every device with its key generation, and how far each stream is committed.
So devices continue where they were without being told.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from crystal.store import Store
from crystal.store.sync import inbox, relay_peers
from crystal.store.sync.relay_peers import NewLink, link_of
from crystal.sync.wire import InvalidRecordError

VERSION = 1
_BYTES = ("device_id", "up_prefix", "down_prefix", "stream", "last_tag")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class KnownStream:
    """How far a device's stream is committed."""

    stream: bytes
    channel: int
    lane: str
    last_seq: int
    last_tag: bytes


@dataclass(frozen=True, slots=True)
class KnownDevice:
    """Device as the old home knew it."""

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


def to_words(handover: Handover) -> dict[str, Any]:
    """Encode a handover as JSON."""
    words = {"root": handover.root.hex(), "token": handover.token, "name": handover.name}
    return {"v": VERSION, **words, "devices": devices_to_words(handover.devices)}


def devices_to_words(devices: Iterable[KnownDevice]) -> list[dict[str, Any]]:
    """Encode devices as JSON, bytes in hexadecimal."""
    rows: list[dict[str, Any]] = json.loads(json.dumps([asdict(one) for one in devices], default=bytes.hex))
    return rows


def from_words(words: Mapping[str, Any]) -> Handover:
    """Decode a handover.

    Raises:
        InvalidRecordError: It is malformed.
    """
    try:
        if words["v"] != VERSION:
            raise InvalidRecordError("the handing over is of another version", hint="update crystal on both machines")
        devices = devices_from_words(words["devices"])
        return Handover(bytes.fromhex(words["root"]), str(words["token"]), str(words["name"]), devices)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InvalidRecordError(f"the handing over cannot be understood ({type(error).__name__})") from error


def devices_from_words(rows: list[Any]) -> tuple[KnownDevice, ...]:
    """Decode devices. Malformed input raises ValueError, TypeError, KeyError or AttributeError."""
    return tuple(
        KnownDevice(_decoded(NewLink, row["link"]), tuple(_decoded(KnownStream, one) for one in row["streams"]))
        for row in rows
    )


def _decoded(kind: type[T], words: Mapping[str, Any]) -> T:
    return kind(**{name: bytes.fromhex(value) if name in _BYTES else value for name, value in words.items()})


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
