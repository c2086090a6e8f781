"""Provide the services shared by the routes of one running relay. The only source of clock and randomness."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any

from relay_worker.errors import RequestRefusedError
from relay_worker.limits import Buckets, ChangeSignals, OpenCounter, Slots, networks
from relay_worker.metrics import Metrics
from relay_worker.model import Token
from relay_worker.settings import Settings
from relay_worker.store import accounts
from relay_worker.store.interface import WHOLE_RELAY, RelayStore

SWEEP_MS = 60_000
USED_MS = 600_000
RATES_SECONDS = 0.25
RATES_EACH = 80
"""Maximum keys in one message: PostgreSQL carries 8,000 bytes."""
MAX_COUNT = 1 << 53
PROBE_SECONDS = 4.0
MAX_WAITING = 4000
"""Maximum waiting requests, one for each connection of a process: a refused client retries, which costs more."""
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
        store: RelayStore,
        *,
        metrics: Metrics | None = None,
        now: Callable[[], int] = wall_clock,
        monotonic: Callable[[], float] = time.monotonic,
        random: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self.settings, self.store, self.metrics = settings, store, metrics or Metrics()
        self._own_clock, self.monotonic, self.random = now, monotonic, random
        self.log = logging.getLogger("relay_worker")
        self.signals = ChangeSignals(monotonic)
        is_shared = store.is_shared
        self.by_token = Buckets(settings.rate, settings.rate * 5, monotonic, is_shared=is_shared)
        self.refused = Buckets(settings.refused_rate / 60, settings.refused_rate, monotonic, is_shared=is_shared)
        self.claims = Buckets(settings.pair_rate / 60, settings.pair_rate, monotonic, is_shared=is_shared)
        self._rates = {"token": self.by_token, "refused": self.refused, "claims": self.claims}
        self._rates_told_at = monotonic()
        self._loop: asyncio.AbstractEventLoop | None = None
        store.listen(self._receive)
        self.uploads = Slots(settings.large_uploads, settings.body_total)
        self.under_way = OpenCounter(settings.max_connections_per_address)
        self.waiting = OpenCounter(MAX_WAITING_EACH)
        self.trusted = networks(settings.trusted_proxies)
        self._used: dict[str, int] = {}
        self._swept_at: int | None = None
        self._probe: tuple[float, asyncio.Task[bool]] | None = None

    def now(self) -> int:
        """Return milliseconds since 1970, by the clock that all servers of the store share."""
        return self._own_clock() + self.store.clock_ahead

    def announce(self, key: str) -> None:
        """Wake all requests that wait for this key, at this server and at the others of the store."""
        self.signals.notify(key)
        self.store.tell("wake", key)

    def tell_rates_if_due(self) -> None:
        """Send the other servers the rates of clients here, several times a second. Requests call this."""
        if not self.store.is_shared:
            return
        self._loop = asyncio.get_running_loop()
        seconds = self.monotonic() - self._rates_told_at
        if seconds >= RATES_SECONDS:
            self._rates_told_at += seconds
            for name, buckets in self._rates.items():
                taken = buckets.taken(seconds)
                for at in range(0, len(taken), RATES_EACH):
                    self.store.tell("rate", name, taken[at : at + RATES_EACH])

    def _receive(self, message: list[Any]) -> None:
        """Receive a message of another server, in any thread."""
        if self._loop is None:  # no request has arrived yet
            self._execute(*message[1:])
            return
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            self._loop.call_soon_threadsafe(self._execute, *message[1:])

    def _execute(self, *message: Any) -> None:
        """Execute a message; ignore one with another structure, which no server sent."""
        match message:
            case ("wake", str(key)):
                self.signals.notify(key)
            case ("rate", str(name), list(taken)) if name in self._rates:
                for one in taken:
                    match one:
                        case [str(key), int(count)] if 0 < count < MAX_COUNT:
                            self._rates[name].charge(key, count)
            case ("all",):
                self.signals.notify_all()

    def note_use(self, token: Token) -> None:
        """Queue the use of a token for the next sweep, at most once in ten minutes."""
        now = self.now()
        if now - (token.last_used_at or 0) >= USED_MS:
            self._used[token.id] = now

    async def sweep_if_due(self) -> None:
        """Expire old data if the last sweep is a minute ago. Called by requests, so the relay needs no timer."""
        now = self.now()
        if self._swept_at is not None and 0 <= now - self._swept_at < SWEEP_MS:
            return
        self._swept_at = now
        await self._attempt("sweep", self.sweep())  # nothing can be expired on a full disk, but reading must still work

    async def sweep_bodies(self) -> None:
        """Delete large bodies that no row names. No request waits for it, because a bucket may be slow."""
        await self._attempt("sweep", self.store.sweep_bodies(self.now()))

    async def _attempt(self, name: str, work: Awaitable[None]) -> bool:
        """Do some work on the store; return False, with a line in the log, if the store refuses it."""
        try:
            await work
        except RequestRefusedError as refusal:
            self.log.warning("%s failed", name, extra={"fields": {"code": refusal.code}}, exc_info=refusal.__cause__)
            return False
        return True

    async def sweep(self) -> None:
        """Expire old data, and record when tokens were last used."""
        used, self._used = self._used, {}
        if used:
            await self.store.write(WHOLE_RELAY, accounts.touch, used)
        believed, at = self.signals.latest_of_waiting(), self.monotonic()
        names = {key.removeprefix("account "): key for key in believed}
        found = await self.store.read(accounts.changes, sorted(names))
        self.signals.compare(believed, {names[name]: change for name, change in found.items()}, at)
        for account, count in await self.store.sweep(self.now()):
            self.metrics.expired.inc(count)
            self.log.warning("blobs expired unread", extra={"fields": {"count": count}})
            self.announce(f"account {account}")

    async def probe(self) -> None:
        """Write to the store as a test. All callers share one attempt, and at most one starts each second.

        Raises:
            RequestRefusedError: ``unavailable``; it failed, or takes longer than ``PROBE_SECONDS``.
        """
        at, attempt = self._probe or (-math.inf, None)
        if attempt is None or (attempt.done() and self.monotonic() - at >= 1):
            attempt = asyncio.ensure_future(self._attempt("probe", self.store.probe(self.now())))
            self._probe = self.monotonic(), attempt
        if not attempt.done():
            await asyncio.wait({attempt}, timeout=PROBE_SECONDS)
        if not (attempt.done() and attempt.result()):
            raise RequestRefusedError("unavailable", "the store cannot be written", retry_after=5)
