"""Handing home's part to one of its devices, and taking it over. Either may be cut off anywhere, and is run again.

Which device the old home becomes is written down before the heir is told of it, so that what runs again is the device
that the heir knows. From the first telling on this machine takes nothing more that devices send.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from crystal.app.context import Machine, now_ms
from crystal.app.mirror import device_mirror, open_mirror
from crystal.app.relay_links import Keyring, key_places, link_to_device, relay_keys
from crystal.app.sync.devices import device_scopes
from crystal.app.sync.home import DEMOTING, poll_relay, state_for
from crystal.config.edit import set_value
from crystal.errors import CrystalError, NotConfigured, UsageProblem
from crystal.store import Store, notes
from crystal.store.notes import drop_note, read_note, write_note
from crystal.store.sync import past, relay_peers
from crystal.store.sync.adopt import adopt_memories, adopt_turns
from crystal.store.sync.relay_peers import NewLink, Peer, peer_by_id
from crystal.sync.client import RelayClient
from crystal.sync.documents import put_document
from crystal.sync.envelope import Channel
from crystal.sync.handover import Handover, KnownDevice, known_devices, to_words
from crystal.sync.keys.derive import device_secret
from crystal.sync.keys.forms import RelayKey
from crystal.sync.keys.places import (
    KeyPlaces,
    RelayToken,
    place_of_key,
    place_of_token,
    read_token,
    write_key,
    write_token,
)

PROMOTING = "relay_promoting"
"""The store's note that this machine is home, and what of that is still to be done."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Who becomes home, and which device this machine is then; its newest token at the relay, by its id."""

    heir: str
    name: str
    own: bytes
    up: bytes
    down: bytes
    token_id: str | None = None

    def link(self, machine: Machine) -> NewLink:
        """Return the link of this machine as a device."""
        config = machine.config
        return NewLink(self.own, "device", config.device, config.agent_id, 1, self.up, self.down, self.token_id)


def check_writable(places: KeyPlaces, hint: str | None = None, *, but_key: bool = False) -> None:
    """Raise now, before anything is sent or spent, what would fail at the end; ``but_key`` leaves out the key.

    Raises:
        NotConfigured: Key or token is read from a place that crystal does not write.
    """
    for what, place, variables in (
        ("key", place_of_key(places), ("CRYSTAL_RELAY_KEY", "CRYSTAL_KEY_FILE")),
        ("token", place_of_token(places), ("CRYSTAL_RELAY_TOKEN", "CRYSTAL_RELAY_TOKEN_FILE")),
    ):
        if place not in ("file", "keyring") and not (but_key and what == "key"):
            hint = hint or f"put it into {places.data_dir / f'relay.{what}'}, mode 0600, and unset the other place"
            where = dict(zip(("variable", "given file"), variables, strict=True)).get(place, "a command")
            raise NotConfigured(f"the relay {what} is read from {where}, where crystal does not write", hint=hint)


# -------------------------------------------------------------------------------------------------------- handing over


def read_plan(store: Store) -> Plan | None:
    """Return the handover that was begun and is not finished."""
    text = read_note(store, DEMOTING)
    if text is None:
        return None
    words = json.loads(text)
    ids = {name: bytes.fromhex(words[name]) for name in ("own", "up", "down")}
    return Plan(words["heir"], words["name"], **ids, token_id=words["token_id"])


def _write_plan(store: Store, plan: Plan) -> None:
    ids = {name: getattr(plan, name).hex() for name in ("own", "up", "down")}
    words = {"heir": plan.heir, "name": plan.name, **ids, "token_id": plan.token_id}
    with store.transaction():
        write_note(store, DEMOTING, json.dumps(words))


def hand_over(machine: Machine, heir: Peer, client: RelayClient) -> tuple[str, ...]:
    """Send the new home everything, then become its device; return notes for the user.

    Raises:
        UsageProblem: Another device was told to be home before.
        NotConfigured: The key or the token is kept where crystal does not write.
        RelayUnavailable: The relay cannot be asked.
    """
    store, places, plan = machine.store, key_places(machine), read_plan(machine.store)
    check_writable(places)
    if plan is not None and plan.heir != heir.device_id.hex():
        raise UsageProblem(
            f"{plan.name} was told to be home, so nobody else can be", hint=f"crystal demote --to {plan.name}"
        )
    if plan is None:
        poll_relay(machine, client)
        plan = Plan(heir.device_id.hex(), heir.name, os.urandom(16), os.urandom(8), os.urandom(8))
    keys, token = relay_keys(machine), None
    if not _is_told(keys, plan):
        plan, token = _new_token(machine, client, plan)
        _tell(machine, client, heir, keys, plan)
        write_key(places, RelayKey("device", device_secret(keys.root, plan.own, 1), plan.own, 1), replace=True)
    elif f"_{plan.token_id}_" not in read_token(places).token.reveal():
        plan, token = _new_token(machine, client, plan)
    if token is not None:
        write_token(places, RelayToken(token), replace=True)
    with store.transaction():
        for peer in relay_peers.all_peers(store, "device"):
            relay_peers.remove_peer(store, peer.id)
        link = replace(plan.link(machine), side="home", name=plan.name, token_id=None)
        relay_peers.add_peer(store, link, now_ms())
        rows = past.begin(store)
        notes.drop_note(store, DEMOTING)
    settle(machine, role="device")
    return (
        f"now run on {plan.name}: crystal promote",
        f"what is remembered here goes to {plan.name} with the next syncs ({rows} archived parts)",
        "the root key stays beside the new key, as all replaced keys do: see crystal relay key",
    )


def _is_told(keys: Keyring, plan: Plan) -> bool:
    """Return True if this machine already has its device key, which it gets after the new home was informed."""
    return keys.keys[0].device_id == plan.own


def _new_token(machine: Machine, client: RelayClient, plan: Plan) -> tuple[Plan, str]:
    """Make this machine's token as a device, in the place of one that was made and not kept."""
    made = client.make_token(f"device {plan.up.hex()[:8]}", device_scopes(plan.up, plan.down))  # no names: it is seen
    if plan.token_id is not None:
        with suppress(CrystalError):
            client.revoke_token(plan.token_id)
    plan = replace(plan, token_id=made.id)
    _write_plan(machine.store, plan)
    return plan, made.token


def _tell(machine: Machine, client: RelayClient, heir: Peer, keys: Keyring, plan: Plan) -> None:
    store = machine.store
    theirs = client.make_token("home", ["home"])
    me = KnownDevice(plan.link(machine), 1, None, True, ())
    devices = (*known_devices(store, but=heir.device_id), me)
    body: dict[str, Any] = state_for(machine, peer_by_id(store, heir.id), keys)
    body["handover"] = to_words(Handover(keys.root, theirs.token, heir.name, devices))
    put_document(store, client, link_to_device(heir, keys), Channel.RECEIPTS, body, now_ms())


# --------------------------------------------------------------------------------------------------------- taking over


def note_promotion(store: Store, device: str | None, url: str | None) -> None:
    """Note what is still to be done when this machine's rows say that it is home. Inside that transaction."""
    write_note(store, PROMOTING, json.dumps({"device": device, "url": url}))


def is_promoting(store: Store) -> bool:
    """Return True if a promotion was interrupted after its transaction."""
    return read_note(store, PROMOTING) is not None


def finish_promotion(machine: Machine) -> None:
    """Do what is left of a promotion; nothing where none was begun."""
    words = json.loads(read_note(machine.store, PROMOTING) or "null")
    if words is None:
        return
    take_mirror(machine)
    settle(machine, role="home", device=words["device"], url=words["url"])
    with machine.store.transaction():
        drop_note(machine.store, PROMOTING)


def take_mirror(machine: Machine) -> int:
    """Take what the old home's mirror knows into this machine's own memory, then delete the mirror; return the turns.

    A lost home's data exists only in its mirrors. A home that moves sends its archive later; its rows are here then.
    """
    with open_mirror(machine.places, "device") as mirrored:
        if mirrored is None or mirrored.store is None:
            return 0
        taken = adopt_turns(machine.store, mirrored.store)
        adopt_memories(machine.store, mirrored.store)
    device_mirror(machine.places).discard()
    return taken


def settle(machine: Machine, *, role: str, url: str | None = None, device: str | None = None) -> None:
    """Record this machine's role; the role itself is written last."""
    file = machine.places.config_file
    if url is not None:
        set_value(file, "relay.url", url)
    if device is not None and device != machine.config.device:
        set_value(file, "device", device)
    set_value(file, "role", role)
