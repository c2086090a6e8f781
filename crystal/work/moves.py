"""Find the files that a command line renames, and the working trees that it makes. Pure."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator

_NEXT = re.compile(r"\s*(?:&&|\|\||;)\s*")
_WITH_VALUE = ("-b", "-B", "--reason")
"""Options of ``git worktree add`` that take a value."""
_UNCERTAIN = re.compile(r"[$*?`{\[<>|&]|(?:^|\s)[~#(]|\)(?:\s|$)|\s(?:-t|--target-directory)")
"""Pattern of what a shell expands or redirects, or an option of ``mv`` that changes the order of its paths."""


def moves_of(command: str, folder: str) -> Iterator[tuple[str, str]]:
    """Yield the old and the new path of each file that ``mv`` and ``git mv`` moved, if the command shows both.

    Args:
        command: The command, on one line.
        folder: The folder that it was run in.
    """
    for place, words in _commands(command, folder):
        paths = [word for word in words[1:] if not word.startswith("-")]
        if words[0] == "mv" and len(paths) > 1:
            yield from _moved(place, paths)


def trees_added(command: str, folder: str) -> Iterator[str]:
    """Yield the tops of the linked working trees that ``git worktree add`` made; with the arguments of ``moves_of``."""
    for place, words in _commands(command, folder):
        given = iter(words[2:] if words[:2] == ["worktree", "add"] else ())
        paths = [word for word in given if not (word.startswith("-") and word in _WITH_VALUE and next(given, ""))]
        paths = [word for word in paths if not word.startswith("-")]
        if paths:
            yield posixpath.normpath(posixpath.join(place, paths[0]))


def _commands(command: str, folder: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the words of each command that a shell reads as they are, without ``git``, and the folder it is run in."""
    for part in _NEXT.split(command):
        try:
            words = shlex.split(part.removeprefix("git "))
        except ValueError:
            continue
        if words[:1] in (["cd"], ["(cd"], ["pushd"], ["popd"]):
            if len(words) != 2 or words[0] != "cd" or words[1] == "-" or _UNCERTAIN.search(part):
                return  # the next commands run in an unknown folder
            folder = posixpath.join(folder, words[1])
        elif words and not _UNCERTAIN.search(part):
            is_elsewhere = words[0] == "-C" and len(words) > 2
            yield (posixpath.join(folder, words[1]), words[2:]) if is_elsewhere else (folder, words)


def _moved(folder: str, paths: list[str]) -> Iterator[tuple[str, str]]:
    *old, new = (posixpath.normpath(posixpath.join(folder, path)) for path in paths)
    is_folder = len(old) > 1 or paths[-1].endswith(("/", ".")) or ("." in paths[0] and "." not in paths[-1])
    for path in old:
        yield path, posixpath.join(new, posixpath.basename(path)) if is_folder else new
