"""Relay status of this machine: what waits to be sent, which devices are silent, what was refused."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from crystal.app.context import Machine
from crystal.app.mirror import device_mirror
from crystal.app.sync.forget import unconfirmed
from crystal.store.sync import inbox, outbox, past, relay_peers
from crystal.store.sync.refusal_counts import refusals
from crystal.store.sync.relay_peers import Peer


def relay_status(machine: Machine) -> dict[str, Any]:
    """Return the part ``relay`` of ``crystal status --json``; reads the store only. Times are ms, sizes bytes."""
    config, store = machine.config, machine.store
    home = relay_peers.home_peer(store)
    place = past.read_place(store)
    left = past.rows_between(store, place.row, place.until) if place is not None else 0
    return {
        "role": config.role,
        "url": config.relay_url,
        "home": None if home is None else {"name": home.own_name, "heard": home.heard_at},
        "outbox": {**asdict(outbox.backlog(store)), "past_left": left},
        "mirror": _mirror(machine) if home is not None else None,
        "forgotten": unconfirmed(store),
        "refused": sum(one.blobs for one in refusals(store) if not one.streams),
        "devices": [_device(machine, peer) for peer in relay_peers.all_peers(store, "device")],
    }


def _device(machine: Machine, peer: Peer) -> dict[str, Any]:
    own = [one for one in inbox.all_streams(machine.store) if one.peer == peer.id]
    streams = [_stream(one) for one in own if one.state != "left" and one.lane != "latest"]
    halted = (one for one in streams if one["state"] != "ok")
    worst = min(halted, key=lambda one: one["state"] == "waiting", default={"state": "ok", "detail": None})
    return {
        "name": peer.name,
        "heard": peer.heard_at,
        "missing": sum(one["missing"] for one in streams),
        "state": "revoked" if peer.revoked_at is not None else worst["state"],
        "detail": worst["detail"],
        "streams": streams,
    }


def _stream(one: inbox.InStream) -> dict[str, Any]:
    missing = max(0, one.head - one.last_seq)
    state = {"missing": missing, "state": one.state, "detail": one.detail}
    return {"stream": one.stream.hex(), "lane": one.lane, "last": one.last_seq, **state}


def _mirror(machine: Machine) -> dict[str, Any] | None:
    status = device_mirror(machine.places).status()
    if not status.is_there and not status.is_building:
        return None
    return {
        "as_of": status.as_of,
        "chunks": status.chunks,
        "size": status.size,
        "complete": status.is_complete,
        "problem": status.problem,
    }
