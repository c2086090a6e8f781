"""Time limits of one exchange: each wait by itself and all of it together, however slowly the bytes arrive."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds for the steps of one exchange.

    Attributes:
        connect: Until the connection is open, and again for TLS.
        read: Between two pieces of the answer.
        write: For one piece of the request.
        total: For the whole exchange if no bytes move.
        rate: Bytes per second that must move on top of that; an exchange of n bytes may take ``total + n / rate``.
    """

    connect: float = 10.0
    read: float = 30.0
    write: float = 30.0
    total: float = 60.0
    rate: int = 16 * 1024


@dataclass(slots=True)
class Pace:
    """Remaining time of one exchange: it grows with transferred bytes, up to a limit.

    Args:
        now: The start, by a monotonic clock, in seconds.
        total: Seconds without any byte.
        rate: Bytes per second that earn more time.
        most: Maximum bytes that earn time: the expected size of the exchange.
    """

    now: float
    total: float
    rate: int
    most: int
    _moved: int = field(default=0, init=False)

    def moved(self, size: int) -> None:
        """Count bytes that were sent or received."""
        self._moved += size

    def left(self, now: float) -> float:
        """Return the remaining seconds; zero or less if time is up."""
        return self.now + self.total + min(self._moved, self.most) / self.rate - now
