"""Agent programs (harnesses) whose conversations are read: where they keep them. ``reader`` names who understands them.

A row here and a reader are all that a harness needs: docs/how-to/add-a-transcript-reader.md.
"""

import fnmatch
import sys
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Literal, NamedTuple

CLAUDE_CODE = "claude-code"
AIDER = "aider"

Form = Literal["lines", "document", "database"]
"""How a file is written: ``lines`` are added at its end; the others are rewritten and read as a whole."""


class Place(NamedTuple):
    """A folder where a harness keeps conversations.

    Attributes:
        home: The harness's home below the user's: one for every system, or by ``sys.platform``.
        folder: The folder of the files in that home, ``.`` for the home itself.
        files: Patterns of the files in that folder. ``**`` is any number of folders.
        variable: The environment variable that moves the home.
        below: What is appended to the value of ``variable`` to get the home.
        form: How the files are written.
        session_file: Pattern of a session's own file; ``{session}`` is its id. None if the name does not contain it.
        subagent_files: Pattern of its subagents' files, beside it; ``{stem}`` is its name without the ending.
        ignored: Names of files and folders that contain no conversations.
        are_copies: Whether the files repeat, with less in them, what the harness's other places have: a conversation
            is read here only where no other place has it.
        rest_seconds: How long a file of copies must be unchanged before it is read, if the harness writes them first.
        in_projects: Whether the files lie in the folders of projects, beside files that are no conversations.
    """

    home: str | Mapping[str, str]
    folder: str
    files: tuple[str, ...]
    variable: str | None = None
    below: str = ""
    form: Form = "lines"
    session_file: str | None = None
    subagent_files: str | None = None
    ignored: frozenset[str] = frozenset()
    are_copies: bool = False
    rest_seconds: int = 0
    in_projects: bool = False

    def default_home(self, home: Path) -> Path:
        """Return the home of the harness if its variable is not set."""
        if isinstance(self.home, str):
            return home / self.home
        return home / self.home.get(sys.platform, self.home["linux"])

    def holds(self, path: PurePath, folder: PurePath) -> bool:
        """Return whether a path in the place's folder may be one of its files: in a project only by its name."""
        return not self.in_projects or (path.parent == folder and self.owns(path))

    def owns(self, path: PurePath) -> bool:
        """Return whether a file's name is that of a conversation."""
        names = (pattern.rpartition("/")[2] for pattern in self.files)
        return path.name not in self.ignored and any(fnmatch.fnmatchcase(path.name, name) for name in names)


class Harness(NamedTuple):
    """An agent program.

    Attributes:
        name: Stored with every session.
        title: Its name for people.
        reader: The module in ``crystal.transcript`` whose ``READER`` understands its files.
        places: Where its files are.
        cleanup: What it deletes by itself, and when, by default; empty if nothing is known.
    """

    name: str
    title: str
    reader: str
    places: tuple[Place, ...]
    cleanup: str = ""


def user_data(name: str) -> dict[str, str]:
    """Return the folder in which desktop programs keep their users' data, by system."""
    return {
        "linux": f".config/{name}",
        "darwin": f"Library/Application Support/{name}",
        "win32": f"AppData/Roaming/{name}",
    }


def local_data(name: str) -> dict[str, str]:
    """Return the folder in which programs keep data of a user on one machine, by system."""
    return {
        "linux": f".local/share/{name}",
        "darwin": f"Library/Application Support/{name}",
        "win32": f"AppData/Local/{name}",
    }


EDITORS = ("Code", "Code - Insiders", "VSCodium", "Cursor", "Windsurf")
"""Editors whose user data has the layout of Visual Studio Code's."""


def _extension_tasks(extension: str) -> tuple[Place, ...]:
    """Return the places where an extension of an editor keeps its tasks."""
    files = ("tasks/*/api_conversation_history.json",)
    return tuple(
        Place(user_data(editor), f"User/globalStorage/{extension}", files, form="document") for editor in EDITORS
    )


HARNESSES = {
    CLAUDE_CODE: Harness(
        name=CLAUDE_CODE,
        title="Claude Code",
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
    "gemini-cli": Harness(
        name="gemini-cli",
        title="Gemini CLI",
        reader="gemini_cli",
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
    "copilot-cli": Harness(
        name="copilot-cli",
        title="Copilot CLI",
        reader="copilot_cli",
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
    "pi": Harness(
        name="pi",
        title="Pi",
        reader="pi",
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
    "cline": Harness(
        name="cline",
        title="Cline",
        reader="cline",
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
    "roo-code": Harness(
        name="roo-code",
        title="Roo Code",
        reader="roo_code",
        places=_extension_tasks("rooveterinaryinc.roo-cline"),
    ),
    "vscode-chat": Harness(
        name="vscode-chat",
        title="VS Code chat",
        reader="vscode_chat",
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
    "cursor": Harness(
        name="cursor",
        title="Cursor",
        reader="cursor",
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
    "kiro": Harness(
        name="kiro",
        title="Kiro",
        reader="kiro",
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
    AIDER: Harness(
        name=AIDER,
        title="Aider",
        reader="aider",
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
}
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


def usual_roots(home: Path) -> tuple[Root, ...]:
    """Return the folders of conversations of a user who has moved none."""
    return tuple(Root(place.default_home(home) / place.folder, name, number) for name, number, place in places_of_all())
