"""The devices of a home machine: name, rename, revoke and rotate them, and make their tokens."""

from __future__ import annotations

import contextlib
import os

from crystal.app.context import Machine, now_ms
from crystal.app.relay_links import opened_relay, relay_keys
from crystal.app.sync.device_registry import save_registry
from crystal.app.sync.relay_state import find_device
from crystal.errors import CrystalError, UsageError
from crystal.store import Store
from crystal.store.sync import relay_peers
from crystal.store.sync.relay_peers import Peer, all_peers
from crystal.sync.answers import MadeToken
from crystal.sync.client import RelayClient
from crystal.sync.errors import NotAtRelayError
from crystal.sync.mirror.publishing import roll_key

UNFINISHED = "unfinished-"
"""Beginning of the name of a device whose pairing has not ended."""
MAX_NAME_BYTES = 64


# ----------------------------------------------------------------------------------------------------------- naming


def clean_name(name: str) -> str:
    """Return a name reduced to what is allowed: printable, at most 64 bytes."""
    kept = "".join(letter for letter in name if letter.isprintable()).strip()
    return kept.encode("utf-8", "replace")[:MAX_NAME_BYTES].decode("utf-8", "ignore").strip()


def checked_name(name: str) -> str:
    """Return a machine's name that a person chose, checked.

    Raises:
        UsageError: It cannot be one.
    """
    if not name or clean_name(name) != name or name.startswith(("-", UNFINISHED)):
        hint = f"a name is one printable line of at most {MAX_NAME_BYTES} bytes that does not begin with -"
        raise UsageError(f"the name {name!r} cannot be used", hint=hint)
    return name


def free_name(store: Store, wanted: str, own: str) -> str:
    """Return the name, with the first number appended that makes it unique if another machine has it."""
    taken = {own, *(peer.name for peer in all_peers(store))}
    name, number = wanted, 2
    while name in taken:
        end = f"-{number}"
        name = wanted.encode()[: MAX_NAME_BYTES - len(end)].decode("utf-8", "ignore").rstrip() + end
        number += 1
    return name


# ---------------------------------------------------------------------------------------------------------- changing


def rename(machine: Machine, old: str, new: str) -> Peer:
    """Rename a device, also in everything captured on it.

    Raises:
        UsageError: There is no such device, or the name is taken or cannot be one.
    """
    checked_name(new)
    if new == machine.config.device:
        raise UsageError(f"this machine itself is called {new}", hint="choose another name")
    peer = relay_peers.find_peer(machine.store, old)
    with machine.store.transaction():
        relay_peers.rename_peer(machine.store, peer, new)
    return relay_peers.peer_by_id(machine.store, peer.id)


def revoke(machine: Machine, name: str, client: RelayClient | None = None) -> tuple[Peer, str | None]:
    """Refuse everything further from a device, also at the relay, and give the mirror new keys.

    Args:
        machine: The home machine.
        name: The device.
        client: The relay; opened from the settings when not given.

    Returns:
        The device, and why the relay could not be told (every poll then tries again), or None.

    Raises:
        UsageError: There is no such device.
    """
    peer = find_device(machine, name)
    with machine.store.transaction():
        relay_peers.set_revoked(machine.store, peer.id, now_ms())
    roll_key(machine.store, os.urandom, now_ms())  # also the second time: a crash may have come before it
    problem = None
    try:
        with opened_relay(machine, client) as asked:
            retry_revocations(machine, asked, must=True)
            # Not only with the next poll: who becomes home from the paper key reads it there.
            save_registry(machine, asked, relay_keys(machine).root)
    except CrystalError as error:
        problem = error.message
    return relay_peers.peer_by_id(machine.store, peer.id), problem


def retry_revocations(machine: Machine, client: RelayClient, *, must: bool = False) -> list[str]:
    """Revoke the tokens of revoked devices for which the relay was unavailable before; return their names.

    For every poll: it costs nothing while nothing waits. With ``must`` the relay's failure is raised.
    """
    done = []
    for peer in relay_peers.all_peers(machine.store, "device"):
        is_unfinished = peer.name.startswith(UNFINISHED) and peer.heard_at is None
        if peer.revoked_at is None or (peer.token_id is None and not is_unfinished):
            continue
        try:
            if peer.token_id is not None:
                with contextlib.suppress(NotAtRelayError):
                    client.revoke_token(peer.token_id)
        except CrystalError:
            if must:
                raise
            continue
        with machine.store.transaction():
            relay_peers.set_fields(machine.store, peer.id, token_id=None)
            if is_unfinished:
                relay_peers.remove_peer(machine.store, peer.id)
        done.append(peer.name)
    return done


def give_token(machine: Machine, client: RelayClient, peer: Peer) -> str:
    """Make a device's token at the relay, in the place of its former one, which is worthless from then on.

    Raises:
        RelayUnavailableError, RelayDeniedError: The relay cannot be asked.
    """
    made = make_token(client, peer.up_prefix, peer.down_prefix)
    if peer.token_id is not None:
        with contextlib.suppress(CrystalError):
            client.revoke_token(peer.token_id)
    with machine.store.transaction():
        relay_peers.set_fields(machine.store, peer.id, token_id=made.id)
    return made.token


def make_token(client: RelayClient, up: bytes, down: bytes) -> MadeToken:
    """Make a token for a device's streams. Its label, which the relay's operator sees, says nothing else."""
    return client.make_token(f"device {up.hex()[:8]}", device_scopes(up, down))


def device_scopes(up: bytes, down: bytes) -> list[str]:
    """Return the scopes of a device's token at the relay."""
    return [f"write:{up.hex()}", f"read:{down.hex()}", f"ack:{down.hex()}", "objects:read"]


def rotate(machine: Machine, name: str) -> Peer:
    """Give a device new keys with the next state document; the old ones are valid until it uses the new ones.

    Raises:
        UsageError: There is no such device, it was revoked, or a rotation is under way.
    """
    peer = find_device(machine, name)
    if peer.revoked_at is not None:
        raise UsageError(f"{peer.name} was revoked", hint="pair it again: crystal relay pair")
    if peer.generation > peer.accepted_from:
        raise UsageError(
            f"{peer.name} has not taken the keys of the last rotation yet",
            hint="they reach it when it syncs the next time: crystal devices",
        )
    _ = relay_keys(machine).root  # without it there would be no new keys to give
    with machine.store.transaction():
        relay_peers.set_generation(machine.store, peer.id, peer.generation + 1, peer.accepted_from)
    return relay_peers.peer_by_id(machine.store, peer.id)
