"""The relay as this machine sees it: its keys, its client, the links to its home or its devices."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, cast

from crystal.app.context import Machine, this_home
from crystal.credentials.api_keys import KeyCommand, run_key_command
from crystal.errors import NotConfiguredError
from crystal.store import Store
from crystal.store.sync.relay_peers import Peer, all_peers, home_peer
from crystal.sync.client import RelayClient
from crystal.sync.envelope.link import LinkKeys, link_keys
from crystal.sync.keys.derive import device_secret
from crystal.sync.keys.forms import RelayKey
from crystal.sync.keys.places import Choice, KeyPlaces
from crystal.sync.opening import Sender
from crystal.sync.sending import Link


@dataclass(frozen=True, slots=True)
class Keyring:
    """The keys of this machine, the one in use first, then those that it replaced."""

    keys: tuple[RelayKey, ...]

    @property
    def root(self) -> bytes:
        """Return the root key.

        Raises:
            NotConfiguredError: This machine has a device's key only.
        """
        if self.keys[0].kind != "root":
            raise NotConfiguredError(
                "this machine has the key of a device, not the root key", hint="run this on the home machine"
            )
        return self.keys[0].secret

    def secret(self, device_id: bytes, generation: int) -> bytes | None:
        """Return a device's secret of a generation, or None if this machine's keys do not yield it."""
        for key in self.keys:
            if key.kind == "root":
                return device_secret(key.secret, device_id, generation)
            if (key.device_id, key.generation) == (device_id, generation):
                return key.secret
        return None

    def link(self, device_id: bytes, generation: int, direction: Literal["up", "down"]) -> LinkKeys | None:
        """Return the sealing keys of a device's generation in one direction, or None if our keys do not yield them."""
        secret = self.secret(device_id, generation)
        return None if secret is None else link_keys(secret, direction)

    def link_to_home(self, peer: Peer) -> Link:
        """Return the link to home with these keys."""
        return Link(peer, lambda generation: self.link(peer.device_id, generation, "up"), peer.up_prefix, os.urandom)

    def keys_from_home(self, peer: Peer) -> dict[bytes, LinkKeys]:
        """Return the keys that home may seal with, by key id: of the previous, current and next generation."""
        generations = range(max(1, peer.generation - 1), peer.generation + 2)
        links = (self.link(peer.device_id, generation, "down") for generation in generations)
        return {link.key_id: link for link in links if link is not None}

    def link_to_device(self, peer: Peer) -> Link:
        """Return the link to a device; during a rotation, with the keys that the device is known to have."""
        certain = replace(peer, generation=peer.accepted_from)
        return Link(certain, lambda number: self.link(peer.device_id, number, "down"), peer.down_prefix, os.urandom)

    def senders(self, store: Store) -> dict[bytes, Sender]:
        """Return who may have sealed uploaded blobs, by key id; revoked devices too, so that they can be named."""
        found: dict[bytes, Sender] = {}
        for peer in all_peers(store, "device"):
            # Some generations ahead: a home restored from a backup does not know the rotations that it began.
            for generation in range(max(1, peer.accepted_from - 3), peer.generation + 4):
                link = self.link(peer.device_id, generation, "up")
                if link is None:
                    continue
                refused = "revoked" if peer.revoked_at else "old-key" if generation < peer.accepted_from else None
                found[link.key_id] = Sender(peer, generation, link, refused)
        return found


def key_places(machine: Machine) -> KeyPlaces:
    """Return where this machine keeps the relay's key and token."""
    config = machine.config
    line = config.credentials_key_command

    def command(name: str) -> str:
        return run_key_command(KeyCommand(line or ""), name, os.environ)

    chosen = cast("Choice | None", config.relay_key_place)  # the setting takes no other values
    return KeyPlaces(machine.places.data_dir, this_home(), os.environ, chosen, command if line else None)


def relay_keys(machine: Machine) -> Keyring:
    """Return the relay's keys on this machine.

    Raises:
        KeyMissingError: There are none yet.
        NotConfiguredError: The place where they should be fails.
    """
    places = key_places(machine)
    return Keyring((places.read_key().key, *places.read_old_keys()))


def relay_client(machine: Machine) -> RelayClient:
    """Return a relay client with this machine's token. The caller closes it.

    Raises:
        NotConfiguredError: No relay is set, or its token is missing.
    """
    return client_at(machine, relay_address(machine), key_places(machine).read_token().reveal())


def opened_relay(machine: Machine, client: RelayClient | None) -> contextlib.AbstractContextManager[RelayClient]:
    """Return the given relay client, which stays open, or one from the settings, which is closed at the end."""
    return relay_client(machine) if client is None else contextlib.nullcontext(client)


def relay_address(machine: Machine) -> str:
    """Return the relay's address.

    Raises:
        NotConfiguredError: None is set.
    """
    url = machine.config.relay_url
    if url is None:
        raise NotConfiguredError("no relay is set", hint="crystal init --role home --relay URL, or crystal relay join")
    return url


def client_at(machine: Machine, url: str, token: str | None) -> RelayClient:
    """Return a client for the relay at an address, with this machine's settings for TLS."""
    ca = machine.config.relay_ca_file
    return RelayClient(url, token, ca_file=Path(ca) if ca else None, allow_insecure=machine.config.relay_insecure_http)


def device_link(machine: Machine) -> Link | None:
    """Return the link to home, None if this machine has none. Keys are read when first used.

    Raises:
        NotConfiguredError: The key cannot be read.
    """
    peer = home_peer(machine.store)
    return None if peer is None else relay_keys(machine).link_to_home(peer)
