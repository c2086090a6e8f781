"""Forgetting and other machines: sends them tombstones, and cleans what still waits to be sent to them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from crystal.app.context import Machine, now_ms
from crystal.app.relay_links import device_link, link_to_home, relay_keys
from crystal.errors import NotConfiguredError
from crystal.store import Store
from crystal.store.forget.forgetting import Tombstone
from crystal.store.sync.relay_peers import all_peers, home_peer
from crystal.sync.cleaning import SealedOutbox
from crystal.sync.forgotten import put_forgotten
from crystal.sync.sending import Link


def tell_home(machine: Machine) -> Callable[[Store, Sequence[Tombstone]], None]:
    """Return a function that seals new tombstones for home, in the transaction that adds them.

    They wait where there is no home, or its key cannot be read.
    """

    def tell(store: Store, _tombstones: Sequence[Tombstone]) -> None:
        with contextlib.suppress(NotConfiguredError):  # no key just now: the next delivery seals them
            link = device_link(machine) if machine.config.role == "device" else None
            if link is not None and link.keys_of(link.peer.generation) is not None:
                put_forgotten(store, link, now_ms())

    return tell


def outbox_of(machine: Machine) -> SealedOutbox:
    """Return the outbox, to be cleaned of what is forgotten; its keys are read when there is something in it."""
    return SealedOutbox(machine.store, lambda: _links(machine), now_ms, machine.config.device)


def _links(machine: Machine) -> dict[int, Link]:
    """Return the links that blobs of the outbox were sealed over, by the peer's row.

    Those to former homes are among them where their keys are still here.
    """
    keys, home = relay_keys(machine), home_peer(machine.store)
    links = {peer.id: link_to_home(peer, keys) for peer in all_peers(machine.store, "home")}
    return {
        ident: link
        for ident, link in links.items()
        if (home is not None and ident == home.id) or link.keys_of(link.peer.generation) is not None
    }


def machines_to_tell(store: Store) -> list[str]:
    """Return the other machines that are to forget what is forgotten here: home, or home's devices."""
    home = home_peer(store)
    if home is not None:
        return [str(home.told.get("home") or home.name)]
    return [peer.name for peer in all_peers(store, "device") if peer.revoked_at is None]
