"""The memory over HTTP in this process, and as a process."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from starlette.testclient import TestClient

from crystal.app.context import default_paths
from crystal.credentials.access import make_grant
from crystal.mcp.handlers import McpSettings
from crystal.mcp.remote.server import ServerAddress, make_app
from crystal.mcp.remote.token_guard import Rates
from crystal.model.granted import GrantedProject
from tests.support.event_loop import shared_portal
from tests.support.mcp_client import INITIALIZE, ROOT

BASE = "http://127.0.0.1:8643"
EVER = ("read", "remember", "forget")


def token_for(
    label: str, scopes: tuple[str, ...] = EVER, projects: tuple[GrantedProject, ...] = (), expires_at: int | None = None
) -> str:
    """Make an access; give its token."""
    return make_grant(default_paths().access, label, scopes, projects, time.time_ns() // 1_000_000, expires_at)[1]


class Remote(TestClient):
    """A program elsewhere; ``token`` goes with each request."""

    def __init__(
        self,
        token: str | None = None,
        rates: Rates | None = None,
        *,
        aliases: bool = True,
        base: str = BASE,
        key: bytes | None = None,
    ) -> None:
        app = make_app(
            default_paths(),
            lambda: McpSettings(aliases),
            ServerAddress(url="https://memory.example", sign_in_key=key),
            base,
            rates,
        )
        super().__init__(app, base_url=base, raise_server_exceptions=True)
        self.portal = shared_portal()
        if token is not None:
            self.headers["authorization"] = f"Bearer {token}"

    def rpc(self, method: str, params: object = None, ident: object = 1, **more: Any) -> Any:
        """Send a request of MCP; the response of HTTP."""
        given = {} if params is None else {"params": params}
        return self.post("/mcp", json={"jsonrpc": "2.0", "id": ident, "method": method, **given}, **more)

    def ask(self, method: str, params: object = None) -> dict[str, Any]:
        return dict(self.rpc(method, params).json())

    def greet(self) -> dict[str, Any]:
        return dict(self.ask("initialize", INITIALIZE)["result"])

    def tool(self, name: str, /, **arguments: object) -> dict[str, Any]:
        return dict(self.ask("tools/call", {"name": name, "arguments": arguments}))

    def text(self, name: str, /, **arguments: object) -> str:
        return str(self.tool(name, **arguments)["result"]["content"][0]["text"])


class Forwarder(http.server.BaseHTTPRequestHandler):
    """Forwards each request to the server at ``port``, with the ``token`` if it has one."""

    port, token = 0, ""

    def forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {**dict(self.headers.items()), **({"authorization": f"Bearer {self.token}"} if self.token else {})}
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port)) as connection:
            connection.request(self.command, self.path, body, headers)
            answer = connection.getresponse()
            self.answer(answer.status, str(answer.headers["content-type"]), answer.read())

    def answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(BrokenPipeError):
            self.wfile.write(body)

    do_GET = do_POST = do_DELETE = forward

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def forwarding(handler: type[Forwarder]) -> Iterator[int]:
    """Serve a handler; yield its port."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def port_of(url: str) -> int:
    return int(url.split(":")[2].partition("/")[0])


@contextlib.contextmanager
def serving(*options: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run ``crystal mcp --http``; yield its address and the process, which ends cleanly."""
    words = [sys.executable, "-m", "crystal", "mcp", "--http", "--port", "0", *options]
    process = subprocess.Popen(
        words, cwd=ROOT, env=dict(os.environ), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip(), process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    assert "Traceback" not in err, err
    assert process.returncode in (0, 130, -signal.SIGTERM, 128 + signal.SIGTERM), process.returncode
