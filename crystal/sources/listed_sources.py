"""Read and write the list of sources, a small file beside the archive with the folders to index.

The list survives the loss of the database. The next sync finishes an interrupted removal: it deletes the rows of
sources that are not in the list. A lost list is written again from the database.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crystal.config.json_file import read_json
from crystal.config.paths import SOURCES_FILE, make_private_dir, write_private
from crystal.model.named_tuple import NamedTuple


class ListedSource(NamedTuple):
    """A source as the user added it: name, folder, time (ms), and True for a vault of Obsidian."""

    name: str
    path: str
    added_at: int
    is_vault: bool = False


def read_list(ldm_home: Path) -> list[ListedSource] | None:
    """Return the listed sources, sorted by name; None if the list does not exist.

    Raises:
        DamagedError: The file is not a list of sources.
        CrystalError: It cannot be read.
    """
    hint = "move it away, then run: crystal sources sync"
    return read_json(ldm_home / SOURCES_FILE, _listed, hint)


def _listed(found: Any) -> list[ListedSource]:
    rows = found["sources"]
    return sorted(ListedSource(one["name"], one["path"], one["added_at"], one.get("is_vault", False)) for one in rows)


def write_list(ldm_home: Path, listed: Sequence[ListedSource]) -> None:
    """Replace the list."""
    make_private_dir(ldm_home)
    rows = [one._asdict() for one in sorted(listed)]
    write_private(ldm_home / SOURCES_FILE, json.dumps({"schema": 1, "sources": rows}, indent=1).encode() + b"\n")
