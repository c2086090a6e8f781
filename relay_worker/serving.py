"""Run the relay's process: sockets, signals, the metrics listener, and an orderly shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import uvicorn
from prometheus_client import start_http_server

from relay_worker import log
from relay_worker.app import RelayApp
from relay_worker.bounded_protocol import HEAD_SECONDS, BoundedProtocol
from relay_worker.connections import ConnectionLimits, LimitedServer
from relay_worker.errors import CannotServeError
from relay_worker.limits import networks
from relay_worker.metrics import Metrics
from relay_worker.services import SWEEP_MS, Services, wall_clock
from relay_worker.settings import Settings, host_and_port, is_loopback, without_password
from relay_worker.store.choice import open_store

SHUTDOWN_SECONDS = 5
KEEP_ALIVE_SECONDS = 75
MAX_FILES = 4096
LOG = logging.getLogger("relay_worker")


def refuse_plain_http(settings: Settings) -> None:
    """Refuse to serve tokens and pairing over a network without TLS.

    Raises:
        CannotServeError: The address is not loopback, there is no certificate, and ``behind_proxy`` is not set.
    """
    host, _ = host_and_port(settings.listen, "listen")
    if settings.tls_cert is None and not settings.behind_proxy and not is_loopback(host):
        raise CannotServeError(
            f"{settings.listen} is not loopback, and would serve plain HTTP",
            hint="set CRYSTAL_RELAY_TLS_CERT and _TLS_KEY, or, if a proxy in front of it speaks TLS, --behind-proxy",
            exit_code=2,
        )


def refuse_bad_certificate(settings: Settings) -> None:
    """Refuse an unusable certificate before serving starts; never ask for a pass phrase.

    Raises:
        CannotServeError: The certificate or its key is missing, unreadable or locked, or they do not match.
    """
    if settings.tls_cert is None or settings.tls_key is None:
        return
    asked: list[int] = []

    def no_pass_phrase() -> str:
        asked.append(1)
        return ""

    try:
        for file in (settings.tls_cert, settings.tls_key):
            with file.open("rb"):
                pass
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.tls_cert, settings.tls_key, no_pass_phrase)
    except ssl.SSLError as error:
        problem = f"{settings.tls_cert} and {settings.tls_key} are not a certificate and its key ({error.reason})"
        hint = "give both as PEM, the certificate's own first"
        if asked:
            problem = f"{settings.tls_key} needs a pass phrase"
            hint = "give it without one, readable only for the relay"
        raise CannotServeError(problem, hint=hint, exit_code=2) from error
    except OSError as error:
        problem = f"{error.filename} cannot be read: {error.strerror}"
        raise CannotServeError(problem, hint="check its path and permissions", exit_code=2) from error


class RelayServer(uvicorn.Server):
    """uvicorn's server with exit code 0 after a signal.

    Args:
        config: The configuration of uvicorn.
        relay: The application; its waiting requests are ended when the server stops.
        connections: Limits on connections.
    """

    def __init__(self, config: uvicorn.Config, relay: Services, connections: ConnectionLimits) -> None:
        super().__init__(config)
        self._relay, self._connections = relay, connections
        self._sweeper: asyncio.Task[None] | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - it is a signal handler
        """Stop on a signal, at a second interrupt without waiting; uvicorn would raise the signal again at the end."""
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the server, and expire old data even without requests."""
        # uvicorn has no setting for the acceptor or for the timeout of a TLS handshake.
        loop: Any = asyncio.get_running_loop()
        loop.create_server = self._listen
        await super().startup(sockets)
        self._sweeper = asyncio.ensure_future(self._sweep())

    async def _listen(
        self, protocol: Callable[[], asyncio.Protocol], *, sock: socket.socket, ssl: ssl.SSLContext | None, **_: object
    ) -> LimitedServer:
        return LimitedServer(sock, protocol, self._connections, ssl, HEAD_SECONDS)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting, end waiting requests, finish the others."""
        LOG.info("stopping")
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._relay.signals.stop()
        await super().shutdown(sockets)

    async def _sweep(self) -> None:
        while True:
            await self._relay.sweep_if_due()
            await self._relay.sweep_bodies()
            await asyncio.sleep(SWEEP_MS / 1000)


def serve(settings: Settings) -> None:
    """Serve until a signal arrives. Acknowledged data is on the disk before this returns.

    Raises:
        CannotServeError: An address is taken, another relay has the data, or plain HTTP was refused.
    """
    log.configure(settings.log_format)
    refuse_plain_http(settings)
    refuse_bad_certificate(settings)
    for name in settings.unknown:
        LOG.warning("unknown setting", extra={"fields": {"name": name}})
    metrics = Metrics()
    store = open_store(settings, now=wall_clock(), observe=metrics.observe_commit)
    try:
        app = RelayApp(Services(settings, store, metrics=metrics))
        metrics.watch(store.usage, app.relay.now)
        listener = _bind(settings)
        with contextlib.closing(listener), _metrics_listener(settings, metrics) as metrics_at:
            scheme = "https" if settings.tls_cert else "http"
            data = without_password(settings.store) or str(settings.data_dir)
            fields = {"address": f"{scheme}://{_name(listener)}", "metrics": metrics_at, "data": data}
            LOG.info("serving", extra={"fields": fields})
            RelayServer(_config(settings, app), app.relay, _connection_limits(settings, metrics)).run([listener])
    finally:
        store.close()
    LOG.info("stopped")


def _config(settings: Settings, app: RelayApp) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=BoundedProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
    )


def _connection_limits(settings: Settings, metrics: Metrics) -> ConnectionLimits:
    """Return the limits: in total the permitted number of open files, per address a quarter of that."""
    total = _file_limit() - 128
    each = settings.max_connections_per_address
    if each and settings.behind_proxy and not settings.trusted_proxies:
        # All clients seem to have one address: that of the proxy.
        LOG.warning("no limit for one address: name the proxy in CRYSTAL_RELAY_TRUSTED_PROXIES")
        each = 0

    def refused(reason: str) -> None:
        metrics.connections_refused.labels(reason).inc()

    limits = ConnectionLimits(min(each, total // 4), total, networks(settings.trusted_proxies), refused)
    metrics.connections.set_function(lambda: limits.open)
    return limits


def _file_limit() -> int:
    """Raise the limit of open files as far as permitted, at most to ``MAX_FILES``, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_FILES if hard == resource.RLIM_INFINITY else min(MAX_FILES, hard)
    if resource.RLIM_INFINITY != soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (ValueError, OSError):  # a sandbox may forbid it
            return max(256, soft)
    return wanted


def _bind(settings: Settings) -> socket.socket:
    host, port = host_and_port(settings.listen, "listen")
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        dual = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        # From here on connections queue up and are served shortly after.
        found = socket.create_server(address, family=family, backlog=2048, dualstack_ipv6=dual)
    except OSError as error:
        raise CannotServeError(
            f"listen: {settings.listen}: {error.strerror or error}", hint="set CRYSTAL_RELAY_LISTEN"
        ) from error
    found.setblocking(False)
    return found


def _name(listener: socket.socket) -> str:
    host, port, *_ = listener.getsockname()
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@contextlib.contextmanager
def _metrics_listener(settings: Settings, metrics: Metrics) -> Iterator[str]:
    """Serve the metrics from a separate thread. Return their address."""
    if not settings.metrics_listen:
        yield ""
        return
    host, port = host_and_port(settings.metrics_listen, "metrics_listen")
    if not is_loopback(host):
        LOG.warning("metrics are open to the network", extra={"fields": {"address": settings.metrics_listen}})
    try:
        found: Any = start_http_server(port, addr=host, registry=metrics.registry)
    except OSError as error:
        raise CannotServeError(
            f"metrics_listen: {settings.metrics_listen}: {error.strerror or error}",
            hint="set CRYSTAL_RELAY_METRICS_LISTEN to another address, or to off",
        ) from error
    server, thread = found
    try:
        yield f"http://{_name(server.socket)}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
