"""Services shared by the routes of one running relay. The only source of clock and randomness."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable

from relay_worker.errors import RequestRefusedError
from relay_worker.limits import Buckets, ChangeSignals, Counts, Slots, networks
from relay_worker.metrics import Metrics
from relay_worker.settings import Settings
from relay_worker.store import accounts
from relay_worker.store.interface import WHOLE_RELAY, Store

SWEEP_MS = 60_000
MAX_WAITING = 1000
MAX_WAITING_EACH = 50
"""Maximum waiting requests of one token, or of one address without a token, so that none takes all slots."""


def wall_clock() -> int:
    """Return milliseconds since 1970 UTC."""
    return time.time_ns() // 1_000_000


class Services:
    """Services of one relay: its store, limits and counters.

    Args:
        settings: The effective configuration.
        store: The open store; its creator closes it.
        metrics: Passed by the caller if the store reports to them too.
        now: Returns milliseconds since 1970; tests replace it.
        monotonic: Returns seconds, for rates and deadlines.
        random: Returns that many random bytes.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        *,
        metrics: Metrics | None = None,
        now: Callable[[], int] = wall_clock,
        monotonic: Callable[[], float] = time.monotonic,
        random: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self.settings, self.store, self.metrics = settings, store, metrics or Metrics()
        self.now, self.monotonic, self.random = now, monotonic, random
        self.log = logging.getLogger("relay_worker")
        self.signals = ChangeSignals()
        self.by_token = Buckets(settings.rate, settings.rate * 5, monotonic)
        self.refused = Buckets(settings.refused_rate / 60, settings.refused_rate, monotonic)
        self.claims = Buckets(settings.pair_rate / 60, settings.pair_rate, monotonic)
        self.uploads = Slots(settings.large_uploads, settings.body_total)
        self.under_way = Counts(settings.max_connections_per_address)
        self.waiting = Counts(MAX_WAITING_EACH)
        self.trusted = networks(settings.trusted_proxies)
        self.used: dict[str, int] = {}
        self._swept_at: int | None = None
        self._probed_at: float | None = None

    async def sweep_if_due(self) -> None:
        """Expire old data if the last sweep is a minute ago. Called by requests, so the relay needs no timer."""
        now = self.now()
        if self._swept_at is not None and 0 <= now - self._swept_at < SWEEP_MS:
            return
        self._swept_at = now
        try:
            await self.sweep()
        except RequestRefusedError as refusal:  # nothing can be expired on a full disk, but reading must still work
            self.log.warning("sweep failed", extra={"fields": {"code": refusal.code}})

    async def sweep(self) -> None:
        """Expire old data, and record when tokens were last used."""
        used, self.used = self.used, {}
        if used:
            await self.store.write(WHOLE_RELAY, accounts.touch, used)
        for account, count in await self.store.sweep(self.now()):
            self.metrics.expired.inc(count)
            self.log.warning("blobs expired unread", extra={"fields": {"count": count}})
            self.signals.notify(f"account {account}")

    async def probe(self) -> None:
        """Write to the store as a test, at most once a second for all callers."""
        at = self.monotonic()
        if self._probed_at is None or at - self._probed_at >= 1:
            self._probed_at = None
            try:
                await self.store.probe(self.now())
            except RequestRefusedError as refusal:
                raise RequestRefusedError("unavailable", "the store cannot be written", retry_after=5) from refusal
            self._probed_at = at
