"""Change another program's file: read it whole, show the change, write it whole or not at all."""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from crystal.config.paths import make_private_dir, replace_file, sync_folder, system_errors
from crystal.errors import CrystalError, UnavailableError, UsageError
from crystal.install import jsontext
from crystal.model.quick_dataclass import dataclass

BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class FileChange:
    """A planned change to a file, not yet applied.

    Attributes:
        path: The path that the other program uses.
        target: The path with symbolic links resolved: the file that is written.
        before: The current bytes, or None without a file.
        after: The new bytes, None to delete the file.
    """

    path: Path
    target: Path
    before: bytes | None
    after: bytes | None

    @property
    def changed(self) -> bool:
        """Return whether the plan changes the file."""
        return self.before != self.after

    def diff(self) -> str:
        """Return the changed lines of the file without context, because other lines may be secret."""
        if not self.changed:
            return f"{self.path}: nothing to change\n"
        news = {(True, False): " (new file)", (False, True): " (the file is removed)"}
        head = f"{self.path}{news.get((self.before is None, self.after is None), '')}"
        return "\n".join([head, *_difference(_shown(self.before), _shown(self.after))]) + "\n"

    def check_unchanged(self) -> None:
        """Check that the file is as it was when the change was planned, and may be written.

        Raises:
            UnavailableError: It was changed.
            UsageError: It is write-protected, which would not stop its owner or root.
        """
        if read_whole(self.path) != (self.target, self.before):
            raise UnavailableError(
                f"{self.path} was changed by another program meanwhile", hint="run the command again"
            )
        if self.changed and self.before is not None and not self.target.stat().st_mode & 0o222:
            raise UsageError(
                f"{self.path} is write-protected", hint=f"allow it: chmod u+w {shlex.quote(str(self.target))}"
            )

    def apply(self) -> None:
        """Write the change, unless the file was changed meanwhile.

        Raises:
            UnavailableError: It was, or the system refuses. The file is left unchanged.
        """
        if self.changed:
            with system_errors(self.path):
                self.check_unchanged()
                self.write()

    def write(self) -> None:
        """Write the new bytes or delete the file. After a crash the file has the old or the new bytes.

        Raises:
            OSError: The system refuses. The file is unchanged.
        """
        if self.after is None:
            self.target.unlink()
        else:
            make_private_dir(self.target.parent)
            write_whole(self.target, self.after, like=self.target)


def read_whole(path: Path) -> tuple[Path, bytes | None]:
    """Return the real path of a file, symbolic links resolved, and its bytes or None.

    Raises:
        UsageError: ``path`` is not a regular file.
        UnavailableError: The system refuses to read it.
    """
    with system_errors(path):
        target = Path(os.path.realpath(path))
        try:
            if not stat.S_ISREG(target.stat().st_mode):
                raise UsageError(f"{path} is not a regular file", hint="move it away, then run the command again")
            return target, target.read_bytes()
        except FileNotFoundError:
            return target, None


def decoded(path: Path, data: bytes, hint: str) -> tuple[bytes, str]:
    """Return the byte order mark, if there is one, and the text.

    Raises:
        UsageError: It is not UTF-8; the error has ``hint``.
    """
    mark = BOM if data.startswith(BOM) else b""
    try:
        return mark, data[len(mark) :].decode("utf-8")
    except UnicodeDecodeError as error:
        line, column = jsontext.place(data[len(mark) :][: error.start].decode("utf-8"), error.start)
        raise UsageError(f"{path}: line {line}, column {column}: not UTF-8", hint=hint) from error


def encoded(path: Path, text: str) -> bytes:
    """Encode a text for a file.

    Raises:
        UsageError: It contains a path that is not UTF-8.
    """
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        problem = f"{path}: a path of this installation is not UTF-8, and the file cannot name it"
        raise UsageError(problem, hint="install crystal in a folder whose name is UTF-8") from error


@contextlib.contextmanager
def json_errors(path: Path, text: str, hint: str) -> Iterator[None]:
    """Translate errors of parsing into ``UsageError``, with line and column."""
    try:
        yield
    except jsontext.JsonSyntaxError as error:
        line, column = jsontext.place(text, error.position)
        raise UsageError(f"{path}: line {line}, column {column}: {error.problem}", hint=hint) from error
    except RecursionError as error:
        raise UsageError(f"{path}: nested too deeply", hint=hint) from error


def write_whole(path: Path, data: bytes, *, like: Path) -> None:
    """Replace a file as a whole, with the mode and owner of ``like`` if it exists, else private."""
    imitated: os.stat_result | None = None
    with contextlib.suppress(FileNotFoundError):
        imitated = like.stat()

    def finish(temporary: Path, handle: int) -> None:
        if imitated is not None:
            _imitate(temporary, imitated)
        os.fsync(handle)

    replace_file(path, data, finish)
    sync_folder(path.parent)


def _imitate(temporary: Path, like: os.stat_result) -> None:
    mine = temporary.stat()
    if sys.platform != "win32" and (mine.st_uid, mine.st_gid) != (like.st_uid, like.st_gid):
        with contextlib.suppress(PermissionError):
            os.chown(temporary, like.st_uid, like.st_gid)
    temporary.chmod(stat.S_IMODE(like.st_mode))


def _shown(data: bytes | None) -> str:
    return (data or b"").removeprefix(BOM).decode("utf-8", "replace")


def _difference(old: str, new: str) -> Iterator[str]:
    import difflib  # noqa: PLC0415 - a search asks whether the hooks are there, and changes nothing

    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    for kind, a, b, c, d in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind != "equal":
            gone, come = _middles("".join(before[a:b]), "".join(after[c:d]))
            yield f"@@ line {c + 1} @@"
            yield from (f"- {line}" for line in gone.splitlines())
            yield from (f"+ {line}" for line in come.splitlines())


def _middles(old: str, new: str) -> tuple[str, str]:
    """Return the different middle parts of two texts with a common start and end."""
    start = _alike(old, new)
    old, new = old[start:], new[start:]
    end = _alike(old[::-1], new[::-1])
    return old[: len(old) - end], new[: len(new) - end]


def _alike(one: str, other: str) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(one), len(other)))


@contextlib.contextmanager
def noted(errors: list[CrystalError]) -> Iterator[None]:
    """Add an error with one file to the list, so that the other files are still changed."""
    try:
        yield
    except CrystalError as error:
        errors.append(error)
