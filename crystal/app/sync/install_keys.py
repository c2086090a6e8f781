"""Keeping what a home gave, so that no crash leaves half of it, and taking it back.

What may be written twice is written first: certificate, key, token, settings. The row of the home machine comes last,
in one transaction with the decision to send the past; until it is there this machine captures as before.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from crystal.app.context import Machine, now_ms
from crystal.app.mirror import device_mirror
from crystal.app.relay_links import key_places, link_to_home, relay_keys
from crystal.app.sync.names import clean_name, free_name
from crystal.app.sync.roles import take_own_outbox
from crystal.config.edit import set_value, unset_value
from crystal.config.paths import make_private_dir, write_private
from crystal.store import Store
from crystal.store.memories import memories
from crystal.store.sync import outbox, past, relay_peers
from crystal.store.sync.relay_peers import NewLink, Peer, all_peers
from crystal.sync.keys.bundle import Bundle
from crystal.sync.keys.forms import RelayKey
from crystal.sync.keys.places import KeyMissingError, KeyPlaces, RelayToken, read_key, write_key, write_token

AUTHORITY_FILE = "relay-ca.pem"


def is_leftover(store: Store, key: RelayKey) -> bool:
    """Return True if a key is left from a pairing that was never completed: home was not heard over it."""
    own = [peer for peer in all_peers(store, "home") if peer.device_id == key.device_id]
    return key.kind == "device" and all(peer.heard_at is None for peer in own)


@dataclass(frozen=True, slots=True)
class InstalledKeys:
    """What was stored: home's name here, how much of the past will be sent, what the user should know."""

    home: str
    past: int
    notes: tuple[str, ...]


def keep(
    machine: Machine, bundle: Bundle, *, over: bool, key: RelayKey | None, token: RelayToken | None
) -> InstalledKeys:
    """Store a bundle. It can be done again after a crash at any point, with this bundle or another one.

    Args:
        machine: The device.
        bundle: What home gave.
        over: Put key and token in the place of others; those stay beside them.
        key: The key to store: the bundle's or a shared root; None where it is kept already.
        token: The same for the token.
    """
    places, file = key_places(machine), machine.places.config_file
    notes = _keep_authority(machine, bundle)
    may = over or _may_replace(machine, places)
    for written in (
        write_key(places, key, replace=may) if key is not None else None,
        write_token(places, token, replace=may) if token is not None else None,
    ):
        if written is not None and written.backup:
            notes.append(f"the former key is kept in {written.backup}")
    set_value(file, "relay.url", bundle.url)
    set_value(file, "role", "device")
    # The last manifest of another home does not apply to this one: its serial numbers start over.
    device_mirror(machine.places).memo.unlink(missing_ok=True)
    home, past = _write_home(machine, bundle, key)
    return InstalledKeys(home, past, tuple(notes))


def _may_replace(machine: Machine, places: KeyPlaces) -> bool:
    """Return True if the stored keys belong to a pairing that was never completed."""
    try:
        return is_leftover(machine.store, read_key(places).key)
    except KeyMissingError:
        return False


def _keep_authority(machine: Machine, bundle: Bundle) -> list[str]:
    path, file = machine.places.data_dir / AUTHORITY_FILE, machine.places.config_file
    if bundle.ca is not None:
        make_private_dir(path.parent)
        write_private(path, bundle.ca.encode("ascii"))
        set_value(file, "relay.ca_file", str(path))
        return [f"connections to the relay trust its own certificate authority: {path}"]
    if machine.config.relay_ca_file is not None and Path(machine.config.relay_ca_file) == path:
        unset_value(file, "relay.ca_file")
    return []


def _write_home(machine: Machine, bundle: Bundle, key: RelayKey | None) -> tuple[str, int]:
    """Record home and queue the past in one transaction; return home's name here and the amount of the past."""
    store = machine.store
    homes = all_peers(store, "home")
    known = next((peer for peer in homes if peer.device_id == bundle.device_id), None)
    former = [(peer, _take_in(machine, peer)) for peer in homes if peer != known]
    with store.transaction():
        for peer, is_taken in former:
            if is_taken:
                relay_peers.remove_peer(store, peer.id)
            else:
                relay_peers.set_revoked(store, peer.id, now_ms())
        name = _add_home(machine, bundle) if known is None else known.name
        if known is not None:
            relay_peers.set_in_use(store, known.id)
        if known is not None and key is not None and key.kind == "device":  # a root gives the keys of all generations
            relay_peers.set_generation(store, known.id, bundle.generation, bundle.generation)
        if known is not None and known.heard_at is not None:
            return name, 0
        rows = past.begin(store)
        if not rows and not memories.count_memories(store):
            past.forget_place(store)
    return name, rows


def _add_home(machine: Machine, bundle: Bundle) -> str:
    name = free_name(machine.store, clean_name(bundle.home_name) or "home", machine.config.device)
    up, down = bundle.up_prefix, bundle.down_prefix
    link = NewLink(bundle.device_id, "home", name, None, bundle.generation, up, down)
    relay_peers.add_peer(machine.store, link, now_ms())
    return name


def _take_in(machine: Machine, former: Peer) -> bool:
    """Take what waits for a former home into this machine's own memory; False when a key of it is gone."""
    link = link_to_home(former, relay_keys(machine))
    for stream in outbox.streams(machine.store, former.id):
        if link.keys_of(stream.generation) is None and outbox.kept_from(machine.store, stream.id, 1):
            return False
    take_own_outbox(machine, former)
    return True


def take_back(machine: Machine, role: str) -> None:
    """Restore the state before a failed pairing. Nothing that was captured meanwhile is lost."""
    home = relay_peers.home_peer(machine.store)
    if home is None or home.heard_at is not None or role == "device":
        return
    _take_in(machine, home)
    with machine.store.transaction():
        relay_peers.set_revoked(machine.store, home.id, now_ms())
    set_value(machine.places.config_file, "role", role)
