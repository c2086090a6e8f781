"""Read and write the list of files that have a block of memories for agents."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from pathlib import Path

from crystal.config.json_file import read_json
from crystal.config.paths import MEMORY_FILES, write_private
from crystal.errors import CrystalError
from crystal.install.file_change import read_whole


def read_files(ldm_home: Path) -> list[Path]:
    """Return the files, in order.

    Raises:
        DamagedError: The list is damaged.
    """
    hint = "move it away, then name the files again: crystal files sync FILE"
    return read_json(ldm_home / MEMORY_FILES, lambda found: [Path(one) for one in found["files"]], hint) or []


def save_files(ldm_home: Path, files: Iterable[Path]) -> None:
    """Write the list."""
    found = {"schema": 1, "files": sorted(map(str, files))}
    write_private(ldm_home / MEMORY_FILES, json.dumps(found, ensure_ascii=False, indent=1).encode() + b"\n")


def files_with(ldm_home: Path, memories: Collection[str]) -> list[Path]:
    """Return the files with one of these memories in their block, and the files that cannot be read."""
    marks = [one.removeprefix("mem-").encode() for one in memories]
    return [path for path in read_files(ldm_home) if marks and _has(path, marks)]


def _has(path: Path, marks: list[bytes]) -> bool:
    try:
        data = read_whole(path)[1] or b""
    except CrystalError:
        return True
    return any(mark in data for mark in marks)
