"""What the routes of one running relay share. Clock and randomness come in here and nowhere else."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from relay_worker.errors import Refusal
from relay_worker.limits import AddressCounts, Buckets, ChangeSignals, Network, Slots, networks
from relay_worker.metrics import Metrics
from relay_worker.settings import Settings
from relay_worker.store.protocol import BlobStore

SWEEP_MS = 60_000
MAX_WAITING = 1000
MAX_WAITING_EACH = 50
"""Requests of one token, or one address without any, that wait at once: nobody takes all the places."""


def wall_clock() -> int:
    """Milliseconds since 1970 UTC."""
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class Services:
    """One relay: its store, limits and counters.

    Attributes:
        settings: The effective configuration.
        store: Where everything is kept; whoever made it closes it.
        now: Milliseconds since 1970.
        monotonic: Seconds, for rates and deadlines.
        random: That many random bytes.
    """

    settings: Settings
    store: BlobStore
    now: Callable[[], int] = wall_clock
    monotonic: Callable[[], float] = time.monotonic
    random: Callable[[int], bytes] = secrets.token_bytes
    metrics: Metrics = field(default_factory=Metrics)
    signals: ChangeSignals = field(default_factory=ChangeSignals)
    log: logging.Logger = field(default_factory=lambda: logging.getLogger("relay_worker"))
    by_token: Buckets = field(init=False)
    refused: Buckets = field(init=False)
    claims: Buckets = field(init=False)
    uploads: Slots = field(init=False)
    under_way: AddressCounts = field(init=False)
    trusted: Sequence[Network] = field(init=False)
    used: dict[str, int] = field(init=False, default_factory=dict)
    waiting: dict[str, int] = field(init=False, default_factory=dict)
    _swept_at: int | None = field(init=False, default=None)
    _probed_at: float | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        chosen = self.settings
        self.by_token = Buckets(chosen.rate, chosen.rate * 5, self.monotonic)
        self.refused = Buckets(chosen.refused_rate / 60, chosen.refused_rate, self.monotonic)
        self.claims = Buckets(chosen.pair_rate / 60, chosen.pair_rate, self.monotonic)
        self.uploads = Slots(chosen.large_uploads, chosen.body_total)
        self.under_way = AddressCounts(chosen.max_connections_per_address)
        self.trusted = networks(chosen.trusted_proxies)

    async def sweep_if_due(self) -> None:
        """Once a minute, whoever comes first expires what is old. So a relay needs no clockwork to be right."""
        now = self.now()
        if self._swept_at is not None and 0 <= now - self._swept_at < SWEEP_MS:
            return
        self._swept_at = now
        try:
            await self.sweep()
        except Refusal as refusal:  # a full disk expires nothing, and is no reason not to read from it
            self.log.warning("sweep failed", extra={"fields": {"code": refusal.code}})

    async def sweep(self) -> None:
        """Expire what is old, and write down when tokens were last used."""
        used, self.used = self.used, {}
        if used:
            await self.store.touch_tokens(used)
        for account, count in await self.store.sweep(self.now()):
            self.metrics.expired.inc(count)
            self.log.warning("blobs expired unread", extra={"fields": {"count": count}})
            self.signals.notify(f"account {account}")

    async def probe(self) -> None:
        """Write something to the store, at most once a second however many ask."""
        at = self.monotonic()
        if self._probed_at is None or at - self._probed_at >= 1:
            self._probed_at = None
            try:
                await self.store.probe(self.now())
            except Refusal as refusal:
                raise Refusal("unavailable", "the store cannot be written", retry_after=5) from refusal
            self._probed_at = at
