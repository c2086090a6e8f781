"""Hand over the role of home to another machine: one document sealed for the new home.

It holds the root key, home's relay token, every device with its key generation, and how far each stream is committed.
So devices continue where they were without being told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from crystal.store import Store
from crystal.store.sync import inbox, relay_peers
from crystal.store.sync.relay_peers import NewLink
from crystal.sync.wire import BadRecord

VERSION = 1


@dataclass(frozen=True, slots=True)
class KnownDevice:
    """Device as the old home knew it."""

    link: NewLink
    accepted_from: int
    revoked_at: int | None
    vouches: bool
    streams: tuple[KnownStream, ...]


@dataclass(frozen=True, slots=True)
class KnownStream:
    """How far a device's stream is committed."""

    stream: bytes
    channel: int
    lane: str
    last_seq: int
    last_tag: bytes


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
    found = []
    streams = inbox.all_streams(store)
    for peer in relay_peers.all_peers(store, "device"):
        if peer.device_id == but:
            continue
        link = NewLink(
            peer.device_id,
            "device",
            peer.name,
            peer.agent,
            peer.generation,
            peer.up_prefix,
            peer.down_prefix,
            peer.token_id,
        )
        known = tuple(
            KnownStream(one.stream, one.channel, one.lane or "live", one.last_seq, one.last_tag)
            for one in streams
            if one.peer == peer.id and one.last_seq
        )
        found.append(KnownDevice(link, peer.accepted_from, peer.revoked_at, peer.vouches, known))
    return tuple(found)


def to_words(handover: Handover) -> dict[str, Any]:
    """Encode a handover as JSON."""
    return {
        "v": VERSION,
        "root": handover.root.hex(),
        "token": handover.token,
        "name": handover.name,
        "devices": devices_to_words(handover.devices),
    }


def devices_to_words(devices: tuple[KnownDevice, ...]) -> list[dict[str, Any]]:
    """Encode devices as JSON."""
    return [
        {
            "id": one.link.device_id.hex(),
            "name": one.link.name,
            "agent": one.link.agent,
            "generation": one.link.generation,
            "accepted_from": one.accepted_from,
            "up": one.link.up_prefix.hex(),
            "down": one.link.down_prefix.hex(),
            "token_id": one.link.token_id,
            "revoked_at": one.revoked_at,
            "vouches": one.vouches,
            "streams": [
                [known.stream.hex(), known.channel, known.lane, known.last_seq, known.last_tag.hex()]
                for known in one.streams
            ],
        }
        for one in devices
    ]


def from_words(words: Mapping[str, Any]) -> Handover:
    """Decode a handover.

    Raises:
        BadRecord: It is malformed.
    """
    try:
        if words["v"] != VERSION:
            raise BadRecord("the handing over is of another version", hint="update crystal on both machines")
        devices = devices_from_words(words["devices"])
        return Handover(bytes.fromhex(words["root"]), str(words["token"]), str(words["name"]), devices)
    except (ValueError, TypeError, KeyError) as error:
        raise BadRecord(f"the handing over cannot be understood ({type(error).__name__})") from error


def devices_from_words(rows: list[Any]) -> tuple[KnownDevice, ...]:
    """Decode devices. Malformed input raises ValueError, TypeError or KeyError."""
    return tuple(
        KnownDevice(
            NewLink(
                bytes.fromhex(row["id"]),
                "device",
                str(row["name"]),
                row["agent"],
                int(row["generation"]),
                bytes.fromhex(row["up"]),
                bytes.fromhex(row["down"]),
                row["token_id"],
            ),
            int(row["accepted_from"]),
            row["revoked_at"],
            bool(row["vouches"]),
            tuple(
                KnownStream(bytes.fromhex(stream), int(channel), str(lane), int(seq), bytes.fromhex(tag))
                for stream, channel, lane, seq, tag in row["streams"]
            ),
        )
        for row in rows
    )


def take_devices(store: Store, devices: tuple[KnownDevice, ...], now: int) -> None:
    """Make this machine the home of the devices. Runs inside a transaction. Idempotent."""
    known = {peer.device_id for peer in relay_peers.all_peers(store)}
    for one in devices:
        if one.link.device_id in known:
            continue
        ident = relay_peers.add_peer(store, one.link, now)
        relay_peers.set_generation(store, ident, one.link.generation, one.accepted_from)
        if one.revoked_at is not None:
            relay_peers.set_revoked(store, ident, one.revoked_at)
        if one.vouches:
            relay_peers.set_vouches(store, ident)
        for stream in one.streams:
            met = inbox.meet_stream(store, stream.stream, now)
            inbox.bind(store, met.id, ident, stream.channel, stream.lane)
            if not met.last_seq:
                inbox.advance(store, met, stream.last_seq, stream.last_tag)
