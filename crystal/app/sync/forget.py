"""What is forgotten spreads: from a device to home, from home to every device, into the outbox and the mirror."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from crystal.app.context import Machine, now_ms
from crystal.app.sync.links import device_link, link_to_home, relay_keys
from crystal.errors import CrystalError, NotConfigured, StoreDamaged, WatermarkMoved

if TYPE_CHECKING:
    from crystal.store import Store
    from crystal.store.forget.forgetting import Tombstone
    from crystal.store.sync.relay_peers import Peer
    from crystal.sync.cleaning import SealedOutbox
    from crystal.sync.sending import Link

ROOM = "forgetting"
"""The room under which it is noted that what home says of forgetting cannot be understood."""
FINISHING = "forgetting files"
"""The room under which it is noted that something of what is forgotten could not be deleted yet."""


# -------------------------------------------------------------------------------------------------------- on a device


def tell_home(machine: Machine) -> Callable[[Store, Sequence[Tombstone]], None]:
    """Seals new tombstones for home, in the transaction that adds them; they wait where there is no home or no key."""

    def tell(store: Store, _tombstones: Sequence[Tombstone]) -> None:
        from crystal.sync.forgotten import put_forgotten

        with contextlib.suppress(NotConfigured):  # no key just now: the next delivery seals them
            link = device_link(machine) if machine.config.role == "device" else None
            if link is not None and link.keys_of(link.peer.generation) is not None:
                put_forgotten(store, link, now_ms())

    return tell


def send_forgotten(machine: Machine, link: Link) -> int:
    """Seal for home what waits to be told; gives how many tombstones. Without the key they go on waiting."""
    from crystal.sync.forgotten import put_again, put_forgotten

    store = machine.store
    with contextlib.suppress(NotConfigured, WatermarkMoved), store.transaction():
        put_again(store, link, now_ms())
        return put_forgotten(store, link, now_ms())
    return 0


def take_forgotten(machine: Machine, peer: Peer, body: Mapping[str, Any], as_of: int) -> None:
    """Take what home's state document says of forgetting. What cannot be understood is named; all else goes on."""
    from crystal.store.problems import clear_problem, record_problem
    from crystal.sync.forgotten import read_told, take_from_home
    from crystal.sync.wire import BadRecord

    try:
        told = read_told(body.get("forgotten"))
    except BadRecord as error:
        record_problem(machine.store, ROOM, error.message, now_ms())
        return
    if told is not None:
        with machine.store.transaction():
            take_from_home(machine.store, peer, told, now=now_ms(), as_of=as_of)
        clear_problem(machine.store, ROOM)


def heard_of_forgotten(store: Store) -> dict[str, Any]:
    """What the heartbeat says of it: how far this device has what home told."""
    from crystal.store.sync.relay_forgotten import Stand, read_stand

    return {"forgotten": (read_stand(store) or Stand("")).confirms}


def send_all_forgotten(store: Store) -> None:
    """Let home be told of everything once more: it has lost what it had. Inside a transaction."""
    from crystal.store.sync.relay_forgotten import tell_all_again

    tell_all_again(store)


def outbox_of(machine: Machine) -> SealedOutbox:
    """The outbox, to be cleaned of what is forgotten; its keys are read when there is something in it."""
    from crystal.sync.cleaning import SealedOutbox

    config = machine.config
    by_words = not config.relay_local_memory
    return SealedOutbox(machine.store, lambda: _links(machine), now_ms, config.device, by_words)


def _links(machine: Machine) -> dict[int, Link]:
    """The links that blobs of the outbox were sealed over; of former homes only where their keys are still here."""
    from crystal.store.sync.relay_peers import all_peers, home_peer

    keys, home = relay_keys(machine), home_peer(machine.store)
    links = {peer.id: link_to_home(peer, keys) for peer in all_peers(machine.store, "home")}
    return {
        ident: link
        for ident, link in links.items()
        if (home is not None and ident == home.id) or link.keys_of(link.peer.generation) is not None
    }


def finish_soon(machine: Machine) -> list[str]:
    """Do what is left of forgetting, before anything is published or told; gives what went wrong, in words."""
    from crystal.app.forget import finish_forgetting
    from crystal.store.problems import clear_problem, record_problem

    try:
        finish_forgetting(machine)
    except StoreDamaged:
        raise
    except CrystalError as error:  # the rest is done by whoever comes next
        record_problem(machine.store, FINISHING, error.message, now_ms())
        return [f"what was forgotten is not gone from everywhere yet: {error.message}"]
    clear_problem(machine.store, FINISHING)
    return []


# -------------------------------------------------------------------------------------------------------------- home


def forgotten_words(machine: Machine, peer: Peer) -> dict[str, Any]:
    """The part of a device's state document that says what was forgotten; empty when it has confirmed all of it."""
    from crystal.sync.forgotten import forgotten_for

    told = forgotten_for(machine.store, peer, os.urandom)
    return {} if told is None else {"forgotten": told}


def machines_to_tell(store: Store) -> list[str]:
    """The other machines that are to forget what is forgotten here: home and what it knows, or home's devices."""
    from crystal.store.sync.relay_peers import all_peers, home_peer

    home = home_peer(store)
    if home is not None:
        return [str(home.told.get("home") or home.name)]
    return [peer.name for peer in all_peers(store, "device") if peer.revoked_at is None]


# ---------------------------------------------------------------------------------------------------------- standing


@dataclass(frozen=True, slots=True)
class Behind:
    """A device that has not confirmed all that is forgotten: how much, and when the oldest of it was, ms."""

    name: str
    count: int
    since: int


@dataclass(frozen=True, slots=True)
class Unconfirmed:
    """What other machines have not confirmed of forgetting: on a device its home, at home its devices."""

    count: int
    since: int | None
    devices: tuple[Behind, ...]

    def words(self, ago: Callable[[int | None], str]) -> str | None:
        """The same as one line for a person; None where there is nothing to say."""
        words = [f"{one.name} has not confirmed {_forgettings(one.count, one.since, ago)}" for one in self.devices]
        if self.count:
            words.append(f"{_forgettings(self.count, self.since, ago)} not confirmed by home yet")
        return "; ".join(words) or None

    def as_json(self, as_time: Callable[[int | None], str | int | None]) -> dict[str, Any]:
        """The same as JSON."""
        devices = [{"name": one.name, "count": one.count, "since": as_time(one.since)} for one in self.devices]
        return {"count": self.count, "since": as_time(self.since), "devices": devices}

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Unconfirmed:
        """What was written as JSON, its times as numbers."""
        return cls(found["count"], found["since"], tuple(Behind(**one) for one in found["devices"]))


def _forgettings(count: int, since: int | None, ago: Callable[[int | None], str]) -> str:
    return f"{count:,} forgetting{'' if count == 1 else 's'} ({'the oldest of ' if count > 1 else ''}{ago(since)})"


def unconfirmed(store: Store) -> Unconfirmed:
    """What other machines have not confirmed of forgetting."""
    from crystal.store.sync.relay_forgotten import behind, unheard
    from crystal.store.sync.relay_peers import all_peers, home_peer

    count, since = unheard(store) if home_peer(store) is not None else (0, None)
    devices = tuple(
        Behind(peer.name, *found)
        for peer in all_peers(store, "device")
        if peer.revoked_at is None and (found := behind(store, peer.device_id, peer.told)) is not None
    )
    return Unconfirmed(count, since, devices)
