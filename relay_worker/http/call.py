"""One request, parsed strictly: any deviation from docs/spec/relay-http.md is ``bad-request``."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar
from urllib.parse import parse_qs

from starlette.types import Receive, Scope

from relay_worker import tokens
from relay_worker.errors import ClientGoneError, RequestRefusedError
from relay_worker.limits import address_of, is_trusted
from relay_worker.model import MAX_NUMBER, Token
from relay_worker.services import MAX_WAITING, MAX_WAITING_EACH, Services

MAX_WAIT = 30.0
MAX_QUERY = 4096

_VERSION = re.compile(r"1(?:\.[0-9]{1,3})?")

T = TypeVar("T")
N = TypeVar("N", int, float)


@dataclass(frozen=True, slots=True)
class Form(Generic[T]):
    """Strict form of a value in a path, a query or a header.

    Attributes:
        pattern: Regular expression of the whole text.
        words: What it is, for the refusal.
        read: Converts the text, or raises ``ValueError``.
    """

    pattern: str
    words: str
    read: Callable[[str], T]

    def parse(self, name: str, text: str) -> T:
        """Convert a text.

        Raises:
            RequestRefusedError: ``bad-request``.
        """
        try:
            if re.fullmatch(self.pattern, text):
                return self.read(text)
        except ValueError:
            pass
        raise RequestRefusedError("bad-request", f"{name} is not {self.words}")


def number(low: int = 0, high: int = MAX_NUMBER) -> Form[int]:
    """Return the form of a whole number in a range."""
    return Form("0|[1-9][0-9]{0,15}", f"a number from {low} to {high}", partial(_within, int, low, high))


def _within(kind: Callable[[str], N], low: N, high: N, text: str) -> N:
    found = kind(text)
    if not low <= found <= high:
        raise ValueError
    return found


ID = Form("[0-9a-f]{32}", "32 lower-case hexadecimal digits", bytes.fromhex)
SECONDS = Form(
    r"[0-9]{1,2}(\.[0-9]{1,6})?", f"a number of seconds from 0 to {MAX_WAIT:g}", partial(_within, float, 0.0, MAX_WAIT)
)
RESEND = Form("[01]", "0 or 1", "1".__eq__)
DIGEST = Form("sha-256=:[A-Za-z0-9+/]{43}=:", "sha-256=:<base64>:", lambda text: base64.b64decode(text[9:-1]))


class Call:
    """Request being processed.

    Attributes:
        relay: Services shared by the routes.
        scope: The ASGI scope.
        receive: The ASGI receive function; the body is read with ``relay_worker.http.body``.
        token: The token once authenticated; None for a joiner and on open routes.
        claim: The joiner's secret, if a joiner sends the request.
    """

    def __init__(self, scope: Scope, receive: Receive, relay: Services) -> None:
        self.relay = relay
        self.scope = scope
        self.receive = receive
        self.token: Token | None = None
        self.claim: str | None = None
        headers: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            headers[name] = headers[name] + b", " + value if name in headers else value
        self._headers = headers
        self._query: dict[str, list[str]] | None = None

    # -- authentication

    def header(self, name: bytes) -> str:
        """Return a header, empty if there is none; several of one name are joined by commas."""
        return self._headers.get(name, b"").decode("latin-1")

    @property
    def address(self) -> str:
        """Client's address, for rate limits."""
        client = self.scope.get("client")
        return address_of(client[0] if client else "", self.header(b"x-forwarded-for"), self.relay.trusted)

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Count a request through a trusted proxy, because its client's connections are not visible here.

        Raises:
            RequestRefusedError: ``rate-limited``; the client has as many active requests as it may have connections.
        """
        client = self.scope.get("client")
        address = self.address
        if client is None or not is_trusted(client[0], self.relay.trusted) or is_trusted(address, self.relay.trusted):
            yield
            return
        if not self.relay.under_way.take(address):
            self.relay.metrics.connections_refused.labels("address").inc()
            raise RequestRefusedError("rate-limited", "too many simultaneous requests from this address", retry_after=1)
        try:
            yield
        finally:
            self.relay.under_way.release(address)

    @property
    def account(self) -> str:
        """Account of the token."""
        assert self.token is not None, "the route takes no token"
        return self.token.account

    def check_version(self) -> None:
        """Refuse a client of another major version."""
        version = self.header(b"crystal-relay-version")
        if version and not _VERSION.fullmatch(version):
            raise RequestRefusedError(
                "unsupported-version", "this relay speaks version 1", headers=(("Upgrade", "crystal-relay/1"),)
            )

    def authenticate(self, *schemes: str) -> None:
        """Authenticate the request and apply the rate limit.

        Args:
            *schemes: ``bearer``, ``claim``.

        Raises:
            RequestRefusedError: ``unauthenticated``, ``rate-limited``.
        """
        scheme, _, rest = self.header(b"authorization").partition(" ")
        rest = rest.strip(" ")
        scheme = scheme.lower()
        if scheme == "claim" and "claim" in schemes:
            self.claim = tokens.parse_claim(rest)
        elif scheme == "bearer" and "bearer" in schemes:
            self.token = self._known(rest)
        if self.token is None and self.claim is None:
            raise self.unauthenticated()
        if self.token is not None:
            self.relay.used[self.token.id] = self.relay.now()
            wait = self.relay.by_token.take(self.token.id)
            if wait:
                raise RequestRefusedError("rate-limited", "too many requests of this token", retry_after=wait)

    def _known(self, text: str) -> Token | None:
        parsed = tokens.parse_token(text)
        if parsed is None:
            return None
        token = self.relay.store.token(parsed[0])
        return token if tokens.is_valid(parsed[1], token) else None

    def unauthenticated(self) -> RequestRefusedError:
        """Return the refusal for an unauthenticated request: 401, or 429 after too many."""
        try:
            self.count_refused()
        except RequestRefusedError as refusal:
            return refusal
        challenge = 'Bearer realm="crystal-relay"'
        return RequestRefusedError(
            "unauthenticated", "the token is unknown or revoked", headers=(("WWW-Authenticate", challenge),)
        )

    def count_refused(self) -> None:
        """Count an unauthenticated request.

        Raises:
            RequestRefusedError: ``rate-limited`` after too many.
        """
        wait = self.relay.refused.take(self.address)
        if wait:
            raise RequestRefusedError("rate-limited", "too many refused requests of this address", retry_after=wait)

    def need(self, *verbs: str) -> None:
        """Refuse a token without one of these scopes."""
        assert self.token is not None, "the route takes no token"
        if not any(tokens.allows(self.token.scopes, verb) for verb in verbs):
            raise RequestRefusedError("forbidden", f"the token lacks the scope {' or '.join(verbs)}")

    def need_stream(self, stream: bytes, *verbs: str) -> None:
        """Refuse a token that is allowed none of these in the stream."""
        assert self.token is not None, "the route takes no token"
        if not tokens.allows_stream(self.token.scopes, stream, *verbs):
            raise RequestRefusedError("forbidden", f"the token may not {' or '.join(verbs)} in this stream")

    # -- path and query

    def path(self, name: str, form: Form[T]) -> T:
        """Return a part of the path."""
        text: str = self.scope["path_params"][name]
        return form.parse(f"the {name} in the path", text)

    def query(self, name: str, form: Form[T], default: T) -> T:
        """Return a query parameter."""
        if self._query is None:
            raw: bytes = self.scope["query_string"]
            if len(raw) > MAX_QUERY:
                raise RequestRefusedError("bad-request", f"the query is longer than {MAX_QUERY} bytes")
            self._query = parse_qs(raw.decode("latin-1"), keep_blank_values=True)
        values = self._query.get(name, [])
        if len(values) > 1:
            raise RequestRefusedError("bad-request", f"{name} is given {len(values)} times")
        return form.parse(name, values[0]) if values else default

    def content_digest(self) -> bytes | None:
        """Return the SHA-256 announced by the client."""
        text = self.header(b"content-digest")
        return DIGEST.parse("Content-Digest", text) if text else None

    # -- waiting

    async def wait_for(self, news: asyncio.Future[None], seconds: float) -> bool:
        """Wait for a change. Return False on timeout or if there is no free slot.

        Raises:
            ClientGoneError: The client has disconnected.
        """
        if seconds <= 0 or self.relay.signals.stopping or self.relay.signals.count > MAX_WAITING:
            return False
        who = self.token.id if self.token else self.address
        if self.relay.waiting.get(who, 0) >= MAX_WAITING_EACH:
            return False
        self.relay.waiting[who] = self.relay.waiting.get(who, 0) + 1
        try:
            return await self._wait_for(news, seconds)
        finally:
            self.relay.waiting[who] -= 1
            if not self.relay.waiting[who]:
                del self.relay.waiting[who]

    async def _wait_for(self, news: asyncio.Future[None], seconds: float) -> bool:
        gone = asyncio.ensure_future(self._disconnected())
        try:
            await asyncio.wait({news, gone}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended = gone.done() and not gone.cancelled()
            gone.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await gone
        if ended:
            raise ClientGoneError
        return news.done() and not self.relay.signals.stopping

    async def _disconnected(self) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass
