"""Attacks on the memory over HTTP: places taken for nothing, false addresses, more than the user has allowed."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator

import httpx
import pytest
import uvicorn

from crystal.app.context import default_paths
from crystal.credentials.access import read_grants
from crystal.credentials.access_log import AccessLog
from crystal.mcp.remote import token_guard
from crystal.serving import listening, request_checks
from crystal.store import Store
from tests.mcp.test_mcp_oauth import Assistant
from tests.support.command import crystal
from tests.support.remote_client import Remote, token_for


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Serve as ``run`` does, from a thread, with short times."""

    async def app(scope: object, receive: object, send: listening.ASGIApp) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})  # type: ignore[call-arg, arg-type]
        await send({"type": "http.response.body"})  # type: ignore[call-arg, arg-type]

    monkeypatch.setattr(listening, "HEAD_SECONDS", 1.0)
    servers: list[uvicorn.Server] = []
    monkeypatch.setattr(uvicorn.Server, "capture_signals", lambda self: servers.append(self) or threading.Lock())
    with listening.listen(0, 0, "test") as listens:
        thread = threading.Thread(target=listening.run, args=(app, listens))
        thread.start()
        yield listens.getsockname()[1]
        servers[0].should_exit = True
        thread.join(10)


def _ended(connection: socket.socket) -> bytes:
    connection.settimeout(5)
    with connection:
        try:
            return connection.recv(100)
        except ConnectionResetError:
            return b""


@pytest.mark.slow
def test_who_sends_no_head_or_one_without_end_loses_the_connection(port: int) -> None:
    idle, slow, endless = (socket.create_connection(("127.0.0.1", port)) for _ in range(3))
    slow.sendall(b"GET / HTTP/1.1\r\nhost: a\r\n")
    endless.sendall(b"GET / HTTP/1.1\r\nx: " + b"a" * 70_000)
    assert _ended(endless).startswith((b"HTTP/1.1 400", b""))
    with httpx.Client(base_url=f"http://127.0.0.1:{port}") as busy:
        for _ in range(15):
            assert busy.get("/").status_code == 204
            time.sleep(0.1)
    assert _ended(idle) == _ended(slow) == b""


def test_a_body_of_a_sign_in_has_an_end(told: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    client = Assistant()
    for path in ("/register", "/token", "/authorize"):
        assert client.post(path, content=b"x" * (token_guard.MAX_FORM + 1)).status_code == 413
    monkeypatch.setattr(request_checks, "BODY_SECONDS", 0.0)
    assert client.post("/register", json={}).status_code in (400, 413)


def test_an_address_in_the_log_is_an_address(told: Store) -> None:
    for address, noted in (("\x1b[31mwords", "unknown"), ("w" * 60_000, "unknown"), ("fe80::1%words", "fe80::1"),
                           ("192.0.2.7", "192.0.2.7")):  # fmt: skip
        stranger = Remote()
        stranger._transport.client = (address, 1)  # type: ignore[attr-defined]
        assert stranger.rpc("ping").status_code == 401
        assert AccessLog(default_paths().access_log).read()[-1].address == noted


def test_what_an_assistant_asks_for_is_not_what_it_gets(told: Store) -> None:
    client = Assistant(scope="read remember forget", client_name="\u202e\x1b[31m")
    page = client.page(scope="read remember forget")
    assert "an assistant wants" in client.get(page).text
    assert "may read everywhere" in crystal("access", "approve", client.code_of_user(page)).out
    assert client.exchange(client.come_back(page)["code"]).json()["scope"] == "read"


def test_a_changed_list_counts_from_the_next_request_on(told: Store) -> None:
    token, path = token_for("phone"), default_paths().access
    remote = Remote(token)
    assert remote.rpc("tools/call", {"name": "crystal_forget", "arguments": {"query": "okapi"}}).status_code == 200
    rows = json.loads(path.read_bytes())
    rows[0]["scopes"] = ["read"]
    path.write_text(json.dumps(rows))
    assert read_grants(path)[0].scopes == ("read",)
    assert remote.rpc("tools/call", {"name": "crystal_forget", "arguments": {"query": "okapi"}}).status_code == 403
