"""Rate and concurrency limits: token buckets, and slots that are assigned in order.

Usable from several event loops and threads. The clock is an argument: monotonic seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import math
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from relay_worker.errors import Refusal

Network: TypeAlias = "ipaddress.IPv4Network | ipaddress.IPv6Network"


class Buckets:
    """Token bucket per key. Beyond ``keys`` the least recently used are deleted.

    Args:
        rate: Refill per second; 0 disables the limit.
        burst: Size of a bucket.
        clock: Returns seconds.
    """

    def __init__(self, rate: float, burst: float, clock: Callable[[], float], *, keys: int = 10_000) -> None:
        self._rate = rate
        self._burst = max(burst, 1.0)
        self._clock = clock
        self._keys = keys
        self._filled: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._guard = threading.Lock()

    def take(self, key: str) -> int:
        """Take one token. Return 0 on success, else the whole seconds until one is available."""
        if self._rate <= 0:
            return 0
        now = self._clock()
        with self._guard:
            left, since = self._filled.pop(key, (self._burst, now))
            left = min(self._burst, left + max(0.0, now - since) * self._rate)
            short = 1.0 - left
            self._filled[key] = (left if short > 0 else left - 1.0, now)
            if len(self._filled) > self._keys:
                self._filled.popitem(last=False)
        return 0 if short <= 0 else max(1, math.ceil(short / self._rate - 1e-6))


@dataclass(slots=True)
class AddressCounts:
    """Number of open items by address.

    Attributes:
        each: Maximum per address; 0 for no limit.
    """

    each: int
    _open: Counter[str] = field(default_factory=Counter)

    def take(self, address: str) -> bool:
        """Count one more. Return False, without counting, if the address is at its limit."""
        if self.each and self._open[address] >= self.each:
            return False
        self._open[address] += 1
        return True

    def release(self, address: str) -> None:
        """Count one less."""
        self._open[address] -= 1
        if self._open[address] <= 0:
            del self._open[address]

    def __len__(self) -> int:
        """Return the number of addresses with open items."""
        return len(self._open)


class Slots:
    """Limited number of slots; further requests wait in order.

    Args:
        count: Number of slots.
        patience: Maximum seconds of waiting.
    """

    def __init__(self, count: int, patience: float) -> None:
        self._free = count
        self._patience = patience
        self._guard = threading.Lock()
        self._waiting: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()

    @contextlib.asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Hold a slot.

        Raises:
            Refusal: ``unavailable`` after the maximum wait.
        """
        await self._acquire()
        try:
            yield
        finally:
            self._release()

    async def _acquire(self) -> None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        with self._guard:
            if self._free > 0:
                self._free -= 1
                return
            self._waiting.append((loop, future))
        try:
            await asyncio.wait_for(future, self._patience)
        except BaseException as error:
            with self._guard:
                waits = (loop, future) in self._waiting
                if waits:
                    self._waiting.remove((loop, future))
            if not waits:
                self._release()  # the slot was assigned at the same moment
            if isinstance(error, asyncio.TimeoutError):
                raise Refusal("unavailable", "too many large bodies at once", retry_after=5) from error
            raise

    def _release(self) -> None:
        with self._guard:
            while self._waiting:
                loop, future = self._waiting.popleft()
                if not loop.is_closed():
                    loop.call_soon_threadsafe(_hand_over, future)
                    return
            self._free += 1


def _hand_over(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class ChangeSignals:
    """Wakes requests that wait for changes of an account or a mailbox."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: dict[str, set[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]]] = {}
        self._stopping = False

    @property
    def stopping(self) -> bool:
        """True once no request should begin to wait."""
        return self._stopping

    @property
    def count(self) -> int:
        """Number of waiting requests."""
        with self._guard:
            return sum(len(some) for some in self._waiting.values())

    @contextlib.contextmanager
    def expect(self, key: str) -> Iterator[asyncio.Future[None]]:
        """Return a future that is done at the next ``notify`` of this key. Call it first, then check, then wait."""
        loop = asyncio.get_running_loop()
        entry = (loop, loop.create_future())
        with self._guard:
            self._waiting.setdefault(key, set()).add(entry)
            if self._stopping:
                entry[1].set_result(None)
        try:
            yield entry[1]
        finally:
            with self._guard:
                some = self._waiting.get(key, set())
                some.discard(entry)
                if not some:
                    self._waiting.pop(key, None)

    def notify(self, key: str) -> None:
        """Wake all requests that wait for this key."""
        with self._guard:
            some = list(self._waiting.get(key, ()))
        for loop, future in some:
            if not loop.is_closed():
                loop.call_soon_threadsafe(_hand_over, future)

    def stop(self) -> None:
        """Wake all waiting requests, now and from now on."""
        self._stopping = True
        for key in list(self._waiting):
            self.notify(key)


def networks(texts: Sequence[str]) -> tuple[Network, ...]:
    """Parse addresses and networks of trusted proxies.

    Raises:
        ValueError: An entry is neither.
    """
    return tuple(ipaddress.ip_network(text, strict=False) for text in texts)


def address_of(peer: str, forwarded: str, trusted: Sequence[Network]) -> str:
    """Return the client's address: the peer, or the one that a trusted proxy names.

    ``X-Forwarded-For`` is read from the right while the entries are trusted; a client can only add to the left. IPv6
    clients count by their /64, because each has all of it.
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
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((int(parsed) >> 64 << 64, 64)))
    return address[:64]


def _parse(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def is_trusted(text: str, trusted: Sequence[Network]) -> bool:
    """Return True if an address is that of a trusted proxy."""
    parsed = _parse(text)
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    return parsed is not None and any(parsed in network for network in trusted)
