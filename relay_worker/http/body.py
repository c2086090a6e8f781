"""Read request bodies: length first, then bytes under deadlines, and only a few large ones at a time."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncIterator
from typing import Any, TypeVar

import anyio
import msgspec

from relay_worker.errors import ClientGoneError, RequestRefusedError
from relay_worker.http.call import Call
from relay_worker.store.sqlite import INLINE_BYTES

MAX_JSON = 65_536

T = TypeVar("T")


def _length(call: Call, limit: int) -> int | None:
    """Return the announced length, checked before a byte is read; None for a chunked body."""
    if call.header(b"content-encoding").lower() not in {"", "identity"}:
        raise RequestRefusedError("unsupported-media-type", "a body is sent as it is, without Content-Encoding")
    if call.header(b"transfer-encoding").lower() not in {"", "chunked"}:
        raise RequestRefusedError(
            "unsupported-media-type", "a body comes whole or chunked, without another Transfer-Encoding"
        )
    text = call.header(b"content-length")
    if not text:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > 20:
        raise RequestRefusedError("bad-request", "Content-Length is not a number")
    if int(text) > limit:
        raise _too_large(limit)
    return int(text)


def _too_large(limit: int) -> RequestRefusedError:
    return RequestRefusedError("body-too-large", f"a body has at most {limit} bytes here")


@contextlib.asynccontextmanager
async def received(call: Call, limit: int) -> AsyncIterator[tuple[bytes, bytes]]:
    """Read a body of at most ``limit`` bytes; give it with its SHA-256. A large one holds a slot within the context.

    Raises:
        RequestRefusedError: ``body-too-large``, ``body-timeout``, ``digest-mismatch``, and those of the store.
        ClientGoneError: The client disconnected.
    """
    length = _length(call, limit)
    announced = call.content_digest()
    is_large = (limit if length is None else length) > INLINE_BYTES
    async with call.relay.uploads.one() if is_large else contextlib.nullcontext():
        body, digest = await _read(call, limit)
        if announced not in {None, digest}:
            raise RequestRefusedError("digest-mismatch", "the body is not what Content-Digest says; send it again")
        yield body, digest


async def _read(call: Call, limit: int) -> tuple[bytes, bytes]:
    relay = call.relay
    body, digest, more = bytearray(), hashlib.sha256(), True
    ends_at = relay.monotonic() + relay.settings.body_total
    while more:
        left = min(relay.settings.body_idle, ends_at - relay.monotonic())
        try:
            with anyio.fail_after(max(left, 0)):
                message: Any = await call.receive()
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


async def read_json(call: Call, kind: type[T]) -> T:
    """Read a JSON object; a missing body is an empty object.

    Raises:
        RequestRefusedError: ``unsupported-media-type``, ``bad-request``, and those of ``received``.
    """
    media_type = call.header(b"content-type").partition(";")[0].strip().lower()
    async with received(call, MAX_JSON) as (body, _):
        if body and media_type not in {"", "application/json"}:
            raise RequestRefusedError("unsupported-media-type", "the body has to be application/json")
        try:
            return msgspec.json.decode(body or b"{}", type=kind)
        except (ValueError, RecursionError) as error:
            # An unknown key is not repeated: it may be anything.
            reason = "it has an unknown key" if "unknown field" in str(error) else error
            raise RequestRefusedError("bad-request", f"the JSON body cannot be used: {reason}") from error
