"""The files that crystal keeps in a vault, and the hashes of what it wrote there.

A file is replaced or deleted only if it still is what crystal wrote, or read and agreed with: its hash says so. The
hashes are in a file beside the archive, not in the vault: a program that syncs the vault may bring files and hashes in
any order, and a hash that comes before its file would look like a file that was deleted.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from crystal.config.json_file import read_json
from crystal.config.paths import VAULT_FILE, make_private_dir, refused, replace_file, system_errors, write_private
from crystal.config.temporary_files import TEMPORARY_FILES, delete_left_behind
from crystal.errors import UnavailableError, UsageError
from crystal.model.named_tuple import NamedTuple
from crystal.sources.file_content import FileContent, read_content
from crystal.sources.scan import SkippedFile, conflict_original

MEMORIES, DAILY, SESSIONS, INDEX = "memories", "memory", "sessions", "MEMORY.md"
_TEMPORARY = re.compile(r"\.crystal-\d+-[0-9a-f]{12}\.tmp")
_NUMBERED = re.compile(r"(?P<stem>.+?) \(?\d+\)?\.md")
LEFT = "changed by you: left as it is; delete it to get a new one"


@dataclass(slots=True)
class KeptFile:
    """A file that crystal keeps.

    Attributes:
        memory: The memory that it holds; None for a file that is made from others.
        version: The time of the memory's version that it agreed with, ms.
        hashes: Of what crystal wrote or agreed with. While files are written it has the new one, too.
    """

    memory: str | None = None
    version: int = 0
    hashes: list[str] = field(default_factory=list)


class WantedFile(NamedTuple):
    """Planned file; ``memory`` and ``version`` as in ``KeptFile``."""

    data: bytes
    memory: str | None = None
    version: int = 0


def read_kept(ldm_home: Path) -> tuple[str | None, dict[str, KeptFile]]:
    """Return the vault's folder and its files, by their path below it; None if nothing was written yet.

    Raises:
        DamagedError: The file is no such list.
        CrystalError: The system refuses to read it.
    """
    hint = "move it away, then run: crystal vault sync"
    return read_json(ldm_home / VAULT_FILE, _kept_files, hint) or (None, {})


def _kept_files(found: Any) -> tuple[str | None, dict[str, KeptFile]]:
    return str(found["folder"]), {name: KeptFile(**one) for name, one in found["files"].items()}


class Vault:
    """The files of crystal in one folder; ``kept`` are those that it wrote or agreed with."""

    def __init__(self, root: Path, ldm_home: Path, key: bytes) -> None:
        self.root = Path(os.path.realpath(root))
        self._ldm_home, self._key = ldm_home, key
        former, kept = read_kept(ldm_home)
        is_same = former == str(self.root)
        self.kept = kept if is_same else {}
        self.left_behind = (
            [] if is_same else [str(Path(former or "", one)) for one in kept if Path(former or "", one).exists()]
        )

    def check(self) -> None:
        """Refuse a folder that is missing, or whose files would be written elsewhere.

        Raises:
            UnavailableError, UsageError: It is.
        """
        if not self.root.is_dir():
            hint = "nothing was forgotten: connect its disk, or choose another folder with --to"
            raise UnavailableError(f"the vault {self.root} is not there", hint=hint)
        for name in (MEMORIES, DAILY, SESSIONS):
            if (self.root / name).is_symlink():
                raise UsageError(f"{self.root / name} is a link", hint="make it a folder of its own")

    def refuse_all_gone(self) -> None:
        """Refuse to take it for a person's wish that every memory file is gone: a sync program may be at work.

        A single one may be deleted, if crystal's other files are there. Files that were renamed must be known as such.

        Raises:
            UnavailableError: They are.
        """
        files = [path for path, one in self.kept.items() if one.memory is not None and one.version]
        is_single = len(files) == 1 and any(map(self.is_there, self.kept.keys() - set(files)))
        if files and not is_single and not any(map(self.is_there, files)):
            raise UnavailableError(
                f"all memory files are gone from {self.root}: {len(files)}; nothing was forgotten",
                hint="bring them back, or let crystal write them again: crystal vault sync --restore",
            )

    def is_there(self, path: str) -> bool:
        """Return True if there is anything at a path, also if a sync program holds only its name here."""
        whole = self.root / path
        return os.path.lexists(whole) or whole.with_name(f".{whole.name}.icloud").exists()

    def note_paths(self) -> list[str]:
        """Return the files of memories, and what else is between them, in order.

        Raises:
            CrystalError: A folder cannot be listed.
        """

        def stop(error: OSError) -> None:
            raise refused(error, Path(error.filename)) from error

        top = self.root / MEMORIES
        found = []
        for folder, below, names in os.walk(top, onerror=stop) if top.is_dir() else ():
            below[:] = [name for name in below if not name.startswith(".")]
            found += [Path(folder, name) for name in names if name.endswith(".md") and not name.startswith(".")]
        return sorted(path.relative_to(self.root).as_posix() for path in found)

    def copied_from(self, path: str) -> str | None:
        """Return of which file a file is the second version that a sync program made; None if it is no copy."""
        name = PurePosixPath(path).name
        original = conflict_original(name)
        numbered = _NUMBERED.fullmatch(name)
        if original is None and numbered is not None and path not in self.kept:
            beside = f"{numbered['stem']}.md"
            original = beside if self.is_there(str(PurePosixPath(path).with_name(beside))) else None
        return original

    def copies(self) -> Iterator[SkippedFile]:
        """Yield conflict copies of crystal's files, which are never merged."""
        folders = [self.root, *(self.root / name for name in (DAILY, SESSIONS))]
        paths = [path.relative_to(self.root).as_posix() for folder in folders for path in folder.glob("*.md")]
        for path in [*self.note_paths(), *paths]:
            original = self.copied_from(path)
            beside = str(PurePosixPath(path).with_name(original or "-"))
            if original is not None and (path.startswith(f"{MEMORIES}/") or beside in self.kept):
                yield SkippedFile(path, f"a conflict copy of {original}: take from it what you need, then delete it")

    # ------------------------------------------------------------------------------------------------- reading, writing

    def read(self, path: str) -> FileContent | None:
        """Read a file; None if it is gone, or is a link.

        Raises:
            CrystalError: The system refuses.
        """
        with system_errors(self.root / path):
            return read_content(self.root, path, time.time_ns())

    def hash_of(self, data: bytes) -> str:
        """Return the hash of a file. It is keyed: that of a private text would confirm a guess."""
        return hmac.digest(self._key, data, "sha256").hex()

    def is_kept(self, path: str, data: bytes) -> bool:
        """Return True if a file is what crystal wrote or agreed with."""
        return path in self.kept and self.hash_of(data) in self.kept[path].hashes

    def note_same(self, path: str, data: bytes, memory: str, version: int) -> None:
        """Note that a file says what a version of a memory says."""
        self.kept[path] = KeptFile(memory, version, [self.hash_of(data)])

    def save(self) -> None:
        """Write the list of files."""
        files = {path: asdict(one) for path, one in sorted(self.kept.items())}
        found = {"schema": 1, "folder": str(self.root), "files": files}
        write_private(self._ldm_home / VAULT_FILE, json.dumps(found, ensure_ascii=False, indent=1).encode() + b"\n")

    def put(self, path: str, data: bytes, before: bytes | None) -> bool:
        """Replace a file as a whole, unless it is not as it was ``before`` any more; return whether it was replaced."""
        whole = self.root / path
        make_private_dir(whole.parent)
        with system_errors(whole):
            now = self.read(path)
            if (None if now is None else now.data) != before or (before is None and self.is_there(path)):
                return False
            replace_file(whole, data, lambda _, handle: os.fsync(handle))
        return True

    def write(self, wanted: Mapping[str, WantedFile]) -> tuple[int, int, list[SkippedFile]]:
        """Make the files equal to what they should be, and delete crystal's others; return how many, and what is left.

        A file that a person changed or deleted stays so. The new hashes are noted before the first file is written, so
        that one written by a process that was killed is known as crystal's.
        """
        left: list[SkippedFile] = []
        todo = {path: before for path, one in wanted.items() for before in self._replaceable(path, one, left)}
        for path in todo:
            self.kept.setdefault(path, KeptFile(wanted[path].memory)).hashes.append(self.hash_of(wanted[path].data))
        if any(before != wanted[path].data for path, before in todo.items()):
            self.save()
        written = 0
        for path, before in todo.items():
            one = wanted[path]
            if before == one.data or self.put(path, one.data, before):
                written += before != one.data
                self.kept[path] = KeptFile(one.memory, one.version, [self.hash_of(one.data)])
        removed = sum(self._drop(path, left) for path in self.kept.keys() - wanted.keys())
        self._sweep()
        self.save()
        return written, removed, left

    def _replaceable(self, path: str, one: WantedFile, left: list[SkippedFile]) -> Iterator[bytes | None]:
        """Yield what a file is before it is written; nothing if it must stay."""
        found = self.read(path)
        if found is None:
            if not self.is_there(path) and (one.memory is None or path not in self.kept):
                yield None
        elif found.why is None and (found.data == one.data or self.is_kept(path, found.data)):
            yield found.data
        elif one.memory is None:
            left.append(SkippedFile(path, LEFT))

    def _drop(self, path: str, left: list[SkippedFile]) -> bool:
        """Delete a file that is no longer needed, unless a person changed it; return whether it was deleted."""
        found = self.read(path)
        is_ours = found is not None and self.is_kept(path, found.data)
        if is_ours:
            with system_errors(self.root / path):
                (self.root / path).unlink(missing_ok=True)
        elif found is not None:
            left.append(SkippedFile(path, "changed by you, and no longer in crystal: left as it is"))
        del self.kept[path]
        return is_ours

    def _sweep(self) -> None:
        """Delete what a killed process left."""
        for folder in {self.root, *((self.root / path).parent for path in self.kept)}:
            for path in folder.glob(TEMPORARY_FILES):
                with contextlib.suppress(FileNotFoundError):  # it was renamed
                    if _TEMPORARY.fullmatch(path.name):
                        delete_left_behind(path)
