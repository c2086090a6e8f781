"""What crystal takes on the disk, part by part: every file below its folders counts once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from crystal.config.paths import Places

PARTS = ("database", "log", "index", "archive", "summaries", "spool", "models", "other")
"""``log`` is the database's write-ahead log; ``other`` holds copies made before an upgrade, the mirror, contexts."""


def sizes_of(places: Places) -> dict[str, int]:
    """Return the bytes of each part, and of all of them as ``whole``. Links are not followed."""
    found = dict.fromkeys(PARTS, 0)
    for path, size in _files({places.ldm_home, places.data_dir}):
        found[_part_of(path, places)] += size
    return {**found, "whole": sum(found.values())}


def _files(folders: set[Path]) -> Iterator[tuple[Path, int]]:
    outermost = {folder for folder in folders if not any(folder.is_relative_to(other) for other in folders - {folder})}
    for folder in outermost:
        for path in folder.rglob("*"):
            try:
                status = path.lstat()
            except OSError:
                continue
            if path.is_file() and not path.is_symlink():
                yield path, status.st_size


def _part_of(path: Path, places: Places) -> str:
    if path == places.db:
        return "database"
    if path.name in (f"{places.db.name}-wal", f"{places.db.name}-shm"):
        return "log"
    for part, folder in (("index", places.data_dir / "index"), ("spool", places.spool), ("models", places.models)):
        if path.is_relative_to(folder):
            return part
    if path.is_relative_to(places.ldm_home / "agents"):
        return "archive" if path.suffix == ".zst" else "summaries"
    return "other"
