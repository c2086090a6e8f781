"""Read request bodies: length first, then bytes under deadlines, and large ones never in memory."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, TypeVar

import anyio
import msgspec

from relay_worker.crb1 import HEADER_BYTES, TAG_BYTES
from relay_worker.errors import ClientGoneError, RequestRefusedError
from relay_worker.http.call import Call
from relay_worker.model import NewBody
from relay_worker.store.files import FileSpool

INLINE_BYTES = 128 << 10
"""Bodies up to this size are kept in memory and in the database; larger ones are written to a file on arrival."""

MAX_JSON = 65_536

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Received:
    """Complete body, checked against the announced length and digest."""

    body: bytes | FileSpool
    size: int
    head: bytes
    tail: bytes
    digest: bytes

    def handed_over(self, call: Call, *, resend: bool) -> NewBody:
        """Return the body for the store, which owns its file from here on."""
        if isinstance(self.body, bytes):
            body, file = self.body, None
        else:
            body, file, self.body.kept = None, self.body.name, True
        return NewBody(call.account, self.size, self.digest, body, file, resend, call.relay.now())


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
async def received(call: Call, limit: int) -> AsyncIterator[Received]:
    """Read a body of at most ``limit`` bytes. What is not stored within the context is deleted after it.

    Raises:
        RequestRefusedError: ``body-too-large``, ``body-timeout``, ``digest-mismatch``, and those of the store.
        ClientGoneError: The client disconnected.
    """
    length = _length(call, limit)
    announced = call.content_digest()
    chunks = _Chunks(call, limit)
    gathered = bytearray()
    if length is None or length <= INLINE_BYTES:
        while (chunk := await chunks.next()) is not None:
            gathered += chunk
            if len(gathered) > INLINE_BYTES:
                break
        else:
            body = bytes(gathered)
            digest = hashlib.sha256(body).digest()
            _compare(announced, digest)
            yield Received(body, len(body), body[:HEADER_BYTES], body[-TAG_BYTES:], digest)
            return
    async with call.relay.uploads.one(), call.relay.store.spool() as spool:
        chunks.restart()
        await spool.write(bytes(gathered))
        while (chunk := await chunks.next()) is not None:
            await spool.write(chunk)
        digest = await spool.finish()
        _compare(announced, digest)
        yield Received(spool, spool.size, spool.head, spool.tail, digest)


def _compare(announced: bytes | None, digest: bytes) -> None:
    if announced is not None and announced != digest:
        raise RequestRefusedError("digest-mismatch", "the body is not what Content-Digest says; send it again")


class _Chunks:
    """Pieces of a body, counted and timed."""

    def __init__(self, call: Call, limit: int) -> None:
        self._call = call
        self._limit = limit
        self._size = 0
        self._more = True
        self.restart()

    def restart(self) -> None:
        """Restart the timer: the client is not responsible for the wait for a slot."""
        self._ends_at = self._call.relay.monotonic() + self._call.relay.settings.body_total

    async def next(self) -> bytes | None:
        """Return the next piece, None after the last."""
        if not self._more:
            return None
        relay = self._call.relay
        left = min(relay.settings.body_idle, self._ends_at - relay.monotonic())
        try:
            with anyio.fail_after(max(left, 0)):
                message: Any = await self._call.receive()
        except TimeoutError as error:
            raise RequestRefusedError(
                "body-timeout", "the body came too slowly", headers=(("Connection", "close"),)
            ) from error
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        chunk: bytes = message.get("body", b"")
        self._more = message.get("more_body", False)
        self._size += len(chunk)
        if self._size > self._limit:
            raise _too_large(self._limit)
        return chunk


async def read_json(call: Call, kind: type[T]) -> T:
    """Read a JSON object; a missing body is an empty object.

    Raises:
        RequestRefusedError: ``unsupported-media-type``, ``bad-request``, and those of ``received``.
    """
    media_type = call.header(b"content-type").partition(";")[0].strip().lower()
    async with received(call, MAX_JSON) as got:
        if got.size and media_type not in {"", "application/json"}:
            raise RequestRefusedError("unsupported-media-type", "the body has to be application/json")
        assert isinstance(got.body, bytes)
        try:
            return msgspec.json.decode(got.body or b"{}", type=kind)
        except (ValueError, RecursionError) as error:
            # An unknown key is not repeated: it may be anything.
            reason = "it has an unknown key" if "unknown field" in str(error) else error
            raise RequestRefusedError("bad-request", f"the JSON body cannot be used: {reason}") from error
