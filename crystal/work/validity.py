"""Judge whether a file has changed since a text named it: by lines for an edit, by commits for a mention."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from itertools import repeat

from crystal.hook.matching import plain_line, without_tree
from crystal.model.named_tuple import NamedTuple
from crystal.model.recall import Validity, ValidityState
from crystal.work.blame import SLACK_MS
from crystal.work.calls import ToolCall

Lines = AbstractSet[bytes]
MAX_NAMES = 8
"""Maximum number of names that are taken from one text."""
_NAME = re.compile(
    r"(?<![\w.:/\\@+-])(?:[A-Za-z]:)?[/\\]?(?:[\w.@+-]+[/\\])*[\w@+-][\w.@+-]*\.[A-Za-z]\w{0,7}(?![\w/\\])"
)
_WORKTREE = re.compile(r"\A(?:.*/)??worktrees/[^/]+/")
_IN_WORD = frozenset(b"_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_SYMBOL = re.compile(r"`(?:\w+(?:\.|::))*([A-Za-z_]\w{3,60})(?:\(\))?`", re.ASCII)
_QUOTES, _SPACES = bytes.maketrans(b"'`", b'""'), b" \t\r\f\v"
_WORST: tuple[ValidityState, ...] = ("superseded", "gone", "reverted", "changed", "unchanged")


class FileVersion(NamedTuple):
    """A file in a commit.

    Attributes:
        commit: The commit's id.
        at: Its time, ms.
        path: The file's path.
        before: The file's blob before the commit.
        blob: The blob after it; None if the commit deleted the file.
        takes_back: True if the commit's message says that it reverts another one.
        old, text: The content before and after; None if not read.
    """

    commit: str
    at: int
    path: str
    before: str
    blob: str | None
    takes_back: bool = False
    old: bytes | None = None
    text: bytes | None = None


class KnownEdit(NamedTuple):
    """An edit of a file that a session made; ``turn`` and ``part`` name its call."""

    session: str
    at: int
    turn: int
    part: int


class FileNow(NamedTuple):
    """A file in the working tree, with its content; None if it does not exist."""

    path: str
    text: bytes | None


def named_files(text: str) -> list[str]:
    """Return the first ``MAX_NAMES`` words of a text that look like file names, each once, without line numbers."""
    names = (without_tree(name.replace("\\", "/").removeprefix("./")) for name in _NAME.findall(text))
    return list(dict.fromkeys(names))[:MAX_NAMES]


def named_symbols(text: str) -> list[str]:
    """Return the first ``MAX_NAMES`` names in backticks that may be a function, a class or a variable."""
    return list(dict.fromkeys(_SYMBOL.findall(text)))[:MAX_NAMES]


def find_path(name: str, known: Collection[str]) -> str | None:
    """Return the known path that a name means; None if it may mean several, or none."""
    found = [path for path in known if path == name or path.endswith(f"/{name}")]
    return name if name in known else found[0] if len(found) == 1 else None


class PathInProject(NamedTuple):
    """Path of a file below its project's folder.

    ``tree`` is the linked working tree that a tool's path was in; None for the project's folder and the agent's own.
    """

    path: str
    tree: str | None = None


def path_below(path: str, cwd: str, folder: str, trees: Iterable[str] = ()) -> PathInProject | None:
    """Return a path that a tool named, relative to its project's folder; None if it is outside.

    Args:
        path: The path as the tool named it, maybe relative to ``cwd``.
        cwd: The agent's folder; the top of a linked working tree, if it is in none of the other folders.
        folder: The project's folder.
        trees: Its known linked working trees; others are recognised by a name such as ``.worktrees``.
    """
    plain, at, top = (one.replace("\\", "/").rstrip("/") for one in (path, cwd, folder))
    if not re.match(r"/|[A-Za-z]:/", plain):
        plain = f"{at}/{plain.removeprefix('./')}"
    for start in (*sorted(trees, key=len, reverse=True), top, at):
        if start and plain.startswith(f"{start}/") and ".." not in plain.split("/"):
            found = plain[len(start) + 1 :]
            own = _WORKTREE.match(f"{at[len(top) + 1 :]}/") if start == top and at.startswith(f"{top}/") else None
            below = without_tree(found.removeprefix(own[0]) if own else found)
            tree = plain[: -len(below) - 1]
            return PathInProject(below, None if tree in (top, at) else tree)
    return None


def is_unchanged(call: ToolCall, text: bytes) -> bool:
    """Return True if an edit added lines, and all of them are in a text."""
    added = plain_lines(call.added)
    return bool(added) and added <= lines_in(text)


def judge_edit(call: ToolCall, *, is_here: bool, versions: Sequence[FileVersion], now: FileNow) -> Validity | None:
    """Return whether a file still has the lines that an edit added; None if that is uncertain.

    Args:
        call: The edit.
        is_here: True if it was made in this working tree and on its branch, so that the file had it without a commit.
        versions: The file in the commits since then, oldest first.
        now: The file in the working tree.
    """
    if now.text is None:
        return _gone(now.path, versions) if is_here or versions else None
    added, lines = plain_lines(call.added), lines_in(now.text)
    if not added or now.path.endswith(".ipynb"):  # cells are stored with escapes
        return None
    if added <= lines:
        return Validity(now.path, "unchanged")
    return _judge_lost_lines(call, added, lines, is_here=is_here, versions=versions, path=now.path)


def _judge_lost_lines(
    call: ToolCall, added: Lines, lines: Lines, *, is_here: bool, versions: Sequence[FileVersion], path: str
) -> Validity | None:
    """Return the state of an edit that lost lines in the file since: changed or reverted; None if uncertain."""
    known = [(one, lines_in(one.text)) for one in versions if one.text is not None]
    best = max((has for _, has in known), key=lambda has: len(added & has), default=frozenset[bytes]())
    if not (is_here or added & best):
        return None
    by, first = _last_loss(added, known, lines), _first_gain(added, known)
    before = plain_lines(call.removed) - added - (best if added & best else set())
    is_back = before <= lines if before else by is not None and by.takes_back
    telling = added - lines_in(first.old) if first and first.old else added
    is_reverted = is_back and bool(telling) and not telling & lines
    return _caused("reverted" if is_reverted else "changed", path, by)


def has_made(done: ToolCall, call: ToolCall | None, before: bytes, after: bytes) -> bool:
    """Return True if ``done`` added lines that only ``after`` has, and removed lines that ``call`` added, if given."""
    is_new = bool(plain_lines(done.added) & (lines_in(after) - lines_in(before)))
    return is_new and (call is None or bool(plain_lines(done.removed) & plain_lines(call.added)))


def _first_gain(added: Lines, known: Sequence[tuple[FileVersion, Lines]]) -> FileVersion | None:
    """Return the first version that has more lines of an edit than its predecessor."""
    return next((one for one, has in known if len(added & has) > len(added & lines_in(one.old or b""))), None)


def _last_loss(added: Lines, known: Sequence[tuple[FileVersion, Lines]], lines: Lines) -> FileVersion | None:
    """Return the last version that removed lines of an edit; None if some went, or came back, after it.

    A commit of another branch may lack the lines without having removed them.
    """
    lost = [one for one, has in known if one.old and len(added & lines_in(one.old)) > len(added & has)]
    is_final = lost and len(added & known[-1][1]) == len(added & lines)
    return lost[-1] if is_final else None


def judge_mention(versions: Sequence[FileVersion], now: FileNow, *, is_rewritten: bool) -> Validity | None:
    """Return how a file has changed since a text named it; None if no change is known.

    Args:
        versions: The file in the commits since then, oldest first.
        now: The file in the working tree.
        is_rewritten: True if it has uncommitted changes since then.
    """
    if now.text is None:
        return _gone(now.path, versions)
    if is_rewritten or not versions:
        return Validity(now.path, "changed") if is_rewritten else None
    return _caused("changed", now.path, versions[-1])


def judge_symbols(names: Iterable[str], versions: Sequence[FileVersion], now: FileNow) -> Iterator[Validity]:
    """Yield the names that were in a file before these versions, and no longer are."""
    for name in names:
        if _has_word(versions[0].old, name) and not _has_word(now.text, name):
            without = [one for one in versions if one.text is not None and not _has_word(one.text, name)]
            yield _caused("gone", f"{name} in {now.path}", without[0] if without else None)


def _has_word(text: bytes | None, name: str) -> bool:
    word, at = name.encode(), -1
    while text is not None and (at := text.find(word, at + 1)) >= 0:
        if not _IN_WORD.intersection(text[max(at - 1, 0) : at] + text[at + len(word) : at + len(word) + 1]):
            return True
    return False


def _gone(path: str, versions: Sequence[FileVersion]) -> Validity:
    return _caused("gone", path, versions[-1] if versions and versions[-1].blob is None else None)


def _caused(state: ValidityState, what: str, by: FileVersion | None) -> Validity:
    """Return a validity with the commit that caused it, or without one if ``by`` is None."""
    return Validity(what, state) if by is None else Validity(what, state, by.commit, at=by.at)


def edits_before(
    found: Validity, versions: Sequence[FileVersion], since: int, edits: Iterable[KnownEdit]
) -> Iterator[KnownEdit]:
    """Yield the edits that may have made a change: those before its commit and after the one before it."""
    times = [since, *(one.at for one in versions if found.at is None or one.at < found.at)]
    end = float("inf") if found.at is None else found.at + SLACK_MS
    return (one for one in edits if max(times) < one.at <= end)


def worst(found: Iterable[Validity]) -> Validity | None:
    """Return the validity with the most serious state, by ``_WORST``; None if there are none."""
    return min(found, key=lambda one: _WORST.index(one.state), default=None)


def plain_lines(lines: Iterable[str]) -> set[bytes]:
    """Return lines in the form in which they are compared, without those that are too short."""
    return {plain.encode("utf-8", "surrogatepass") for line in lines if (plain := plain_line(line))}


@lru_cache(maxsize=16)
def lines_in(text: bytes) -> frozenset[bytes]:
    """Return all lines of a file in the form of ``plain_lines``, short ones included; much faster."""
    return frozenset(map(bytes.rstrip, set(text.translate(_QUOTES, _SPACES).split(b"\n")), repeat(b",;")))
