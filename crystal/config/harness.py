"""Define the description of a harness (agent program): its name, its reader, and the places of its conversations."""

import fnmatch
import sys
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Literal

from crystal.model.named_tuple import NamedTuple

Form = Literal["lines", "document", "database"]
"""Form of a file: ``lines`` are appended; the others are rewritten and read as a whole."""


class Place(NamedTuple):
    """A folder where a harness keeps conversations.

    Attributes:
        home: The harness's home relative to the user's: one for every system, or by ``sys.platform``.
        folder: The folder of the files in that home, ``.`` for the home itself.
        files: Patterns of the files in that folder. ``**`` is any number of folders.
        variable: The environment variable that moves the home.
        below: What is appended to the value of ``variable`` to get the home.
        form: How the files are written.
        session_file: Pattern of a session's own file; ``{session}`` is its id. None if the name does not contain it.
        subagent_files: Pattern of its subagents' files, beside it; ``{stem}`` is its name without the suffix, and a
            leading ``..`` the folder above.
        ignored: Names of files and folders that contain no conversations.
        are_copies: Whether the files repeat, incompletely, conversations of the harness's other places: a conversation
            is read here only if no other place has it.
        rest_seconds: How long a file of copies must be unchanged before it is read, if the harness writes them first.
        in_projects: Whether the files are in the folders of projects, beside files that are no conversations.
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
        """Return whether a path in the place's folder may be one of its files; in a project, only its name counts."""
        return not self.in_projects or (path.parent == folder and self.owns(path))

    def owns(self, path: PurePath) -> bool:
        """Return whether a file has the name of a conversation."""
        names = (pattern.rpartition("/")[2] for pattern in self.files)
        return path.name not in self.ignored and any(fnmatch.fnmatchcase(path.name, name) for name in names)


class Harness(NamedTuple):
    """An agent program.

    Attributes:
        name: Stored with every session.
        title: Its name for people.
        places: Where its files are.
        cleanup: What it deletes by itself, and when, by default; empty if unknown.
        is_export: Whether its files are exports, which may be anywhere and are read only if a person names them.
        is_store: Whether it is another memory program, whose store ``crystal migrate`` imports.
        reader: The module in ``crystal.transcript`` whose ``READER`` parses its files; by default its name.
        reader_version: Increased when the reader finds something else in the same files, which are then read again.
    """

    name: str
    title: str
    places: tuple[Place, ...]
    cleanup: str = ""
    is_export: bool = False
    is_store: bool = False
    reader: str | None = None
    reader_version: int = 1

    @property
    def module(self) -> str:
        """Return the module of its reader."""
        return self.reader or self.name.replace("-", "_")


def user_data(name: str) -> dict[str, str]:
    """Return the folder in which desktop programs keep their users' data, by system."""
    return _by_system(name, ".config", "Roaming")


def local_data(name: str) -> dict[str, str]:
    """Return the folder in which programs keep data of a user on one machine, by system."""
    return _by_system(name, ".local/share", "Local")


def _by_system(name: str, linux: str, windows: str) -> dict[str, str]:
    folders = {"linux": linux, "darwin": "Library/Application Support", "win32": f"AppData/{windows}"}
    return {system: f"{folder}/{name}" for system, folder in folders.items()}


EDITORS = ("Code", "Code - Insiders", "VSCodium", "Cursor", "Windsurf")
"""Editors whose user data has the layout of Visual Studio Code's."""
