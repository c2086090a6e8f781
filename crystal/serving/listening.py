"""Open a listening socket, and run a server on it until it is stopped."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import ssl
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from crystal.errors import UnavailableError, UsageError

LOOPBACK = "127.0.0.1"
MAX_PORT = 65_535
MAX_CONNECTIONS = 1_000
MAX_FROM_ONE = MAX_CONNECTIONS // 4
"""Maximum connections of one address, IPv6 by /64, so that one cannot take all."""
KEEP_SECONDS = 75
"""Longer than proxies keep an idle connection: they must not send a request while it is closed."""
HEAD_SECONDS = 20.0


class HeadLimitProtocol(H11Protocol):
    """One connection: a request's head is limited to 64 KiB and some seconds, so that nobody can block a connection.

    An address with too many connections gets no more; a proxy has those of all its clients.

    h11 and not httptools, which accepts a head without end, in time that grows with the square of its size.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timeout for a head, or refuse the connection."""
        super().connection_made(transport)
        self._look_again()
        self.network = network_of(self.client[0] if self.client else "")
        if self.config.proxy_headers and self.network == LOOPBACK:
            return
        if sum(getattr(one, "network", "") == self.network for one in self.connections) > MAX_FROM_ONE:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timeout."""
        self._timer.cancel()
        super().connection_lost(exc)

    def _look_again(self) -> None:
        current: object = self.cycle
        seconds = HEAD_SECONDS if current is None else KEEP_SECONDS + HEAD_SECONDS
        self._timer = self.loop.call_later(seconds, self._close_idle, current)

    def _close_idle(self, last: object) -> None:
        """Close a connection without a new request since the last check, unless one is being answered."""
        if self.cycle is last and getattr(last, "response_complete", True):
            self.transport.abort() if self.transport.is_closing() else self.transport.close()
        self._look_again()


def network_of(address: str) -> str:
    """Return an address; of one of IPv6 its /64, because each client has all of it."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    return str(found) if found.version == 4 else str(ipaddress.ip_network((found, 64), strict=False))


def listen(port: int | None, usual: int, command: str, host: str = LOOPBACK) -> socket.socket:
    """Return a socket that listens at an address.

    Args:
        port: None for the usual one, or any free one if that is taken.
        usual: The usual port.
        command: The user's command, for the hint.
        host: A name or an address of this machine.

    Raises:
        UsageError: There is no such port.
        UnavailableError: The port is taken, or the address is not this machine's.
    """
    if port is not None and not 0 <= port <= MAX_PORT:
        raise UsageError(f"the port is {port}", hint=f"use 0 to {MAX_PORT}")
    try:
        return _bind(host, usual if port is None else port)
    except OSError as error:
        if port is None and host == LOOPBACK:
            return _bind(host, 0)
        reason = (error.strerror or str(error)).lower()
        place = f"port {port}" if host == LOOPBACK else f"{host} port {usual if port is None else port}"
        raise UnavailableError(f"{place}: {reason}", hint=f"use any free port: {command} --port 0") from error


def _bind(host: str, port: int) -> socket.socket:
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(socket.SOMAXCONN)
    except OSError:
        listening.close()
        raise
    return listening


def checked_certificate(certificate: Path, key: Path) -> tuple[Path, Path]:
    """Return a certificate and its key, if a server can use them.

    Raises:
        UsageError: One cannot be read, or they do not belong together.
    """
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key, password="")
    except OSError as error:  # ssl.SSLError is one
        reason = (error.strerror or str(error)).lower()
        hint = "give a PEM file with the certificate and its chain, and its key without a password"
        raise UsageError(f"{certificate} with {key} cannot be used: {reason}", hint=hint) from error
    return certificate, key


def run(
    app: ASGIApp, listening: socket.socket, tls: tuple[Path, Path] | None = None, *, trusts_proxy: bool = False
) -> None:
    """Serve until SIGINT or SIGTERM; open requests then have two seconds to end.

    Args:
        app: The application.
        listening: The socket.
        tls: A certificate and its key, None for plain HTTP.
        trusts_proxy: Whether a proxy on this machine names the client (``X-Forwarded-For``).
    """
    certificate, key = tls or (None, None)
    config = uvicorn.Config(
        app, http=HeadLimitProtocol, lifespan="off", ws="none", log_level="error",
        access_log=False, server_header=False, date_header=False,
        proxy_headers=trusts_proxy, forwarded_allow_ips=LOOPBACK, timeout_graceful_shutdown=2,
        timeout_keep_alive=KEEP_SECONDS,
        limit_concurrency=MAX_CONNECTIONS, ssl_certfile=certificate, ssl_keyfile=key,
    )  # fmt: skip
    logging.getLogger("uvicorn.error").addFilter(_is_told)
    uvicorn.Server(config).run(sockets=[listening])


def _is_told(record: logging.LogRecord) -> bool:
    """Return whether to log a record: requests that were aborted at the end need no action."""
    is_given_up = record.exc_info is not None and isinstance(record.exc_info[1], asyncio.CancelledError)
    return not is_given_up and "graceful shutdown exceeded" not in record.getMessage()
