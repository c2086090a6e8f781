"""The clients that crystal knows: where each keeps its MCP servers, and how an entry of ours is told from others."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from crystal.config.paths import Places, absolute
from crystal.hook import main as hook

SERVER = "crystal"
BAKED = hook.BAKED
COMMAND = re.compile(r"(?:^|[/\\])crystal(?:\.exe)?$", re.IGNORECASE)

Format = Literal["json", "jsonc", "toml"]


@dataclass(frozen=True, slots=True)
class Entry:
    """How a client starts the server: absolute paths, and the folders that its environment may lack."""

    command: str
    args: tuple[str, ...] = ("mcp",)
    env: Mapping[str, str] = field(default_factory=dict)

    def as_document(self, *, typed: bool = False) -> dict[str, Any]:
        """The value that stands under the server's name."""
        document: dict[str, Any] = {"type": "stdio"} if typed else {}
        document |= {"command": self.command, "args": list(self.args)}
        return document | ({"env": dict(self.env)} if self.env else {})


@dataclass(frozen=True, slots=True)
class Client:
    """A client and its file.

    Attributes:
        name: What ``--client`` takes.
        title: What people call it.
        file: The file that names its servers.
        format: ``jsonc`` is JSON that may have comments.
        servers: The key in that file under which the servers stand.
        typed: Whether an entry says ``"type": "stdio"``.
        guidance: The file of standing instructions that it reads in a project; None if it has another way.
        folder: The folder that is there when the client is.
    """

    name: str
    title: str
    file: Path
    folder: Path
    format: Format = "json"
    servers: str = "mcpServers"
    typed: bool = False
    guidance: str | None = None


NAMES = ("claude-code", "claude-desktop", "codex", "gemini", "cursor")


def known_clients(env: Mapping[str, str], home: Path, places: Places) -> dict[str, Client]:
    """Every client by its name. Each one's own variable for its folder is honoured."""
    moved = bool(env.get("CLAUDE_CONFIG_DIR", "").strip())
    claude = places.claude_dirs[0]
    desktop = _desktop_folder(env, home)
    codex = _folder(env, "CODEX_HOME", home) or home / ".codex"
    gemini = (_folder(env, "GEMINI_CLI_HOME", home) or home) / ".gemini"
    cursor = home / ".cursor"
    found = (
        Client("claude-code", "Claude Code", (claude if moved else home) / ".claude.json", claude, typed=True),
        Client("claude-desktop", "Claude Desktop", desktop / "claude_desktop_config.json", desktop),
        Client("codex", "Codex", codex / "config.toml", codex, "toml", "mcp_servers", guidance="AGENTS.md"),
        Client("gemini", "Gemini CLI", gemini / "settings.json", gemini, "jsonc", guidance="GEMINI.md"),
        Client("cursor", "Cursor", cursor / "mcp.json", cursor, "jsonc", typed=True, guidance="AGENTS.md"),
    )
    return {client.name: client for client in found}


def is_ours(value: Any) -> bool:
    """Whether an entry starts crystal's server, of whatever version and place."""
    if not isinstance(value, dict) or not isinstance(value.get("command"), str):
        return False
    args = value.get("args", [])
    if not isinstance(args, list) or not all(isinstance(arg, str) for arg in args):
        return False
    if COMMAND.search(value["command"]):
        return args[:1] == ["mcp"]
    return any(args[at : at + 3] == ["-m", "crystal", "mcp"] for at in range(len(args)))


def updated(value: Mapping[str, Any], entry: Entry) -> dict[str, Any]:
    """An entry of ours brought up to date; what the user added to it stays, variables of their own too."""
    old = value.get("env")
    kept = {name: each for name, each in old.items() if name not in BAKED} if isinstance(old, dict) else {}
    env = {**kept, **entry.env}
    new = {**value, "command": entry.command, "args": _args(value.get("args"), entry)}
    if env or old is not None:
        new["env"] = env
    return new


def _args(old: Any, entry: Entry) -> list[str]:
    """Our words, and what the user wrote behind them."""
    words = old if isinstance(old, list) else []
    return [*entry.args, *(words[words.index("mcp") + 1 :] if "mcp" in words else [])]


def _folder(env: Mapping[str, str], name: str, home: Path) -> Path | None:
    value = env.get(name, "")
    return absolute(value, home, name=name) if value.strip() else None


def _desktop_folder(env: Mapping[str, str], home: Path) -> Path:
    """Claude Desktop's folder. On Windows the packaged app has its own copy of AppData, and reads that."""
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "Claude"
    if sys.platform == "win32":
        local = _folder(env, "LOCALAPPDATA", home) or home / "AppData" / "Local"
        packaged = sorted(local.glob("Packages/Claude_*/LocalCache/Roaming/Claude"))
        return packaged[0] if packaged else (_folder(env, "APPDATA", home) or home / "AppData" / "Roaming") / "Claude"
    chosen = env.get("XDG_CONFIG_HOME", "").strip()
    return (Path(chosen) if Path(chosen).is_absolute() else home / ".config") / "Claude"
