"""Which part this machine has: becoming home, handing that part to another machine, leaving it.

Whatever moves, nothing is lost: what waits in an outbox is taken into this machine's own memory before the outbox
goes, and a machine that was home sends its whole memory to the new one.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from crystal.errors import NotConfigured, UsageProblem
from crystal.wiring.links import (
    Keyring,
    client_at,
    key_places,
    keys_from_home,
    link_to_device,
    link_to_home,
    relay_address,
    relay_client,
    relay_keys,
)
from crystal.wiring.machine import Machine, now_ms

if TYPE_CHECKING:
    from crystal.relay.client import RelayClient
    from crystal.relay.handover import Handover
    from crystal.store.relay_peers import Peer


@dataclass(frozen=True, slots=True)
class RoleChange:
    """What became of this machine: its role, the other end's name, and what the user should know, in words."""

    role: str
    other: str | None = None
    notes: tuple[str, ...] = ()


# ------------------------------------------------------------------------------------------------------ becoming home


def become_home(machine: Machine, *, url: str | None, token: str | None) -> RoleChange:
    """Make a standalone machine the home of others: a root key if there is none, the relay and its token.

    Args:
        machine: This machine.
        url: The relay's address; None keeps the one that is set.
        token: A token with the scope ``home``; None keeps the one that is kept.

    Raises:
        UsageProblem: This machine is a device of another.
        NotConfigured: No relay or no token is given or kept.
        RelayDenied: The relay refuses the token. Nothing was changed.
    """
    from crystal.keys.derive import new_root
    from crystal.keys.forms import RelayKey
    from crystal.keys.places import KeyMissing, RelayToken, read_key, read_token, write_key, write_token
    from crystal.store.relay_peers import home_peer

    if home_peer(machine.store) is not None:
        raise UsageProblem("this machine is a device of another home", hint="run: crystal promote")
    places = key_places(machine)
    address = url or relay_address(machine)
    if token is None and not has_token(machine):
        hint = "make one at the relay: crystal-relay token make --label home --scope home; give it with --token-stdin"
        raise KeyMissing("home needs a token of the relay", hint=hint)
    text = token or read_token(places).token.reveal()
    notes = _probe(machine, address, text)
    try:
        key = read_key(places).key
    except KeyMissing:
        key = RelayKey("root", new_root(os.urandom))
        write_key(places, key)
        notes += ("write down the paper key and keep it apart from this machine: crystal relay key --paper",)
    if key.kind != "root":
        raise NotConfigured("the key here is a device's, not a root", hint="move relay.key away, then run this again")
    if token is not None:
        write_token(places, RelayToken(token), replace=True)
    _settle(machine, role="home", url=address)
    return RoleChange("home", None, notes)


def has_token(machine: Machine) -> bool:
    """Whether the relay's token is kept here."""
    from crystal.keys.places import KeyMissing, read_token

    try:
        read_token(key_places(machine))
    except KeyMissing:
        return False
    return True


def _probe(machine: Machine, url: str, token: str) -> tuple[str, ...]:
    """Ask the relay whether it takes the token; one that cannot be reached now is no obstacle."""
    from crystal.relay.errors import RelayUnavailable

    with client_at(machine, url, token) as client:
        try:
            client.tokens()
        except RelayUnavailable as error:
            return (f"the relay could not be asked: {error.message}",)
    return ()


def _settle(machine: Machine, *, role: str, url: str | None = None, device: str | None = None) -> None:
    from crystal.config.edit import set_value

    file = machine.places.config_file
    if url is not None:
        set_value(file, "relay.url", url)
    if device is not None and device != machine.config.device:
        set_value(file, "device", device)
    set_value(file, "role", role)


# ---------------------------------------------------------------------------------------------------- from the old home


def demote(machine: Machine, to: str | None, *, force: bool = False, client: RelayClient | None = None) -> RoleChange:
    """Give up this machine's role: home hands over to one of its devices, a device becomes standalone.

    Args:
        machine: This machine.
        to: The device that becomes home; only a home machine with devices needs it.
        force: Become standalone though home has not confirmed all that was said here.
        client: The relay; opened from the settings when not given.

    Raises:
        UsageProblem: ``to`` is missing, or is no device; or blobs wait that home does not have yet.
        RelayUnavailable: The relay cannot be asked. Nothing has changed; run it again.
    """
    from crystal.store.relay_peers import all_peers, find_peer, home_peer

    if home_peer(machine.store) is not None:
        return _leave_home(machine, force=force, client=client)
    devices = [peer for peer in all_peers(machine.store, "device") if peer.revoked_at is None]
    if machine.config.role != "home":
        raise UsageProblem("this machine is standalone already", hint="crystal status shows its role")
    if not devices:
        _settle(machine, role="standalone")
        return RoleChange("standalone")
    if to is None:
        names = ", ".join(peer.name for peer in devices)
        raise UsageProblem("this home has devices", hint=f"say which becomes home: crystal demote --to NAME ({names})")
    heir = find_peer(machine.store, to)
    if heir.revoked_at is not None:
        raise UsageProblem(f"{heir.name} was revoked", hint="choose a device that is in use")
    if client is not None:
        return _hand_over(machine, heir, client)
    with relay_client(machine) as opened:
        return _hand_over(machine, heir, opened)


def _hand_over(machine: Machine, heir: Peer, client: RelayClient) -> RoleChange:
    """Tell the heir everything, then become its device. Can be run again until it has succeeded."""
    from crystal.envelope import Channel
    from crystal.keys.derive import device_secret
    from crystal.keys.forms import RelayKey
    from crystal.keys.places import RelayToken, write_key, write_token
    from crystal.relay.documents import put_document
    from crystal.relay.handover import Handover, KnownDevice, known_devices, to_words
    from crystal.store import notes, past, relay_peers
    from crystal.store.relay_peers import NewLink
    from crystal.wiring.polling import DEMOTING, poll_relay, state_for

    store, keys = machine.store, relay_keys(machine)
    root, config = keys.root, machine.config
    if not _has_told(machine):
        poll_relay(machine, client)
    own, up, down = os.urandom(16), os.urandom(8), os.urandom(8)
    mine = client.make_token(f"device {up.hex()[:8]}", device_scopes(up, down))  # no names: the operator sees it
    theirs = client.make_token("home", ["home"])
    link = NewLink(own, "device", config.device, config.agent_id, 1, up, down, mine.id)
    devices = (*known_devices(store, but=heir.device_id), KnownDevice(link, 1, None, True, ()))
    with store.transaction():
        notes.write_note(store, DEMOTING, heir.name)
    body = state_for(machine, relay_peers.peer_by_id(store, heir.id), keys)
    body["handover"] = to_words(Handover(root, theirs.token, heir.name, devices))
    put_document(store, client, link_to_device(heir, keys), Channel.RECEIPTS, body, now_ms())

    places = key_places(machine)
    write_key(places, RelayKey("device", device_secret(root, own, 1), own, 1), replace=True)
    write_token(places, RelayToken(mine.token), replace=True)
    with store.transaction():
        for peer in relay_peers.all_peers(store, "device"):
            relay_peers.remove_peer(store, peer.id)
        relay_peers.add_peer(store, replace(link, side="home", name=heir.name, token_id=None), now_ms())
        rows = past.begin(store)
        notes.drop_note(store, DEMOTING)
    _settle(machine, role="device")
    words = (
        f"now run on {heir.name}: crystal promote",
        f"what is remembered here goes to {heir.name} with the next syncs ({rows} archived parts)",
    )
    return RoleChange("device", heir.name, words)


def device_scopes(up: bytes, down: bytes) -> list[str]:
    """What a device's token may do at the relay."""
    return [f"write:{up.hex()}", f"read:{down.hex()}", f"ack:{down.hex()}", "objects:read"]


def _has_told(machine: Machine) -> bool:
    from crystal.store import notes
    from crystal.wiring.polling import DEMOTING

    return notes.read_note(machine.store, DEMOTING) is not None


def _leave_home(machine: Machine, *, force: bool, client: RelayClient | None) -> RoleChange:
    """Become standalone: what waits is sent once more, and taken into this machine's own memory in any case."""
    from crystal.store import outbox, relay_peers
    from crystal.wiring.relaying import deliver_relay

    peer = relay_peers.home_peer(machine.store)
    assert peer is not None
    report = None if force else deliver_relay(machine, client, insist=True)
    waiting = outbox.backlog(machine.store).blobs
    if waiting and not force:
        why = f": {report.problem}" if report is not None and report.problem else ""
        raise UsageProblem(
            f"{peer.name} has not confirmed {waiting} sealed blobs{why}",
            hint="run it again when home has polled, or with --force: they stay in this machine's own memory",
        )
    take_own_outbox(machine, peer)
    with machine.store.transaction():
        relay_peers.remove_peer(machine.store, peer.id)
    _settle(machine, role="standalone")
    return RoleChange("standalone", peer.name, ("home's mirror stays here as it is, and is searched as before",))


def take_own_outbox(machine: Machine, peer: Peer) -> int:
    """Take what was sealed here into this machine's own memory, where it is not yet; gives how many messages."""
    from crystal.envelope import Channel, Kind, open_blob
    from crystal.ingest import prepare
    from crystal.relay.arrival import Arrivals, arrive
    from crystal.relay.wire import decode_segment
    from crystal.store import ledger, outbox

    store, keys = machine.store, relay_keys(machine)
    link = link_to_home(peer, keys)
    arrivals = Arrivals(store, machine.places.ldm_home, machine.places.agent_folder)
    with store.transaction():
        ledger.forget_relayed(store, machine.config.device)
    taken = 0
    for stream in outbox.streams(store, peer.id):
        own_keys = link.keys_of(stream.generation)
        if stream.channel != Channel.CONVERSATIONS or own_keys is None:
            continue
        parts: list[bytes] = []
        for blob in outbox.kept_from(store, stream.id, 1):
            sealed = outbox.sealed_blob(store, stream.id, blob.seq) or b""
            opened = open_blob(sealed, own_keys, channel=stream.channel, stream=stream.stream, seq=blob.seq, prev=None)
            parts.append(opened.payload)
            if opened.header.more:
                continue
            if opened.kind is Kind.RECORDS:
                sent = decode_segment(b"".join(parts))
                prepared = prepare(sent.segment)
                with store.transaction(), ExitStack() as flushes:
                    arrive(arrivals, sent, prepared, stream.stream, now=now_ms(), flushes=flushes)
                taken += 1
            parts = []
    return taken


# ------------------------------------------------------------------------------------------------------ to the new home


def promote(machine: Machine, *, client: RelayClient | None = None) -> RoleChange:
    """Make a device the home, after ``crystal demote --to`` was run on the old one. Can be run again after a crash.

    Raises:
        UsageProblem: The old home has not handed over to this machine.
        RelayUnavailable: The relay cannot be asked.
    """
    from crystal.keys.forms import RelayKey
    from crystal.keys.places import RelayToken, write_key, write_token
    from crystal.relay.handover import take_devices
    from crystal.store import relay_peers
    from crystal.wiring.registry import ignore_streams

    store, keys = machine.store, relay_keys(machine)
    peer = relay_peers.home_peer(store)
    if peer is None and keys.keys[0].kind == "root":
        _settle(machine, role="home")
        return RoleChange("home")
    if peer is None:
        raise UsageProblem("this machine is no device", hint="crystal init --role home --relay URL makes it a home")
    if client is not None:
        handover = read_handover(client, peer, keys)
    else:
        with relay_client(machine) as opened:
            handover = read_handover(opened, peer, keys)
    if handover is None:
        raise UsageProblem(
            f"{peer.name} has not handed over to this machine",
            hint=f"on {peer.name} run: crystal demote --to NAME; if it is lost: crystal promote --paper-key",
        )
    take_own_outbox(machine, peer)
    places = key_places(machine)
    write_key(places, RelayKey("root", handover.root), replace=True)
    write_token(places, RelayToken(handover.token), replace=True)
    with store.transaction():
        ignore_streams(store, peer)
        relay_peers.remove_peer(store, peer.id)
        relay_peers.rename_rows(store, machine.config.device, handover.name)
        take_devices(store, handover.devices, now_ms())
    take_mirror(machine)
    _settle(machine, role="home", device=handover.name)
    return RoleChange("home", peer.name, (f"what {peer.name} remembers comes in with the next polls",))


def take_mirror(machine: Machine) -> int:
    """Take what the old home's mirror knows into this machine's own memory, then let the mirror go; gives the turns.

    A home that is lost lives on in its mirrors alone. One that moves sends its archive later; its rows are here then.
    """
    from crystal.store.adopt import adopt_turns
    from crystal.wiring.mirrored import open_mirror
    from crystal.wiring.relaying import device_mirror

    with open_mirror(machine.places, "device") as mirrored:
        if mirrored is None or mirrored.store is None:
            return 0
        taken = adopt_turns(machine.store, mirrored.store)
    device_mirror(machine).discard()
    return taken


def read_handover(client: RelayClient, peer: Peer, keys: Keyring) -> Handover | None:
    """What the old home tells its heir, None when it has told nothing."""
    from crystal.envelope import Refused, open_blob
    from crystal.relay.documents import newest_documents, read_document
    from crystal.relay.handover import from_words

    found: dict[int, Any] = {}
    down = keys_from_home(peer, keys)
    for info in client.streams().streams:
        if info.stream[:8] != peer.down_prefix:
            continue
        for newest in newest_documents(client, info, 0):
            try:
                opened = open_blob(
                    newest.data, down.get, channel=newest.channel, stream=info.stream, seq=newest.seq, prev=None
                )
            except Refused:
                continue
            document = read_document(opened)
            found[document.serial] = document.body.get("handover")
    told = [found[serial] for serial in sorted(found) if found[serial] is not None]
    return from_words(told[-1]) if told else None


def promote_from_paper(machine: Machine, root: bytes, *, url: str | None, token: str) -> RoleChange:
    """Make this machine the home in the place of one that is lost, from the paper key.

    The devices that the lost home knew are read from the relay; each sends again what it has archived.

    Raises:
        RelayUnavailable, RelayDenied: The relay cannot be asked, or refuses the token.
    """
    from crystal.keys.forms import RelayKey
    from crystal.keys.places import RelayToken, write_key, write_token
    from crystal.relay.handover import take_devices
    from crystal.store import relay_peers
    from crystal.wiring.registry import ignore_streams, read_registry

    address = url or relay_address(machine)
    with client_at(machine, address, token) as client:
        devices = read_registry(client, root)
    store = machine.store
    peer = relay_peers.home_peer(store)
    own = peer.device_id if peer is not None else b""
    if peer is not None:
        take_own_outbox(machine, peer)
    places = key_places(machine)
    write_key(places, RelayKey("root", root), replace=True)
    write_token(places, RelayToken(token), replace=True)
    names = {one.link.device_id: one.link.name for one in devices}
    with store.transaction():
        if peer is not None:
            ignore_streams(store, peer)
            relay_peers.remove_peer(store, peer.id)
            relay_peers.rename_rows(store, machine.config.device, names.get(own, machine.config.device))
        take_devices(store, tuple(one for one in devices if one.link.device_id != own), now_ms())
    take_mirror(machine)
    _settle(machine, role="home", url=address, device=names.get(own))
    if not devices:
        return RoleChange(
            "home", None, ("the relay keeps no list of devices: pair them again with crystal relay pair",)
        )
    others = ", ".join(one.link.name for one in devices if one.link.device_id != own) or "none"
    return RoleChange("home", None, (f"devices: {others}; each sends again what it has",))
