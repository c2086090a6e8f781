"""The other names that a file had and has: by the commits that renamed it, and by the commands that moved it."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from crystal.app.file_paths import FilePaths
from crystal.app.git_files import renames_of
from crystal.model.named_tuple import NamedTuple
from crystal.store import Store
from crystal.store.search.scope import project_ids
from crystal.store.work.queries import moving_commands
from crystal.text.folders import is_folder
from crystal.work.blame import WINDOW_MS
from crystal.work.calls import file_name
from crystal.work.moves import moves_of

GIT_SECONDS = 0.5
MAX_NAMES = 6


class FileName(NamedTuple):
    """A name of a file: its path below its project's folder, and the time (ms) during which it was this file's.

    ``side`` says if the file had this name before the one that was asked for, or has it since.
    """

    path: str
    side: Literal["asked", "before", "since"] = "asked"
    since: int = 0
    until: int = 1 << 62

    def spoken(self, asked: str) -> str:
        """Return how texts name the file: by the whole path, if its last part is that of the requested name."""
        own = file_name(self.path)
        return asked if self.side == "asked" else self.path if own == file_name(asked) else own

    def covers(self, at: int | None) -> bool:
        """Return whether the name was this file's at a moment; without a moment, only the requested name was."""
        return self.side == "asked" if at is None else self.since <= at <= self.until

    def is_of(self, path: str) -> bool:
        """Return whether a path is this file's, or ends with this name."""
        return f"/{path}".replace("\\", "/").endswith(f"/{self.path}")


def names_of(stores: Sequence[Store], name: str, *, project: str | None, folder: str | None) -> list[FileName]:
    """Return a name of a file, then the others that the file had before and has since.

    Args:
        stores: The memories whose commands are looked at.
        name: A path, or the end of one.
        project: The project of the commands: its name, or a folder; None for all.
        folder: A folder in the repository whose commits are looked at; None for none.
    """
    asked = name.replace("\\", "/").removeprefix("./")
    names = [FileName(asked)]
    for one in names:  # it grows
        known = {known.path for known in names}
        for at, old, new in _renames(stores, {one.path}, project, folder):
            other = None
            if one.side != "since" and one.is_of(new) and at <= one.until:
                other = FileName(old, "before", until=at)
            elif one.side != "before" and one.is_of(old) and at >= one.since:
                other = FileName(new, "since", since=at - WINDOW_MS)
            if other and other.path not in known and not other.path.endswith(f"/{asked}") and len(names) < MAX_NAMES:
                known.add(other.path)
                names.append(other)
    return names


def _renames(
    stores: Sequence[Store], names: Collection[str], project: str | None, folder: str | None
) -> Iterator[tuple[int, str, str]]:
    """Yield when files were renamed, and their old and new paths: those of some names, maybe others."""
    if not names:
        return
    yield from renames_of(folder, names, GIT_SECONDS) if folder else ()
    part = file_name(next(iter(names))) if len(names) == 1 else ""
    paths = FilePaths(*stores)
    for store in stores:
        projects = None if project is None else project_ids(store, project)
        for at, command, cwd, top in moving_commands(store, part, projects):
            for old, new in moves_of(command, cwd or ""):
                yield at, paths.inside(old, cwd, top), paths.inside(new, cwd, top)


def current_names(stores: Sequence[Store], folder: str, edited: Mapping[str, int]) -> dict[str, str]:
    """Return the paths that files have now which are not at theirs any more, all below a project's folder.

    ``edited`` says when each file was edited, ms: one that was renamed long before was another file.
    """
    last = {path: path for path in edited if not os.path.lexists(f"{folder}/{path}")}
    for _ in range(MAX_NAMES if is_folder(folder) else 0):
        later = {old: (new, at) for at, old, new in sorted(_renames(stores, {*last.values()}, folder, folder))}
        moved = {
            path: later[name][0]
            for path, name in last.items()
            if name in later and later[name][1] >= edited[path] - WINDOW_MS
        }
        if not moved:
            break
        last |= moved
    return {path: name for path, name in last.items() if name != path and (Path(folder) / name).is_file()}
