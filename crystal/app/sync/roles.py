"""Change this machine's role: become home, hand the role to another machine, leave it.

Nothing is lost by that: what waits in an outbox is taken into this machine's own memory before the outbox
goes, and a machine that was home sends its whole memory to the new one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from crystal.app.context import Machine, now_ms
from crystal.app.relay_links import Keyring, client_at, key_places, opened_relay, relay_address, relay_keys
from crystal.app.sync.device import deliver_relay
from crystal.app.sync.device_registry import ignore_streams, ignored_prefixes, read_documents, read_registry
from crystal.app.sync.handover import finish_promotion, hand_over_home, is_promoting, note_promotion, set_role
from crystal.errors import NotConfiguredError, UsageError
from crystal.ingest import archive
from crystal.ingest.ingest import prepare
from crystal.store.forget.forgetting import Tombstone, add_tombstones
from crystal.store.sync import outbox, past, relay_peers
from crystal.store.sync.relay_peers import Peer, devices_in_use, find_peer, home_peer
from crystal.sync.arrival import Arrivals, arrive
from crystal.sync.client import RelayClient
from crystal.sync.documents import Document
from crystal.sync.envelope.blob import Channel
from crystal.sync.envelope.packing import PayloadKind
from crystal.sync.errors import RelayDeniedError, RelayUnavailableError
from crystal.sync.forgotten import read_tombstone_batch
from crystal.sync.handover import Handover, KnownDevice, from_words, take_devices
from crystal.sync.keys.derive import new_root
from crystal.sync.keys.forms import RelayKey
from crystal.sync.keys.places import KeyMissingError, RelayToken
from crystal.sync.sending import kept_messages
from crystal.sync.wire import decode_segment


@dataclass(frozen=True, slots=True)
class RoleChange:
    """Result of a change: the role, the other end's name, and notes for the user."""

    role: str
    other: str | None = None
    notes: tuple[str, ...] = ()


# ------------------------------------------------------------------------------------------------------ becoming home


def become_home(machine: Machine, *, url: str | None, token: str | None) -> RoleChange:
    """Make a standalone machine the home of others: a root key unless it has one, the relay and its token.

    Args:
        machine: This machine.
        url: The relay's address; None keeps the one that is set.
        token: A token with the scope ``home``; None keeps the one that is kept.

    Raises:
        UsageError: This machine is a device of another.
        NotConfiguredError: No relay or no token is given or kept.
        RelayDeniedError: The relay refuses the token. Nothing was changed.
    """
    if home_peer(machine.store) is not None:
        raise UsageError("this machine is a device of another home", hint="run: crystal promote")
    places = key_places(machine)
    address = url or relay_address(machine)
    if token is None and not has_token(machine):
        hint = "make one at the relay: crystal-relay token make --label home --scope home; give it with --token-stdin"
        raise KeyMissingError("home needs a relay token", hint=hint)
    text = token or places.read_token().reveal()
    notes: tuple[str, ...] = ()
    with client_at(machine, address, text) as client:
        try:
            client.tokens()
        except RelayUnavailableError as error:  # no obstacle, unlike a relay that refuses the token
            notes = (f"the relay could not be asked: {error.message}",)
    try:
        key = places.read_key().key
    except KeyMissingError:
        key = RelayKey("root", new_root(os.urandom))
        places.write_key(key)
        notes += ("write down the paper key and keep it apart from this machine: crystal relay key --paper",)
    if key.kind != "root":
        raise NotConfiguredError(
            "the key here is a device's, not a root", hint="move relay.key away, then run this again"
        )
    if token is not None:
        places.write_token(RelayToken(token), replace=True)
    set_role(machine, role="home", url=address)
    return RoleChange("home", None, notes)


def describe_unshared(machine: Machine) -> Iterator[str]:
    """Yield what other machines would miss if this memory were lost for good, in words."""
    home, waiting = home_peer(machine.store), outbox.backlog(machine.store).blobs
    devices = [peer.name for peer in devices_in_use(machine.store)]
    if home is not None and waiting:
        blobs = f"{waiting:,} sealed blob{'' if waiting == 1 else 's'}"
        yield f"{home.name} has not confirmed {blobs} of this machine: crystal relay sync"
    if devices:
        yield f"this machine is the home of {', '.join(devices)}: crystal demote --to NAME"


def has_token(machine: Machine) -> bool:
    """Return True if the relay's token is stored here."""
    try:
        key_places(machine).read_token()
    except NotConfiguredError:  # missing, damaged, or readable by others: it is replaced, and kept beside it
        return False
    return True


# ---------------------------------------------------------------------------------------------------- from the old home


def demote(machine: Machine, to: str | None, *, force: bool = False, client: RelayClient | None = None) -> RoleChange:
    """Give up this machine's role: home hands over to one of its devices, a device becomes standalone.

    Args:
        machine: This machine.
        to: The device that becomes home; only a home machine with devices needs it.
        force: Become standalone though home has not confirmed all that was said here, or though this home has devices.
        client: The relay; opened from the settings when not given.

    Raises:
        UsageError: ``to`` is missing, or is no device; or blobs wait that home does not have yet.
        RelayUnavailableError: The relay cannot be asked. Nothing has changed; run it again.
    """
    own_home = home_peer(machine.store)
    if own_home is not None and machine.config.role == "home":  # a handing over was cut off before its last line
        set_role(machine, role="device")
        return RoleChange("device", own_home.name)
    if own_home is not None and to is not None:
        raise UsageError("this machine is a device already", hint=f"its home is {own_home.name}")
    if own_home is not None:
        return _leave_home(machine, force=force, client=client)
    if machine.config.role != "home":
        raise UsageError("this machine is standalone already", hint="crystal status shows its role")
    return _leave_devices(machine, force=force) if to is None else _hand_over_to(machine, to, client)


def _leave_devices(machine: Machine, *, force: bool) -> RoleChange:
    """Become standalone as a home that has no devices in use, or whose devices have another home."""
    in_use = devices_in_use(machine.store)
    if in_use and not force:
        names = ", ".join(peer.name for peer in in_use)
        hint = f"say which becomes home: crystal demote --to NAME ({names}); if one is home already: --force"
        raise UsageError("this home has devices", hint=hint)
    with machine.store.transaction():
        for peer in in_use:  # a revoked one stays until the relay has heard of it
            relay_peers.remove_peer(machine.store, peer.id)
    set_role(machine, role="standalone")
    return RoleChange("standalone")


def _hand_over_to(machine: Machine, to: str, client: RelayClient | None) -> RoleChange:
    new_home = find_peer(machine.store, to)
    if new_home.revoked_at is not None:
        raise UsageError(f"{new_home.name} was revoked", hint="choose a device that is in use")
    with opened_relay(machine, client) as relay:
        return RoleChange("device", new_home.name, hand_over_home(machine, new_home, relay))


def _leave_home(machine: Machine, *, force: bool, client: RelayClient | None) -> RoleChange:
    """Become standalone: what waits is sent once more, and taken into this machine's own memory in any case."""
    peer = relay_peers.home_peer(machine.store)
    assert peer is not None
    report = None if force else deliver_relay(machine, client, skip_delay=True)
    waiting = outbox.backlog(machine.store).blobs
    if waiting and not force:
        why = f": {report.problem}" if report is not None and report.problem else ""
        raise UsageError(
            f"{peer.name} has not confirmed {waiting} sealed blobs{why}",
            hint="run it again after home has polled; with --force they stay in this machine's memory alone",
        )
    take_own_outbox(machine, peer)
    with machine.store.transaction():
        relay_peers.remove_peer(machine.store, peer.id)
    set_role(machine, role="standalone")
    return RoleChange("standalone", peer.name, ("the mirror of home's memory stays here and is still searched",))


def take_own_outbox(machine: Machine, peer: Peer) -> None:
    """Import what was sealed here into this machine's own memory, if it is missing."""
    store, keys = machine.store, relay_keys(machine)
    link = keys.link_to_home(peer)
    arrivals = Arrivals(store, machine.places.ldm_home, machine.places.agent_folder)
    with store.transaction():
        past.forget_relayed(store, machine.config.device)
    for stream in outbox.streams(store, peer.id):
        if stream.channel != Channel.CONVERSATIONS or link.keys_of(stream.generation) is None:
            continue
        for message in kept_messages(store, link, stream):
            if message.kind is not PayloadKind.RECORDS or message.opened[-1].header.more:
                continue
            sent = decode_segment(message.payload)
            prepared = prepare(sent.segment)
            written: archive.Written = {}
            with store.transaction():
                arrive(arrivals, sent, prepared, stream.stream, now=now_ms(), written=written)
                archive.make_durable(written)


# ------------------------------------------------------------------------------------------------------ to the new home


def promote(machine: Machine, *, client: RelayClient | None = None) -> RoleChange:
    """Make a device the home, after ``crystal demote --to`` was run on the old one. Can be run again after a crash.

    Raises:
        UsageError: The old home has not handed over to this machine.
        RelayUnavailableError: The relay cannot be asked.
    """
    keys, peer = relay_keys(machine), home_peer(machine.store)
    if peer is None:
        if is_promoting(machine.store):
            finish_promotion(machine)
        elif keys.keys[0].kind == "root":
            set_role(machine, role="home")
        else:
            hint = "crystal init --role home --relay URL makes it a home"
            raise UsageError("this machine is not a device", hint=hint)
        return RoleChange("home")
    with opened_relay(machine, client) as relay:
        handover, forgotten = read_handover(relay, peer, keys)
    if handover is None:
        raise UsageError(
            f"{peer.name} has not handed over to this machine",
            hint=f"on {peer.name} run: crystal demote --to NAME; if it is lost: crystal promote --paper-key",
        )
    _take_over(machine, peer, handover, forgotten=forgotten)
    return RoleChange("home", peer.name, (f"what {peer.name} remembers comes in with the next polls",))


def _take_over(
    machine: Machine,
    peer: Peer | None,
    handover: Handover,
    *,
    url: str | None = None,
    forgotten: tuple[Tombstone, ...] = (),
) -> None:
    """Make this machine the home of the devices. Can be run again after a crash at any point.

    Args:
        machine: This machine.
        peer: Its former home, None if it has none.
        handover: The root key, the relay's token for home, and what the former home knew; an empty name keeps the
            name of this machine.
        url: The relay's address, None to keep the one that is set.
        forgotten: The tombstones that the former home sent last.
    """
    store, places, key = machine.store, key_places(machine), RelayKey("root", handover.root)
    has_key = False
    with contextlib.suppress(KeyMissingError):
        has_key = places.read_key().key == key
    places.check_writable(but_key=has_key)
    if peer is not None:
        take_own_outbox(machine, peer)
    if not has_key:
        places.write_key(key, replace=True)
    places.write_token(RelayToken(handover.token), replace=True)
    with store.transaction():
        if peer is not None:
            ignore_streams(store, peer)
            relay_peers.remove_peer(store, peer.id)
            relay_peers.rename_rows(store, machine.config.device, handover.name or machine.config.device)
        add_tombstones(store, forgotten, now_ms())
        take_devices(store, handover.devices, now_ms())
        note_promotion(store, handover.name or None, url)
    finish_promotion(machine)


def read_handover(client: RelayClient, peer: Peer, keys: Keyring) -> tuple[Handover | None, tuple[Tombstone, ...]]:
    """Return the old home's handover message, or None, and the tombstones that it sent last."""
    found: list[Document] = []
    forgotten: dict[str, Tombstone] = {}
    for document in read_documents(client, peer.down_prefix, keys.keys_from_home(peer).get):
        if document.body.get("handover") is not None:
            found.append(document)
        if (words := read_tombstone_batch(document.body.get("forgotten"))) is not None:
            forgotten |= {one.uid: one for one in words.tombstones}
    newest = max(found, key=lambda document: document.serial, default=None)
    return (None if newest is None else from_words(newest.body["handover"])), tuple(forgotten.values())


def promote_from_paper(machine: Machine, root: bytes, *, url: str | None, token: str) -> RoleChange:
    """Make this machine the home in the place of one that is lost, from the paper key. Can be run again.

    The devices that the lost home knew are read from the relay; each sends again what it has archived. The token is
    exchanged for a new one, and all others of a home are revoked: it may be the lost home's own.

    Raises:
        RelayUnavailableError, RelayDeniedError: The relay cannot be asked, or refuses the token.
    """
    finish_promotion(machine)
    address = url or relay_address(machine)
    with client_at(machine, address, _accepted_token(machine, root, address, token)) as client:
        devices = read_registry(client, root)
        own = client.make_token("home", ["home"])
    peer = home_peer(machine.store)
    device_id = b"" if peer is None else peer.device_id
    name = next((one.link.name for one in devices if one.link.device_id == device_id), "")
    before = ignored_prefixes(machine.store, root)  # of the device that this machine was, if it is run again
    others = tuple(one for one in devices if one.link.device_id != device_id and one.link.up_prefix not in before)
    _take_over(machine, peer, Handover(root, own.token, name, others), url=address)
    with client_at(machine, address, own.token) as client:
        _revoke_other_homes(client, own.id)
    return RoleChange("home", None, ("the lost home can no longer use the relay", *_devices_in_words(devices, others)))


def _accepted_token(machine: Machine, root: bytes, address: str, token: str) -> str:
    """Return the token, or what an earlier run exchanged it for, if the relay refuses it and this is home already."""
    try:
        with client_at(machine, address, token) as client:
            client.tokens()
    except RelayDeniedError:
        places = key_places(machine)
        if not has_token(machine) or places.read_key().key != RelayKey("root", root):
            raise
        return places.read_token().reveal()
    return token


def _revoke_other_homes(client: RelayClient, own: str) -> None:
    """Revoke the tokens of other homes: a lost one that comes back would take what devices send to this one."""
    for one in client.tokens():
        if "home" in one.scopes and one.revoked_at is None and one.id != own:
            client.revoke_token(one.id)


def _devices_in_words(devices: Sequence[KnownDevice], others: Sequence[KnownDevice]) -> tuple[str, ...]:
    if not devices:
        return ("the relay keeps no list of devices: pair them again with crystal relay pair",)
    in_use = ", ".join(one.link.name for one in others if one.link.revoked_at is None) or "none"
    revoked = ", ".join(one.link.name for one in others if one.link.revoked_at is not None)
    words = f"devices: {in_use}; each sends again what it has"
    return (words, f"revoked as before: {revoked}") if revoked else (words,)
