"""Refused blobs: their budget, what is told of them, and deleting them."""

from __future__ import annotations

import time
from dataclasses import dataclass

from crystal.app.context import Machine
from crystal.app.maintenance import tidy
from crystal.config.table import Config
from crystal.store import Store
from crystal.store.sync import quarantine
from crystal.store.sync.quarantine import (
    ROW_BYTES,
    Amount,
    Budget,
    QuarantinedBlob,
    RefusalCount,
    amount_kept,
    quarantined,
    refusals,
)
from crystal.store.sync.relay_peers import Peer, all_peers, find_peer

PURGE_SECONDS = 10.0
"""How long a purge gives space back to the disk; the next sweep goes on."""


@dataclass(frozen=True, slots=True)
class QuarantineList:
    """What was refused, and the names of the devices by their row."""

    kept: tuple[QuarantinedBlob, ...]
    counts: tuple[RefusalCount, ...]
    names: dict[int, str]


@dataclass(frozen=True, slots=True)
class Purge:
    """What a purge would delete: of one machine or of all, by the machine's name."""

    peer: Peer | None
    kept: tuple[tuple[str, Amount], ...]
    is_counted: bool

    @property
    def is_empty(self) -> bool:
        """Return True if there is nothing to delete."""
        return not self.kept and not self.is_counted


def budget_of(config: Config) -> Budget:
    """Return the budget of the settings."""
    return Budget(
        Amount(config.relay_quarantine_blobs, config.relay_quarantine_mb << 20),
        Amount(config.relay_quarantine_device_blobs, config.relay_quarantine_device_mb << 20),
    )


def read_refused(store: Store) -> QuarantineList:
    """Read what was refused."""
    names = {peer.id: peer.name for peer in all_peers(store)}
    return QuarantineList(tuple(quarantined(store)), tuple(refusals(store)), names)


def plan_purge(machine: Machine, name: str | None) -> Purge:
    """Find what a purge would delete.

    Raises:
        UsageError: No machine has that name.
    """
    store = machine.store
    peer = None if name is None else find_peer(store, name)
    peers = all_peers(store) if peer is None else [peer]
    kept = [(one.name, amount_kept(store, one.id)) for one in peers]
    is_counted = any(peer is None or one.peer == peer.id for one in refusals(store))
    found = ((who, Amount(one.blobs, one.bytes - ROW_BYTES * one.blobs)) for who, one in kept if one.blobs)
    return Purge(peer, tuple(found), is_counted)


def purge(machine: Machine, plan: Purge) -> None:
    """Delete it, and give its space back to the disk."""
    with machine.store.transaction():
        quarantine.purge(machine.store, None if plan.peer is None else plan.peer.id)
    tidy(machine.store, time.monotonic() + PURGE_SECONDS)
