"""Check every request: the server's name, the origin, the token and the rate.

Every request passes ``TokenGuard`` before it is answered, even one for an address that does not exist.
"""

from __future__ import annotations

import contextlib
import ipaddress
import math
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from crystal.credentials.access import Grant, TokenChecker
from crystal.credentials.access_log import AccessLog, LogEntry
from crystal.errors import CrystalError
from crystal.serving.request_checks import LOCAL_NAMES, name_of_host, read_body, with_headers

HEADERS = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
}
METADATA = "/.well-known/oauth-protected-resource/mcp"
PUBLIC_PATHS = ("/openapi.json",)
"""Paths that need no token; they contain nothing from the memory."""
MAX_FORM = 1 << 16
MAX_NAMES = 10_000
UNKNOWN, CHALLENGE = "this needs a valid token", 'Bearer realm="crystal"'
INVALID = ', error="invalid_token", error_description="unknown, expired or revoked"'


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


@dataclass(frozen=True, slots=True)
class Rates:
    """Rate limits: of an address, its wrong tokens, a token, refusals in the log, sign-in, and its pages."""

    address: Rate = field(default_factory=lambda: Rate(2_000, 50))
    wrong: Rate = field(default_factory=lambda: Rate(10, 1 / 6))
    token: Rate = field(default_factory=lambda: Rate(300, 10))
    logged: Rate = field(default_factory=lambda: Rate(60, 1 / 60))
    sign_in: Rate = field(default_factory=lambda: Rate(60, 1))
    page: Rate = field(default_factory=lambda: Rate(20, 1 / 30))


class TokenGuard:
    """Refuse requests without a valid token, from other pages, or above a rate limit.

    Args:
        app: The application that gets the accepted requests, with the grant in ``scope["state"]``.
        tokens: Finds the grant of a token.
        log: Gets an entry for each refused request.
        names: The names by which clients reach this server, besides those of loopback.
        rates: The rate limits.
        sign_in: The paths of the sign-in, which needs no token.
        url: The server's address, without a path.
    """

    def __init__(
        self, app: ASGIApp, tokens: TokenChecker, log: AccessLog, names: frozenset[str], rates: Rates | None = None,
        sign_in: tuple[str, ...] = (), url: str = "",
    ) -> None:  # fmt: skip
        self._app, self._tokens, self._log, self._rates = app, tokens, log, rates or Rates()
        self._names, self._sign_in, self._url = {*LOCAL_NAMES, *names}, sign_in, url

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        send = with_headers(scope, send, HEADERS)
        answer = self._refusal(scope, Headers(scope=scope))
        if answer is None and scope["path"] in self._sign_in:  # its handlers wait for a body as long as it takes
            body = await read_body(receive, MAX_FORM)
            answer = _refused(413, "this is too long, or took too long", "send less") if body is None else None

            async def receive_read() -> Message:
                return {"type": "http.request", "body": body, "more_body": False}

            await (answer or self._app)(scope, receive_read, send)
            return

        async def receive_checked() -> Message:
            """Receive a part of the body; its token may end while the parts arrive."""
            message = await receive()
            if not message.get("more_body") and self._is_over(scope.get("state", {}).get("grant")):
                raise HTTPException(401, UNKNOWN, {"www-authenticate": f"{CHALLENGE}{INVALID}"})
            return message

        await (answer or self._app)(scope, receive_checked, send)

    def _is_over(self, grant: Grant | None) -> bool:
        """Return whether a grant was revoked or expired since the request began."""
        try:
            return grant is not None and not self._tokens.is_current(grant, time.time_ns() // 1_000_000)
        except CrystalError:
            return True

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        """Return the answer to a refused request; None if the request is accepted."""
        host, address = ", ".join(headers.getlist("host")), _address_of(scope)
        if name_of_host(host) not in self._names:
            return _refused(421, "this server does not serve that name", "name it with --url when you start the server")
        if "transfer-encoding" in headers and "content-length" in headers:  # a proxy may take the other one as valid
            closing = {"connection": "close"}
            return _refused(400, "the request has two lengths", "send either a length or chunks", closing)
        if headers.get("origin") not in (None, f"http://{host}", f"https://{host}"):
            return _refused(403, "another page sent this", "only programs may ask, not pages of a browser")
        if wait := self._rates.address.wait(address):
            return self._limited(wait, None, address)
        self._rates.address.count(address)
        if scope["path"] in self._sign_in:
            rate = self._rates.page if scope["path"] == "/authorize" else self._rates.sign_in
            wait = rate.wait(address)
            rate.count(address)
            return self._limited(wait, None, address) if wait else None
        return None if scope["path"] in PUBLIC_PATHS else self._check_token(scope, headers, address)

    def _check_token(self, scope: Scope, headers: Headers, address: str) -> Response | None:
        kind, _, token = headers.get("authorization", "").partition(" ")
        given = token.strip() if kind.lower() == "bearer" else ""
        try:
            grant = self._tokens.find(given, time.time_ns() // 1_000_000) if given else None
        except CrystalError:  # its message names a folder of the user, and anybody may ask
            return _refused(503, "the list of tokens cannot be read", "the user sees why: crystal access list")
        if grant is None:
            return self._unknown(given, address)
        if wait := self._rates.token.wait(grant.id):
            return self._limited(wait, grant, address)
        self._rates.token.count(grant.id)
        scope.setdefault("state", {}).update(grant=grant, address=address)
        return None

    def _unknown(self, given: str, address: str) -> Response:
        """Refuse a request without a valid token; an address with many wrong tokens has to wait."""
        if wait := self._rates.wrong.wait(address):
            return self._limited(wait, None, address)
        if given:
            self._rates.wrong.count(address)
        self._note(None, address, "refused")
        wrong = INVALID if given else ""
        how = f', resource_metadata="{self._url}{METADATA}"' if self._sign_in else ""
        return _refused(
            401, UNKNOWN, "the user makes one: crystal access make --label NAME",
            {"www-authenticate": f"{CHALLENGE}{wrong}{how}"},
        )  # fmt: skip

    def _limited(self, wait: float, grant: Grant | None, address: str) -> Response:
        self._note(grant, address, "limited")
        return _refused(429, "too many requests", "wait a moment", {"retry-after": str(math.ceil(wait))})

    def _note(self, grant: Grant | None, address: str, outcome: str) -> None:
        """Log a refusal, within a rate limit: a flood of refusals must not displace other entries."""
        if not self._rates.logged.wait(""):
            self._rates.logged.count("")
            log_request(self._log, grant, "", outcome, 0.0, address)


def _address_of(scope: Scope) -> str:
    """Return the IP address of a request; ``unknown`` if a proxy's header has no valid one."""
    try:
        return str(ipaddress.ip_address((scope.get("client") or ("",))[0].partition("%")[0]))
    except ValueError:
        return "unknown"


def log_request(log: AccessLog, grant: Grant | None, what: str, outcome: str, seconds: float, address: str) -> None:
    """Add an entry to the log. If that fails, print the first error to standard error; the request is not affected."""
    ident, label = ("", "") if grant is None else (grant.id, grant.label)
    try:
        log.add(LogEntry(time.time_ns() // 1_000_000, ident, label, what, outcome, round(seconds * 1000), address))
    except CrystalError as error:
        if not log.has_failed:
            log.has_failed = True
            with contextlib.suppress(OSError):  # it may be on the same full disk
                sys.stderr.write(f"crystal: error: requests are not logged: {error.message}\n")


def _refused(status: int, message: str, hint: str, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse({"error": message, "hint": hint}, status, headers)
