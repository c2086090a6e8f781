"""Build HTTP answers."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any

import msgspec

from relay_worker.errors import RequestRefusedError
from relay_worker.http.call import Send
from relay_worker.store.files import BodyFile, StoredBody

Headers = tuple[tuple[bytes, bytes], ...]

ALWAYS: Headers = (
    (b"crystal-relay-version", b"1"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, not yet sent."""

    status: int
    headers: Headers = ()
    body: bytes | BodyFile = field(default=b"", repr=False)

    def head(self, request_id: str) -> list[tuple[bytes, bytes]]:
        """Return all headers."""
        length: Headers = () if self.status == 204 else ((b"content-length", str(len(self.body)).encode()),)
        return [*ALWAYS, (b"x-request-id", request_id.encode()), *self.headers, *length]

    async def send(self, send: Send, request_id: str, *, head_only: bool) -> None:
        """Send the answer; for ``HEAD`` without the body."""
        await send({"type": "http.response.start", "status": self.status, "headers": self.head(request_id)})
        if isinstance(self.body, bytes):
            await send({"type": "http.response.body", "body": b"" if head_only else self.body})
            return
        with self.body.file:
            if not head_only:
                async for chunk in self.body.chunks():
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})


NO_CONTENT = Reply(204)


def json_reply(value: Any, status: int = 200) -> Reply:
    """Return a JSON answer."""
    return Reply(status, ((b"content-type", b"application/json"),), msgspec.json.encode(value))


def stored_reply(is_new: bool, **named: Any) -> Reply:
    """Answer that something is durable: 201 if it was stored now, 200 if it was stored before."""
    return json_reply({**named, "result": "created" if is_new else "duplicate"}, 201 if is_new else 200)


def bytes_reply(stored: StoredBody) -> Reply:
    """Return bytes with their SHA-256, and their tag as ``ETag``."""
    headers: Headers = (
        (b"content-type", b"application/octet-stream"),
        (b"content-digest", b"sha-256=:" + base64.b64encode(stored.digest) + b":"),
    )
    if stored.tag:
        headers += ((b"etag", f'"{stored.tag.hex()}"'.encode()),)
    return Reply(200, headers, stored.body)


def problem_reply(refusal: RequestRefusedError) -> Reply:
    """Return an RFC 9457 problem document."""
    more = [(name.lower().encode(), value.encode()) for name, value in refusal.headers]
    if refusal.retry_after is not None:
        more.append((b"retry-after", str(refusal.retry_after).encode()))
    headers = ((b"content-type", b"application/problem+json"), *more)
    return Reply(refusal.status, headers, msgspec.json.encode(refusal.problem))
