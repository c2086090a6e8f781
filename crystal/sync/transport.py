"""Connect to a relay: httpcore's pool with a time limit for every exchange.

A timeout per read does not end an answer that arrives one byte at a time, in its headers or its body. So every read and
write is also limited to the remaining time of the exchange (``Pace``).
"""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import certifi
import httpcore

from crystal.errors import NotConfiguredError


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


_RUNNING = threading.local()
"""``pace``: time limit of this thread's current exchange."""
_PIECE = 64 * 1024
_IDLE_SECONDS = 4.0
"""Shorter than the five seconds after which common servers close, so that no request uses a closing connection."""


def tls_context(ca_file: Path | None) -> ssl.SSLContext:
    """Return a TLS context: TLS 1.2 or newer, host names checked, trusting the given authority or else the system's.

    Raises:
        NotConfiguredError: The file cannot be read or holds no certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_verify_locations(ca_file if ca_file is not None else certifi.where())
    except (OSError, ValueError) as error:
        reason = "holds no certificate" if isinstance(error, (ssl.SSLError, ValueError)) else "cannot be read"
        raise NotConfiguredError(
            f"the file of the relay's certificate authority {reason}: {ca_file}",
            hint="give the PEM file of the authority that signed the relay's certificate",
        ) from error
    return context


def connect(context: ssl.SSLContext | None) -> httpcore.ConnectionPool:
    """Return connections to one relay, kept for the next request. Thread-safe."""
    return httpcore.ConnectionPool(
        ssl_context=context, max_connections=8, keepalive_expiry=_IDLE_SECONDS, network_backend=_PacedBackend()
    )


@contextmanager
def paced(pace: Pace) -> Iterator[None]:
    """Limit all that this thread reads and writes to an exchange's time."""
    _RUNNING.pace = pace
    try:
        yield
    finally:
        _RUNNING.pace = None


class _PacedBackend(httpcore.NetworkBackend):
    def __init__(self) -> None:
        self._inner = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        allowed = _allowed(timeout, httpcore.ConnectTimeout)
        stream = self._inner.connect_tcp(host, port, allowed, local_address, socket_options)
        return _PacedStream(stream)


class _PacedStream(httpcore.NetworkStream):
    def __init__(self, inner: httpcore.NetworkStream) -> None:
        self._inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = self._inner.read(max_bytes, _allowed(timeout, httpcore.ReadTimeout))
        _count(len(data))
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), _PIECE):
            piece = buffer[start : start + _PIECE]
            self._inner.write(piece, _allowed(timeout, httpcore.WriteTimeout))
            _count(len(piece))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        allowed = _allowed(timeout, httpcore.ConnectTimeout)
        return _PacedStream(self._inner.start_tls(ssl_context, server_hostname, allowed))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


def _count(size: int) -> None:
    pace: Pace | None = getattr(_RUNNING, "pace", None)
    if pace is not None:
        pace.moved(size)


def _allowed(timeout: float | None, late: type[Exception]) -> float | None:
    """Return the shorter of one step's time and the remaining time of the exchange."""
    pace: Pace | None = getattr(_RUNNING, "pace", None)
    if pace is None:
        return timeout
    left = pace.left(time.monotonic())
    if left <= 0:
        raise late("the exchange took too long")
    return left if timeout is None else min(timeout, left)
