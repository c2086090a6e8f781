"""Record the changes that init made in other programs' files, for an exact uninstall.

A record (a file in ``~/.ldm``) contains only what cannot be seen in the changed files later: whether the file, the
containers of our entries and the folders existed before. Uninstall removes our entries without it too.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from crystal.config.json_file import read_json
from crystal.config.paths import make_private_dir, system_errors, write_private
from crystal.errors import DamagedError

CLIENTS = "clients.json"
"""The record of the MCP clients, by name."""
LIVE = "live.json"
"""The record of live capture, by the path of the changed file."""


@dataclass(frozen=True, slots=True)
class Undo:
    """Changes made to one file.

    Attributes:
        path: The file.
        what: What was created: the whole file, the key of the servers with our entry, or only the entry; ``own`` is a
            file of ours.
        blank: The content of a file that was blank, or None.
        folders: The parent folders that were missing, outermost first.
        kept: The lists and objects around our entries that existed before, as keys joined by a dot.
    """

    path: str
    what: Literal["file", "servers", "entry", "own"]
    blank: str | None = None
    folders: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()

    def content(self, mark: bytes) -> bytes | None:
        """Return a created file's content before the change, with the byte order mark; None if there was no file."""
        return None if self.blank is None else mark + self.blank.encode()


def read_record(ldm_home: Path, name: str = CLIENTS) -> dict[str, Undo]:
    """Return the changes. A malformed record counts as empty.

    Raises:
        UnavailableError: The system refuses to read it.
    """
    try:
        return read_json(ldm_home / name, _made, "") or {}
    except DamagedError:
        return {}


def _made(found: Any) -> dict[str, Undo]:
    lists = ("folders", "kept")
    return {
        key: Undo(**{**made, **{each: tuple(made.get(each, ())) for each in lists}})
        for key, made in found["clients"].items()
    }


def write_record(ldm_home: Path, record: Mapping[str, Undo], name: str = CLIENTS) -> None:
    """Replace the record; an empty one deletes the file.

    Raises:
        UnavailableError: The system refuses.
    """
    path = ldm_home / name
    if not record:
        with system_errors(path):
            path.unlink(missing_ok=True)
        return
    make_private_dir(ldm_home)
    clients = {key: asdict(made) for key, made in sorted(record.items())}
    write_private(path, (json.dumps({"schema": 1, "clients": clients}, indent=2) + "\n").encode())


def is_for_others(ldm_home: Path) -> bool:
    """Return whether init set up clients or agents other than Claude Code."""
    return bool(read_record(ldm_home) or read_record(ldm_home, LIVE))


def made_of_nothing(path: Path, target: Path, text: str | None) -> Undo | None:
    """Return the record of a file that did not exist or was blank; None for any other file."""
    is_blank = text is None or not text.strip()
    return Undo(str(path), "file", text, missing_folders(target) if text is None else ()) if is_blank else None


def remove_empty(folders: tuple[str, ...]) -> None:
    """Remove the folders that are empty."""
    for folder in reversed(folders):
        with contextlib.suppress(OSError):
            Path(folder).rmdir()


def missing_folders(target: Path) -> tuple[str, ...]:
    """Return the folders above a file that do not exist, outermost first."""
    return tuple(str(folder) for folder in reversed(target.parents) if not folder.is_dir())
