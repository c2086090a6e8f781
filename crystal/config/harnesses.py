"""Agent programs (harnesses) whose transcripts are read: where their files are. ``reader`` names who understands them.

A row here and a reader are all that a harness needs: docs/how-to/add-a-transcript-reader.md.
"""

import fnmatch
from pathlib import Path, PurePath
from typing import NamedTuple

CLAUDE_CODE = "claude-code"


class Root(NamedTuple):
    """A folder of transcripts on this machine, and the harness that writes them."""

    folder: Path
    harness: str = CLAUDE_CODE


class Harness(NamedTuple):
    """Where a harness keeps its transcripts.

    Attributes:
        name: Stored with every session.
        variable: The environment variable that moves its home.
        home: Its home if the variable is not set, below the user's.
        folder: The folder of transcripts in its home.
        files: Patterns of the transcripts in that folder. Each begins with ``*/``.
        session_file: Pattern of a session's own transcript; ``{session}`` is its id.
        subagent_files: Pattern of its subagents' transcripts, beside it; ``{stem}`` is its name without the ending.
        ignored: Names of files and folders that contain no transcripts.
        reader: The module in ``crystal.transcript`` whose ``READER`` understands the files.
    """

    name: str
    variable: str
    home: str
    folder: str
    files: tuple[str, ...]
    session_file: str
    subagent_files: str | None
    ignored: frozenset[str]
    reader: str

    def owns(self, path: PurePath) -> bool:
        """Return whether a file's name is that of a transcript."""
        names = (pattern.rpartition("/")[2] for pattern in self.files)
        return path.name not in self.ignored and any(fnmatch.fnmatchcase(path.name, name) for name in names)


HARNESSES = {
    CLAUDE_CODE: Harness(
        name=CLAUDE_CODE,
        variable="CLAUDE_CONFIG_DIR",
        home=".claude",
        folder="projects",
        files=("*/*.jsonl", "*/*/subagents/**/agent-*.jsonl"),
        session_file="*/{session}.jsonl",
        subagent_files="{stem}/subagents/**/agent-*.jsonl",
        ignored=frozenset(("history.jsonl", "tool-results", "memory")),
        reader="claude_code.reader",
    ),
}
"""By name. Where a file's name fits several, the last one counts."""


def usual_roots(home: Path) -> tuple[Root, ...]:
    """Return the folders of transcripts of a user who has moved none."""
    return tuple(Root(home / one.home / one.folder, one.name) for one in HARNESSES.values())
