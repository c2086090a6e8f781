"""Read from a command line which files it gave another name. Pure."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator

_NEXT = re.compile(r"\s*(?:&&|\|\||;)\s*")
_UNCERTAIN = re.compile(r"[$*?`{\[<>|&]|(?:^|\s)[~#(]|\)(?:\s|$)|\s(?:-t|--target-directory)")
"""Pattern of what a shell or ``mv`` reads in its own way."""


def moves_of(command: str, folder: str) -> Iterator[tuple[str, str]]:
    """Yield the old and the new path of each file that ``mv`` and ``git mv`` moved, if the command alone tells them.

    Args:
        command: The command, on one line.
        folder: Where it was run.
    """
    for part in _NEXT.split(command):
        try:
            words = shlex.split(part.removeprefix("git "))
        except ValueError:
            continue
        if words[:1] in (["cd"], ["(cd"], ["pushd"], ["popd"]):
            if len(words) != 2 or words[0] != "cd" or words[1] == "-" or _UNCERTAIN.search(part):
                return  # nobody knows where it goes on
            folder = posixpath.join(folder, words[1])
        paths = [word for word in words[1:] if not word.startswith("-")]
        if words[:1] == ["mv"] and len(paths) > 1 and not _UNCERTAIN.search(part):
            yield from _moved(folder, paths)


def _moved(folder: str, paths: list[str]) -> Iterator[tuple[str, str]]:
    *old, new = (posixpath.normpath(posixpath.join(folder, path)) for path in paths)
    is_folder = len(old) > 1 or paths[-1].endswith(("/", ".")) or ("." in paths[0] and "." not in paths[-1])
    for path in old:
        yield path, posixpath.join(new, posixpath.basename(path)) if is_folder else new
