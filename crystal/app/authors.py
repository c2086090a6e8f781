"""Commits of a person in the repository of a folder, as git tells them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from crystal.app.git_files import run_git

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


def commits_by(folder: str, name: str) -> tuple[AuthoredCommit, ...]:
    """Return the latest commits whose author has this name or address, or a whole word of it; empty without git."""
    if len(name) < MIN_NAME or not Path(folder).is_dir():
        return ()
    form = "--format=%H%x00%ct%x00%an <%ae>%x00%s"
    words = ["log", "-z", f"-{MAX_COMMITS}", "--fixed-strings", "--regexp-ignore-case", f"--author={name}", form]
    said, _ = run_git(folder, words, GIT_SECONDS)
    fields = said.decode("utf-8", "replace").removesuffix("\0").split("\0")
    rows = zip(*[iter(fields)] * 4, strict=False)
    is_named = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)", re.IGNORECASE)
    return tuple(
        AuthoredCommit(commit, int(at) * 1000, author, subject)
        for commit, at, author, subject in rows
        if is_named.search(author)
    )
