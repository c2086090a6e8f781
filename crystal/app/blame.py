"""Find the session that wrote lines of a file, and why: by the lines that edits added, and by git if it knows it."""

from __future__ import annotations

import ast
import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from crystal.app.context import Machine
from crystal.app.git_files import filter_settings, run_git, shallow_commits
from crystal.app.projects import find_home
from crystal.app.renames import current_names
from crystal.config.paths import system_errors
from crystal.errors import CrystalError, NotFoundError, UsageError
from crystal.model.capture import Memory
from crystal.model.named_tuple import NamedTuple
from crystal.store import Store
from crystal.store.search.scope import project_ids
from crystal.store.work import queries
from crystal.store.work.index import hash_for
from crystal.store.work.queries import RecordedCall
from crystal.transcript.project import find_project
from crystal.work.blame import WINDOW_MS, FileEdit, Line, attribute
from crystal.work.line_hashes import line_hashes

MAX_FILE_BYTES = 4 << 20
_Wrote = tuple[FileEdit, RecordedCall]
AROUND = 60
"""Lines read before and after those that are asked for: an edit is known by the lines that it wrote together."""
GIT_SECONDS = 20
NO_AGE = -WINDOW_MS
"""Time (ms) of a commit whose date says nothing of the age of its lines; every edit is later."""


@dataclass(frozen=True, slots=True)
class BlamedLines:
    """Lines of a file that one call wrote; ``call`` is None if no session is known to have written them.

    ``commit`` is the commit that they are from, None if git does not say.
    """

    first: int
    last: int
    call: RecordedCall | None
    commit: str | None = None


@dataclass(frozen=True, slots=True)
class Blame:
    """Authors of the lines of a file.

    Attributes:
        file: The file.
        project: Its project, None if it is not known.
        has_git: Git has the commits of some of the lines.
        lines: All lines that were asked for.
        is_shallow: The clone lacks the commits that some of the lines are from.
    """

    file: str
    project: str | None
    has_git: bool
    lines: tuple[BlamedLines, ...]
    is_shallow: bool = False

    @property
    def notes(self) -> tuple[str, ...]:
        """Return notes that explain the lines."""
        how = "this clone is shallow, and does not tell how old some lines are; fetch the rest: git fetch --unshallow"
        if self.is_shallow:
            return (how,)
        is_old = "git does not tell how old these lines are: an answer may be about an earlier line with the same words"
        return (is_old,) if self.project is not None and not self.has_git else ()


class _Committed(NamedTuple):
    commit: str
    at: int
    name: str


def blame(machine: Machine, wanted: str, *, project: str | None = None) -> Blame:
    """Return which session wrote each line, from ``FILE``, ``FILE:LINE`` or ``FILE:LINE-LINE``.

    Args:
        machine: This machine.
        wanted: The file and the lines.
        project: The name or the folder of the project that knows them; without it that of the file's folder.

    Raises:
        NotFoundError: There is no such file.
        UsageError: It is no text, or has no such lines.
    """
    path, first, asked = _target(wanted)
    if not os.path.isfile(path):  # noqa: PTH113 - a name may be too long for pathlib
        raise _not_there(machine, wanted, path)
    text = _read(path)
    last = _last_line(path, len(text), first, asked)
    home = (project, project) if project else find_home(machine.stores, str(path.parent))
    start, end = max(1, first - AROUND), min(len(text), last + AROUND)
    committed = _committed(path, start, end)
    lines = slice(first - start, last - start + 1)
    commits = [one.commit if one else None for one in committed[lines]]
    best: list[_Wrote | None] = [None] * len(commits)
    for store in machine.stores if home else ():
        wrote = _attributed(store, home[0] if home else "", text[start - 1 : end], committed, path.name)[lines]
        best = [_later(*pair) for pair in zip(best, _with_calls(machine, store, wrote), strict=True)]
    found = tuple(_grouped(first, best, commits))
    is_shallow = any(one.at == NO_AGE for one in committed[lines] if one)
    return Blame(str(path), home[1] if home else None, any(committed), found, is_shallow)


def _not_there(machine: Machine, wanted: str, path: Path) -> CrystalError:
    """Return the error for a missing file, with its new name if it was renamed."""
    if os.path.isdir(path):  # noqa: PTH112 - as above
        return UsageError(f"{path} is a folder", hint="give a file, FILE:LINE or FILE:LINE-LINE")
    now = current_name(machine, path)
    place = shlex.quote(f"{now}{wanted[len(wanted.rpartition(path.name)[0] + path.name) :]}")
    hint = f"it has another name now: crystal blame {place}" if now else "give a file, FILE:LINE or FILE:LINE-LINE"
    return NotFoundError(f"there is no file {path}", hint=hint)


def _last_line(path: Path, length: int, first: int, asked: int | None) -> int:
    """Return the last of the requested lines; the file has ``length`` lines.

    Raises:
        UsageError: The file does not have the lines from ``first`` on.
    """
    if not length:
        raise UsageError(f"{path} is empty", hint="give a file that has lines")
    last = min(length, asked or length)
    if not 1 <= first <= last:
        hint = f"try: crystal blame {shlex.quote(str(path))}"
        raise UsageError(f"{path} has {length} lines, not {line_span(first, asked or first)}", hint=hint)
    return last


def line_span(first: int, last: int) -> str:
    """Return the name of some lines: ``line 3`` or ``lines 3-5``."""
    return f"line {first}" if first == last else f"lines {first}-{last}"


def _target(wanted: str) -> tuple[Path, int, int | None]:
    """Return the requested file and lines; a colon may be part of a file's name."""
    name, colon, span = wanted.rpartition(":")
    first, dash, last = span.partition("-")
    if colon and name and first.isdecimal() and (not dash or last.isdecimal()) and not Path(wanted).exists():
        return Path(os.path.abspath(name)), int(first), int(last or first)  # noqa: PTH100 - links stay
    return Path(os.path.abspath(wanted)), 1, None  # noqa: PTH100 - the same


def current_name(machine: Machine, path: Path) -> Path | None:
    """Return the present path of a file that was moved; None if unknown."""
    folder = next((str(one) for one in path.parents if one.is_dir()), "/")
    root = Path(find_project(folder).git_root or folder)
    if not path.is_relative_to(root):
        return None
    name = str(path.relative_to(root))
    now = current_names(machine.stores, str(root), {name: 0}).get(name)
    return root / now if now else None


def _read(path: Path) -> list[str]:
    with system_errors(path):
        data = path.read_bytes()[: MAX_FILE_BYTES + 1]
    if len(data) > MAX_FILE_BYTES or b"\0" in data:
        raise UsageError(f"{path} is no text, or longer than 4 MB", hint="give a text file")
    lines = data.decode("utf-8", "replace").split("\n")  # as git counts them
    return lines if lines[-1] else lines[:-1]


def _attributed(
    store: Store, folder: str, text: Sequence[str], committed: Sequence[_Committed | None], name: str
) -> list[FileEdit | None]:
    hashes = line_hashes(text, hash_for(store))
    lines = [Line(line, one and one.at, one.name if one else name) for line, one in zip(hashes, committed, strict=True)]
    edits, wrote = queries.edits_that_wrote(
        store, [one for one in hashes if one is not None], project_ids(store, folder)
    )
    return attribute(lines, edits, wrote)


def _with_calls(machine: Machine, store: Store, wrote: Sequence[FileEdit | None]) -> Iterator[_Wrote | None]:
    """Yield each edit with its call; None for one that was forgotten meanwhile."""
    calls = queries.calls(store, {edit.turn for edit in wrote if edit is not None}, machine.memory_of(store))
    for edit in wrote:
        call = None if edit is None else calls.get(edit.turn)
        yield None if edit is None or call is None else (edit, call)


def _later(one: _Wrote | None, other: _Wrote | None) -> _Wrote | None:
    """Return the later of two stores' authors of a line; the first one if they are equal."""
    return other if one is None or (other is not None and other[0].at > one[0].at) else one


def _grouped(first: int, found: Sequence[_Wrote | None], commits: Sequence[str | None]) -> Iterator[BlamedLines]:
    numbered = enumerate(zip(found, commits, strict=True), first)
    for (_, commit), lines in groupby(numbered, key=lambda one: (_call(one[1][0]), one[1][1])):
        group = list(lines)
        told = group[0][1][0]
        yield BlamedLines(group[0][0], group[-1][0], told[1] if told else None, commit)


def _call(found: _Wrote | None) -> tuple[Memory, int] | None:
    """Return the identity of a call: its memory and its turn, because two stores may use one number for two turns."""
    return found and (found[1].memory, found[0].turn)


def _committed(path: Path, first: int, last: int) -> list[_Committed | None]:
    """Return what git says of each line: None for one that is not committed, or if there is no repository.

    Follows renames, and moves inside a file and between files of one commit; ignores spaces. Runs no hook and no
    filter, and asks no network.
    """
    folder = str(path.parent)
    words = ["blame", "--no-textconv", "-w", "-C", "--line-porcelain", "-L", f"{first},{last}", "--", path.name]
    emptied = filter_settings(folder, GIT_SECONDS)
    said, is_whole = run_git(folder, words, GIT_SECONDS, emptied=emptied)
    if not is_whole:  # as with blame.ignoreRevsFile in the user's settings, and no such file here
        said, _ = run_git(folder, words, GIT_SECONDS, emptied=emptied, is_alone=True)
    found = list(_parsed(said.decode("utf-8", "replace")))
    shallow = shallow_commits(folder)
    found = [one._replace(at=NO_AGE) if one and one.commit in shallow else one for one in found]
    return found if len(found) == last - first + 1 else [None] * (last - first + 1)


def _parsed(porcelain: str) -> Iterator[_Committed | None]:
    fields: dict[str, str] = {}
    commit = ""
    for line in porcelain.split("\n"):
        if line.startswith("\t"):
            is_committed = bool(commit.strip("0"))
            at = int(fields.get("committer-time", "0")) * 1000
            yield _Committed(commit, at, _name(fields.get("filename", ""))) if is_committed else None
            fields, commit = {}, ""
        elif not commit:
            commit = line.partition(" ")[0]
        else:
            name, _, fields[name] = line.partition(" ")


def _name(path: str) -> str:
    """Return the file's own name; git quotes a path with a quote or a tab in it, with escapes that Python has too."""
    return (str(ast.literal_eval(path)) if path.startswith('"') else path).rpartition("/")[2]
