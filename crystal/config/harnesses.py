"""Agent programs (harnesses) whose conversations are read: where they keep them.

A row here and a reader are all that a harness needs: docs/how-to/add-a-transcript-reader.md.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from crystal.config.harness import EDITORS, Form, Harness, Place, local_data, user_data
from crystal.config.stores import MEMORY_STORES

CLAUDE_CODE = "claude-code"
AIDER = "aider"


def _exported(*files: str) -> tuple[Place, ...]:
    """Return the place of an export: any folder."""
    return (Place(home="", folder="", files=files, form="document"),)


def _extension_tasks(extension: str) -> tuple[Place, ...]:
    """Return the places where an extension of an editor keeps its tasks."""
    files = ("tasks/*/api_conversation_history.json",)
    return tuple(
        Place(user_data(editor), f"User/globalStorage/{extension}", files, form="document") for editor in EDITORS
    )


def _codex_places(home: str, variable: str | None = None) -> tuple[Place, ...]:
    """Return the places in a home of Codex; a program that embeds it has a home of its own."""
    patterns = ("sessions/**/rollout-*.jsonl", "archived_sessions/**/rollout-*.jsonl")
    compressed = tuple(f"{pattern}.zst" for pattern in patterns)
    return (
        Place(home, ".", patterns, variable, session_file="sessions/**/rollout-*-{session}.jsonl"),
        Place(home, ".", compressed, variable, form="document"),
    )


_OPENCLAW_FILES: tuple[tuple[Form, tuple[str, ...]], ...] = (
    ("database", ("*/agent/openclaw-agent.sqlite",)),
    ("document", ("*/sessions/*.jsonl", "*/sessions/*.jsonl.reset.*", "*/sessions/*.jsonl.deleted.*")),
)
_GOOSE_HOME = {"linux": ".local/share/goose", "win32": "AppData/Roaming/Block/goose/data"}
_GOOSE_FILES: tuple[tuple[str, Form], ...] = (("sessions.db", "database"), ("*.jsonl", "document"))
_ZED_HOME = {
    "linux": ".local/share/zed",
    "darwin": "Library/Application Support/Zed",
    "win32": "AppData/Local/Zed",
}

_ROWS = (
    Harness(
        CLAUDE_CODE,
        "Claude Code",
        reader="claude_code.reader",
        places=(
            Place(
                home=".claude",
                folder="projects",
                files=("*/*.jsonl", "*/*/subagents/**/agent-*.jsonl"),
                variable="CLAUDE_CONFIG_DIR",
                session_file="*/{session}.jsonl",
                subagent_files="{stem}/subagents/**/agent-*.jsonl",
                ignored=frozenset(("history.jsonl", "tool-results", "memory")),
            ),
        ),
        cleanup="transcripts after 30 days",
    ),
    Harness(
        "gemini-cli",
        "Gemini CLI",
        places=(
            Place(
                home=".gemini",
                folder="tmp",
                files=("*/chats/session-*.json*", "*/chats/*/*.jsonl"),
                variable="GEMINI_CLI_HOME",
                below=".gemini",
                form="document",
            ),
        ),
        cleanup="chats after 30 days",
    ),
    Harness(
        "copilot-cli",
        "Copilot CLI",
        places=(
            Place(
                home=".copilot",
                folder="session-state",
                files=("*/events.jsonl",),
                variable="COPILOT_HOME",
                session_file="{session}/events.jsonl",
            ),
        ),
    ),
    Harness(
        "pi",
        "Pi",
        places=(
            Place(
                home=".pi/agent",
                folder="sessions",
                files=("*/*_*.jsonl",),
                variable="PI_CODING_AGENT_DIR",
                session_file="*/*_{session}.jsonl",
            ),
        ),
    ),
    Harness(
        "cline",
        "Cline",
        places=(
            Place(
                home=".cline/data",
                folder="sessions",
                files=("*/*.messages.json",),
                variable="CLINE_DATA_DIR",
                form="document",
            ),
            *_extension_tasks("saoudrizwan.claude-dev"),
        ),
    ),
    Harness(
        "roo-code",
        "Roo Code",
        places=_extension_tasks("rooveterinaryinc.roo-cline"),
    ),
    Harness(
        "codex",
        "Codex CLI",
        places=(
            *_codex_places(".codex", "CODEX_HOME"),
            *_codex_places("Library/Developer/Xcode/CodingAssistant/codex"),
        ),
    ),
    Harness(
        "qwen-code",
        "Qwen Code",
        places=(
            *(
                Place(
                    home=".qwen",
                    folder="projects",
                    files=("*/chats/**/*.jsonl", "*/subagents/*/agent-*.jsonl"),
                    variable=variable,
                    session_file="*/chats/**/{session}.jsonl",
                    subagent_files="../subagents/{stem}/agent-*.jsonl",
                )
                for variable in ("QWEN_HOME", "QWEN_RUNTIME_DIR")
            ),
            Place(home=".qwen", folder="tmp", files=("*/chats/session-*.json",), variable="QWEN_HOME", form="document"),
        ),
    ),
    Harness(
        "droid",
        "Droid",
        places=(
            Place(
                home=".factory",
                folder="sessions",
                files=("**/*.jsonl",),
                variable="FACTORY_HOME_OVERRIDE",
                below=".factory",
                session_file="**/{session}.jsonl",
            ),
        ),
    ),
    Harness(
        "chatgpt",
        "ChatGPT",
        places=_exported("conversations*.json"),
        is_export=True,
    ),
    Harness(
        "claude-ai",
        "Claude.ai",
        places=_exported("conversations*.json"),
        is_export=True,
    ),
    Harness(
        "specstory",
        "SpecStory",
        places=_exported("[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]_*.md"),
        is_export=True,
    ),
    Harness(
        "opencode",
        "OpenCode",
        places=(Place(home=".local/share", folder="opencode", files=("opencode*.db",), form="database"),),
    ),
    Harness(
        "openclaw",
        "OpenClaw",
        places=tuple(
            Place(home=home, folder="agents", files=files, variable=variable, form=form)
            for home, variable in ((".openclaw", "OPENCLAW_STATE_DIR"), (".clawdbot", "CLAWDBOT_STATE_DIR"))
            for form, files in _OPENCLAW_FILES
        ),
        cleanup="sessions after 30 days, and the oldest of more than 5,000",
    ),
    Harness(
        "goose",
        "Goose",
        places=tuple(
            Place(home=home, folder="sessions", files=(file,), variable=variable, below="data", form=form)
            for home, variable in ((_GOOSE_HOME, "GOOSE_PATH_ROOT"), ("Library/Application Support/Block/goose", None))
            for file, form in _GOOSE_FILES
        ),
    ),
    Harness(
        "zed",
        "Zed",
        places=tuple(
            Place(home=home, folder="threads", files=("threads.db",), form="database")
            for home in (_ZED_HOME, ".var/app/dev.zed.Zed/data/zed")
        ),
    ),
    Harness(
        "vscode-chat",
        "VS Code chat",
        places=tuple(
            Place(
                home=user_data(editor),
                folder="User",
                files=(
                    "workspaceStorage/*/chatSessions/*-*-*-*-*.json*",
                    "globalStorage/emptyWindowChatSessions/*-*-*-*-*.json*",
                ),
                variable="VSCODE_PORTABLE" if editor == EDITORS[0] else None,
                below="user-data",
                form="document",
            )
            for editor in EDITORS
        ),
    ),
    Harness(
        "cursor",
        "Cursor",
        places=(
            Place(
                home=user_data("Cursor"),
                folder="User",
                files=("globalStorage/state.vscdb", "workspaceStorage/*/state.vscdb"),
                form="database",
            ),
            Place(home=".cursor", folder="chats", files=("*/*/store.db",), variable="CURSOR_DATA_DIR", form="database"),
            *(
                Place(
                    home=home,
                    folder="projects",
                    files=("*/agent-transcripts/**/*.jsonl",),
                    variable=variable,
                    form="document",
                    are_copies=True,
                    rest_seconds=600,
                )
                for home, variable in ((".cursor", "CURSOR_DATA_DIR"), (".cursor-server", None))
            ),
        ),
    ),
    Harness(
        "kiro",
        "Kiro",
        places=(
            Place(
                home=".kiro",
                folder="sessions",
                files=("cli/*.jsonl", "*/sess_*/messages.jsonl"),
                variable="KIRO_HOME",
                form="document",
            ),
            *(
                Place(local_data(name), ".", ("data.sqlite3",), form="database", are_copies=True)
                for name in ("kiro-cli", "amazon-q")
            ),
        ),
    ),
    Harness(
        AIDER,
        "Aider",
        places=(
            Place(
                home=".",
                folder=".",
                files=(".aider.chat.history.md",),
                variable="AIDER_CHAT_HISTORY_FILE",
                below="..",
                form="document",
                in_projects=True,
            ),
        ),
    ),
    *MEMORY_STORES.values(),
)

HARNESSES = {row.name: row for row in _ROWS}
"""By name. Where the name of a file outside of all folders fits several, its content tells."""


class Root(NamedTuple):
    """A folder of conversations on this machine: the harness that writes them, and which of its places this is."""

    folder: Path
    harness: str = CLAUDE_CODE
    number: int = 0

    @property
    def place(self) -> Place:
        """Return the place in the table."""
        return HARNESSES[self.harness].places[self.number]


def places_of_all() -> list[tuple[str, int, Place]]:
    """Return every place with its harness and its number there."""
    return [(one.name, number, place) for one in HARNESSES.values() for number, place in enumerate(one.places)]


def searched_places() -> list[tuple[str, int, Place]]:
    """Return the places in which crystal looks for conversations by itself."""
    return [found for found in places_of_all() if not HARNESSES[found[0]].is_export]


def usual_roots(home: Path) -> tuple[Root, ...]:
    """Return the folders of conversations of a user who has moved none."""
    return distinct_roots(
        Root(place.default_home(home) / place.folder, name, number) for name, number, place in searched_places()
    )


def distinct_roots(roots: Iterable[Root]) -> tuple[Root, ...]:
    """Return the roots, each once: while none of two variables that move a home is set, both name the same folder."""
    found: dict[tuple[Path, str, tuple[str, ...]], Root] = {}
    for root in roots:
        found.setdefault((root.folder, root.harness, root.place.files), root)
    return tuple(found.values())
