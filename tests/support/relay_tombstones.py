"""Helpers for the tests of tombstones between machines."""

from __future__ import annotations

from crystal.store import Store
from crystal.store.forget.forgetting import Tombstone, tombstones_after
from crystal.store.sync import outbox, relay_forgotten
from crystal.sync.sending import kept_messages
from tests.support.capture_machine import NOW
from tests.support.relay_world import Device, World


def tombstone(number: int, *lines: str, kind: str = "lines", until_at: int | None = None, **more: object) -> Tombstone:
    value: dict[str, object] = {"lines": list(lines), **more}
    return Tombstone(f"{number:032x}", kind, value, until_at, NOW, "somewhere")  # type: ignore[arg-type]


def uids(store: Store) -> set[str]:
    return {one.uid for _, one in tombstones_after(store, 0, 10_000)}


def confirmed(device: Device) -> bool:
    return relay_forgotten.count_unconfirmed(device.store)[0] == 0


def sealed_words(device: Device) -> bytes:
    """Everything that the outbox holds, in the clear."""
    link = device.link()
    streams = outbox.streams(device.store)
    return b"".join(
        message.payload
        for stream in streams
        if stream.lane != "latest"
        for message in kept_messages(device.store, link, stream)
    )


def archive_of(world: World) -> list[bytes]:
    from tests.support.relay_fate import archived

    return [text for device in world.devices for text in archived(world.home.machine, device.machine.device).values()]
