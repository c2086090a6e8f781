"""Ask git about files: without hooks, filters, pagers, network, or programs that a repository's settings name."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from crystal.model.named_tuple import NamedTuple
from crystal.transcript.project import shared_git_folder, work_tree
from crystal.work.mentions import kind_of_name, words_of
from crystal.work.validity import FileVersion

MAX_BLOB = 1 << 20
LOG_SECONDS = 2
MAX_COMMITS = 20
MIN_NAME = 3
_GLOB = re.compile(r"[*?[\\]")
_SAFE = (
    "core.fsmonitor=false", "core.quotePath=false", "log.showSignature=false", "safe.bareRepository=explicit",
    "log.follow=false",  # git refuses it with several files
)  # fmt: skip


class LoggedChange(NamedTuple):
    """A change of a file in a commit; ``path`` is its name before and ``new_path`` after, None if it was deleted.

    ``takes_back``: the commit's subject says that it reverts another one.
    """

    commit: str
    at: int
    takes_back: bool
    path: str
    new_path: str | None
    before: str
    blob: str


def run_git(
    folder: str, words: Sequence[str], seconds: float, given: bytes = b"", emptied: Sequence[str] = (), *,
    is_alone: bool = False,
) -> tuple[bytes, bool]:  # fmt: skip
    """Run git for at most ``seconds``; return its output, and whether that is all of it.

    The settings that are ``emptied`` have no value for it; alone, it has none but those of the repository.
    """
    import subprocess  # noqa: PLC0415 - a search loads this file, and seldom asks git

    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env |= {"LC_ALL": "C", "GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none", "GIT_OPTIONAL_LOCKS": "0"}
    env["GIT_FLUSH"] = "0"  # else git writes each commit by itself
    env |= {f"GIT_CONFIG_KEY_{number}": name for number, name in enumerate(emptied)}
    env |= {f"GIT_CONFIG_VALUE_{number}": "" for number in range(len(emptied))}
    env["GIT_CONFIG_COUNT"] = str(len(emptied))
    env |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"} if is_alone else {}
    settings = [word for setting in _SAFE for word in ("-c", setting)]
    command = ["git", "--no-pager", "-C", folder, *settings, *words]
    pipe = subprocess.PIPE
    try:
        with subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as process:
            try:
                said, _ = process.communicate(given, seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                return process.communicate()[0], False
            except BaseException:
                process.kill()
                raise
    except (OSError, ValueError):
        return b"", False
    return said, process.returncode == 0


def filter_settings(folder: str, seconds: float) -> list[str]:
    """Return the names of the settings with which git would run programs on files that it reads."""
    said, _ = run_git(folder, ["config", "-z", "--name-only", "--get-regexp", r"^filter\."], seconds)
    return _pieces(said)


def shallow_commits(folder: str) -> frozenset[str]:
    """Return the commits whose parents a shallow clone lacks: their dates are not those of their content."""
    tree = work_tree(folder)
    common = tree and shared_git_folder(Path(tree[0]))
    try:
        return frozenset((common / "shallow").read_text("ascii").split() if common else ())
    except (OSError, ValueError):
        return frozenset()


def _pieces(said: bytes) -> list[str]:
    """Return the zero-terminated fields, without an incomplete one at the end of a cut answer."""
    return said.decode("utf-8", "surrogateescape").split("\0")[:-1]


def tracked_files(root: str, names: Collection[str], seconds: float) -> dict[str, str]:
    """Return the tracked files with these names, or below folders with these paths, with their blobs."""
    said, _ = run_git(root, ["ls-files", "-s", "-z", "--", *_patterns(names)], seconds)
    rows = (row.partition("\t") for row in _pieces(said))
    return {path: about.split(" ")[1] for about, _, path in rows}


def is_left_out(root: str, path: str, seconds: float) -> bool:
    """Return whether a tracked file is not in the working tree because a sparse checkout leaves it out."""
    said, _ = run_git(root, ["--literal-pathspecs", "ls-files", "-t", "-z", "--", path], seconds)
    return said.startswith(b"S ")


def _patterns(names: Collection[str]) -> list[str]:
    """Return git's patterns for files with these names, or below folders with these paths."""
    return [":(top,glob)**/" + _GLOB.sub(r"\\\g<0>", name.lstrip("/")) for name in names]


def renames_of(folder: str, names: Collection[str], seconds: float) -> list[tuple[int, str, str]]:
    """Return the renames of files in this branch, as (time in ms, old path, new path), the latest first.

    Only commits are read that changed files with some names, or below any folder with such a path.
    """
    words = ["log", "-z", "-M", "-l400", "--full-diff", "--diff-filter=R", "--name-status", "--no-ext-diff"]
    words += ["--no-textconv", "--no-show-signature", "--no-color", "--format=%x00%ct", "HEAD", "--"]
    said, _ = run_git(folder, [*words, *_patterns(names)], seconds)
    found, at, tokens = [], 0, iter(_pieces(said))
    for token in tokens:
        word = token.strip("\n")
        if word.isdecimal():
            at = int(word) * 1000
        elif word.startswith("R"):
            found.append((at, next(tokens, ""), next(tokens, "")))
    return found


def changes_since(
    root: str, paths: Collection[str], since: int, seconds: float, *, renames: bool
) -> tuple[list[LoggedChange], bool]:
    """Return the changes of files in the commits of this branch, newest first, and whether these are all.

    Args:
        root: The top of the working tree.
        paths: The files, by their paths below it.
        since: Only commits from then on, ms.
        seconds: How long git may take.
        renames: Whether to find new names, which takes longer.
    """
    how = ["-M", "-l400", "--full-diff"] if renames else ["--no-renames"]
    words = ["--literal-pathspecs", "log", "-z", "--raw", "--no-abbrev", *how, "--no-ext-diff", "--no-textconv"]
    words += [
        "--no-show-signature",
        "--no-color",
        "--format=%H%x00%ct%x00%s",
        f"--since=@{since // 1000}",
        "HEAD",
        "--",
    ]
    said, is_whole = run_git(root, [*words, *paths], seconds)
    tokens = iter(_pieces(said))
    found: list[LoggedChange] = []
    commit, at, takes_back = "", 0, False
    for token in tokens:
        word = token.strip("\n")
        if word.startswith(":"):
            _, _, before, blob, status = word.split(" ")
            path = next(tokens, "")
            new_path = next(tokens, "") if status[0] in "RC" else path
            if status[0] != "C":
                found.append(
                    LoggedChange(commit, at, takes_back, path, None if status == "D" else new_path, before, blob)
                )
        elif word:
            commit, at = word, int(next(tokens, "0") or 0) * 1000
            takes_back = next(tokens, "")[:6].lower() == "revert"
    if any(not one.before.strip("0") for one in found) and (shallow := shallow_commits(root)):
        known = [one for one in found if one.commit not in shallow]
        return known, is_whole and known == found
    return found, is_whole


def read_blobs(root: str, blobs: Collection[str], seconds: float) -> dict[str, bytes]:
    """Return the contents of some blobs; those that are large, or not read in time, are left out."""
    if not blobs:
        return {}
    said, _ = run_git(root, ["cat-file", "--batch"], seconds, "\n".join(blobs).encode() + b"\n")
    found: dict[str, bytes] = {}
    at = 0
    while (end := said.find(b"\n", at)) > 0:
        name, *about = said[at:end].split(b" ")
        size = int(about[1]) if len(about) == 2 else 0
        content = said[end + 1 : end + 1 + size]
        if about[:1] == [b"blob"] and len(content) == size <= MAX_BLOB:
            found[name.decode()] = content
        at = end + 1 + size + (len(about) == 2)
    return found


def versions_of(path: str, since: int, changes: Sequence[LoggedChange]) -> list[FileVersion]:
    """Return the versions of a file after a moment, oldest first; the last one has the name that it has now."""
    found: list[FileVersion] = []
    for one in reversed(changes):
        if one.path == path and one.at > since:
            path = one.new_path or path
            found.append(
                FileVersion(one.commit, one.at, path, one.before, one.blob if one.new_path else None, one.takes_back)
            )
    return found


# ---------------------------------------------------------------------------------------------------- commits by name


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
    said, _ = run_git(folder, ["log", "-z", "--format=%H%x00%ct%x00%an <%ae>%x00%s", *words], LOG_SECONDS)
    fields = said.decode("utf-8", "replace").removesuffix("\0").split("\0")
    return [AuthoredCommit(name, int(at) * 1000, *rest) for name, at, *rest in zip(*[iter(fields)] * 4, strict=False)]
