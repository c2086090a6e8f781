"""Sync on a device: captures go to the outbox, the outbox is sent to home, and home's mirror is fetched."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from crystal.app import maintenance
from crystal.app.context import Machine, now_ms
from crystal.app.memories import take_memories
from crystal.app.mirror import device_mirror, mirror_to_change, open_mirror
from crystal.app.relay_links import Keyring, key_places, opened_relay, relay_keys
from crystal.app.sync.forget import finish_soon, send_forgotten, take_forgotten
from crystal.app.sync.unsent import read_unsent
from crystal.capture.lock import BUSY_SECONDS, await_lock
from crystal.config.paths import Places
from crystal.errors import CrystalError, NotConfiguredError, UnavailableError
from crystal.store import Store
from crystal.store.capture.privacy import add_private_lines
from crystal.store.forget.forgetting import newest_tombstone
from crystal.store.problems import clear_problem, find_waiting_retry, record_problem
from crystal.store.sync import past, relay_peers
from crystal.store.sync.outbox import backlog
from crystal.store.sync.relay_forgotten import confirmed_tombstones, open_again, send_all_again
from crystal.store.sync.relay_peers import Peer, home_peer
from crystal.store.work import index
from crystal.sync.client import RelayClient
from crystal.sync.delivery import PART, Delivery, DeliveryReport
from crystal.sync.documents import Document
from crystal.sync.keys.forms import RelayKey
from crystal.sync.mirror.device import Mirror
from crystal.sync.mirror.sifting import sift
from crystal.sync.past import PastReport, send_some_past
from crystal.sync.receipts import mend_streams
from crystal.sync.sending import Link

RELAY_LOCK = "relay.lock"
BUSY = "another crystal process is using the relay"
"""Reason why this process delivered nothing: another one does it."""
MIRROR_PART = "mirror"
"""Key (``part``) of the problem: the mirror cannot be updated."""
SEND_SECONDS = 3600.0
"""Time limit for sending in a command that a person waits for."""
PRIVATE_AT_ONCE = 10_000
KEEP_SECONDS = 60.0
"""Time limit for the mirror's index after each delivery, which holds the lock meanwhile."""


def send_past(machine: Machine) -> None:
    """Queue everything archived here for home, after what is captured now."""
    with machine.store.transaction():
        past.begin(machine.store)


def deliver_relay(
    machine: Machine,
    client: RelayClient | None = None,
    *,
    skip_delay: bool = False,
    should_stop: Callable[[], bool] = lambda: False,
) -> DeliveryReport:
    """Send what waits, read home's documents, update the mirror. One process at a time.

    Args:
        machine: A device.
        client: The relay; opened from the settings when not given.
        skip_delay: The user asks for it now: try even during the delay after an outage, and wait for another process.
        should_stop: Asked between blobs.

    Raises:
        NotConfiguredError: The machine has no home, no relay or no key.
    """
    peer = home_peer(machine.store)
    if peer is None:
        raise NotConfiguredError("this machine has no home to send to", hint="run: crystal relay join")
    while True:
        with await_lock(machine.places.data_dir / RELAY_LOCK, seconds=BUSY_SECONDS if skip_delay else 0) as held:
            if not held:
                # The holder checks once more after releasing it, see below.
                return DeliveryReport(problem=BUSY)
            with opened_relay(machine, client) as relay:
                report = _deliver(machine, relay, peer, skip_delay=skip_delay, should_stop=should_stop)
        if report.problem or should_stop() or not backlog(machine.store).unsent:
            return report


def deliver_soon(machine: Machine, *, seconds: float, skip_delay: bool = False) -> DeliveryReport | None:
    """Deliver if this machine is a device that has joined, within a time. What fails is in the store's problems."""
    if machine.config.role != "device" or home_peer(machine.store) is None:
        return None
    deadline = time.monotonic() + seconds
    try:
        return deliver_relay(machine, skip_delay=skip_delay, should_stop=lambda: time.monotonic() > deadline)
    except CrystalError as error:
        record_problem(machine.store, PART, error.message, now_ms())
        return DeliveryReport(problem=error.message, exit_code=error.exit_code)


def _deliver(
    machine: Machine, client: RelayClient, peer: Peer, *, skip_delay: bool, should_stop: Callable[[], bool]
) -> DeliveryReport:
    store, keys, mirror = machine.store, relay_keys(machine), device_mirror(machine.places)
    link = keys.link_to_home(peer)
    while True:
        past = PastReport()
        send_forgotten(machine, link)
        lost = read_unsent(machine)
        if skip_delay or find_waiting_retry(store, PART, now_ms()) is None:
            past = send_some_past(store, link, ldm_home=machine.places.ldm_home, now=now_ms())
        about = {
            "mirror": mirror.told(),
            "agent": machine.config.agent_id,
            "name": machine.config.device,
            "past": past.left,
        }
        delivery = Delivery(
            store,
            client,
            link,
            down_keys=keys.keys_from_home(link.peer).get,
            clock=now_ms,
            send_all=lambda: _send_all(machine),
            on_state=lambda current, document: _on_state(machine, current, document),
            on_mirror=lambda body, serial: _take_manifest(machine, mirror, body, serial),
            about=lambda about=about: {**about, "forgotten": confirmed_tombstones(store)},  # type: ignore[misc]
            keep_ms=machine.config.relay_keep_days * 86_400_000,
        )
        report = delivery.deliver(should_stop=should_stop, skip_delay=skip_delay)
        if not report.problem and not should_stop():
            _fetch_mirror(machine, mirror, client, should_stop)
        finish_soon(machine)
        report.noticed += lost
        if report.problem or should_stop() or not past.sent:
            return report
        link, keys = delivery.link, relay_keys(machine)


def _take_manifest(machine: Machine, mirror: Mirror, body: Mapping[str, Any], serial: int) -> None:
    """Note what home's mirror is now; one that is older than what was taken before is refused, and named."""
    try:
        mirror.take(body, serial)
    except UnavailableError:
        raise
    except CrystalError as error:
        record_problem(machine.store, MIRROR_PART, error.message, now_ms())


def _fetch_mirror(machine: Machine, mirror: Mirror, client: RelayClient, should_stop: Callable[[], bool]) -> None:
    """Bring the mirror up to date; what goes wrong is named, and tried again by the next run."""
    newest = newest_tombstone(machine.store)
    try:
        fetched = mirror.fetch(client, should_stop=should_stop, sift=partial(sift, machine.store))
    except CrystalError as error:
        record_problem(machine.store, MIRROR_PART, error.message, now_ms())
    else:
        if fetched.objects:
            open_again(machine.store, newest)  # what was forgotten meanwhile may have come in
            take_private(machine.store, machine.places)
        take_memories(machine)
        _keep_mirror(machine)
        if fetched.problem:
            record_problem(machine.store, MIRROR_PART, fetched.problem, now_ms())
        elif fetched.is_whole:
            clear_problem(machine.store, MIRROR_PART)


def take_private(store: Store, places: Places) -> None:
    """Learn from the mirror which lines were left out on other machines: their copies here stay out too."""
    with open_mirror(places) as mirrored:
        if mirrored is None or mirrored.store is None:
            return
        after = ""
        while uuids := past.private_uuids(mirrored.store, after, PRIVATE_AT_ONCE):
            with store.transaction():
                add_private_lines(store, uuids)
            after = uuids[-1]


def _keep_mirror(machine: Machine) -> None:
    """Keep the mirror fast and small. Where that fails it is searched as it is; ``crystal doctor`` says so."""
    with contextlib.suppress(CrystalError), mirror_to_change(machine.places) as store:  # what was fetched stays so
        if store is not None:
            index.bring_up_to_date(store)
            maintenance.index(store, now_ms(), time.monotonic() + KEEP_SECONDS)
            maintenance.tidy(store, time.monotonic() + KEEP_SECONDS)


def _send_all(machine: Machine) -> None:
    with machine.store.transaction():
        send_all_again(machine.store)  # home has lost what it had
    if past.read_place(machine.store) is None:
        send_past(machine)


def _on_state(machine: Machine, link: Link, document: Document) -> Link:
    """Apply home's state document except its receipts: forget what it names, take new keys."""
    take_forgotten(machine, link.peer, document.body, document.as_of)
    rotate = document.body.get("rotate")
    if isinstance(rotate, dict) and rotate.get("generation") == link.peer.generation + 1:
        return _rotate(machine, link, bytes.fromhex(str(rotate.get("secret"))))
    return link


def _rotate(machine: Machine, link: Link, secret: bytes) -> Link:
    """Take new keys: kept first, then everything that waits is sealed again with them."""
    generation = link.peer.generation + 1
    keys = relay_keys(machine)
    if keys.keys[0].kind == "device":
        key = RelayKey("device", secret, link.peer.device_id, generation)
        key_places(machine).write_key(key, replace=True)
        keys = Keyring((key, *keys.keys))
    with machine.store.transaction():
        relay_peers.set_generation(machine.store, link.peer.id, generation, generation)
    renewed = keys.link_to_home(replace(link.peer, generation=generation))
    mend_streams(machine.store, renewed, now_ms())
    return renewed
