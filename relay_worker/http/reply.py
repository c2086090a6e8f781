"""Build HTTP answers."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.types import Send

from relay_worker.errors import RequestRefusedError
from relay_worker.model import Result
from relay_worker.store.files import BodyFile, StoredBody

Headers = tuple[tuple[bytes, bytes], ...]

ALWAYS: Headers = (
    (b"crystal-relay-version", b"1"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
)
_JSON: Headers = ((b"content-type", b"application/json"),)
_PROBLEM: Headers = ((b"content-type", b"application/problem+json"),)
_BYTES: Headers = ((b"content-type", b"application/octet-stream"),)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, not yet sent."""

    status: int
    headers: Headers = ()
    body: bytes | BodyFile = field(default=b"", repr=False)

    async def send(self, send: Send, request_id: str, *, head_only: bool) -> None:
        """Send the answer; for ``HEAD`` without the body."""
        length: Headers = () if self.status == 204 else ((b"content-length", str(len(self.body)).encode()),)
        headers = [*ALWAYS, (b"x-request-id", request_id.encode()), *self.headers, *length]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        if isinstance(self.body, bytes):
            await send({"type": "http.response.body", "body": b"" if head_only else self.body})
            return
        try:
            if not head_only:
                async for chunk in self.body.chunks():
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            self.body.file.close()


NO_CONTENT = Reply(204)


def json_reply(value: Any, status: int = 200) -> Reply:
    """Return a JSON answer."""
    return Reply(status, _JSON, msgspec.json.encode(value))


def stored_as(result: Result, **named: Any) -> Reply:
    """Answer that something is durable: 201 if it was stored now, 200 if it was there."""
    if result == "duplicate":
        return json_reply({**named, "result": "duplicate"})
    return json_reply({**named, "result": "created"}, 201)


def bytes_reply(body: bytes | BodyFile, digest: bytes, *headers: tuple[bytes, bytes]) -> Reply:
    """Return bytes with their SHA-256."""
    content_digest = (b"content-digest", b"sha-256=:" + base64.b64encode(digest) + b":")
    return Reply(200, (*_BYTES, content_digest, *headers), body)


def stored_reply(stored: StoredBody) -> Reply:
    """Return a stored body, with its tag as ``ETag``."""
    return bytes_reply(stored.body, stored.digest, (b"etag", f'"{stored.tag.hex()}"'.encode()))


def problem_reply(refusal: RequestRefusedError) -> Reply:
    """Return an RFC 9457 problem document."""
    more = tuple((name.lower().encode(), value.encode()) for name, value in refusal.headers)
    if refusal.retry_after is not None:
        more += ((b"retry-after", str(refusal.retry_after).encode()),)
    return Reply(refusal.status, (*_PROBLEM, *more), msgspec.json.encode(refusal.problem))
