"""Build HTTP answers."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import Any

from starlette.types import Send

from relay_worker.errors import Refusal
from relay_worker.store.protocol import Stored

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
    body: bytes | Stored = field(default=b"", repr=False)

    async def send(self, send: Send, request_id: str, *, head_only: bool) -> None:
        """Send the answer; for ``HEAD`` without the body."""
        size = len(self.body) if isinstance(self.body, bytes) else self.body.size
        length: Headers = () if self.status == 204 else ((b"content-length", str(size).encode()),)
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
            self.body.close()


NO_CONTENT = Reply(204)


def json_reply(value: Any, status: int = 200) -> Reply:
    """Return a JSON answer."""
    return Reply(status, _JSON, json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode())


def bytes_reply(stored: Stored) -> Reply:
    """Return a stored body, with its tag (a blob's) or digest (an object's) as ``ETag``."""
    etag = (b"etag", f'"{(stored.tag or stored.digest).hex()}"'.encode())
    return Reply(200, (*_BYTES, etag, _digest(stored.digest)), stored)


def mail_reply(message: bytes, digest: bytes) -> Reply:
    """Return a message of a mailbox."""
    return Reply(200, (*_BYTES, _digest(digest)), message)


def _digest(digest: bytes) -> tuple[bytes, bytes]:
    return b"content-digest", b"sha-256=:" + base64.b64encode(digest) + b":"


def problem_reply(refusal: Refusal) -> Reply:
    """Return an RFC 9457 problem document."""
    more = tuple((name.lower().encode(), value.encode()) for name, value in refusal.headers)
    if refusal.retry_after is not None:
        more += ((b"retry-after", str(refusal.retry_after).encode()),)
    body = json.dumps(refusal.problem, separators=(",", ":")).encode()
    return Reply(refusal.status, (*_PROBLEM, *more), body)
