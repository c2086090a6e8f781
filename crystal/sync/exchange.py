"""Send one request to the relay and read the answer, bounded in time and size. Translates all errors of httpcore.

No ``httpx``: it takes 60 ms to load, and its client would keep the relay's cookies, use proxies and ``.netrc``, and
decompress bodies. A pool of connections and a loop over the raw body are enough.
"""

from __future__ import annotations

import base64
import hashlib
import ssl
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import urlencode

import httpcore

from crystal.errors import CrystalError, UsageError
from crystal.sync.address import RelayAddress
from crystal.sync.answers import SMALL_ANSWER, RelayResponse
from crystal.sync.errors import RelayUnavailableError, RelayUntrustedError
from crystal.sync.refusal import PROTOCOL, broken
from crystal.sync.transport import Pace, Timeouts, connect, paced, tls_context

_HEADERS_ROOM = 64 * 1024
_FAILURES = (
    *(httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError, httpcore.ProxyError),
    *(httpcore.UnsupportedProtocol, httpcore.ConnectionNotAvailable, OSError),
)

# OpenSSL's certificate errors, with messages that say what the user can do.
_UNTRUSTED: Mapping[int, tuple[str, str]] = {
    9: ("its certificate is not valid yet", "check this machine's clock"),
    10: ("its certificate has expired", "renew the relay's certificate; check this machine's clock"),
    62: ("its certificate is for another name", "use the name that the certificate is for, or correct the address"),
    64: ("its certificate is for another address", "use the name that the certificate is for"),
}
_UNKNOWN_AUTHORITY = (
    "its certificate is signed by an authority unknown here",
    "if this relay is yours: crystal config set relay.ca_file /path/ca.pem",
)


class Exchange:
    """Connection to one relay. Thread-safe."""

    def __init__(
        self,
        address: RelayAddress,
        authorization: str | None,
        *,
        ca_file: Path | None = None,
        transport: httpcore.ConnectionPool | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        self._address = address
        self._timeouts = timeouts if timeouts is not None else Timeouts()
        self._headers = {
            "Host": address.shown.partition("://")[2],  # httpcore leaves out the brackets of an IPv6 address
            "Accept": "application/json, application/octet-stream",
            "Accept-Encoding": "identity",
            "Crystal-Relay-Version": PROTOCOL,
            "User-Agent": "crystal",
        }
        if authorization is not None:
            self._headers["Authorization"] = authorization
        if transport is None:
            transport = connect(tls_context(ca_file) if address.scheme == "https" else None)
        self._transport = transport

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def ask(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str | int] | None = None,
        content: bytes | None = None,
        kind: str = "application/octet-stream",
        largest: int = SMALL_ANSWER,
        wait: float = 0,
    ) -> RelayResponse:
        """Send one request and read the whole answer.

        Args:
            method: An HTTP method.
            path: The path from ``/v1`` on, made of fixed words, hex and digits only.
            params: The query.
            content: The body.
            kind: The content type of the body.
            largest: Maximum bytes of a successful answer.
            wait: Seconds that the relay was asked to hold back its answer.

        Raises:
            RelayUnavailableError: There was no answer, or it was not complete in time.
            RelayProtocolError: The answer is too long, encoded, or not HTTP.
            RelayUntrustedError: The certificate was not accepted.
        """
        limits = self._timeouts
        pace = Pace(time.monotonic(), limits.total + wait, limits.rate, len(content or b"") + largest + _HEADERS_ROOM)
        headers = [*self._headers.items(), *(() if content is None else _of_body(content, kind))]
        url = self._address.base + path + (f"?{urlencode(params)}" if params else "")
        steps = {"connect": limits.connect, "read": limits.read + wait, "write": limits.write, "pool": limits.connect}
        try:
            asked = self._transport.stream(method, url, headers=headers, content=content, extensions={"timeout": steps})
            with paced(pace), asked as response:
                fields = _fields(response)
                body = _read_body(response, fields, largest, pace, self._address.shown)
        except _FAILURES as error:
            raise failure(error, self._address.shown) from error
        return RelayResponse(response.status, fields, body)


def authorization(token: str | None, claim: bytes | None) -> str | None:
    """Return the authorization header for a token, a claim (32 random bytes), or neither.

    Raises:
        UsageError: The token has characters that a header cannot carry. The message does not repeat it.
    """
    if token is None:
        return None if claim is None else "Claim " + base64.urlsafe_b64encode(claim).decode().rstrip("=")
    if 0 < len(token) <= 512 and token.isascii() and token.isprintable() and " " not in token:
        return f"Bearer {token}"
    raise UsageError(
        "the relay's token cannot be sent: it is empty, too long, or has characters that no token has",
        hint="copy the token again, or pair this device again",
    )


def failure(error: Exception, relay: str) -> CrystalError:
    """Translate an error of httpcore, or of the network below it, into a ``CrystalError``.

    Args:
        error: The caught error.
        relay: The relay's address, for the message.
    """
    below = _chain(error)
    for one in below:
        if isinstance(one, ssl.SSLCertVerificationError):
            reason, hint = _UNTRUSTED.get(one.verify_code, _UNKNOWN_AUTHORITY)
            return RelayUntrustedError(f"the relay at {relay} is not trusted: {reason}", hint=hint)
    name = type(error).__name__
    if isinstance(error, httpcore.TimeoutException):
        step = {"ConnectTimeout": "connect", "PoolTimeout": "connect", "WriteTimeout": "take what was sent"}
        return _unavailable(f"the relay at {relay} did not {step.get(name, 'answer')} in time")
    if isinstance(error, httpcore.RemoteProtocolError):
        if "disconnected" in str(error) or "closed" in str(error):
            return _unavailable(f"the relay at {relay} closed the connection before its answer was complete")
        return broken(relay, "it is not HTTP")
    if any(isinstance(one, ssl.SSLError) for one in below):
        return _unavailable(f"no encrypted connection to the relay at {relay} could be made", "does it speak TLS 1.2?")
    return _unavailable(f"the relay at {relay} cannot be reached ({name})")


def _unavailable(
    message: str, hint: str = "is it running, and is this machine online? crystal tries again"
) -> CrystalError:
    return RelayUnavailableError(message, hint=hint)


def _fields(response: httpcore.Response) -> dict[str, str]:
    """Return the headers by name in lower case; several of one name are joined by commas."""
    found: dict[str, str] = {}
    for raw_name, raw_value in response.headers:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


def _read_body(response: httpcore.Response, fields: Mapping[str, str], largest: int, pace: Pace, relay: str) -> bytes:
    """Read a body without decoding it; of an error only the relevant part."""
    if fields.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
        raise broken(relay, "it is compressed, which was not asked for")
    refused = response.status >= 300
    most = min(largest, SMALL_ANSWER) if refused else largest
    if not refused and _declared(fields) > most:
        raise broken(relay, f"it has more than {most} bytes")
    held = bytearray()
    assert isinstance(response.stream, Iterable)
    for piece in response.stream:
        held += piece
        if len(held) > most and refused:
            return b""
        if len(held) > most:
            raise broken(relay, f"it has more than {most} bytes")
        if pace.left(time.monotonic()) <= 0:
            raise httpcore.ReadTimeout("the exchange took too long")
    return bytes(held)


def _of_body(content: bytes, kind: str) -> tuple[tuple[str, str], ...]:
    digest = base64.b64encode(hashlib.sha256(content).digest()).decode()
    return ("Content-Type", kind), ("Content-Digest", f"sha-256=:{digest}:")


def _declared(fields: Mapping[str, str]) -> int:
    text = fields.get("content-length", "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0


def _chain(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and at not in found:
        found.append(at)
        at = at.__cause__ or at.__context__
    return found
