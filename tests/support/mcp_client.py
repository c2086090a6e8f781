"""A client of ours for the MCP server: raw lines over pipes, to a process or to a server in a thread."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from crystal.app.context import open_reader
from crystal.app.projects import granted_project
from crystal.errors import CrystalError
from crystal.mcp.arguments import checked
from crystal.mcp.catalog import ALIASES, CONNECTOR, TOOLS
from crystal.mcp.handlers import ClientContext, McpSettings, RequestHandlers
from crystal.mcp.page import ToolAnswer
from crystal.mcp.protocol import Server, ServerSpec
from crystal.mcp.stdio import Wire
from crystal.model.granted import GrantedProject

ROOT = Path(__file__).resolve().parents[2]
INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Talk:
    """One conversation with a server. ``others`` are the messages that answered nothing that was asked."""

    def __init__(self, to: BinaryIO, back: BinaryIO) -> None:
        self._to, self._back, self._number = to, back, 0
        self.others: list[dict[str, Any]] = []

    def send(self, line: bytes | Mapping[str, Any]) -> None:
        self._to.write(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n")
        self._to.flush()

    def read(self) -> dict[str, Any]:
        line = self._back.readline()
        assert line.endswith(b"\n"), "the server has gone"
        return dict(json.loads(line))

    def start(self, method: str, params: object = None, ident: object = None) -> object:
        self._number += 1
        wanted = self._number if ident is None else ident
        given = {} if params is None else {"params": params}
        self.send({"jsonrpc": "2.0", "id": wanted, "method": method, **given})
        return wanted

    def answer_to(self, ident: object) -> dict[str, Any]:
        while (message := self.read()).get("id") != ident or "method" in message:
            self.others.append(message)
        return message

    def ask(self, method: str, params: object = None, ident: object = None) -> dict[str, Any]:
        return self.answer_to(self.start(method, params, ident))

    def greet(self) -> dict[str, Any]:
        return dict(self.ask("initialize", INITIALIZE)["result"])

    def tool(self, name: str, /, **arguments: object) -> dict[str, Any]:
        return dict(self.ask("tools/call", {"name": name, "arguments": arguments})["result"])

    def close(self) -> None:
        self._to.close()


class Process(Talk):
    """``crystal mcp`` as a client starts it; ``code`` replaces the command by a few lines of Python."""

    def __init__(self, code: str | None = None, **env: str) -> None:
        command = ["-m", "crystal", "mcp"] if code is None else ["-c", code]
        self.process = subprocess.Popen(
            [sys.executable, *command],
            cwd=ROOT,
            env={**os.environ, **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        super().__init__(self.process.stdin, self.process.stdout)  # type: ignore[arg-type]

    def end(self) -> tuple[int, bytes, bytes]:
        """Close its input and wait; the exit code, what it wrote meanwhile, and standard error."""
        out, err = self.process.communicate(timeout=30)
        return self.process.returncode, out, err

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=30)


@contextmanager
def served(spec: ServerSpec) -> Iterator[Talk]:
    """A server in a thread of this process."""
    there, here = os.pipe(), os.pipe()
    with (
        os.fdopen(there[1], "wb") as to,
        os.fdopen(here[0], "rb") as back,
        os.fdopen(there[0], "rb", closefd=True),
        os.fdopen(here[1], "wb"),
    ):
        server = threading.Thread(target=Server(Wire(there[0], here[1]), spec).run)
        server.start()
        try:
            yield Talk(to, back)
        finally:
            to.close()
            server.join(20)
            assert not server.is_alive()


def crystal_spec() -> ServerSpec:
    return RequestHandlers(ClientContext(), lambda: McpSettings(aliases=True)).spec()


class Tools:
    """The tools without the wire."""

    def __init__(
        self,
        asker: ClientContext | None = None,
        *,
        aliases: bool = True,
        max_chars: int = 20_000,
        scopes: tuple[str, ...] | None = None,
    ) -> None:
        self.tools = RequestHandlers(asker or ClientContext(), lambda: McpSettings(aliases, max_chars), scopes)
        self.methods = self.tools.spec().methods
        self.listed = {tool["name"]: tool for tool in self.methods["tools/list"]({})["tools"]}

    def call(self, name: str, /, **arguments: object) -> dict[str, Any]:
        return self.methods["tools/call"]({"name": name, "arguments": arguments})

    def answer(self, name: str, /, **arguments: object) -> ToolAnswer:
        """Both forms, also of the aliases, which have no argument for the structured one."""
        tool = next(tool for tool in (*TOOLS, *ALIASES, *CONNECTOR) if tool.name == name)
        return self.tools._run(tool, checked(tool.input, arguments))

    def data(self, name: str, /, **arguments: object) -> dict[str, Any]:
        return dict(self.answer(name, **arguments).data)

    def text(self, name: str, /, **arguments: object) -> str:
        if name in ("search", "fetch"):  # of who asks over HTTP
            try:
                return json.dumps(self.data(name, **arguments))
            except CrystalError as error:
                return str(error)
        return str(self.call(name, **arguments)["content"][0]["text"])


def granted(*names: str) -> tuple[GrantedProject, ...]:
    """The projects with these names, as a token for them is made."""
    with open_reader() as machine:
        return tuple(granted_project(machine.stores, name) for name in names)
