"""Connections to a relay: httpx's engine with a time limit for every exchange.

A timeout per read does not end an answer that arrives one byte at a time, in its headers or its body. So every read and
write is also limited to the remaining time of the exchange (``Pace``).
"""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import certifi
import httpcore
import httpx

from crystal.errors import NotConfigured
from crystal.sync.pace import Pace

PACE = "crystal.pace"
"""Name under which a request carries its ``Pace``."""

_PIECE = 64 * 1024
_IDLE_SECONDS = 4.0
"""Shorter than the five seconds after which common servers close, so that no request uses a closing connection."""


def tls_context(ca_file: Path | None) -> ssl.SSLContext:
    """Return a TLS context: TLS 1.2 or newer, host names checked, trusting the given authority or else the system's.

    Raises:
        NotConfigured: The file cannot be read or holds no certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_verify_locations(ca_file if ca_file is not None else certifi.where())
    except (OSError, ValueError) as error:
        reason = "holds no certificate" if isinstance(error, (ssl.SSLError, ValueError)) else "cannot be read"
        raise NotConfigured(
            f"the file of the relay's certificate authority {reason}: {ca_file}",
            hint="give the PEM file of the authority that signed the relay's certificate",
        ) from error
    return context


class RelayTransport(httpx.BaseTransport):
    """Connections to one relay, kept for the next request. Thread-safe."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self._running = threading.local()
        self._pool = httpcore.ConnectionPool(
            ssl_context=context,
            max_connections=8,
            keepalive_expiry=_IDLE_SECONDS,
            network_backend=_PacedBackend(self._running),
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request. The caller reads the body in the same thread."""
        self._running.pace = request.extensions.get(PACE)
        assert isinstance(request.stream, httpx.SyncByteStream)
        url = request.url
        asked = httpcore.Request(
            method=request.method,
            url=httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
            headers=request.headers.raw,
            content=request.stream,
            extensions={"timeout": request.extensions.get("timeout", {})},
        )
        with _in_httpx_words():
            answer = self._pool.handle_request(asked)
        assert isinstance(answer.stream, Iterable)
        return httpx.Response(answer.status, headers=answer.headers, stream=_Body(answer.stream))

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        self.close()


class _Body(httpx.SyncByteStream):
    def __init__(self, stream: Iterable[bytes]) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        with _in_httpx_words():
            yield from self._stream

    def close(self) -> None:
        if hasattr(self._stream, "close"):
            with _in_httpx_words():
                self._stream.close()


@contextmanager
def _in_httpx_words() -> Iterator[None]:
    """Translate each error of the engine into the httpx error of the same name."""
    try:
        yield
    except (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError) as error:
        raise getattr(httpx, type(error).__name__)(str(error)) from error
    except (httpcore.ProxyError, httpcore.UnsupportedProtocol) as error:
        raise httpx.UnsupportedProtocol(str(error)) from error
    except httpcore.ConnectionNotAvailable as error:
        raise httpx.PoolTimeout(str(error)) from error


class _PacedBackend(httpcore.NetworkBackend):
    def __init__(self, running: threading.local) -> None:
        self._inner = httpcore.SyncBackend()
        self._running = running

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        allowed = _allowed(self._running, timeout, httpcore.ConnectTimeout)
        stream = self._inner.connect_tcp(host, port, allowed, local_address, socket_options)
        return _PacedStream(stream, self._running)


class _PacedStream(httpcore.NetworkStream):
    def __init__(self, inner: httpcore.NetworkStream, running: threading.local) -> None:
        self._inner = inner
        self._running = running

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = self._inner.read(max_bytes, _allowed(self._running, timeout, httpcore.ReadTimeout))
        self._count(len(data))
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), _PIECE):
            piece = buffer[start : start + _PIECE]
            self._inner.write(piece, _allowed(self._running, timeout, httpcore.WriteTimeout))
            self._count(len(piece))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        allowed = _allowed(self._running, timeout, httpcore.ConnectTimeout)
        return _PacedStream(self._inner.start_tls(ssl_context, server_hostname, allowed), self._running)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)

    def _count(self, size: int) -> None:
        pace: Pace | None = getattr(self._running, "pace", None)
        if pace is not None:
            pace.moved(size)


def _allowed(running: threading.local, timeout: float | None, late: type[Exception]) -> float | None:
    """Return the shorter of one step's time and the remaining time of the exchange."""
    pace: Pace | None = getattr(running, "pace", None)
    if pace is None:
        return timeout
    left = pace.left(time.monotonic())
    if left <= 0:
        raise late("the exchange took too long")
    return left if timeout is None else min(timeout, left)
