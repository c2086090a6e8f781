"""Find the files of a source that its ignore files do not exclude.

Links are not followed: a target inside the folder is read under its own name, and nothing outside of it is read.
``.gitignore`` files count outside of repositories too: notes have no repository, and a watcher must judge a single
path (docs/adr/0006-libraries.md).
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pathspec import GitIgnoreSpec

from crystal.config.paths import refused
from crystal.errors import UnavailableError
from crystal.model.capture import is_unicode
from crystal.model.named_tuple import NamedTuple
from crystal.transcript.project import shared_git_folder

IGNORE_FILES = (".gitignore", ".crystalignore")
SKIPPED_FOLDERS = frozenset(
    ".git .hg .svn .jj node_modules __pycache__ .venv .tox .mypy_cache .pytest_cache .ruff_cache .obsidian .trash"
    " .stversions .stfolder .dropbox.cache".split()
)
"""Folders without text of the user's: version control, caches, and data of sync programs."""
_CONFLICT_WORD = "conflict|conflit|konflikt|конфл|競合|冲突|衝突|충돌"
_CONFLICT = re.compile(
    r"(?i)(?P<stem>.+?)"
    rf"(?: \((?:.*conflicted copy.*|.*(?:{_CONFLICT_WORD}).*\d{{4}}-\d\d-\d\d.*|case conflict.*)\)"
    r"|\.sync-conflict-\d{8}-\d{6}-\w+|_conflict-\d{8}-\d{6})(?P<suffix>\.\w+)?"
)
"""Names of conflict copies by Nextcloud, Obsidian Sync, ownCloud, Seafile, Syncthing and Dropbox, which translates
them."""
_PLACEHOLDER = re.compile(r"\.(.+)\.icloud")
"""Names of placeholders for files that iCloud has not downloaded."""
UNREADABLE = "cannot be read"
SKIPPED_FILES = frozenset((".DS_Store", "Thumbs.db", ".git"))
MAX_IGNORE_BYTES = 1 << 20
RACY_NS = 2_000_000_000
"""Age up to which a change is too recent for a stamp: the file may change again within one tick of its clock."""


class SkippedFile(NamedTuple):
    """A file that is not indexed, and why."""

    path: str
    why: str


@dataclass(slots=True)
class Scan:
    """Content of a folder.

    Attributes:
        files: The stamp of each file, by its path below the folder; empty if the next scan must read the file.
        skipped: Files that cannot be indexed.
        unread: Reasons why paths are unknown: folders that cannot be listed, whose paths end with a slash, and files
            that a sync program has not downloaded.
    """

    files: dict[str, str] = field(default_factory=dict)
    skipped: list[SkippedFile] = field(default_factory=list)
    unread: dict[str, str] = field(default_factory=dict)

    def is_unknown(self, path: str) -> bool:
        """Return True if a file was not downloaded, or its folder could not be listed."""
        return path in self.unread or path.startswith(tuple(one for one in self.unread if one.endswith("/")))


def scan(root: Path, barred: Collection[Path], now_ns: int) -> Scan:
    """List everything in a folder; only ignore files are read.

    Args:
        root: The folder.
        barred: Folders and files that are never read: crystal's own, and transcripts.
        now_ns: The time, ns.

    Raises:
        UnavailableError, CrystalError: The folder does not exist, or cannot be listed.
    """
    if not root.is_dir():
        hint = "nothing was deleted: connect its disk, or remove the source"
        raise UnavailableError(f"the folder {root} is not there", hint=hint)
    walk = _Walk(root, frozenset(map(str, barred)), now_ns)
    walk.run()
    return walk.found


class _Rules(NamedTuple):
    """The ignore rules of one folder; ``base`` is the length of its path with the slash after it.

    ``any_of`` matches what any of the patterns matches: most paths are judged by it alone, in a sixth of the time.
    """

    base: int
    patterns: Sequence[tuple[re.Pattern[str], bool]]
    any_of: re.Pattern[str]


class _Walk:
    """One scan of a folder."""

    def __init__(self, root: Path, barred: frozenset[str], now_ns: int) -> None:
        self._root, self._barred, self._now_ns = str(root), barred, now_ns
        self._base = len(str(root).rstrip(os.sep)) + 1
        self.found = Scan()

    def run(self) -> None:
        todo: list[tuple[str, tuple[_Rules, ...]]] = [(self._root, tuple(_rules_above(Path(self._root))))]
        while todo:
            folder, rules = todo.pop()
            try:
                with os.scandir(folder) as listing:
                    entries = list(listing)
            except OSError as error:
                if folder == self._root:
                    raise refused(error, Path(folder)) from error
                self.found.unread[f"{self._relative(folder)}/"] = UNREADABLE
                continue
            rules = (*rules, *_rules_in(folder, {entry.name for entry in entries}))
            todo += [(entry.path, rules) for entry in entries if self._is_wanted_folder(entry, rules)]

    def _is_wanted_folder(self, entry: os.DirEntry[str], rules: tuple[_Rules, ...]) -> bool:
        """Return True if the entry is a folder to scan; if it is a file, add it to the result."""
        try:
            if entry.is_symlink():
                return False
            if entry.is_dir(follow_symlinks=False):
                is_barred = entry.name in SKIPPED_FOLDERS or entry.path in self._barred
                return not is_barred and not _is_ignored(f"{entry.path}/", rules)
            is_barred = entry.name in SKIPPED_FILES or entry.path in self._barred
            here = name_here(entry.name)
            path = entry.path[: -len(entry.name)] + here
            if not is_barred and not _is_ignored(path, rules):
                if here != entry.name:
                    self.found.unread[self._relative(path)] = "in iCloud, not downloaded"
                else:
                    self._note_file(entry)
        except OSError:
            self.found.unread[self._relative(entry.path)] = UNREADABLE
        return False

    def _note_file(self, entry: os.DirEntry[str]) -> None:
        path, status = self._relative(entry.path), entry.stat(follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode):
            self.found.skipped.append(SkippedFile(path, "no regular file"))
        elif (original := conflict_original(entry.name)) is not None:
            self.found.skipped.append(SkippedFile(path, f"a conflict copy of {original}"))
        elif not is_unicode(path):
            self.found.skipped.append(SkippedFile(ascii(path), "its name is no text"))
        else:
            self.found.files[path] = stamp_of(status, self._now_ns)

    def _relative(self, path: str) -> str:
        return path[self._base :].replace(os.sep, "/")


def name_here(name: str) -> str:
    """Return the name that a file has once iCloud has downloaded it."""
    found = _PLACEHOLDER.fullmatch(name)
    return name if found is None else found[1]


def conflict_original(name: str) -> str | None:
    """Return the name of the file that a file is a conflict copy of, by its name; None if it is not a copy."""
    found = _CONFLICT.fullmatch(name)
    return None if found is None else f"{found['stem']}{found['suffix'] or ''}"


def stamp_of(status: os.stat_result, now_ns: int) -> str:
    """Return a value that stays equal while a file is unchanged; empty if it changed too recently to tell."""
    if max(status.st_mtime_ns, status.st_ctime_ns) > now_ns - RACY_NS:
        return ""
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"


# ------------------------------------------------------------------------------------------------------ ignore files


def _is_ignored(path: str, rules: tuple[_Rules, ...]) -> bool:
    """Return True if a path is ignored: the deepest folder with a pattern that matches it decides."""
    plain = path.replace(os.sep, "/")
    for one in reversed(rules):
        below = plain[one.base :]
        patterns = reversed(one.patterns) if one.any_of.search(below) else ()
        for regex, is_included in patterns:
            if _is_meant(regex, below):
                return is_included
    return False


def _is_meant(regex: re.Pattern[str], path: str) -> bool:
    """Return True if a pattern matches the path itself; the folders above it were tested before."""
    matches = regex.finditer(path)
    if "ps_d" in regex.groupindex:  # the slash that ends the name of a folder
        return any(one.end("ps_d") in {-1, len(path)} for one in matches)
    most = len(path) - regex.pattern.endswith("/")  # "a/**" matches the content of the folder a, not a itself
    return any(one.end() <= most for one in matches)


def _rules_above(root: Path) -> Iterator[_Rules]:
    """Yield the rules of the repository that a folder is in, from its top down to the folder's parent."""
    above = [root, *root.parents]
    top = next((number for number, folder in enumerate(above) if (folder / ".git").exists()), None)
    if top is None:
        return
    git = shared_git_folder(above[top]) or above[top] / ".git"
    yield from _rules_of(str(above[top]), [git / "info" / "exclude"])
    for folder in reversed(above[1 : top + 1]):
        yield from _rules_of(str(folder), [folder / name for name in IGNORE_FILES])


def _rules_in(folder: str, names: Collection[str]) -> Iterator[_Rules]:
    return _rules_of(folder, [Path(folder, name) for name in IGNORE_FILES if name in names])


def _rules_of(folder: str, files: Collection[Path]) -> Iterator[_Rules]:
    lines = [line for file in files for line in _lines_of(file)]
    patterns = [pattern for line in lines for pattern in _patterns_of(line)]
    if patterns:
        any_of = "|".join(f"(?:{regex.pattern.replace('?P<ps_d>', '?:')})" for regex, _ in patterns)
        yield _Rules(len(folder.rstrip(os.sep)) + 1, patterns, re.compile(any_of))


def _patterns_of(line: str) -> Iterator[tuple[re.Pattern[str], bool]]:
    """Yield the pattern of a line; none if it is invalid or a comment, which git ignores, too."""
    with contextlib.suppress(ValueError):
        for one in GitIgnoreSpec.from_lines([line]).patterns:
            if one.regex is not None and one.include is not None:
                yield one.regex, one.include


def _lines_of(file: Path) -> list[str]:
    try:
        if file.is_symlink() or not file.is_file():
            return []
        with file.open("rb") as opened:
            return opened.read(MAX_IGNORE_BYTES).decode("utf-8-sig", "replace").splitlines()
    except OSError:
        return []
