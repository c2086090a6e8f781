"""Sync on the home machine: ingest what devices sent, publish the mirror, send each device its receipts."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from crystal.app.background import enrich
from crystal.app.context import Machine, now_ms
from crystal.app.relay_links import Keyring, opened_relay, relay_keys
from crystal.app.sync.device_registry import ignored_prefixes, save_registry
from crystal.app.sync.devices import retry_revocations
from crystal.app.sync.forget import finish_soon
from crystal.capture.lock import try_lock
from crystal.errors import CrystalError, NotConfiguredError, StoreDamagedError
from crystal.store.connection import Store
from crystal.store.notes import read_note
from crystal.store.problems import clear_problem, find_problem, record_problem
from crystal.store.search.vectors import count_pending, serving_generation
from crystal.store.sync import inbox, mirror
from crystal.store.sync.relay_peers import Peer, devices_in_use, was_sent, was_sent_since
from crystal.sync.arrival import Arrivals
from crystal.sync.client import RelayClient
from crystal.sync.documents import put_document
from crystal.sync.envelope.blob import Channel
from crystal.sync.errors import RelayDeniedError, RelayFullError
from crystal.sync.forgotten import forgotten_for
from crystal.sync.losses import LOST_MIRROR, is_first
from crystal.sync.mirror.publishing import manifest, publish, take_device_report
from crystal.sync.opening import PollReport
from crystal.sync.poller import Poller
from crystal.sync.receipts import receipts_for
from crystal.sync.taking import MessageHandler

ENRICH_SECONDS = 300.0
TELL_AGAIN_MS = 6 * 3_600_000
"""Interval at which home reports to a device when nothing changes."""
MIRROR_PART = "mirror"
"""Key (``part``) of the problem: the mirror could not be published."""
PUBLISH_LOCK = "publish.lock"
DEMOTING = "relay_demoting"
"""The store's note that another machine was chosen as home: from then on this one takes nothing more."""


@dataclass(frozen=True, slots=True)
class PollOutcome:
    """Result of a poll: what came, which devices were told, what went wrong afterwards, in words."""

    report: PollReport
    told: int
    problems: tuple[str, ...]


def poll_relay(machine: Machine, client: RelayClient | None = None) -> PollOutcome:
    """Store what devices sent, make it searchable, update the mirror, and write to every device.

    Receipts are sent first: a device without them keeps everything twice.

    Args:
        machine: The home machine.
        client: The relay; opened from the settings when not given.

    Raises:
        NotConfiguredError: The machine has no relay or no root key.
        RelayUnavailableError, RelayDeniedError: The relay cannot be asked.
    """
    if read_note(machine.store, DEMOTING) is not None:
        raise NotConfiguredError("another machine was chosen as home", hint="run again: crystal demote --to NAME")
    keys = relay_keys(machine)
    root = keys.root
    with opened_relay(machine, client) as relay:
        arrivals = Arrivals(machine.store, machine.places.ldm_home, machine.places.agent_folder)
        poller = Poller(
            machine.store,
            relay,
            MessageHandler(arrivals, machine.config.agent_id),
            lambda: keys.senders(machine.store),
            now_ms,
            ignored_prefixes(machine.store, root),
        )
        retry_revocations(machine, relay)
        report = poller.poll()
        telling = _Telling(machine, relay, keys)
        telling.states()
        left = finish_soon(machine)
        problems = enrich(machine, budget_seconds=ENRICH_SECONDS) if report.turns or _waits(machine) else []
        save_registry(machine, relay, root, report.heads)
        problems += [*([report.lost] if report.lost else []), *left, *_publish(machine, relay)]
        telling.manifests()
    return PollOutcome(report, telling.told, (*problems, *telling.problems))


def _waits(machine: Machine) -> bool:
    """Return True if something received has no vector yet; memories count too, though they have no turn."""
    serving = serving_generation(machine.store)
    return (
        machine.config.embedding_provider != "none" and count_pending(machine.store, serving.id if serving else 0) > 0
    )


class _Telling:
    """Sends devices what is new; a failure for one does not stop the others."""

    def __init__(self, machine: Machine, client: RelayClient, keys: Keyring) -> None:
        self.told = 0
        self.problems: list[str] = []
        self._machine, self._client, self._keys = machine, client, keys

    def states(self) -> None:
        """Send every device its state document when it says something new, or was sent long ago."""
        for peer in devices_in_use(self._machine.store):
            body = state_for(self._machine, peer, self._keys)
            now = now_ms()
            is_late = not was_sent_since(peer, Channel.RECEIPTS, now - TELL_AGAIN_MS, now)
            if is_late or not was_sent(peer, Channel.RECEIPTS, body):
                self._tell(peer, Channel.RECEIPTS, body)

    def manifests(self) -> None:
        """Send every device the mirror's newest manifest when it has not got it."""
        newest = manifest(self._machine.store)
        for peer in devices_in_use(self._machine.store):
            if newest is not None and not was_sent(peer, Channel.MIRROR, newest):
                self._tell(peer, Channel.MIRROR, newest)

    def _tell(self, peer: Peer, channel: Channel, body: Mapping[str, Any]) -> None:
        link = self._keys.link_to_device(peer)
        try:
            put_document(self._machine.store, self._client, link, channel, body, now_ms(), supersede=True)
        except (RelayDeniedError, RelayFullError) as error:
            problem = f"{peer.name} could not be told: {error.message}"
            if problem not in self.problems:  # of two documents, one warning
                self.problems.append(problem)
        else:
            self.told += 1


def state_for(machine: Machine, peer: Peer, keys: Keyring) -> dict[str, Any]:
    """Return the state document for a device: how far its streams were taken, and what it has to do."""
    body: dict[str, Any] = {"home": machine.config.device, **receipts_for(machine.store, peer)}
    if (forgotten := forgotten_for(machine.store, peer)) is not None:
        body["forgotten"] = forgotten
    if peer.generation > peer.accepted_from:
        secret = keys.secret(peer.device_id, peer.accepted_from + 1)
        if secret is not None:
            body["rotate"] = {"generation": peer.accepted_from + 1, "secret": secret.hex()}
    return body


def _publish(machine: Machine, client: RelayClient) -> list[str]:
    """Bring the mirror at the relay up to date, one process at a time; return what went wrong, in words."""
    store = machine.store
    peers = devices_in_use(store)
    if not peers:
        return []
    with try_lock(machine.places.data_dir / PUBLISH_LOCK) as held:
        if not held:
            return []
        try:
            for peer in peers:
                take_device_report(store, peer.told.get("mirror") or {}, now=now_ms())
            if is_first(store):
                mirror.look_soon(store)  # what has lost messages may have lost the mirror
            publish(store, client, now=now_ms(), random=os.urandom)
        except StoreDamagedError:
            raise
        except CrystalError as error:
            # What devices sent is safe by now; the mirror is tried again by the next poll.
            record_problem(store, MIRROR_PART, error.message, now_ms())
            return [f"the mirror could not be published: {error.message}"]
        clear_problem(store, MIRROR_PART)
    lost = find_problem(store, LOST_MIRROR)
    return [] if lost is None else [lost.message]


def changed_here(store: Store) -> Callable[[], bool]:
    """Return a function that is True if another process wrote here since its last call, or a stream is due again."""
    seen = store.count_of_others()

    def is_due() -> bool:
        nonlocal seen
        before, seen = seen, store.count_of_others()
        return seen != before or inbox.is_due(store, now_ms())

    return is_due
