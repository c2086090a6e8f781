"""A relay at a socket that answers 201 to what it is told to keep, and keeps nothing of it while it lies."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import urlsplit


class LyingRelay(ThreadingHTTPServer):
    """Stands before an honest relay, which it asks everything but what it swallows."""

    daemon_threads = True

    def __init__(self, honest: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.honest, self.lies, self.swallowed = urlsplit(honest).netloc, False, 0

    @property
    def url(self) -> str:
        """Return its address."""
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: LyingRelay

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.server.lies and self.command == "PUT" and "/blobs/" in self.path:
            self.server.swallowed += 1
            seq = int(self.path.partition("?")[0].rpartition("/")[2])
            kept = {"seq": seq, "tag": body[-32:].hex(), "result": "created"}
            headers = {"content-type": "application/json", "crystal-relay-version": "1"}
            self._send(201, headers, json.dumps(kept).encode())
            return
        asked = http.client.HTTPConnection(self.server.honest, timeout=30)
        try:
            asked.request(self.command, self.path, body or None, dict(self.headers.items()))
            answer = asked.getresponse()
            self._send(answer.status, dict(answer.headers.items()), answer.read())
        finally:
            asked.close()

    do_GET = do_PUT = do_POST = do_DELETE = _answer

    def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def lying_relay(honest: str) -> Iterator[LyingRelay]:
    """Serve before a relay; it is honest until ``lies`` is set."""
    with LyingRelay(honest) as relay:
        Thread(target=relay.serve_forever, daemon=True).start()
        try:
            yield relay
        finally:
            relay.shutdown()
