"""Limit rates and concurrency: token buckets, counts by address, waiting requests. Used by one event loop.

The clock is an argument: monotonic seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import functools
import ipaddress
import math
import re
import time
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import anyio

from relay_worker.errors import RequestRefusedError

Network: TypeAlias = "ipaddress.IPv4Network | ipaddress.IPv6Network"
MANY_SERVERS = 50
"""Number of servers up to which a client that uses all of them stays within its rate."""
MAX_SHARED = 200
MAX_LATEST = 100_000
LATEST_SECONDS = 120.0
"""Maximum time for which a change is not seen if its server died before it notified the others."""


class Buckets:
    """Token bucket per key. Beyond ``keys`` the least recently used are deleted.

    Args:
        rate: Refill per second; 0 disables the limit.
        burst: Size of a bucket.
        clock: Returns seconds.
        keys: Maximum number of buckets.
        is_shared: Count the tokens taken, for ``taken``.
    """

    def __init__(
        self, rate: float, burst: float, clock: Callable[[], float], *, keys: int = 10_000, is_shared: bool = False
    ) -> None:
        self._rate = rate
        self._burst = max(burst, 1.0)
        self._clock = clock
        self._keys, self._is_shared = keys, is_shared
        self._filled: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._taken: Counter[str] = Counter()

    def take(self, key: str) -> int:
        """Take one token. Return 0 on success, else the whole seconds until one is available."""
        if self._rate <= 0:
            return 0
        left = self._left(key)
        short = 1.0 - left
        self._fill(key, left if short > 0 else left - 1.0)
        if short > 0:
            return max(1, math.ceil(short / self._rate - 1e-6))
        if self._is_shared:
            self._taken[key] += 1
        return 0

    def taken(self, seconds: float) -> list[tuple[str, int]]:
        """Return the tokens taken since the last call, for the other servers; keys far below the rate are left out.

        Args:
            seconds: The time since the last call.
        """
        taken, self._taken = self._taken, Counter()
        least = self._rate * seconds / MANY_SERVERS
        return [(key, count) for key, count in taken.most_common(MAX_SHARED) if count >= least]

    def charge(self, key: str, count: int) -> None:
        """Subtract tokens that were taken at another server, at most to an empty bucket below zero."""
        self._fill(key, max(-self._burst, self._left(key) - count))

    def _left(self, key: str) -> float:
        now = self._clock()
        left, since = self._filled.pop(key, (self._burst, now))
        return min(self._burst, left + max(0.0, now - since) * self._rate)

    def _fill(self, key: str, left: float) -> None:
        self._filled[key] = (left, self._clock())
        if len(self._filled) > self._keys:
            self._filled.popitem(last=False)


class OpenCounter:
    """Number of open items by address or token.

    Args:
        each: Maximum per key; 0 for no limit.
    """

    def __init__(self, each: int) -> None:
        self._each = each
        self._open: Counter[str] = Counter()

    def take(self, key: str) -> bool:
        """Count one more. Return False, without counting, if the key is at its limit."""
        if self._each and self._open[key] >= self._each:
            return False
        self._open[key] += 1
        return True

    def release(self, key: str) -> None:
        """Count one less."""
        self._open[key] -= 1
        if self._open[key] <= 0:
            del self._open[key]


class Slots:
    """Limited number of slots; further requests wait in order.

    Args:
        count: Number of slots.
        patience: Maximum seconds of waiting.
    """

    def __init__(self, count: int, patience: float) -> None:
        self._free = asyncio.Semaphore(count)
        self._patience = patience

    async def take(self) -> None:
        """Take a slot, which the caller releases.

        Raises:
            RequestRefusedError: ``unavailable`` after the maximum wait.
        """
        try:
            with anyio.fail_after(self._patience):
                await self._free.acquire()
        except TimeoutError as error:
            raise RequestRefusedError("unavailable", "too many simultaneous large bodies", retry_after=5) from error

    def release(self) -> None:
        """Release a slot."""
        self._free.release()


class Wake(enum.Enum):
    """Reasons why a request stops waiting."""

    CHANGE = enum.auto()
    TIMEOUT = enum.auto()
    GONE = enum.auto()


News: TypeAlias = "asyncio.Future[Wake]"


def wake(news: News, cause: Wake) -> None:
    """End a wait; the first cause counts."""
    if not news.done():
        news.set_result(cause)


class WaitingClient:
    """The client of a connection: its disconnection ends everything that waits for it.

    Attributes:
        is_gone: It has disconnected.
        waiting: The waits of its requests.
    """

    def __init__(self) -> None:
        self.is_gone = False
        self.waiting: set[News] = set()

    def leave(self) -> None:
        """End all waits."""
        self.is_gone = True
        for news in self.waiting:
            wake(news, Wake.GONE)


class ChangeSignals:
    """Wakes requests that wait for changes of an account or a mailbox, and caches change counters.

    Args:
        monotonic: Returns seconds.

    Attributes:
        stopping: No new request may wait.
        count: Number of waiting requests.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._waiting: defaultdict[str, set[News]] = defaultdict(set)
        self._latest: dict[str, tuple[int, float]] = {}
        self._monotonic = monotonic
        self.stopping = False
        self.count = 0

    @contextlib.contextmanager
    def expect(self, key: str) -> Iterator[News]:
        """Yield a future that is done at the next ``notify`` of this key. Call it first, then check, then wait."""
        news: News = asyncio.get_running_loop().create_future()
        if self.stopping:
            news.set_result(Wake.CHANGE)
        self._waiting[key].add(news)
        self.count += 1
        try:
            yield news
        finally:
            self.count -= 1
            self._waiting[key].discard(news)
            if not self._waiting[key]:
                del self._waiting[key]

    def keep_latest(self, key: str, change: int, news: News) -> None:
        """Cache a key's change counter until the next ``notify``; it was read after ``expect`` yielded ``news``."""
        if news.done():
            return
        if len(self._latest) >= MAX_LATEST:
            self._latest.clear()
        self._latest[key] = change, self._monotonic() + LATEST_SECONDS

    def latest_of_waiting(self) -> dict[str, int]:
        """Return the cached change counters of all keys with waiting requests."""
        return {key: self._latest[key][0] for key in self._waiting if key in self._latest}

    def compare(self, believed: dict[str, int], found: dict[str, int], at: float) -> None:
        """Renew the cached counters of these keys; wake the requests that wait for a key whose counter changed.

        Args:
            believed: The result of ``latest_of_waiting``.
            found: The counters of the same keys, read afterwards.
            at: The time of that read.
        """
        for key, change in believed.items():
            if self._latest.get(key, (None,))[0] != change:
                continue  # notified meanwhile
            if found.get(key) == change:
                self._latest[key] = change, at + LATEST_SECONDS
            else:
                self.notify(key)

    def is_latest(self, key: str, change: int, ends_at: float) -> bool:
        """Return True if a request waiting until ``ends_at`` need not query the store, because nothing has changed."""
        latest, until = self._latest.get(key, (None, 0.0))
        return latest == change and ends_at < until

    def notify(self, key: str) -> None:
        """Wake all requests that wait for this key."""
        self._latest.pop(key, None)
        for news in self._waiting.get(key, ()):
            wake(news, Wake.CHANGE)

    def notify_all(self) -> None:
        """Wake all waiting requests."""
        self._latest.clear()
        for key in self._waiting:
            self.notify(key)

    def stop(self) -> None:
        """Wake all waiting requests, and all that start to wait later."""
        self.stopping = True
        self.notify_all()


_WITH_PORT = re.compile(r"([0-9.]+):[0-9]{1,5}|\[([0-9a-f:.]+)\](?::[0-9]{1,5})?", re.IGNORECASE)


def networks(texts: Sequence[str]) -> tuple[Network, ...]:
    """Parse addresses and networks of trusted proxies.

    Raises:
        ValueError: An entry is neither.
    """
    return tuple(ipaddress.ip_network(text, strict=False) for text in texts)


def address_of(peer: str, forwarded: str, trusted: Sequence[Network]) -> str:
    """Return the client's address: the peer, or the one that a trusted proxy names.

    ``X-Forwarded-For`` is read from the right while the entries are trusted; a client can only add to the left. IPv6
    clients count by their /64, because each has a whole /64.
    """
    address = peer
    if is_trusted(address, trusted):
        for named in reversed([part.strip() for part in forwarded.split(",") if part.strip()]):
            if _parse(named) is None:
                break
            address = named
            if not is_trusted(address, trusted):
                break
    parsed = _parse(address)
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((int(parsed) >> 64 << 64, 64)))
    return str(parsed or address[:64])


@functools.lru_cache(4096)
def _parse(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    with_port = _WITH_PORT.fullmatch(text)  # some proxies add the port
    try:
        found = ipaddress.ip_address((with_port[1] or with_port[2]) if with_port else text)
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def is_trusted(text: str, trusted: Sequence[Network]) -> bool:
    """Return True if an address is that of a trusted proxy."""
    parsed = _parse(text)
    return parsed is not None and any(parsed in network for network in trusted)
