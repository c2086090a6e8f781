"""The MCP server as others meet it: the official Inspector's command line, and Claude Code with its own hooks."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.agents import AGENTS
from tests.e2e.client import SECONDS, Client
from tests.e2e.fake_anthropic import FakeAnthropic, Use
from tests.e2e.programs import ENVIRON, NoClient, install_conformance, install_inspector, run_to_end
from tests.e2e.running_agents import Running, install_agent
from tests.support.remote_client import Forwarder, forwarding, port_of, serving, token_for
from tests.support.store_factory import add_turn, open_store
from tests.support.whole_memory import Memory

SERVER = [sys.executable, "-m", "crystal", "mcp"]
ROOT = Path(__file__).resolve().parents[2]


def installed_by(install: Callable[[], Path]) -> Path:
    if ENVIRON.get("CRYSTAL_E2E", "0") in ("", "0"):
        pytest.skip("runs official programs for MCP; set CRYSTAL_E2E=1 to have them installed and run")
    try:
        return install()
    except NoClient as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def inspector() -> Path:
    """The newest Inspector that this machine's Node can run, installed once."""
    return installed_by(install_inspector)


@pytest.fixture(scope="session")
def conformance() -> Path:
    return installed_by(install_conformance)


def inspected(inspector: Path, *arguments: str, server: Sequence[str] = SERVER) -> dict[str, Any]:
    done = run_to_end([inspector, "--cli", *server, *arguments], SECONDS, ROOT, os.environ)
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(json.loads(done.stdout))


def test_the_inspector_lists_and_calls_everything(inspector: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = home / ".ldm/memory"
    folder.mkdir(parents=True)
    with open_store(folder) as store:
        add_turn(store, "the zebra crosses at noon")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    tools = {tool["name"]: tool for tool in inspected(inspector, "--method", "tools/list")["tools"]}
    asked = {
        "crystal_search": ["query=zebra"], "crystal_get": ["id=1"], "crystal_recent": ["all=true"], "crystal_timeline": [],
        "crystal_changed": [], "crystal_how": ["question=test"], "crystal_fix": ["error=no such file is there"], "crystal_about": ["thing=README.md"], "crystal_blame": ["file=README.md"],
        "crystal_status": [], "crystal_remember": ["text=Zebras sleep", "key=sleep"], "crystal_forget": ["query=zebra"],
        "crystal_sources_add": ["path=docs/pictures"], "crystal_sources_sync": [], "crystal_sources_status": [],
    }  # fmt: skip
    assert set(tools) == set(asked)

    def call(name: str) -> dict[str, Any]:
        given = [part for one in asked[name] for part in ("--tool-arg", one)]
        return inspected(inspector, "--method", "tools/call", "--tool-name", name, *given)

    with ThreadPoolExecutor(3) as at_once:
        for name, result in zip(asked, at_once.map(call, asked), strict=True):
            assert not result.get("isError"), result
            assert result["content"][0]["text"], name
            assert "outputSchema" not in tools[name]
    listed = inspected(inspector, "--method", "resources/list")["resources"]
    assert len(listed) == 2
    read = inspected(inspector, "--method", "resources/read", "--uri", listed[0]["uri"])
    assert "the zebra crosses at noon" in read["contents"][0]["text"]
    assert len(inspected(inspector, "--method", "resources/templates/list")["resourceTemplates"]) == 2


GENERAL = ("server-initialize", "ping", "tools-list", "resources-list", "server-sse-multiple-streams",
           "dns-rebinding-protection")  # fmt: skip
"""The scenarios that any server can pass; the others call tools that only a server made for the suite has."""


def test_pi_connects_to_the_server_that_init_gives_it(home: Path) -> None:
    agent = next(agent for agent in AGENTS if agent.name == "pi")
    pi = Running(agent, installed_by(partial(install_agent, agent)), home, "http://127.0.0.1:9")
    memory = Memory(home, pi.env())
    memory.crystal("init", "--yes", "--no-import", "--client", "pi")
    listed = run_to_end([pi.program, "mcp", "list"], SECONDS, pi.project, pi.env())
    assert listed.returncode == 0, listed.stdout + listed.stderr
    assert re.search(r"crystal: connected, \d+ tools", listed.stdout), listed.stdout
    memory.crystal("uninstall")
    assert not (home / ".pi/agent/mcp.json").exists()


def test_the_inspector_and_the_conformance_suite_ask_over_http(inspector, conformance, home, tmp_path):
    """Neither can send a header by itself: what stands before the server adds the token."""
    folder = home / ".ldm/memory"
    folder.mkdir(parents=True)
    with open_store(folder) as store:
        add_turn(store, "the zebra crosses at noon")

    class Adding(Forwarder):
        token = token_for("inspector")

    with serving() as (url, _), forwarding(Adding) as port:
        Adding.port, address = port_of(url), f"http://127.0.0.1:{port}/mcp"

        def ask(*arguments: str) -> dict[str, Any]:
            return inspected(inspector, *arguments, server=[address])

        assert {"search", "crystal_search"} <= {one["name"] for one in ask("--method", "tools/list")["tools"]}
        found = ask("--method", "tools/call", "--tool-name", "crystal_search", "--tool-arg", "query=zebra")
        assert "crosses at noon" in found["content"][0]["text"]
        for scenario in GENERAL:
            words = [conformance, "server", "--url", address, "--scenario", scenario]
            done = run_to_end(words, SECONDS, tmp_path, os.environ)
            assert done.returncode == 0, done.stdout + done.stderr
            assert "0 failed" in done.stdout, done.stdout


def results_told(model: FakeAnthropic) -> str:
    """Every result of a tool that reached the model with the last request, as one text."""
    blocks = [
        block
        for message in model.requests[-1]["messages"]
        if isinstance(message.get("content"), list)
        for block in message["content"]
        if block.get("type") == "tool_result"
    ]
    return json.dumps(blocks, ensure_ascii=False)


@pytest.mark.usefixtures("_modern")
def test_one_session_recalls_what_another_said(client: Client, model: FakeAnthropic, memory: Memory) -> None:
    servers = {"mcpServers": {"crystal": {"command": SERVER[0], "args": SERVER[1:], "env": {"PYTHONPATH": str(ROOT)}}}}
    config = client.home / "servers.json"
    config.write_text(json.dumps(servers))
    with_crystal = ("--mcp-config", str(config), "--strict-mcp-config")

    model.when("which stone", ["We chose rose quartz for the lamp."])
    first = client.ask("which stone do we use")
    memory.settle()

    model.when(
        "the lamp again",
        [Use("mcp__crystal__crystal_search", {"query": "stone for the lamp"})],
        [Use("mcp__crystal__crystal_get", {"id": first.session})],
        [Use("mcp__crystal__crystal_remember", {"text": "The lamp is of rose quartz", "key": "lamp"})],
        [Use("mcp__crystal__crystal_recent", {"what": "sessions"})],
        ["Rose quartz, as before."],
    )
    second = client.ask("the lamp again", *with_crystal)
    assert second.text == "Rose quartz, as before."
    told = results_told(model)
    assert told.count("We chose rose quartz for the lamp.") >= 2
    assert re.search(
        r"<crystal-memory-([a-z0-9]{6})>.ndata:[^<]*\[(?:\1 )?\d+ assistant[^<]*</crystal-memory-\1>", told
    )
    assert told.count("<crystal-memory-") == told.count("</crystal-memory-") == 4, "one fence for each answer"
    assert "structuredContent" not in told
    assert second.session not in told, "what the asking session said is in its context already"
    memory.settle()
    assert (
        json.loads(memory.crystal("get", "--key", "lamp", "--json"))["memory"]["text"] == "The lamp is of rose quartz"
    )
    assert not any("<crystal-memory" in text for text in memory.texts("tool_result")), "what was recalled is kept again"
