"""Hand the role of home to a device, and take it over. Both can be interrupted anywhere and run again.

The device that becomes home is written down before it is told, so that a second run goes on with the same one. Once it
is told, this machine takes nothing more that devices send.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from crystal.app.context import Machine, now_ms
from crystal.app.mirror import device_mirror, open_mirror
from crystal.app.relay_links import Keyring, key_places, relay_keys
from crystal.app.sync.devices import give_token, make_token
from crystal.app.sync.home import DEMOTING, poll_relay, state_for
from crystal.config.edit import set_value
from crystal.errors import UsageError
from crystal.store import Store
from crystal.store.json_columns import read_json_note
from crystal.store.notes import drop_note, read_note, write_note
from crystal.store.sync import past, relay_peers
from crystal.store.sync.adopt import adopt_evidence, adopt_memories, adopt_turns
from crystal.store.sync.relay_peers import NewLink, Peer, peer_by_id
from crystal.sync.client import RelayClient
from crystal.sync.documents import put_document
from crystal.sync.envelope.blob import Channel
from crystal.sync.handover import Handover, known_devices
from crystal.sync.keys.derive import device_secret
from crystal.sync.keys.forms import RelayKey
from crystal.sync.keys.places import RelayToken

PROMOTING = "relay_promoting"
"""The store's note that this machine is home, and what of that is still to be done."""


@dataclass(frozen=True, slots=True)
class HandoverPlan:
    """A handover that was begun: the new home's device id in hexadecimal, its name, and this machine's row as a device.

    The row is among the devices until the handover ends, so that the new home gets it like any other.
    """

    new_home: str
    name: str
    own: int


# -------------------------------------------------------------------------------------------------------- handing over


def read_plan(store: Store) -> HandoverPlan | None:
    """Return the handover that was begun and is not finished; fields by position: their names differ by version."""
    note = read_json_note(store, DEMOTING)
    return None if note is None else HandoverPlan(*note.values())


def _begin(machine: Machine, new_home: Peer, client: RelayClient) -> tuple[HandoverPlan, str]:
    """Write down which device this machine becomes; return that with its token. From here on no poll takes anything."""
    poll_relay(machine, client)
    device_id, up, down = os.urandom(16), os.urandom(8), os.urandom(8)
    made, config = make_token(client, up, down), machine.config
    link = NewLink(device_id, "device", config.device, config.agent_id, 1, up, down, made.id, vouches=True)
    with machine.store.transaction():
        plan = HandoverPlan(
            new_home.device_id.hex(), new_home.name, relay_peers.add_peer(machine.store, link, now_ms())
        )
        write_note(machine.store, DEMOTING, json.dumps(asdict(plan)))
    return plan, made.token


def hand_over_home(machine: Machine, new_home: Peer, client: RelayClient) -> tuple[str, ...]:
    """Send the new home everything, then become its device; return notes for the user.

    Raises:
        UsageError: Another device was told to be home before.
        NotConfiguredError: The key or the token is kept where crystal does not write.
        RelayUnavailableError: The relay cannot be asked.
    """
    store, places, plan = machine.store, key_places(machine), read_plan(machine.store)
    places.check_writable()
    if plan is not None and plan.new_home != new_home.device_id.hex():
        raise UsageError(f"{plan.name} was already chosen as home", hint=f"crystal demote --to {plan.name}")
    token = None
    if plan is None:
        plan, token = _begin(machine, new_home, client)
    keys, me = relay_keys(machine), peer_by_id(store, plan.own)
    is_told = keys.keys[0].device_id == me.device_id  # the key of a device is kept after the new home was told
    if token is None and not (is_told and f"_{me.token_id}_" in places.read_token().reveal()):
        token = give_token(machine, client, me)
    if not is_told:
        _tell(machine, client, new_home, keys)
        key = RelayKey("device", device_secret(keys.root, me.device_id, 1), me.device_id, 1)
        places.write_key(key, replace=True)
    if token is not None:
        places.write_token(RelayToken(token), replace=True)
    with store.transaction():
        for peer in relay_peers.all_peers(store, "device"):
            relay_peers.remove_peer(store, peer.id)
        link = NewLink(me.device_id, "home", plan.name, me.agent, 1, me.up_prefix, me.down_prefix)
        relay_peers.add_peer(store, link, now_ms())
        rows = past.begin(store)
        drop_note(store, DEMOTING)
    set_role(machine, role="device")
    return (
        f"now run on {plan.name}: crystal promote",
        f"what is remembered here goes to {plan.name} with the next syncs ({rows} archived parts)",
        "the root key stays beside the new key, as all replaced keys do: see crystal relay key",
    )


def _tell(machine: Machine, client: RelayClient, new_home: Peer, keys: Keyring) -> None:
    store = machine.store
    theirs = client.make_token("home", ["home"])
    devices = known_devices(store, but=new_home.device_id)
    body: dict[str, Any] = state_for(machine, peer_by_id(store, new_home.id), keys)
    body["handover"] = msgspec.to_builtins(Handover(keys.root, theirs.token, new_home.name, devices))
    put_document(store, client, keys.link_to_device(new_home), Channel.RECEIPTS, body, now_ms())


# --------------------------------------------------------------------------------------------------------- taking over


def note_promotion(store: Store, device: str | None, url: str | None) -> None:
    """Record the work that remains after this machine became home. Inside that transaction."""
    write_note(store, PROMOTING, json.dumps({"device": device, "url": url}))


def is_promoting(store: Store) -> bool:
    """Return True if a promotion was interrupted after its transaction."""
    return read_note(store, PROMOTING) is not None


def finish_promotion(machine: Machine) -> None:
    """Do what is left of a promotion; nothing where none was begun."""
    words = read_json_note(machine.store, PROMOTING)
    if words is None:
        return
    take_mirror(machine)
    set_role(machine, role="home", device=words["device"], url=words["url"])
    with machine.store.transaction():
        drop_note(machine.store, PROMOTING)


def take_mirror(machine: Machine) -> None:
    """Take what the old home's mirror knows into this machine's own memory, then delete the mirror.

    A lost home's data exists only in its mirrors. A home that moves sends its archive later; its rows are here then.
    """
    with open_mirror(machine.places, "device") as mirrored:
        if mirrored is None or mirrored.store is None:
            return
        adopt_turns(machine.store, mirrored.store)
        adopt_memories(machine.store, mirrored.store)
        adopt_evidence(machine.store, mirrored.store)
    device_mirror(machine.places).discard()


def set_role(machine: Machine, *, role: str, url: str | None = None, device: str | None = None) -> None:
    """Record this machine's role; the role itself is written last."""
    file = machine.places.config_file
    if url is not None:
        set_value(file, "relay.url", url)
    if device is not None and device != machine.config.device:
        set_value(file, "device", device)
    set_value(file, "role", role)
