"""What a pairing leaves on both machines and at the relay."""

from __future__ import annotations

from typing import Any

from crystal.app import relay_links
from crystal.app.sync import pair_device, pair_home
from crystal.store.sync import past
from crystal.store.sync.relay_peers import all_peers, home_peer
from crystal.sync.client import RelayClient
from crystal.sync.keys.bundle import Bundle
from crystal.sync.keys.places import KeyMissingError
from tests.support.over_httpx import OverHttpx
from tests.support.pairing_boxes import URL, Box, Pairs


def device_state(box: Box) -> dict[str, Any]:
    """Everything that joining writes."""
    with box.open() as machine:
        places = relay_links.key_places(machine)
        peer = home_peer(machine.store)
        try:
            key: Any = places.read_key().key
            token: Any = places.read_token()
        except KeyMissingError:
            key, token = None, None
        return {
            "role": machine.config.role,
            "url": machine.config.relay_url,
            "key": key,
            "token": token,
            "peer": peer,
            "past": past.read_place(machine.store),
        }


def is_joined(pairs: Pairs) -> bool:
    """Whether the device has a link to home that home knows, with the same keys on both sides and a valid token."""
    state = device_state(pairs.device)
    if state["peer"] is None or state["key"] is None:
        return False
    with pairs.home.open() as machine:
        peers = {peer.device_id: peer for peer in all_peers(machine.store, "device") if peer.revoked_at is None}
        peer = peers.get(state["peer"].device_id)
        if peer is None:
            return False
        secret = relay_links.relay_keys(machine).secret(peer.device_id, 1)
    with RelayClient(URL, state["token"].reveal(), transport=OverHttpx(pairs.device_way)) as client:
        assert client.streams().streams == ()
    same = (peer.up_prefix, peer.down_prefix) == (state["peer"].up_prefix, state["peer"].down_prefix)
    return same and state["key"].secret == secret and state["role"] == "device" and state["url"] == URL


def nothing_left(pairs: Pairs) -> None:
    """No token, no device, no mailbox, and a device that is as it was."""
    assert pairs.valid_tokens() == []
    assert pairs.open_mailboxes() == 0
    with pairs.home.open() as machine:
        assert all_peers(machine.store) == []
    assert device_state(pairs.device)["role"] == "standalone"
    assert device_state(pairs.device)["peer"] is None


def invited(pairs: Pairs) -> Bundle:
    with pairs.home.open() as machine, pairs.client() as client:
        bundle = pair_device.read_invitation(str(pair_home.pair_offline(machine, client, name=None).secret)).bundle
    assert bundle is not None
    return bundle
