"""The server as a process: several requests at once, its streams, and what ends it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import apsw
import pytest

from crystal.mcp import protocol
from crystal.mcp.catalog import TOOLS
from crystal.mcp.protocol import MAX_AT_ONCE, ServerSpec
from crystal.store import Store
from tests.support.mcp_client import INITIALIZE, ROOT, Process, crystal_spec, served
from tests.support.store_factory import add_turn, open_store

DATA = ".ldm/memory"


def a_memory(home: Path) -> Path:
    folder = home / DATA
    folder.mkdir(parents=True)
    with open_store(folder) as store:
        add_turn(store, "the zebra crosses at noon")
        store.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return folder


# ---------------------------------------------------------------------------------------------------------- at once


class Slow:
    """A server with one method that waits until it may go on."""

    def __init__(self) -> None:
        self.go_on, self.begun, self.served = threading.Event(), threading.Semaphore(0), 0

    def spec(self) -> ServerSpec:
        return ServerSpec("slow", "1", "", {"tools/list": self._wait})

    def _wait(self, _: Mapping[str, Any]) -> dict[str, Any]:
        self.begun.release()
        self.go_on.wait(20)
        self.served += 1
        return {"tools": []}


def test_a_slow_answer_keeps_no_other_waiting() -> None:
    server = Slow()
    with served(server.spec()) as talk:
        slow = talk.start("tools/list")
        server.begun.acquire()
        assert talk.ask("ping")["result"] == {}
        server.go_on.set()
        assert talk.answer_to(slow)["result"] == {"tools": []}


def test_what_is_cancelled_is_not_answered_nor_begun() -> None:
    server = Slow()
    with served(server.spec()) as talk:
        running = [talk.start("tools/list") for _ in range(MAX_AT_ONCE)]
        for _ in running:
            server.begun.acquire()
        waiting = talk.start("tools/list", ident="waiting")
        for ident in (running[0], waiting, "nobody"):
            talk.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": ident}})
        assert talk.ask("ping")["result"] == {}
        server.go_on.set()
        answered = {talk.read()["id"] for _ in running[1:]}
        assert talk.ask("ping")["result"] == {}
    assert answered == set(running[1:])
    assert (talk.others, server.served) == ([], MAX_AT_ONCE)


def test_a_bug_in_an_answer_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Slow):
        def _wait(self, _: Mapping[str, Any]) -> dict[str, Any]:
            raise KeyError("secret words")

    told: list[object] = []
    monkeypatch.setattr(sys, "excepthook", lambda *about: told.append(about))
    with served(Broken().spec()) as talk:
        error = talk.ask("tools/list")["error"]
        assert error["code"] == -32603
        assert "secret" not in error["message"]
        assert talk.ask("ping")["result"] == {}
    assert len(told) == 1


def test_a_missing_package_is_named_without_a_path_and_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    class Missing(Slow):
        def _wait(self, _: Mapping[str, Any]) -> dict[str, Any]:
            raise ImportError("/home/me/apsw.so: undefined symbol", name="apsw")

    monkeypatch.setattr(sys, "excepthook", lambda *_: pytest.fail("a traceback"))
    with served(Missing().spec()) as talk:
        words = "the package apsw cannot be loaded; on the machine of the memory run: crystal doctor"
        assert talk.ask("tools/list")["error"]["message"] == words
        assert talk.ask("ping")["result"] == {}


# ---------------------------------------------------------------------------------------------------------- process


@pytest.mark.slow
def test_only_the_protocol_is_on_standard_output(home: Path) -> None:
    a_memory(home)
    noisy = (
        "import os, sys, crystal.mcp.handlers as handlers, crystal.cli.mcp as door\n"
        "print('before', flush=True) if False else None\n"
        "call = handlers.RequestHandlers._call\n"
        "def loud(self, *them):\n"
        "    print('junk'); os.write(1, b'junk'); os.system('echo junk'); sys.stdout.flush()\n"
        "    return call(self, *them)\n"
        "handlers.RequestHandlers._call = loud\n"
        "door.mcp()\n"
    )
    with Process(noisy) as talk:
        talk.greet()
        assert not talk.tool("crystal_status")["isError"]
        code, out, err = talk.end()
    assert (code, out) == (0, b"")
    assert err.count(b"junk") == 3


@pytest.mark.slow
def test_what_was_asked_before_the_end_is_answered(home: Path) -> None:
    a_memory(home)
    with Process() as talk:
        talk.start("initialize", INITIALIZE)
        talk.start("tools/call", {"name": "crystal_search", "arguments": {"query": "zebra"}})
        code, out, err = talk.end()
    answers = {message["id"]: message["result"] for message in map(json.loads, out.splitlines())}
    assert (code, set(answers), err) == (0, {1, 2}, b"")
    assert "crosses at noon" in answers[2]["content"][0]["text"]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it(home: Path, number: signal.Signals) -> None:
    with Process() as talk:
        talk.greet()
        talk.process.send_signal(number)
        assert talk.process.wait(10) == 128 + number


@pytest.mark.slow
def test_it_ends_when_nobody_reads(home: Path) -> None:
    with Process() as talk:
        talk.greet()
        assert talk.process.stdout is not None
        talk.process.stdout.close()
        talk.start("ping")
        assert talk.process.wait(10) == 0
        talk.process.stdout = None


@pytest.mark.slow
def test_idle_it_holds_no_lock_and_no_file(home: Path) -> None:
    folder = a_memory(home)
    with Process() as talk:
        talk.greet()
        for _ in range(2):
            assert not talk.tool("crystal_search", query="zebra")["isError"]
        other = apsw.Connection(str(folder / "crystal.db"))
        # Leaving the write-ahead log needs the file for itself alone.
        assert list(other.execute("PRAGMA journal_mode = DELETE")) == [("delete",)]
        list(other.execute("BEGIN EXCLUSIVE; ROLLBACK; PRAGMA journal_mode = WAL"))
        other.close()
        descriptors = Path(f"/proc/{talk.process.pid}/fd")
        if descriptors.exists():
            held = [str(one.readlink()) for one in descriptors.iterdir() if one.is_symlink()]
            assert not [path for path in held if path.startswith(str(home))]
        assert not talk.tool("crystal_search", query="zebra")["isError"]


def test_without_a_memory_it_says_what_to_do_and_makes_nothing(home: Path) -> None:
    (home / "sub").mkdir()
    with served(crystal_spec()) as talk:
        talk.greet()
        for name, arguments in {
            "crystal_search": {"query": "x"}, "crystal_recent": {}, "crystal_get": {"id": "1"}, "crystal_status": {},
            "crystal_timeline": {}, "crystal_changed": {}, "crystal_remember": {"text": "x"}, "memory_search": {"query": "x"},
        }.items():  # fmt: skip
            result = talk.tool(name, **arguments)
            assert result["isError"]
            assert "hint: ask the user to run: crystal init" in result["content"][0]["text"]
        assert talk.ask("resources/list")["result"] == {"resources": []}
        assert talk.ask("resources/read", {"uri": "crystal://memory/mem-000000000000"})["error"]["code"] == -32603
    assert sorted(one.name for one in home.iterdir()) == ["sub"]


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"SQLite format 3\x00" + b"damaged" * 900, "error: "), (b"not a database at all" * 400, "error: ")],
)
def test_a_damaged_or_foreign_store_is_told_and_the_server_lives(home: Path, content: bytes, words: str) -> None:
    folder = home / DATA
    folder.mkdir(parents=True)
    (folder / "crystal.db").write_bytes(content)
    with served(crystal_spec()) as talk:
        result = talk.tool("crystal_search", query="x")
        assert result["isError"]
        assert result["content"][0]["text"].startswith(words)
        assert talk.ask("ping")["result"] == {}
    assert (folder / "crystal.db").read_bytes() == content


@pytest.mark.parametrize("name", [b"git_root", b"session_id"])
def test_a_damaged_definition_of_a_table_is_told(home: Path, name: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    """SQLite cannot tell such damage from a mistake in a query."""
    a_memory(home)
    path = home / DATA / "crystal.db"
    with Store.open(path) as store:
        store.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    path.write_bytes(path.read_bytes().replace(b" " + name + b" ", b" " + name[:-1] + b"\xff "))
    with served(crystal_spec()) as talk:
        text = talk.tool("crystal_recent")["content"][0]["text"]
        assert text.startswith("error: ")
        assert "hint: ask the user to run: crystal verify --repair" in text
        assert talk.ask("resources/list")["result"] == {"resources": []}
        assert "damaged" in talk.ask("resources/read", {"uri": "crystal://session/x"})["error"]["message"]
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.slow
def test_settings_that_cannot_be_read_are_told_by_the_tools(home: Path) -> None:
    a_memory(home)
    (home / ".config/crystal").mkdir(parents=True)
    with Process(CRYSTAL_MCP_MAX_CHARACTERS="many") as talk:
        talk.greet()
        assert len(talk.ask("tools/list")["result"]["tools"]) == len(TOOLS)
        result = talk.tool("crystal_status")
        assert result["isError"]
        assert "CRYSTAL_MCP_MAX_CHARACTERS" in result["content"][0]["text"]


def test_the_greeting_needs_nothing_heavy(home: Path) -> None:
    listing = "import sys\nimport crystal.cli.mcp, crystal.mcp.handlers, crystal.mcp.protocol\n"
    loaded = listing + "print(*sorted(sys.modules))"
    found = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True, timeout=60)
    heavy = set("apsw numpy mcp mcp_types httpx crystal.store crystal.search.engine crystal.app asyncio".split())
    assert not heavy & set(found.stdout.split())
    assert protocol.SECONDS_AFTER_THE_END <= 10


@pytest.mark.slow
def test_the_official_client_speaks_both_eras_with_it(home: Path) -> None:
    import anyio
    from mcp import Client, StdioServerParameters

    a_memory(home)
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "crystal", "mcp"], env=dict(os.environ), cwd=ROOT
    )

    async def talk(mode: str) -> str:
        async with Client(server, mode=mode) as client:  # type: ignore[arg-type]
            assert len((await client.list_tools()).tools) == len(TOOLS)
            assert len((await client.list_resources()).resources) == 1
            found = await client.call_tool("crystal_search", {"query": "zebra"})
            assert found.structured_content is None
            assert "crosses at noon" in found.content[0].text  # type: ignore[union-attr]
            refused = await client.call_tool("crystal_search", {})
            assert refused.is_error
            return str(client.protocol_version)

    assert anyio.run(talk, "legacy") == "2025-11-25"
    assert anyio.run(talk, "auto") == "2026-07-28"


def test_a_store_that_somebody_holds_is_told(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = a_memory(home)
    monkeypatch.setattr("crystal.store.driver.BUSY_TIMEOUT_MS", 50)
    other = apsw.Connection(str(folder / "crystal.db"))
    list(other.execute("PRAGMA journal_mode = DELETE; BEGIN EXCLUSIVE"))
    with served(crystal_spec()) as talk:
        told = talk.tool("crystal_search", query="zebra")
        assert told["isError"]
        assert "hint: another crystal process is writing" in told["content"][0]["text"]
        other.close()
        assert not talk.tool("crystal_search", query="zebra")["isError"]


@pytest.mark.skipif(sys.platform == "win32", reason="permissions")
def test_a_store_where_nothing_may_be_written_is_read(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = a_memory(home)
    for path in folder.glob("crystal.db-*"):
        path.unlink()
    before = sorted(path.name for path in folder.iterdir())
    (folder / "crystal.db").chmod(0o400)
    folder.chmod(0o500)
    if os.geteuid() == 0:  # the superuser may write everywhere

        def refused(_: object) -> None:
            raise apsw.CantOpenError

        monkeypatch.setattr("crystal.store.connection.connect", refused)
    try:
        with served(crystal_spec()) as talk:
            assert "crosses at noon" in talk.tool("crystal_search", query="zebra")["content"][0]["text"]
            assert not talk.tool("crystal_recent", all=True)["isError"]
            assert "[1 user]" in talk.tool("crystal_get", id="1")["content"][0]["text"]
        assert sorted(path.name for path in folder.iterdir()) == before
    finally:
        folder.chmod(0o700)
