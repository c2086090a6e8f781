"""Parse one request strictly: any deviation from docs/spec/relay-http.md is ``bad-request``."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import random
import re
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar
from urllib.parse import parse_qs

import anyio
import msgspec

from relay_worker import tokens
from relay_worker.errors import ClientGoneError, RequestRefusedError
from relay_worker.limits import News, WaitingClient, Wake, address_of, is_trusted, wake
from relay_worker.model import MAX_NUMBER, Token
from relay_worker.services import MAX_WAITING, Services
from relay_worker.store.files import INLINE_BYTES

MAX_WAIT = 55
"""Seconds: many proxies close a connection that is silent for 60."""
MAX_QUERY = 4096
MAX_JSON = 65_536

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
T = TypeVar("T")


class Form(Generic[T]):
    """Strict form of a value in a path, a query or a header.

    Args:
        pattern: Regular expression of the whole text.
        words: The form in words, for the refusal.
        read: Converts the text, or raises ``ValueError``.
    """

    def __init__(self, pattern: str, words: str, read: Callable[[str], T]) -> None:
        self._matches, self._words, self._read = re.compile(pattern).fullmatch, words, read

    def parse(self, name: str, text: str) -> T:
        """Convert a text.

        Raises:
            RequestRefusedError: ``bad-request``.
        """
        try:
            if self._matches(text):
                return self._read(text)
        except ValueError:
            pass
        raise RequestRefusedError("bad-request", f"{name} is not {self._words}")


def number(low: int = 0, high: int = MAX_NUMBER) -> Form[int]:
    """Return the form of a whole number in a range."""

    def read(text: str) -> int:
        if not low <= int(text) <= high:
            raise ValueError
        return int(text)

    return Form("0|[1-9][0-9]{0,15}", f"a number from {low} to {high}", read)


ID = Form("[0-9a-f]{32}", "32 lower-case hexadecimal digits", bytes.fromhex)
SECONDS = Form(r"([0-4]?[0-9]|5[0-4])(\.[0-9]{1,6})?|55(\.0{1,6})?", f"a number of seconds from 0 to {MAX_WAIT}", float)
RESEND = Form("[01]", "0 or 1", "1".__eq__)
DIGEST = Form("sha-256=:[A-Za-z0-9+/]{43}=:", "sha-256=:<base64>:", lambda text: base64.b64decode(text[9:-1]))


class Call:
    """A request being processed.

    Attributes:
        relay: Services shared by the routes.
        scope: The ASGI scope.
        request_id: Names the request in the answer and in the log.
        route: The pattern of its path.
        parts: The variable parts of its path.
        token: The token once authenticated; None for a joiner and on open routes.
        claim: The joiner's secret, if a joiner sends the request.
    """

    def __init__(self, scope: Message, receive: Receive, relay: Services) -> None:
        self.relay = relay
        self.scope = scope
        self.request_id = f"{random.getrandbits(64):016x}"  # a name, not a secret
        self.route = "none"
        self.parts: dict[str, str] = {}
        self.token: Token | None = None
        self.claim: str | None = None
        self._receive = receive
        self._has_arrived = scope.get("state", {}).get("has_arrived", False)
        self._queries: dict[str, list[str]] | None = None
        self._held: list[Callable[[], None]] = []
        self._headers: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            before = self._headers.get(name)
            self._headers[name] = value if before is None else b"%b, %b" % (before, value)

    def header(self, name: bytes) -> str:
        """Return a header; empty if missing, several with one name joined by commas."""
        return self._headers.get(name, b"").decode("latin-1")

    def path(self, name: str, form: Form[T]) -> T:
        """Return a part of the path."""
        return form.parse(f"the {name} in the path", self.parts[name])

    def query(self, name: str, form: Form[T], default: T) -> T:
        """Return a query parameter."""
        if self._queries is None:
            raw: bytes = self.scope["query_string"]
            if len(raw) > MAX_QUERY:
                raise RequestRefusedError("bad-request", f"the query is longer than {MAX_QUERY} bytes")
            self._queries = _parse_query(raw.decode("latin-1"))
        values = self._queries.get(name, [])
        if len(values) > 1:
            raise RequestRefusedError("bad-request", f"{name} is given {len(values)} times")
        return form.parse(name, values[0]) if values else default

    # -- who asks

    @property
    def _peer(self) -> str:
        client = self.scope.get("client")
        return client[0] if client else ""

    @property
    def address(self) -> str:
        """Return the client's address, for rate limits."""
        return address_of(self._peer, self.header(b"x-forwarded-for"), self.relay.trusted)

    def admit(self) -> None:
        """Count a request through a trusted proxy, because its client's connections are not visible here.

        Raises:
            RequestRefusedError: ``rate-limited``; the client has as many active requests as it may have connections.
        """
        relay = self.relay
        if not is_trusted(self._peer, relay.trusted) or is_trusted(self.address, relay.trusted):
            return
        if not relay.under_way.take(self.address):
            relay.metrics.connections_refused.labels("address").inc()
            raise RequestRefusedError("rate-limited", "too many simultaneous requests from this address", retry_after=1)
        self._held.append(partial(relay.under_way.release, self.address))

    def release(self) -> None:
        """Release the request's place among those of its client, and its slot for a large body."""
        for one in self._held:
            one()

    async def authenticate(self, schemes: tuple[str, ...]) -> None:
        """Authenticate the request and apply the rate limit.

        Args:
            schemes: The allowed ones of ``bearer`` and ``claim``.

        Raises:
            RequestRefusedError: ``unauthenticated``, ``rate-limited``.
        """
        scheme, _, secret = self.header(b"authorization").partition(" ")
        scheme, secret = scheme.lower(), secret.strip(" ")
        if "claim" in schemes and scheme == "claim" and tokens.CLAIM.fullmatch(secret):
            self.claim = secret
            return
        parsed = tokens.parse_token(secret) if "bearer" in schemes and scheme == "bearer" else None
        token = await self.relay.store.token(parsed[0]) if parsed else None
        if parsed is None or not tokens.is_valid(parsed[1], token):
            raise self.unauthenticated()
        assert token is not None
        self.token = token
        self.relay.note_use(token)
        wait = self.relay.by_token.take(token.id)
        if wait:
            raise RequestRefusedError("rate-limited", "too many requests of this token", retry_after=wait)

    async def _check_token_again(self) -> None:
        """Refuse a request whose token was revoked since it began.

        Raises:
            RequestRefusedError: ``unauthenticated``, ``rate-limited``.
        """
        token = await self.relay.store.token(self.token.id) if self.token else None
        if self.token and (token is None or token.revoked_at is not None):
            raise self.unauthenticated()

    def unauthenticated(self) -> RequestRefusedError:
        """Count a refused request, and return the refusal.

        Raises:
            RequestRefusedError: ``rate-limited`` after too many.
        """
        self.count_refused()
        challenge = ("WWW-Authenticate", 'Bearer realm="crystal-relay"')
        return RequestRefusedError("unauthenticated", "the token is unknown or revoked", headers=(challenge,))

    def count_refused(self) -> None:
        """Count an unauthenticated request.

        Raises:
            RequestRefusedError: ``rate-limited`` after too many.
        """
        wait = self.relay.refused.take(self.address)
        if wait:
            raise RequestRefusedError("rate-limited", "too many refused requests of this address", retry_after=wait)

    @property
    def account(self) -> str:
        """Return the account of the token."""
        assert self.token is not None, "the route takes no token"
        return self.token.account

    def need(self, *scopes: str) -> None:
        """Refuse a token without one of these scopes; ``home`` includes all."""
        assert self.token is not None, "the route takes no token"
        if not {"home", *scopes}.intersection(self.token.scopes):
            raise RequestRefusedError("forbidden", f"the token lacks the scope {' or '.join(scopes)}")

    def need_stream(self, stream: bytes, *verbs: str) -> None:
        """Refuse a token with none of the permissions ``verbs`` (``write``, ``read``, ``ack``) for the stream."""
        self.need(*(f"{verb}:{stream[:8].hex()}" for verb in verbs))

    def check_version(self) -> None:
        """Refuse a client of another major version."""
        version = self.header(b"crystal-relay-version")
        if version and not re.fullmatch(r"1(?:\.[0-9]{1,3})?", version):
            raise RequestRefusedError(
                "unsupported-version", "this relay speaks version 1", headers=(("Upgrade", "crystal-relay/1"),)
            )

    # -- the body

    async def body(self, limit: int) -> tuple[bytes, bytes]:
        """Return a body of at most ``limit`` bytes, with its SHA-256. A large one holds a slot until ``release``.

        Raises:
            RequestRefusedError: ``body-too-large``, ``body-timeout``, ``digest-mismatch``, those of the store, and
                ``unauthenticated``; the token was revoked before the body was complete.
            ClientGoneError: The client disconnected.
        """
        length = self._length(limit)
        text = self.header(b"content-digest")
        announced = DIGEST.parse("Content-Digest", text) if text else None
        is_large = (limit if length is None else length) > INLINE_BYTES
        if is_large:
            await self.relay.uploads.take()
            self._held.append(self.relay.uploads.release)
        body, digest = await self._read(limit)
        if is_large or not self._has_arrived:  # nothing else takes time
            await self._check_token_again()
        if announced not in {None, digest}:
            raise RequestRefusedError("digest-mismatch", "the body is not what Content-Digest says; send it again")
        return body, digest

    async def json(self, kind: type[T]) -> T:
        """Read a JSON object; a missing body is an empty object.

        Raises:
            RequestRefusedError: ``unsupported-media-type``, ``bad-request``, and those of ``body``.
        """
        media_type = self.header(b"content-type").partition(";")[0].strip().lower()
        body, _ = await self.body(MAX_JSON)
        if body and media_type not in {"", "application/json"}:
            raise RequestRefusedError("unsupported-media-type", "the body has to be application/json")
        try:
            return msgspec.json.decode(body or b"{}", type=kind)
        except (ValueError, RecursionError) as error:
            # An unknown key is not repeated: it may be anything.
            reason = "it has an unknown key" if "unknown field" in str(error) else error
            raise RequestRefusedError("bad-request", f"the JSON body cannot be used: {reason}") from error

    def _length(self, limit: int) -> int | None:
        """Return the announced length, checked before the body is read; None for a chunked body."""
        for name, usual in ((b"content-encoding", "identity"), (b"transfer-encoding", "chunked")):
            if self.header(name).lower() not in {"", usual}:
                raise RequestRefusedError(
                    "unsupported-media-type", f"{name.decode().title()} may be {usual} and nothing else"
                )
        text = self.header(b"content-length")
        if not text:
            return None
        if not (text.isascii() and text.isdigit()) or len(text) > 20:
            raise RequestRefusedError("bad-request", "Content-Length is not a number")
        if int(text) > limit:
            raise _too_large(limit)
        return int(text)

    async def _read(self, limit: int) -> tuple[bytes, bytes]:
        relay = self.relay
        body, digest, more = bytearray(), hashlib.sha256(), True
        ends_at = relay.monotonic() + relay.settings.body_total
        while more:
            left = min(relay.settings.body_idle, ends_at - relay.monotonic())
            try:
                # A scope takes a tenth of a small body's time, and most small bodies have arrived.
                with contextlib.nullcontext() if self._has_arrived else anyio.fail_after(max(left, 0)):
                    message = await self._receive()
            except TimeoutError as error:
                raise RequestRefusedError(
                    "body-timeout", "the body came too slowly", headers=(("Connection", "close"),)
                ) from error
            if message["type"] == "http.disconnect":
                raise ClientGoneError
            chunk: bytes = message.get("body", b"")
            body += chunk
            digest.update(chunk)
            more = message.get("more_body", False)
            if len(body) > limit:
                raise _too_large(limit)
        return bytes(body), digest.digest()

    # -- waiting

    async def wait_for(self, news: News, seconds: float) -> bool:
        """Wait for a change. Return False on timeout or if there is no free slot.

        Raises:
            ClientGoneError: The client has disconnected.
            RequestRefusedError: ``unauthenticated``; the token was revoked meanwhile.
        """
        signals = self.relay.signals
        key = self.token.id if self.token else self.address
        if seconds <= 0 or signals.stopping or signals.count > MAX_WAITING or not self.relay.waiting.take(key):
            return False
        # Not ``receive``: a task that waits for the disconnection costs more than the rest of the wait.
        client: WaitingClient = self.scope.get("state", {}).get("client") or WaitingClient()
        timer = asyncio.get_running_loop().call_later(seconds, wake, news, Wake.TIMEOUT)
        client.waiting.add(news)
        try:
            cause = Wake.GONE if client.is_gone else await news
        finally:
            client.waiting.discard(news)
            timer.cancel()
            self.relay.waiting.release(key)
        if cause is Wake.GONE:
            raise ClientGoneError
        if cause is Wake.TIMEOUT or signals.stopping:
            return False
        await self._check_token_again()
        return True


def _parse_query(text: str) -> dict[str, list[str]]:
    """Return the values of each parameter, like ``parse_qs``, but faster if nothing is escaped."""
    if "%" in text or "+" in text:
        return parse_qs(text, keep_blank_values=True)
    found: dict[str, list[str]] = {}
    for part in filter(None, text.split("&")):
        name, _, value = part.partition("=")
        found.setdefault(name, []).append(value)
    return found


def _too_large(limit: int) -> RequestRefusedError:
    return RequestRefusedError("body-too-large", f"a body has at most {limit} bytes here")
