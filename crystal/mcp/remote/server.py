"""Serve the memory over HTTP until the user stops it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.types import ASGIApp

from crystal.config.packages import install_command
from crystal.config.paths import Places
from crystal.credentials.access import TokenChecker
from crystal.credentials.access_log import AccessLog
from crystal.credentials.access_requests import RequestList
from crystal.errors import NotConfiguredError, UsageError
from crystal.mcp.handlers import Settings
from crystal.mcp.remote.http_transport import Transport
from crystal.mcp.remote.plain import refuse, routes
from crystal.mcp.remote.token_guard import Rates, TokenGuard
from crystal.serving.listening import LOOPBACK, checked_certificate, listen, run
from crystal.serving.request_checks import name_of_host
from crystal.sync.address import is_loopback

DEFAULT_PORT = 8643
PATH = "/mcp"


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Addresses of the server.

    Attributes:
        host: The address that it listens on.
        port: The port; None for the default.
        certificate: File with its certificate for TLS (PEM); needs ``key``.
        key: File with the certificate's key.
        url: The address that clients use, if it differs.
        behind_proxy: True if a proxy in front of it does TLS.
        sign_in_key: Signs the ids of OAuth clients; None to disable the sign-in with OAuth.
    """

    host: str = LOOPBACK
    port: int | None = None
    certificate: Path | None = None
    key: Path | None = None
    url: str | None = None
    behind_proxy: bool = False
    sign_in_key: bytes | None = None

    def checked(self) -> ServerAddress:
        """Check the options, and return them unchanged.

        Raises:
            UsageError: Tokens could be read on their way, or two options exclude each other.
        """
        if (self.certificate is None) is not (self.key is None):
            raise UsageError("--tls-cert and --tls-key go together", hint="give both, or none")
        has_tls = self.certificate is not None
        if has_tls and self.behind_proxy:
            raise UsageError("--behind-proxy says that the proxy does TLS", hint="leave --tls-cert and --tls-key out")
        if not (has_tls or self.behind_proxy or is_loopback(self.host.lower())):
            hint = "add --tls-cert and --tls-key; or --behind-proxy, if a proxy does TLS for it"
            raise UsageError(
                f"--host {self.host} can be reached from elsewhere: tokens could be read on the way", hint=hint
            )
        if self.behind_proxy and self.url is None:
            raise UsageError("--behind-proxy needs --url", hint="give the address that clients use: --url https://NAME")
        if self.url is not None and not re.fullmatch(r"https://[^\s/?#@]+/?", self.url, re.IGNORECASE):
            raise UsageError(f"--url is {self.url!r}", hint="an address is https:// and a name, without a path")
        if self.url is None and self.host in ("0.0.0.0", "::"):  # noqa: S104 - refused here
            raise UsageError(
                f"--host {self.host} has no name", hint="give the address that clients use: --url https://NAME"
            )
        return self

    @property
    def names(self) -> frozenset[str]:
        """Return the names that a Host header may have, besides those of loopback."""
        host = f"[{self.host}]" if ":" in self.host else self.host.lower()
        return frozenset({host} if self.url is None else {host, name_of_host(urlsplit(self.url).netloc)})

    def address(self, port: int) -> str:
        """Return the server's address, without a path."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        scheme = "http" if self.certificate is None else "https"
        return self.url.rstrip("/") if self.url else f"{scheme}://{host}:{port}"


def make_app(places: Places, settings: Settings, site: ServerAddress, url: str, rates: Rates | None = None) -> ASGIApp:
    """Return the application; ``url`` is its address, without a path."""
    log, tokens = AccessLog(places.access_log), TokenChecker(places.access)
    transport = Transport(settings, log, url)
    mcp = Route(PATH, transport.endpoint, methods=["GET", "POST", "DELETE"])
    signing, paths = _sign_in(places, tokens, site.sign_in_key, url)
    every = [mcp, *routes(transport, url), *signing]
    app = Starlette(routes=every, exception_handlers={HTTPException: refuse})
    return TokenGuard(app, tokens, log, site.names, rates, paths, url)


def _sign_in(places: Places, tokens: TokenChecker, key: bytes | None, url: str) -> tuple[list[Route], tuple[str, ...]]:
    """Return the routes of the sign-in with OAuth, and their paths; none without a key.

    Raises:
        NotConfiguredError: The package is missing.
    """
    if key is None:
        return [], ()
    try:
        from crystal.mcp.remote.oauth import PATHS, SignIn
    except ModuleNotFoundError as error:
        raise NotConfiguredError("--oauth needs the package mcp", hint=install_command("mcp")) from error
    return SignIn(tokens, RequestList(places.access_requests), key, url).routes(), PATHS


def serve(places: Places, settings: Settings, site: ServerAddress, ready: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        places: Paths of the memory and of the list of tokens.
        settings: As for ``RequestHandlers``.
        site: The address of the server.
        ready: Called with the server's address as soon as it listens.

    Raises:
        NotConfiguredError: There is no token yet.
        UsageError: The options are not safe, or the certificate cannot be used.
        UnavailableError: The port is taken.
    """
    site = site.checked()
    tls = None
    if site.certificate is not None and site.key is not None:
        tls = checked_certificate(site.certificate, site.key)
    if site.sign_in_key is None and not TokenChecker(places.access).grants():
        raise NotConfiguredError("nobody may ask this memory yet", hint="run: crystal access make --label NAME")
    with listen(site.port, DEFAULT_PORT, "crystal mcp --http", site.host) as listening:
        url = site.address(listening.getsockname()[1])
        app = make_app(places, settings, site, url)
        ready(f"{url}{PATH}")
        run(app, listening, tls, trusts_proxy=site.behind_proxy)
