"""Define the known clients: where each keeps its MCP servers, and how our entries are recognized."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from crystal.config.paths import Places, env_place, resolve_places
from crystal.hook import event as hook

SERVER = "crystal"
COMMAND = re.compile(r"(?:^|[/\\])crystal(?:\.exe)?$", re.IGNORECASE)

AGENT_OPTION = "--agent"
AGENTS = {"gemini": "gemini-cli"}
"""The agent in crystal/config/harnesses.py of each client whose name differs from it."""

Format = Literal["json", "jsonc", "toml"]


@dataclass(frozen=True, slots=True)
class ServerCommand:
    """The command that starts the server: absolute paths, and folders that the client's environment may lack."""

    command: str
    args: tuple[str, ...] = ("mcp",)
    env: Mapping[str, str] = field(default_factory=dict)

    def asked_by(self, agent: str) -> ServerCommand:
        """Return the command with an option that tells the server which agent uses it."""
        return replace(self, args=(*self.args, AGENT_OPTION, agent))

    def as_document(self, *, typed: bool = False) -> dict[str, Any]:
        """Return the value for the server's name."""
        document: dict[str, Any] = {"type": "stdio"} if typed else {}
        document |= {"command": self.command, "args": list(self.args)}
        return document | ({"env": dict(self.env)} if self.env else {})


@dataclass(frozen=True, slots=True)
class Client:
    """A client and its file.

    Attributes:
        name: The value for ``--client``.
        title: The display name.
        file: The file that lists its servers.
        format: ``jsonc`` is JSON that may have comments.
        servers: The key of the servers in that file.
        typed: True if an entry has ``"type": "stdio"``.
        guidance: The file of standing instructions that it reads in a project, or None.
        folder: A folder that exists if the client is installed.
    """

    name: str
    title: str
    file: Path
    folder: Path
    format: Format = "json"
    servers: str = "mcpServers"
    typed: bool = False
    guidance: str | None = None

    def asking(self, entry: ServerCommand) -> ServerCommand:
        """Return the command with an option that tells the server that this client uses it."""
        return entry.asked_by(AGENTS.get(self.name, self.name))


def known_clients(env: Mapping[str, str], home: Path, places: Places) -> dict[str, Client]:
    """Return every client by name. Each client's own environment variable for its folder is respected."""
    moved = bool(env.get("CLAUDE_CONFIG_DIR", "").strip())
    claude = places.claude_dirs[0]
    desktop = _desktop_folder(env, home)
    codex = env_place(env, "CODEX_HOME", home) or home / ".codex"
    gemini = (env_place(env, "GEMINI_CLI_HOME", home) or home) / ".gemini"
    cursor = home / ".cursor"
    pi = env_place(env, "PI_CODING_AGENT_DIR", home) or home / ".pi" / "agent"
    found = (
        Client("claude-code", "Claude Code", (claude if moved else home) / ".claude.json", claude, typed=True),
        Client("claude-desktop", "Claude Desktop", desktop / "claude_desktop_config.json", desktop),
        Client("codex", "Codex", codex / "config.toml", codex, "toml", "mcp_servers", guidance="AGENTS.md"),
        Client("gemini", "Gemini CLI", gemini / "settings.json", gemini, "jsonc", guidance="GEMINI.md"),
        Client("cursor", "Cursor", cursor / "mcp.json", cursor, "jsonc", typed=True, guidance="AGENTS.md"),
        Client("pi", "Pi", pi / "mcp.json", pi, guidance="AGENTS.md"),
    )
    return {client.name: client for client in found}


def is_ours(value: Any) -> bool:
    """Return True if an entry starts crystal's server, of any version and path."""
    if not isinstance(value, dict) or not isinstance(value.get("command"), str):
        return False
    args = value.get("args", [])
    if not isinstance(args, list) or not all(isinstance(arg, str) for arg in args):
        return False
    if COMMAND.search(value["command"]):
        return args[:1] == ["mcp"]
    return any(args[at : at + 3] == ["-m", "crystal", "mcp"] for at in range(len(args)))


def updated(value: Mapping[str, Any], entry: ServerCommand) -> dict[str, Any]:
    """Return an entry of ours with new values; the user's additions stay, including environment variables."""
    old = value.get("env")
    kept = {name: each for name, each in old.items() if name not in hook.BAKED} if isinstance(old, dict) else {}
    env = {**kept, **entry.env}
    new = {**value, "command": entry.command, "args": _args(value.get("args"), entry)}
    if env or old is not None:
        new["env"] = env
    return new


def _args(old: Any, entry: ServerCommand) -> list[str]:
    """Return our arguments, followed by those that the user added."""
    words = old if isinstance(old, list) else []
    own = words[words.index("mcp") + 1 :] if "mcp" in words else []
    if AGENT_OPTION in own and AGENT_OPTION in entry.args:
        at = own.index(AGENT_OPTION)
        own = own[:at] + own[at + 2 :]
    return [*entry.args, *own]


def _desktop_folder(env: Mapping[str, str], home: Path) -> Path:
    """Return Claude Desktop's folder. On Windows, the packaged app has and reads its own copy of AppData."""
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "Claude"
    if sys.platform == "win32":
        local = env_place(env, "LOCALAPPDATA", home) or home / "AppData" / "Local"
        packaged = sorted(local.glob("Packages/Claude_*/LocalCache/Roaming/Claude"))
        return packaged[0] if packaged else (env_place(env, "APPDATA", home) or home / "AppData" / "Roaming") / "Claude"
    chosen = env.get("XDG_CONFIG_HOME", "").strip()
    return (Path(chosen) if Path(chosen).is_absolute() else home / ".config") / "Claude"


NAMES = tuple(known_clients({}, Path("/"), resolve_places({}, Path("/"))))
"""The values for ``--client``: the rows of ``known_clients``."""
