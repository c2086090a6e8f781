"""Check a request before it is answered: its host, its secret, its length."""

from __future__ import annotations

import hmac
from collections.abc import Mapping

import anyio
from starlette.datastructures import MutableHeaders
from starlette.types import Message, Receive, Scope, Send

LOCAL_NAMES = ("127.0.0.1", "localhost", "[::1]")
BODY_SECONDS = 20.0


def name_of_host(host: str) -> str:
    """Return the name in a Host header; the port is ignored, because a tunnel has its own."""
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port.isdecimal() else host.lower()


def is_same(given: str, known: str) -> bool:
    """Return whether two secrets are equal, in a time that does not depend on the guess."""
    return hmac.compare_digest(given.encode(), known.encode())


def with_headers(scope: Scope, send: Send, headers: Mapping[str, str]) -> Send:
    """Return a ``send`` function that adds these headers to every answer.

    Raises:
        ValueError: The request is not HTTP.
    """
    if scope["type"] != "http":
        raise ValueError(f"not HTTP: {scope['type']}")

    async def send_guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(headers)
        await send(message)

    return send_guarded


async def read_body(receive: Receive, most: int) -> bytes | None:
    """Return the body of a request; None if it is too long, or takes too long to arrive."""
    body = bytearray()
    with anyio.move_on_after(BODY_SECONDS):
        while True:
            message = await receive()
            body += message.get("body", b"")
            if len(body) > most:
                return None
            if message["type"] == "http.disconnect" or not message.get("more_body"):
                return bytes(body)
    return None
