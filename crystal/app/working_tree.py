"""A working tree: what became of the files in it that texts name. Git is asked for a moment alone, where needed."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import islice
from pathlib import Path

from crystal.app.git_files import LoggedChange, changes_since, is_left_out, read_blobs, tracked_files, versions_of
from crystal.capture.safe_open import call_with_deadline
from crystal.model.named_tuple import NamedTuple
from crystal.model.quick_dataclass import dataclass, replace
from crystal.model.recall import Validity
from crystal.work import validity as rules
from crystal.work.blame import SLACK_MS
from crystal.work.calls import ToolCall
from crystal.work.validity import FileNow, FileVersion, KnownEdit

GIT_SECONDS = 0.15
"""Each question to git may take so long."""
DISK_SECONDS = 2.0
MAX_FILE_BYTES = 2 << 20
MAX_RENAMES = 5
MAX_LATER = 8
"""Edits after one that are read to see if they replaced it."""
FIRST_VERSIONS, LAST_VERSIONS = 3, 8
"""Versions of one file that are read, of those since an edit."""
UNREADABLE = "\ufffd"
"""Sign that agents write for the bytes of a file's name that are no UTF-8."""
_REWRITING = (b"filter=", b"ident", b"working-tree-encoding")
"""Attributes that make git store a file otherwise than it is on disk."""


class ProjectFolder(NamedTuple):
    """The folder that a project has here: its branch, None if it is not known, and whether git knows it."""

    root: str
    branch: str | None
    has_git: bool
    rows: tuple[int, ...]


class Claim(NamedTuple):
    """Statement of one text about files: it edited one by ``call``, or it names some. ``at`` is when."""

    id: int
    text: str
    at: int
    session: str | None
    is_here: bool
    names: tuple[str, ...]
    call: ToolCall | None = None


class _File(NamedTuple):
    """A file in the working tree; ``data`` is None if it is no text, too large, behind a link, or being written."""

    is_there: bool
    data: bytes | None = None
    modified_at: int = 0


@dataclass(slots=True)
class WorkingTree:
    """A working tree, and what texts say of its files; ``edits`` are those of the files, latest first.

    ``read_edit`` returns what an edit did; None if it was forgotten.
    """

    place: ProjectFolder
    claims: Sequence[Claim]
    edits: Mapping[str, Sequence[KnownEdit]]
    read_edit: Callable[[KnownEdit], ToolCall | None]
    files: dict[str, _File] = field(default_factory=dict)
    changes: Sequence[LoggedChange] = ()
    texts: Mapping[str, bytes] = field(default_factory=dict)
    tracked: Mapping[str, str] = field(default_factory=dict)
    is_whole: bool = False

    def validities(self) -> list[tuple[int, Validity]]:
        """Return what became of the files, with the id of the text that names each. Git is asked only where needed."""
        named = self._named()
        self._read({path for _, path in named})
        found = {(claim, path): self._at_once(claim, path) for claim, path in named}
        open_ones = [one for one, validity in found.items() if validity is None]
        if open_ones and self.place.has_git:
            self._ask_git(open_ones)
        known = [(claim.id, validity) for (claim, _), validity in found.items() if validity is not None]
        return known + [(claim.id, validity) for claim, path in open_ones for validity in self._judge(claim, path)]

    def _named(self) -> list[tuple[Claim, str]]:
        """Return each text with each file that it means; of a name that is no path, git and the edits tell the file."""
        asked = {name for claim in self.claims if claim.call is None for name in claim.names}
        if self.place.has_git and asked:
            self.tracked = tracked_files(self.place.root, asked, GIT_SECONDS)
        known = self.tracked.keys() | self.edits.keys()
        named = [(claim, name) for claim in self.claims for name in claim.names]
        meant = [(claim, name if claim.call else rules.find_path(name, known)) for claim, name in named]
        return list(dict.fromkeys((claim, path) for claim, path in meant if path and UNREADABLE not in path))

    def _at_once(self, claim: Claim, path: str) -> Validity | None:
        """Judge without git: the lines of an edit are there, or nobody wrote the file since it was named."""
        file = self._file(path)
        if claim.call is not None:
            is_same = file.data is not None and rules.is_unchanged(claim.call, file.data)
        else:
            own = self._own(claim, path)
            is_same = file.data is not None and file.modified_at <= (max(own + SLACK_MS, claim.at) if own else claim.at)
        return Validity(path, "unchanged") if is_same else None

    def _ask_git(self, claims: Sequence[tuple[Claim, str]]) -> None:
        """Read the commits that changed the files, and the versions of files whose lines are compared."""
        self._find_changes({path for _, path in claims}, min(self._since(claim, path) for claim, path in claims))
        blobs = list[str]()
        for claim, path in claims if self.is_whole else ():
            is_compared = claim.call or rules.named_symbols(claim.text)
            if is_compared or self.edits.get(path):
                versions = self._versions(claim, path)
                some = [*versions[:FIRST_VERSIONS], *versions[-LAST_VERSIONS:]] if is_compared else versions[-1:]
                blobs += [name for one in some for name in (one.before, one.blob) if name and name.strip("0")]
        self.texts = read_blobs(self.place.root, dict.fromkeys(blobs), GIT_SECONDS) if blobs else {}

    def _find_changes(self, paths: set[str], since: int) -> None:
        """Read the commits that changed files, also before and after they were renamed, if one is not there."""
        renames = not all(self._file(path).is_there for path in paths)
        for _ in range(MAX_RENAMES if renames else 1):
            self.changes, self.is_whole = changes_since(self.place.root, paths, since, GIT_SECONDS, renames=renames)
            new = {one.new_path for one in self.changes if one.path in paths and one.new_path} - paths
            if not new:
                return
            paths |= new
        self.is_whole = False  # it was renamed more often

    def _judge(self, claim: Claim, path: str) -> Iterator[Validity]:
        """Yield what became of a file that was not judged at once."""
        versions = self._versions(claim, path)
        path = versions[-1].path if versions else path
        file = self._file(path)
        now = FileNow(path, file.data or b"" if file.is_there else None)
        is_sure = self.is_whole or not self.place.has_git
        found = None
        if claim.call is not None:
            if is_sure and (file.data is not None or not file.is_there):
                found = self._judge_edit(claim, claim.call, versions, now)
        elif is_sure or file.is_there:
            found = self._judge_mention(claim, versions, now)
            if file.data is not None and versions:
                yield from rules.judge_symbols(rules.named_symbols(claim.text), versions, now)
        if found is not None and not self._is_left_out(found):
            yield replace(found, session=found.session or self._session(claim, found, versions, now))

    def _is_left_out(self, found: Validity) -> bool:
        """Return whether a file without a commit that deleted it is there, but not in the working tree."""
        is_lost = found.state == "gone" and found.commit is None and self.place.has_git
        return is_lost and is_left_out(self.place.root, found.what, GIT_SECONDS)

    def _session(self, claim: Claim, found: Validity, versions: Sequence[FileVersion], now: FileNow) -> str | None:
        """Return the latest session whose edit made a change."""
        by = next((one for one in versions if one.commit == found.commit), None)
        before, after = (by.old, by.text) if by else (versions[-1].text if versions else None, now.text)
        for one in islice(rules.edits_before(found, versions, claim.at, self.edits.get(now.path, ())), MAX_LATER):
            done = self.read_edit(one)
            if done is not None and rules.has_made(done, claim.call, before or b"", after or b""):
                return one.session
        return None

    def _judge_edit(
        self, claim: Claim, call: ToolCall, versions: Sequence[FileVersion], now: FileNow
    ) -> Validity | None:
        """Return what became of an edit, or which later edit replaced it."""
        found = rules.judge_edit(call, is_here=claim.is_here, versions=versions, now=now)
        return found if found is not None or now.text is None else self._replaced(call, claim.at, now)

    def _replaced(self, call: ToolCall, at: int, now: FileNow) -> Validity | None:
        """Return which later edit replaced an edit that was in no commit."""
        later = [one for one in reversed(self.edits.get(now.path, ())) if one.at > at]
        for one in later[:MAX_LATER]:
            done = self.read_edit(one)
            if done is not None and rules.has_made(done, call, b"", now.text or b""):
                return Validity(now.path, "changed", session=one.session, at=one.at)
        return None

    def _judge_mention(self, claim: Claim, versions: Sequence[FileVersion], now: FileNow) -> Validity | None:
        """Return what became of a file that is only named; None if git does not know it for sure."""
        if not versions and not (self.is_whole and now.path in self.tracked):
            return None
        is_rewritten = not self._own(claim, now.path) and self._is_rewritten(now.path)
        return rules.judge_mention(versions, now, is_rewritten=is_rewritten)

    def _own(self, claim: Claim, path: str) -> int:
        """Return when the session of a text edited a file last; 0 if it did not."""
        return max((one.at for one in self.edits.get(path, ()) if one.session == claim.session), default=0)

    def _since(self, claim: Claim, path: str) -> int:
        return claim.at if claim.call else self._own(claim, path) or claim.at

    def _versions(self, claim: Claim, path: str) -> list[FileVersion]:
        """Return the versions of a file since a text; not the commit of what the session of the text itself edited."""
        found = versions_of(path, self._since(claim, path), self.changes)
        if claim.call is None and self._own(claim, path):
            found = found[1:]
        read = [one._replace(old=self.texts.get(one.before), text=self.texts.get(one.blob or "")) for one in found]
        return [one for one in read if one.at > claim.at]

    def _is_rewritten(self, path: str) -> bool:
        """Return whether a file differs from what git has of it, without running filters."""
        file, blob = self._file(path), self.tracked.get(path)
        settings = self._file(".gitattributes")
        if file.data is None or blob is None or any(word in (settings.data or b"") for word in _REWRITING):
            return False
        new = hashlib.sha1 if len(blob) == 40 else hashlib.sha256
        forms = (file.data, file.data.replace(b"\r\n", b"\n"))
        return blob not in [new(b"blob %d\0" % len(one) + one).hexdigest() for one in forms]

    def _file(self, path: str) -> _File:
        self._read({path})
        return self.files[path]

    def _read(self, paths: Iterable[str]) -> None:
        """Read files that were not read yet, all in one thread that is waited for a moment alone."""
        root, new = self.place.root, [path for path in paths if path not in self.files]
        if new:
            self.files |= call_with_deadline(lambda: {path: _read_file(root, path) for path in new}, root, DISK_SECONDS)


def _read_file(root: str, path: str) -> _File:
    """Read a file below a folder; a link that leads out of it is not followed."""
    place = Path(root) / path
    try:
        real = place.resolve()
        if not real.is_relative_to(Path(root).resolve()):
            return _File(True)
        with os.fdopen(os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            before = os.fstat(file.fileno())
            if not stat.S_ISREG(before.st_mode) or before.st_size > MAX_FILE_BYTES:
                return _File(True)
            data, after = file.read(MAX_FILE_BYTES + 1), os.fstat(file.fileno())
    except (FileNotFoundError, NotADirectoryError):
        return _File(os.path.lexists(place))
    except (OSError, ValueError):
        return _File(True)
    is_still = (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns) and len(data) == after.st_size
    return _File(True, data if is_still and b"\0" not in data else None, after.st_mtime_ns // 1_000_000)
