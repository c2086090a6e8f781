"""List the harnesses (agent programs) whose conversations are read, and where they keep them.

A new harness needs only a row here and a reader: docs/how-to/add-a-transcript-reader.md.
"""

import os
from collections.abc import Collection, Iterable
from functools import lru_cache
from pathlib import Path

from crystal.config.harness import EDITORS, Form, Harness, Place, local_data, user_data
from crystal.config.stores import MEMORY_STORES
from crystal.model.named_tuple import NamedTuple

CLAUDE_CODE = "claude-code"
AIDER = "aider"


def _extension_tasks(extension: str) -> tuple[Place, ...]:
    """Return the places where an extension of an editor keeps its tasks."""
    files = ("tasks/*/api_conversation_history.json",)
    return tuple(
        Place(user_data(editor), f"User/globalStorage/{extension}", files, form="document") for editor in EDITORS
    )


def _codex_places(home: str, variable: str | None = None) -> tuple[Place, ...]:
    """Return the places in a home of Codex; a program that embeds Codex has another home."""
    patterns = ("sessions/**/rollout-*.jsonl", "archived_sessions/**/rollout-*.jsonl")
    whole = (*(f"{pattern}.zst" for pattern in patterns), "session_index.jsonl")
    return (
        Place(home, ".", patterns, variable, session_file="sessions/**/rollout-*-{session}.jsonl"),
        Place(home, ".", whole, variable, form="document"),
    )


def _agent(
    name: str, title: str, *places: Place, cleanup: str = "", reader: str | None = None, version: int = 1
) -> Harness:
    return Harness(name, title, places, cleanup, reader=reader, reader_version=version)


def _export(name: str, title: str, *files: str, version: int) -> Harness:
    """Return a row for exports, which may be in any folder."""
    return Harness(name, title, (Place("", "", files, form="document"),), is_export=True, reader_version=version)


_OPENCLAW_FILES: tuple[tuple[Form, tuple[str, ...]], ...] = (
    ("database", ("*/agent/openclaw-agent.sqlite",)),
    ("document", ("*/sessions/*.jsonl", "*/sessions/*.jsonl.reset.*", "*/sessions/*.jsonl.deleted.*")),
)
_GOOSE_HOME = {"linux": ".local/share/goose", "win32": "AppData/Roaming/Block/goose/data"}
_GOOSE_FILES: tuple[tuple[str, Form], ...] = (("sessions.db", "database"), ("*.jsonl", "document"))
_ZED_HOME = {"linux": ".local/share/zed", "darwin": "Library/Application Support/Zed", "win32": "AppData/Local/Zed"}
_VSCODE_FILES = (
    "workspaceStorage/*/chatSessions/*-*-*-*-*.json*",
    "globalStorage/emptyWindowChatSessions/*-*-*-*-*.json*",
)
_CURSOR_FILES = ("globalStorage/state.vscdb", "workspaceStorage/*/state.vscdb")

_ROWS = (
    _agent(
        CLAUDE_CODE,
        "Claude Code",
        Place(
            ".claude",
            "projects",
            ("*/*.jsonl", "*/*/subagents/**/agent-*.jsonl"),
            "CLAUDE_CONFIG_DIR",
            session_file="*/{session}.jsonl",
            subagent_files="{stem}/subagents/**/agent-*.jsonl",
            ignored=frozenset(("history.jsonl", "tool-results", "memory")),
        ),
        cleanup="transcripts after 30 days",
        reader="claude_code.reader",
    ),
    _agent(
        "gemini-cli",
        "Gemini CLI",
        Place(
            ".gemini", "tmp", ("*/chats/session-*.json*", "*/chats/*/*.jsonl"), "GEMINI_CLI_HOME", ".gemini", "document"
        ),
        cleanup="chats after 30 days",
        version=2,
    ),
    _agent(
        "copilot-cli",
        "Copilot CLI",
        Place(".copilot", "session-state", ("*/events.jsonl",), "COPILOT_HOME", session_file="{session}/events.jsonl"),
        version=2,
    ),
    _agent(
        "pi",
        "Pi",
        Place(".pi/agent", "sessions", ("*/*_*.jsonl",), "PI_CODING_AGENT_DIR", session_file="*/*_{session}.jsonl"),
        version=2,
    ),
    _agent(
        "cline",
        "Cline",
        Place(".cline/data", "sessions", ("*/*.messages.json",), "CLINE_DATA_DIR", form="document"),
        *_extension_tasks("saoudrizwan.claude-dev"),
        version=2,
    ),
    _agent("roo-code", "Roo Code", *_extension_tasks("rooveterinaryinc.roo-cline"), version=2),
    _agent(
        "codex",
        "Codex CLI",
        *_codex_places(".codex", "CODEX_HOME"),
        *_codex_places("Library/Developer/Xcode/CodingAssistant/codex"),
    ),
    _agent(
        "qwen-code",
        "Qwen Code",
        *(
            Place(
                ".qwen",
                "projects",
                ("*/chats/**/*.jsonl", "*/subagents/*/agent-*.jsonl"),
                variable,
                session_file="*/chats/**/{session}.jsonl",
                subagent_files="../subagents/{stem}/agent-*.jsonl",
            )
            for variable in ("QWEN_HOME", "QWEN_RUNTIME_DIR")
        ),
        Place(".qwen", "tmp", ("*/chats/session-*.json",), "QWEN_HOME", form="document"),
    ),
    _agent(
        "droid",
        "Droid",
        Place(
            ".factory",
            "sessions",
            ("**/*.jsonl",),
            "FACTORY_HOME_OVERRIDE",
            ".factory",
            session_file="**/{session}.jsonl",
        ),
    ),
    _export("chatgpt", "ChatGPT", "conversations*.json", version=2),
    _export("claude-ai", "Claude.ai", "conversations*.json", version=2),
    _export("specstory", "SpecStory", "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]_*.md", version=4),
    _agent("opencode", "OpenCode", Place(".local/share", "opencode", ("opencode*.db",), form="database")),
    _agent(
        "openclaw",
        "OpenClaw",
        *(
            Place(home, "agents", files, variable, form=form)
            for home, variable in ((".openclaw", "OPENCLAW_STATE_DIR"), (".clawdbot", "CLAWDBOT_STATE_DIR"))
            for form, files in _OPENCLAW_FILES
        ),
        cleanup="sessions of subagents and automations after 30 days, and archived ones above its disk budget",
    ),
    _agent(
        "goose",
        "Goose",
        *(
            Place(home, "sessions", (file,), variable, "data", form)
            for home, variable in ((_GOOSE_HOME, "GOOSE_PATH_ROOT"), ("Library/Application Support/Block/goose", None))
            for file, form in _GOOSE_FILES
        ),
        version=2,
    ),
    _agent(
        "zed",
        "Zed",
        *(
            Place(home, "threads", ("threads.db",), form="database")
            for home in (_ZED_HOME, ".var/app/dev.zed.Zed/data/zed")
        ),
    ),
    _agent(
        "vscode-chat",
        "VS Code chat",
        *(
            Place(
                user_data(editor),
                "User",
                _VSCODE_FILES,
                "VSCODE_PORTABLE" if editor == EDITORS[0] else None,
                "user-data",
                "document",
            )
            for editor in EDITORS
        ),
    ),
    _agent(
        "cursor",
        "Cursor",
        Place(user_data("Cursor"), "User", _CURSOR_FILES, form="database"),
        Place(".cursor", "chats", ("*/*/store.db",), "CURSOR_DATA_DIR", form="database"),
        *(
            Place(
                home,
                "projects",
                ("*/agent-transcripts/**/*.jsonl",),
                variable,
                form="document",
                are_copies=True,
                rest_seconds=600,
            )
            for home, variable in ((".cursor", "CURSOR_DATA_DIR"), (".cursor-server", None))
        ),
        version=2,
    ),
    _agent(
        "kiro",
        "Kiro",
        Place(".kiro", "sessions", ("cli/*.jsonl", "*/sess_*/messages.jsonl"), "KIRO_HOME", form="document"),
        *(
            Place(local_data(name), ".", ("data.sqlite3",), form="database", are_copies=True)
            for name in ("kiro-cli", "amazon-q")
        ),
    ),
    _agent(
        AIDER,
        "Aider",
        Place(
            ".",
            ".",
            (".aider.chat.history.md",),
            "AIDER_CHAT_HISTORY_FILE",
            "..",
            "document",
            in_projects=True,
        ),
    ),
    *MEMORY_STORES.values(),
)

HARNESSES = {row.name: row for row in _ROWS}
"""Harnesses by name. If a file's name fits several, and it is in no known folder, its content decides."""
EXPORTS = frozenset(name for name, row in HARNESSES.items() if row.is_export)
"""Names of the harnesses whose files are exports, or stores of other programs."""


def reader_versions() -> dict[str, int]:
    """Return the version of each agent's reader."""
    return {name: row.reader_version for name, row in HARNESSES.items()}


def title_of(harness: str) -> str:
    """Return a harness's name for people; the given name if it is not in the table."""
    return HARNESSES[harness].title if harness in HARNESSES else harness


def agent_named(wanted: str, known: Collection[str]) -> str:
    """Return the agent that a person means by a short name, such as ``gemini``; any other name unchanged."""
    longer = [name for name in known if name.startswith(f"{wanted}-")]
    return longer[0] if wanted not in known and len(longer) == 1 else wanted


class Root(NamedTuple):
    """A folder of conversations on this machine: its harness, and the index of the harness's place."""

    folder: Path
    harness: str = CLAUDE_CODE
    number: int = 0

    @property
    def place(self) -> Place:
        """Return the place in the table."""
        return HARNESSES[self.harness].places[self.number]

    @property
    def is_here(self) -> bool:
        """Return whether the folder exists; False also if a parent folder denies access."""
        return os.path.isdir(self.folder)  # noqa: PTH112 - Path.is_dir raises there


def places_of_all() -> list[tuple[str, int, Place]]:
    """Return (harness, index, place) of every place."""
    return [(one.name, number, place) for one in HARNESSES.values() for number, place in enumerate(one.places)]


def searched_places() -> list[tuple[str, int, Place]]:
    """Return the places that crystal searches by itself: all but those of exports."""
    return [found for found in places_of_all() if found[0] not in EXPORTS]


@lru_cache(maxsize=8)
def usual_roots(home: Path) -> tuple[Root, ...]:
    """Return the folders of conversations if no environment variable moves them."""
    return distinct_roots(
        Root(place.default_home(home) / place.folder, name, number) for name, number, place in searched_places()
    )


def distinct_roots(roots: Iterable[Root]) -> tuple[Root, ...]:
    """Return the roots without duplicates: two places are the same folder if the variables that move them are unset."""
    found: dict[tuple[Path, str, tuple[str, ...]], Root] = {}
    for root in roots:
        found.setdefault((root.folder, root.harness, root.place.files), root)
    return tuple(found.values())
