"""Limit the rate of requests: a burst, then a number per second."""

from __future__ import annotations

import time
from collections.abc import Callable

MAX_NAMES = 10_000


class Rate:
    """A limit for each name, such as an address.

    Args:
        at_once: Maximum number of requests in a burst.
        per_second: Number of further requests per second.
        clock: A monotonic clock in seconds.
    """

    def __init__(self, at_once: float, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._at_once, self._per_second, self._clock = at_once, per_second, clock
        self._left: dict[str, tuple[float, float]] = {}

    def wait(self, name: str) -> float:
        """Return the seconds to wait; 0 if the request is allowed."""
        left, _ = self._now(name)
        return 0.0 if left >= 1 else (1 - left) / self._per_second

    def count(self, name: str) -> None:
        """Count a request."""
        left, now = self._now(name)
        self._left.pop(name, None)  # so that the newest is last
        self._left[name] = max(0.0, left - 1), now
        if len(self._left) > MAX_NAMES:
            del self._left[next(iter(self._left))]

    def _now(self, name: str) -> tuple[float, float]:
        now = self._clock()
        left, at = self._left.get(name, (self._at_once, now))
        return min(self._at_once, left + (now - at) * self._per_second), now
