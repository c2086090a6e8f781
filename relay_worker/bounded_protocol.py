"""Speak HTTP/1.1 on a socket, with the limits that uvicorn lacks.

uvicorn waits forever for the end of a head, accepts a head of any size, stores any amount of trailers and treats them
as headers, continues to read after it has refused a body, and waits forever for a client that does not read. Each of
these lets a client without any secret occupy a server's connections or memory.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from relay_worker.errors import RequestRefusedError
from relay_worker.http.reply import problem_reply
from relay_worker.limits import WaitingClient

MAX_HEAD = 32 << 10
HEAD_SECONDS = 15.0
DRAIN_SECONDS = 10.0
STALL_SECONDS = 60.0


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes = 0
        self._too_large = False
        self._message_open = False
        self._progress = False
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._answers = 0
        self._client = WaitingClient()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timeout for a head."""
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timers, and end waiting requests."""
        self._client.leave()
        for name in list(self._timers):
            self._cancel(name)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Start the timeout for a client that does not read."""
        super().pause_writing()
        self._await_reader()

    def resume_writing(self) -> None:
        """Cancel the timeout: the client reads again."""
        self._cancel("stall")
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """Process bytes; refuse an endless head at its limit, and data after the end of a body."""
        if self.transport.is_closing() or self.parser is None:
            return
        unfinished = "head" in self._timers
        self._progress = False
        super().data_received(data)
        if self.transport.is_closing():
            return
        cycle: Any = self.cycle
        if "head" not in self._timers and not self._message_open and (cycle is None or cycle.response_complete):
            self._await_head()  # blank lines between requests do not keep a connection open
        in_head = unfinished and "head" in self._timers
        # The parser buffers a trailer, or an extension of a chunk, and reports it only at its end.
        in_framing = self._message_open and "head" not in self._timers and not self._progress
        if in_head or in_framing:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD:
                self._too_large = True
                self.send_400_response("")

    def on_message_begin(self) -> None:
        """Start counting a new head."""
        super().on_message_begin()
        self.scope["state"]["client"] = self._client
        self._head_bytes = 0
        self._message_open = True
        if "head" not in self._timers:
            self._await_head()

    def on_url(self, url: bytes) -> None:
        """Count a part of the request line."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Process a header, but not a trailer, which must not set identity or origin (RFC 9110, section 6.5.1)."""
        self._count(len(name) + len(value) + 4)
        if "head" in self._timers:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """End the timeout of the head; from here on the application's timeouts apply."""
        self._cancel("head")
        self._head_bytes = 0
        self._progress = True
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Process a part of the body."""
        self._head_bytes = 0
        self._progress = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Process the end of the body; a request whose body is complete before it runs needs no timeout."""
        self._message_open = False
        self.scope["state"]["has_arrived"] = True
        self._cancel("drain")
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Discard the rest of a refused body for a while after the answer."""
        super().on_response_complete()
        self._answers += 1
        self._await_reader()
        if self._message_open and not self.transport.is_closing() and "drain" not in self._timers:
            self._timers["drain"] = self.loop.call_later(DRAIN_SECONDS, self.transport.close)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - problems have their own words
        """Answer invalid or oversized HTTP with 400 and close. During or after an answer, only close."""
        cycle: Any = self.cycle
        if self._message_open and cycle is not None and cycle.scope is self.scope and cycle.response_started:
            self.transport.close()
            return
        refusal = (
            RequestRefusedError("headers-too-large", f"request line and headers have at most {MAX_HEAD} bytes")
            if self._too_large
            else RequestRefusedError("bad-request", "this is not an HTTP request")
        )
        reply = problem_reply(refusal)
        assert isinstance(reply.body, bytes)
        status = f"HTTP/1.1 {refusal.status} {refusal.problem['title']}".encode()
        headers = [b": ".join(one) for one in reply.head(secrets.token_hex(8))]
        lines = [status, *headers, b"connection: close"]
        self.transport.write(b"\r\n".join(lines) + b"\r\n\r\n" + reply.body)
        self.transport.close()

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD:
            self._too_large = True
            raise ValueError("head too large")  # stops the parser, which calls send_400_response

    def _await_reader(self) -> None:
        """Require that written data is read, including the last answer before the connection closes."""
        unsent = self.transport.get_write_buffer_size()
        if unsent and "stall" not in self._timers:
            self._timers["stall"] = self.loop.call_later(STALL_SECONDS, self._stalled, unsent, self._answers)

    def _stalled(self, unsent: int, answers: int) -> None:
        self._cancel("stall")
        if self._answers == answers and self.transport.get_write_buffer_size() >= unsent:
            self.transport.abort()
        else:
            self._await_reader()

    def _await_head(self) -> None:
        self._timers["head"] = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _cancel(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()
