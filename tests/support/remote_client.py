"""The memory over HTTP in this process, and as a process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from starlette.testclient import TestClient

from crystal.app.context import default_paths
from crystal.credentials.access import make_grant
from crystal.mcp.offer import McpSettings
from crystal.mcp.remote.gate import Rates
from crystal.mcp.remote.server import make_app
from tests.support.mcp_client import INITIALIZE, ROOT

BASE = "http://127.0.0.1:8643"
EVER = ("read", "remember", "forget")


def token_for(
    label: str, scopes: tuple[str, ...] = EVER, projects: tuple[str, ...] = (), expires_at: int | None = None
) -> str:
    """Make an access; give its token."""
    return make_grant(default_paths().access, label, scopes, projects, time.time_ns() // 1_000_000, expires_at)[1]


class Remote(TestClient):
    """A program elsewhere; ``token`` goes with each request."""

    def __init__(
        self, token: str | None = None, rates: Rates | None = None, *, aliases: bool = True, base: str = BASE
    ) -> None:
        names = frozenset({"memory.example"})
        app = make_app(default_paths(), lambda: McpSettings(aliases), names, rates)
        super().__init__(app, base_url=base, raise_server_exceptions=True)
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
        _, err = process.communicate(timeout=20)
    assert "Traceback" not in err, err
    assert process.returncode in (0, 130, -signal.SIGTERM, 128 + signal.SIGTERM), process.returncode
