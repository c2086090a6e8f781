"""``crystal mcp --http`` as a process: official client, TLS, many clients, a browser that was led astray, its end."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import ssl
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
import trustme

from crystal.app.context import default_paths
from crystal.credentials.access_log import AccessLog
from crystal.mcp.catalog import CONNECTOR, TOOLS
from crystal.serving.listening import MAX_CONNECTIONS
from tests.support.browser import ARGUMENTS, find_browser
from tests.support.command import crystal
from tests.support.mcp_client import INITIALIZE
from tests.support.remote_client import Forwarder, forwarding, port_of, serving, token_for
from tests.support.store_factory import add_turn, open_store

pytestmark = pytest.mark.slow
REMOTE = [tool.name for tool in (*TOOLS, *CONNECTOR) if not tool.needs_folder]


@pytest.fixture
def memory(home: Path) -> Path:
    folder = home / ".ldm/memory"
    folder.mkdir(parents=True)
    with open_store(folder) as store:
        add_turn(store, "the zebra crosses at noon")
    return folder


def asked(url: str, token: str, method: str, params: object = None, context: ssl.SSLContext | None = None) -> Any:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, **({} if params is None else {"params": params})})
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    request = urllib.request.Request(url, body.encode(), headers)
    with urllib.request.urlopen(request, timeout=20, context=context) as answer:
        return json.loads(answer.read())


def test_the_official_client_speaks_both_eras_with_it(memory: Path) -> None:
    import httpx2
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    token = token_for("phone", ("read",))

    async def talk(mode: str, url: str) -> str:
        async with (
            httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"}, timeout=60) as sender,
            Client(streamable_http_client(url, http_client=sender), mode=mode) as client,  # type: ignore[arg-type]
        ):
            names = [tool.name for tool in (await client.list_tools()).tools]
            assert names == [name for name in REMOTE if name not in ("crystal_remember", "crystal_forget")]
            found = await client.call_tool("crystal_search", {"query": "zebra"})
            assert "crosses at noon" in found.content[0].text  # type: ignore[union-attr]
            assert (await client.call_tool("crystal_search", {})).is_error
            listed = (await client.list_resources()).resources
            assert "crosses at noon" in (await client.read_resource(listed[0].uri)).contents[0].text  # type: ignore[union-attr]
            return str(client.protocol_version)

    with serving() as (url, _):
        assert anyio.run(talk, "legacy", url) == "2025-11-25"
        assert anyio.run(talk, "auto", url) == "2026-07-28"
        assert crystal("access", "revoke", "phone").code == 0
        with pytest.raises(Exception, match=r"401|TaskGroup"):
            anyio.run(talk, "legacy", url)


def test_tls_with_a_certificate_of_ones_own(memory: Path, tmp_path: Path) -> None:
    authority, token = trustme.CA(), token_for("phone")
    made = authority.issue_cert("localhost")
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    certificate.write_bytes(b"".join(one.bytes() for one in made.cert_chain_pems))
    key.write_bytes(made.private_key_pem.bytes())
    context = ssl.create_default_context()
    authority.configure_trust(context)
    options = ("--tls-cert", str(certificate), "--tls-key", str(key))
    with serving(*options, "--host", "0.0.0.0", "--url", "https://localhost:1") as (url, process):
        assert url == "https://localhost:1/mcp"
        port = _port_of(process.pid)
        assert asked(f"https://localhost:{port}/mcp", token, "ping", context=context)["result"] == {}
        with pytest.raises((urllib.error.URLError, ConnectionError)):
            asked(f"http://localhost:{port}/mcp", token, "ping")
    other = trustme.CA().issue_cert("localhost")
    key.write_bytes(other.private_key_pem.bytes())
    refused = crystal("mcp", "--http", "--port", "0", *options)
    assert refused.code == 2
    assert "cannot be used" in refused.err


def _port_of(pid: int) -> int:
    """Return the port that a process listens at."""
    inodes = {link.readlink().name for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()}
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return next(int(row[1].partition(":")[2], 16) for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in inodes)


def test_200_clients_at_once(memory: Path) -> None:
    """Each greets, lists and searches, some remember; nothing is lost, mixed up or refused."""
    tokens = [token_for(f"client {number}", ("read", "remember")) for number in range(200)]

    async def client(url: str, number: int, sender: httpx.AsyncClient) -> None:
        headers = {"authorization": f"Bearer {tokens[number]}"}

        async def ask(method: str, params: object, ident: int) -> Any:
            body = {"jsonrpc": "2.0", "id": ident, "method": method, "params": params}
            for _ in range(200):
                answer = await sender.post(url, json=body, headers=headers, timeout=60)
                if answer.status_code != 503:
                    break
                await anyio.sleep(0.1)
            assert answer.status_code == 200, answer.text
            found = answer.json()
            assert found["id"] == ident
            return found["result"]

        await ask("initialize", INITIALIZE, number)
        assert len((await ask("tools/list", {}, number + 1_000))["tools"]) == len(REMOTE) - 1
        found = await ask("tools/call", {"name": "crystal_search", "arguments": {"query": "zebra"}}, number + 2_000)
        assert "crosses at noon" in found["content"][0]["text"]
        if number % 10 == 0:
            given = {"text": f"client {number} was here"}
            kept = await ask("tools/call", {"name": "crystal_remember", "arguments": given}, number + 3_000)
            assert not kept["isError"], kept

    async def all_of_them(url: str) -> None:
        limits = httpx.Limits(max_connections=200)
        async with httpx.AsyncClient(limits=limits) as sender, anyio.create_task_group() as group:
            for number in range(200):
                group.start_soon(client, url, number, sender)

    with serving() as (url, _):
        anyio.run(all_of_them, url)
    entries = AccessLog(default_paths().access_log).read()
    assert len(entries) == 200 * 2 + 20
    assert {one.outcome for one in entries} == {"ok"}
    assert crystal("memories", "--limit", "100").out.count("was here") == 20


class Astray(Forwarder):
    """A page of somebody else, whose name then leads to this machine: what the page asks reaches the memory."""

    def page(self) -> None:
        self.answer(200, "text/html", b"<title>astray</title>")

    do_GET = page


@pytest.mark.skipif(find_browser() is None, reason="no Chromium or Chrome on this machine")
def test_a_page_that_points_its_name_at_this_machine_gets_nothing(memory: Path) -> None:
    """Even with a token: the browser sends the page's own name as host, and its origin."""
    from playwright.sync_api import sync_playwright

    token = token_for("phone")
    script = """async ([url, token]) => {
        const headers = {"content-type": "application/json", "authorization": "Bearer " + token};
        const body = JSON.stringify({jsonrpc: "2.0", id: 1, method: "tools/call",
            params: {name: "crystal_search", arguments: {query: "zebra"}}});
        try { const answer = await fetch(url, {method: "POST", headers, body});
              return answer.status + " " + await answer.text(); }
        catch (error) { return "blocked " + error; }
    }"""
    with serving() as (url, _), forwarding(Astray) as page_elsewhere, sync_playwright() as playwright:
        Astray.port = port_of(url)
        arguments = [*ARGUMENTS, "--host-resolver-rules=MAP evil.example 127.0.0.1"]
        browser = playwright.chromium.launch(executable_path=find_browser(), args=arguments)
        page = browser.new_page()
        page.goto(f"http://evil.example:{page_elsewhere}/")
        assert page.title() == "astray"
        across = page.evaluate(script, [url, token])
        assert across.startswith("blocked"), across  # no answer of ours allows another origin
        rebound = page.evaluate(script, [f"http://evil.example:{page_elsewhere}/mcp", token])
        assert rebound.startswith("421 "), rebound
        browser.close()
        found = asked(url, token, "tools/call", {"name": "crystal_search", "arguments": {"query": "zebra"}})
        assert "crosses at noon" in str(found)


def test_it_ends_at_once_although_clients_are_connected(memory: Path) -> None:
    token = token_for("phone")
    with serving() as (url, process):
        port = port_of(url)
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
        half = socket.create_connection(("127.0.0.1", port))
        half.sendall(f"POST /mcp HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\ncontent-type:"
                     " application/json\r\ncontent-length: 100\r\n\r\n{".encode())  # fmt: skip
        assert asked(url, token, "ping")["result"] == {}
        begun = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.wait(10)
        assert time.monotonic() - begun < 5
        for one in (*idle, half):
            one.close()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8")
def test_one_address_cannot_take_all_connections(memory: Path) -> None:
    token = token_for("phone")
    with serving() as (url, _), contextlib.ExitStack() as held:
        for _ in range(MAX_CONNECTIONS + 5):
            idle = socket.create_connection(("127.0.0.1", port_of(url)), source_address=("127.0.0.2", 0))
            held.callback(idle.close)
        assert asked(url, token, "ping")["result"] == {}
