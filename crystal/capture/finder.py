"""Find transcripts in the agents' folders: all of them, or those of one session."""

# ruff: noqa: PTH112, PTH114, PTH118  a Path costs more than the look at its file

import fnmatch
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from operator import methodcaller
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, TypeVar

from crystal.capture import safe_open
from crystal.capture.safe_open import ANYWHERE, Folders, TranscriptBlockedError, TranscriptRefusedError
from crystal.config.harnesses import Root, places_of_all
from crystal.config.paths import refused
from crystal.errors import CrystalError
from crystal.model.named_tuple import NamedTuple

T = TypeVar("T")

RECOGNIZED_BYTES = 1 << 20
MAX_WRITTEN = (1 << 63) - 1
LOG_SUFFIX = "-wal"
"""Suffix that SQLite appends to a database's name to name its log."""


class TranscriptFile(NamedTuple):
    """A transcript file on disk.

    Attributes:
        name: Its whole path.
        size, modified, dev, inode: What the system says of it; the time is ms.
        written: A number that differs whenever it was written, also if its time was set back.
        log: Size, time and inode of the log beside a database, if it was listed and has one.
    """

    name: str
    size: int
    modified: int
    dev: int
    inode: int
    written: int = 0
    log: tuple[int, int, int] | None = None

    @property
    def path(self) -> Path:
        """Return its path."""
        return Path(self.name)

    @property
    def stamp(self) -> str:
        """Return a text that changes whenever the file, or the log beside it, is written."""
        parts = [(self.size, self.modified, self.inode), self.log]
        return repr(parts if self.log else parts[:1])


def look_at(path: Path, folders: Folders = ANYWHERE) -> TranscriptFile | None:
    """Return the state of one file on disk, None if it is no readable regular file in ``folders``."""
    try:
        return examine(path, folders)
    except (CrystalError, OSError, ValueError):
        return None


def examine(path: Path, folders: Folders) -> TranscriptFile | None:
    """Return the state of one file on disk, None if it does not exist.

    Raises:
        TranscriptRefusedError: It is no regular file, or not in ``folders``.
        TranscriptBlockedError: It does not answer.
        UnavailableError, UsageError: The system refuses.
    """
    try:
        return _found(str(path), safe_open.status_of(path, folders))
    except (FileNotFoundError, ValueError):
        return None
    except OSError as error:
        raise refused(error, path) from error


def look_into(path: Path, file: BinaryIO) -> TranscriptFile:
    """Return the state of an open file, whatever is at its path by now."""
    return _found(str(path), os.fstat(file.fileno()))


def _found(name: str, status: os.stat_result) -> TranscriptFile:
    written = (status.st_mtime_ns + status.st_ctime_ns) & MAX_WRITTEN
    modified = status.st_mtime_ns // 1_000_000
    return TranscriptFile(name, status.st_size, modified, status.st_dev, status.st_ino, written)


opened = safe_open.open_regular


def root_of(path: Path, folders: Folders, harness: str | None = None) -> Root:
    """Return the root of a conversation's file: the folder it is in, else its own folder, by its name and content.

    ``harness`` is the file's, where it is known.
    """
    root = folders.root_of(os.path.normpath(path))
    if root is not None:
        return root
    owners = [row[:2] for row in places_of_all() if row[2].owns(path) and harness in (None, row[0])]
    fitting = [Root(path.parent, *owner) for owner in owners]
    if len(fitting) < 2:
        return next(iter(fitting), Root(path.parent))
    from crystal.capture.recognition import most_understood  # noqa: PLC0415 - loads readers

    with suppress(CrystalError, OSError), opened(path, folders) as file:
        return most_understood(file.read(RECOGNIZED_BYTES), path, fitting)
    return fitting[0]


FileMark = tuple[int, int, int, int]
"""Bytes read of a file, its device, inode and ``written``, as ``ledger.read_to`` returns them."""
NOTHING_KNOWN: Mapping[str, FileMark] = MappingProxyType({})


def _pass_over(_path: Path, _error: Exception) -> None:
    pass


Refusal = Callable[[Path, Exception], object]
"""Told of a file or folder that is left out, and why."""


def all_transcripts(
    roots: Sequence[Root],
    refusal: Refusal = _pass_over,
    folders: Folders | None = None,
    known: Mapping[str, FileMark] = NOTHING_KNOWN,
) -> Iterator[TranscriptFile]:
    """Yield every transcript in the roots that is written line by line, subagents' included.

    A link, of a file, of a folder in a root or of one that a pattern names, is followed where it leads to one of
    ``folders``; other links to folders are not followed.

    Args:
        roots: The agents' folders of transcripts.
        refusal: Told of what is left out: the system refuses to list it, it leads elsewhere, it does not answer.
        folders: Where links may lead; the roots alone by default.
        known: What ``ledger.read_to`` knows of files, by path, that are left out while nothing else is in them.
    """
    search = _Search(folders or Folders(tuple(roots)), refusal, known=known)
    for root in existing(root for root in roots if root.place.form == "lines"):
        yield from _in_root(root, root.place.files, search)


def existing(roots: Iterable[Root]) -> list[Root]:
    """Return the roots without those whose folder is not there."""
    asked = list(roots)
    absent = safe_open.absent_folders(root.folder for root in asked)
    return [root for root in asked if root.folder not in absent]


def in_root(
    root: Root,
    folders: Folders,
    refusal: Refusal = _pass_over,
    known: Mapping[str, FileMark] = NOTHING_KNOWN,
    same: dict[str, int] | None = None,
) -> Iterator[TranscriptFile]:
    """Yield every file of conversations in one root, see ``all_transcripts``.

    ``same`` gets the path of each file that is left out because of ``known``, and when it was written, ns.
    """
    search = _Search(folders, refusal, root.place.form == "database", known, same)
    return _in_root(root, root.place.files, search)


def of_session(folders: Folders, session_id: str) -> Iterator[Path]:
    """Yield the possible paths of a session's transcript, whatever folder the hook named."""
    if not session_id or session_id in (".", "..") or set(session_id) & set("/\\\x00*?[") or len(session_id) >= 200:
        return
    for root in folders.roots:
        if root.place.session_file is not None:
            pattern = root.place.session_file.format(session=session_id)
            yield from (found.path for found in _in_root(root, [pattern], _Search(folders)))


def subagents_of(path: Path, folders: Folders, root: Root) -> list[TranscriptFile]:
    """Return the transcripts of a session's subagents, beside the session's own, in its root."""
    pattern = root.place.subagent_files
    if pattern is None:
        return []
    folder, parts = path.parent, pattern.format(stem=safe_open.escape_pattern(path.stem)).split("/")
    while parts[0] == "..":
        folder, parts = folder.parent, parts[1:]
    return _listed(folder, partial(_fitting, str(folder), parts, _Search(folders)), _pass_over)


def under(path: Path) -> Iterator[TranscriptFile]:
    """Yield every transcript below any folder, or the file itself; for paths that a person names.

    Raises:
        TranscriptRefusedError: It is a file, and no regular one.
        TranscriptBlockedError: It does not answer.
    """
    if not safe_open.call_with_deadline(lambda: os.path.isdir(path), path):
        found = examine(path, ANYWHERE)
        if found is not None:
            yield found
        return
    places = [place for _, _, place in places_of_all()]
    ignored = {name for place in places for name in place.ignored}
    for folder, names, files in os.walk(path):
        names[:] = sorted(name for name in names if name not in ignored)
        for file in (Path(folder, name) for name in sorted(files)):
            found = look_at(file) if any(place.owns(file) for place in places) else None
            if found is not None:
                yield found


class _Search(NamedTuple):
    """Options of a listing: where links may lead, who is told of what is left out, whether the files are databases.

    ``known`` files are left out while they are as they were seen, and put into ``same`` with the time they were
    written, ns: most of a sweep's time goes to these.
    """

    folders: Folders
    refusal: Refusal = _pass_over
    are_databases: bool = False
    known: Mapping[str, FileMark] = NOTHING_KNOWN
    same: dict[str, int] | None = None

    def changed(self, names: Iterable[str]) -> Iterator[str]:
        """Yield the files that are not as they were seen, in one loop without a call for each: there are thousands."""
        known, look, same = self.known, os.lstat, {} if self.same is None else self.same
        for name in names:
            try:
                status = look(name)
            except OSError:
                yield name
                continue
            read = known.get(name)
            if read is not None:
                offset, dev, inode, written = read
                is_same = written == status.st_mtime_ns + status.st_ctime_ns and inode == status.st_ino
                # A last line that lacks its newline was read with it: one byte more than there is.
                if is_same and dev == status.st_dev and offset - status.st_size in (0, 1):
                    same[name] = status.st_mtime_ns
                    continue
            yield name

    def regular(self, name: str) -> TranscriptFile | None:
        """Return a regular file in a folder that was checked; a link only if its target is allowed."""
        try:
            status = os.lstat(name)
            if stat.S_ISLNK(status.st_mode):
                status = safe_open.check_status(Path(name), self.folders)
            if stat.S_ISREG(status.st_mode):
                found = _found(name, status)
                return _with_log(found) if self.are_databases else found
            if not stat.S_ISDIR(status.st_mode):
                self.refusal(Path(name), safe_open.not_regular(Path(name)))
        except FileNotFoundError:
            pass
        except (TranscriptRefusedError, OSError) as error:
            self.refusal(Path(name), error)
        return None


def _in_root(root: Root, patterns: Sequence[str], search: _Search) -> Iterator[TranscriptFile]:
    """Yield the files in a root that fit a pattern; each folder in it has a deadline of its own."""
    parts = [pattern.split("/") for pattern in patterns]
    here = [names for names in parts if len(names) == 1 or names[0] == "**"]
    below = [names for names in parts if names not in here]
    if here:
        yield from _listed(root.folder, partial(_fitting_any, str(root.folder), here, search), search.refusal)
    firsts = {names[0] for names in below}
    tops = _listed(root.folder, partial(_folders_in, root.folder, firsts, search), search.refusal) if below else []
    for top in tops:
        rest = [names[1:] for names in below if _pattern(names[0])(top.name)]
        yield from _listed(top, partial(_fitting_any, str(top), rest, search), search.refusal)


def _fitting_any(folder: str, patterns: Sequence[Sequence[str]], search: _Search) -> Iterator[TranscriptFile]:
    for parts in patterns:
        yield from _fitting(folder, parts, search)


def _listed(folder: Path, listing: Callable[[], Iterator[T]], refusal: Refusal) -> list[T]:
    try:
        return safe_open.call_with_deadline(lambda: list(listing()), folder, safe_open.LISTING_SECONDS)
    except FileNotFoundError:
        return []
    except (TranscriptBlockedError, TranscriptRefusedError, OSError) as error:
        refusal(folder, error)
        return []


def _folders_in(root: Path, patterns: set[str], search: _Search) -> Iterator[Path]:
    with os.scandir(root) as entries:
        named = [entry for entry in entries if any(_pattern(one)(entry.name) for one in patterns)]
    for entry in sorted(named, key=lambda entry: entry.name):
        path = Path(entry.path)
        try:
            if entry.is_symlink():
                safe_open.check_link(path, search.folders)
            if entry.is_dir():
                yield path
        except (TranscriptRefusedError, OSError) as error:
            search.refusal(path, error)


def _fitting(folder: str, parts: Sequence[str], search: _Search) -> Iterator[TranscriptFile]:
    """Yield the files below a folder that fit a pattern, given in parts; ``**`` is any number of folders."""
    part, *rest = parts
    if part == "**":
        for below, _, _ in os.walk(folder):
            with suppress(OSError):
                yield from _fitting(below, rest, search)
        return
    names = _names(folder, part, of_folders=bool(rest))
    if not rest:
        yield from sorted(filter(None, map(search.regular, search.changed(names) if search.known else names)))
        return
    for name in sorted(names):
        try:
            if os.path.islink(name):
                safe_open.check_link(Path(name), search.folders)
            yield from _fitting(name, rest, search)
        except TranscriptRefusedError as error:
            search.refusal(Path(name), error)
        except OSError:
            pass


def _names(folder: str, part: str, *, of_folders: bool) -> list[str]:
    """Return the paths in a folder that match one part of a pattern: only folders, or files as well."""
    if not set(part) & set("*?["):
        name = os.path.join(folder, part)
        return [name] if not of_folders or os.path.isdir(name) else []
    fits = _pattern(part)
    with os.scandir(folder) as entries:
        if of_folders:  # few entries are folders, so this is asked first
            return [e.path for e in entries if e.is_dir(follow_symlinks=False) and fits(e.name)]
        return [e.path for e in entries if fits(e.name)]


@cache
def _pattern(pattern: str) -> Callable[[str], object]:
    """Return a function that tells whether a name matches a pattern."""
    if pattern.startswith("*") and not set(pattern[1:]) & set("*?["):
        return methodcaller("endswith", pattern[1:])
    return re.compile(fnmatch.translate(pattern)).match


def _with_log(database: TranscriptFile) -> TranscriptFile:
    with suppress(OSError):
        log = _found("", os.lstat(database.name + LOG_SUFFIX))
        return database._replace(log=(log.size, log.modified, log.inode))
    return database
