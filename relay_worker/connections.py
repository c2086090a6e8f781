"""Limit open connections, per address and in total.

A connection counts from ``accept`` until its socket is closed, TLS handshakes included. A connection over a limit is
closed before a byte is read from it. Connections of trusted proxies count in the total only; the limit per address
applies to the active requests of the clients that they name.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from relay_worker.limits import Network, OpenCounter, address_of, is_trusted

RETRY_SECONDS = 1.0
"""Pause when the system lacks a file descriptor or memory for another connection."""
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
LOG = logging.getLogger("relay_worker")


class CountedSocket(socket.socket):
    """Socket that calls ``released`` once: when it is closed, or else garbage-collected."""

    def __init__(self, accepted: socket.socket, released: Callable[[], None]) -> None:
        super().__init__(accepted.family, accepted.type, accepted.proto, fileno=accepted.detach())
        self._finalizer = weakref.finalize(self, released)

    def close(self) -> None:
        """Close the socket and decrease the count."""
        super().close()
        self._finalizer()


class ConnectionLimits:
    """Limits on open connections.

    Args:
        each: Maximum per address; 0 for no limit.
        total: Maximum in total.
        trusted: Trusted proxies.
        refused: Called with the reason of each refusal, ``address`` or ``total``.
    """

    def __init__(self, each: int, total: int, trusted: Sequence[Network], refused: Callable[[str], None]) -> None:
        self.counts = OpenCounter(each)
        self.open = 0
        self._total, self._trusted, self._refused = total, trusted, refused

    def admit(self, accepted: socket.socket, peer: str) -> CountedSocket | None:
        """Return the socket to use; None if it was over a limit and is closed."""
        address = None if is_trusted(peer, self._trusted) else address_of(peer, "", ())
        reason = "total" if self.open >= self._total else None
        if reason is None and address is not None and not self.counts.take(address):
            reason = "address"
        if reason is not None:
            self._refused(reason)
            accepted.close()
            return None
        self.open += 1
        return CountedSocket(accepted, lambda: self._release(address))

    def _release(self, address: str | None) -> None:
        self.open -= 1
        if address is not None:
            self.counts.release(address)


class LimitedServer:
    """Listening socket with limited connections; replaces uvicorn's ``asyncio.Server``.

    Args:
        listener: A bound, listening, non-blocking socket; the caller closes it.
        protocol: Returns the protocol of a connection.
        limits: Limits on connections.
        tls: The TLS context; None for plain HTTP.
        handshake_seconds: Maximum duration of a TLS handshake.
    """

    def __init__(
        self,
        listener: socket.socket,
        protocol: Callable[[], asyncio.Protocol],
        limits: ConnectionLimits,
        tls: ssl.SSLContext | None,
        handshake_seconds: float,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._listener, self._protocol, self._limits = listener, protocol, limits
        self._tls: dict[str, Any] = {"ssl": tls, "ssl_handshake_timeout": handshake_seconds} if tls else {}
        self._tasks = {self._loop.create_task(self._accept())}

    def close(self) -> None:
        """Stop accepting, and abort pending handshakes."""
        for task in self._tasks:
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait until handshakes are aborted; uvicorn waits for the connections itself."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self) -> None:
        while True:
            try:
                self._start(*await self._loop.sock_accept(self._listener))
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    LOG.warning("no connection can be accepted", extra={"fields": {"reason": error.strerror}})
                    await asyncio.sleep(RETRY_SECONDS)
                # else the client disconnected before accept
            await asyncio.sleep(0)  # leaves room for requests during a flood of connections

    def _start(self, accepted: socket.socket, peer: Any) -> None:
        """Open a connection, unless it is over a limit. Keep no reference to it: a dropped socket is not counted."""
        kept = self._limits.admit(accepted, str(peer[0]))
        if kept is not None:
            task = self._loop.create_task(self._open(kept))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _open(self, kept: CountedSocket) -> None:
        try:
            kept.setblocking(False)
            kept.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.connect_accepted_socket(self._protocol, kept, **self._tls)
        except BaseException as error:
            kept.close()
            if not isinstance(error, OSError):  # a handshake that failed, stalled or was aborted
                raise
