"""Commits of a person, of a pull request, or with an id, in the repository of a folder, as git tells them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from crystal.app.git_files import run_git
from crystal.work.mentions import kind_of_name, words_of

GIT_SECONDS = 2
MAX_COMMITS = 20
MIN_NAME = 3


@dataclass(frozen=True, slots=True)
class AuthoredCommit:
    """A commit; ``at`` is when it was made, ms."""

    commit: str
    at: int
    author: str
    subject: str


def commits_of(folder: str, thing: str) -> tuple[AuthoredCommit, ...]:
    """Return the latest commits of a thing; empty without git.

    Their author has this name or address, or a whole word of it; their subject names the pull request or issue; or it
    is the commit with this id.
    """
    kind = kind_of_name(thing)
    if not Path(folder).is_dir() or kind == "error":
        return ()
    number = words_of(thing)[0] if kind == "pull request or issue" or (kind == "name" and thing.isdecimal()) else ""
    if number:
        found = _log(folder, f"-{MAX_COMMITS}", "--fixed-strings", f"--grep=#{number}")
        return tuple(one for one in found if re.search(rf"#{number}(?!\w)", one.subject))
    if kind == "commit":
        return tuple(_log(folder, "-1", "--end-of-options", thing, "--"))
    if len(thing) < MIN_NAME:
        return ()
    is_named = re.compile(rf"(?<!\w){re.escape(thing)}(?!\w)", re.IGNORECASE)
    found = _log(folder, f"-{MAX_COMMITS}", "--fixed-strings", "--regexp-ignore-case", f"--author={thing}")
    return tuple(one for one in found if is_named.search(one.author))


def _log(folder: str, *words: str) -> list[AuthoredCommit]:
    said, _ = run_git(folder, ["log", "-z", "--format=%H%x00%ct%x00%an <%ae>%x00%s", *words], GIT_SECONDS)
    fields = said.decode("utf-8", "replace").removesuffix("\0").split("\0")
    return [AuthoredCommit(name, int(at) * 1000, *rest) for name, at, *rest in zip(*[iter(fields)] * 4, strict=False)]
