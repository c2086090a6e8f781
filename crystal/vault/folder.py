"""Read and write crystal's files in a vault, with the hashes of what it wrote there.

A file is replaced or deleted only if its hash shows that it is as crystal wrote it, or as crystal read it into a
memory. The hashes are in a file beside the archive, not in the vault: a sync program may deliver files and hashes in
any order, and a hash that arrives before its file would look like a deleted file.
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
    """A file of crystal's in the vault.

    Attributes:
        memory: The id of its memory; None for a file that is made from others.
        version: The time of the memory's version with the same text, ms.
        hashes: Hashes of the content that crystal wrote or read; the new one is added before the file is written.
    """

    memory: str | None = None
    version: int = 0
    hashes: list[str] = field(default_factory=list)


class WantedFile(NamedTuple):
    """A file to write; ``memory`` and ``version`` as in ``KeptFile``."""

    data: bytes
    memory: str | None = None
    version: int = 0


def read_kept(ldm_home: Path) -> tuple[str | None, dict[str, KeptFile]]:
    """Return the vault's folder (None if nothing was written yet), and its files by their path below it.

    Raises:
        DamagedError: The file is not a list of files.
        CrystalError: It cannot be read.
    """
    hint = "move it away, then run: crystal vault sync"
    return read_json(ldm_home / VAULT_FILE, _kept_files, hint) or (None, {})


def _kept_files(found: Any) -> tuple[str | None, dict[str, KeptFile]]:
    return str(found["folder"]), {name: KeptFile(**one) for name, one in found["files"].items()}


class Vault:
    """The files of crystal in one folder; ``kept`` are those that it wrote, or read into memories."""

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
        """Check that the folder exists, and that no link leads its files elsewhere.

        Raises:
            UnavailableError: The folder does not exist.
            UsageError: A folder in it is a link.
        """
        if not self.root.is_dir():
            hint = "nothing was forgotten: connect its disk, or choose another folder with --to"
            raise UnavailableError(f"the vault {self.root} is not there", hint=hint)
        for name in (MEMORIES, DAILY, SESSIONS):
            if (self.root / name).is_symlink():
                raise UsageError(f"{self.root / name} is a link", hint="make it a folder of its own")

    def refuse_all_gone(self) -> None:
        """Raise an error if every memory file is gone: probably a sync program removed them, not the user.

        A single memory file may be gone if crystal's other files exist. Call this after renamed files are recognised.

        Raises:
            UnavailableError: They are all gone.
        """
        files = [path for path, one in self.kept.items() if one.memory is not None and one.version]
        is_single = len(files) == 1 and any(map(self.is_there, self.kept.keys() - set(files)))
        if files and not is_single and not any(map(self.is_there, files)):
            raise UnavailableError(
                f"all memory files are gone from {self.root}: {len(files)}; nothing was forgotten",
                hint="bring them back, or let crystal write them again: crystal vault sync --restore",
            )

    def is_there(self, path: str) -> bool:
        """Return True if a path exists, or iCloud has a placeholder for it."""
        whole = self.root / path
        return os.path.lexists(whole) or whole.with_name(f".{whole.name}.icloud").exists()

    def note_paths(self) -> list[str]:
        """Return the Markdown files in the folder of memories, sorted; some may not be crystal's.

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
        """Return the name of the file that a file is a sync program's copy of; None if it is not a copy."""
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
        """Read a file; None if it does not exist, or is a link.

        Raises:
            CrystalError: The file cannot be read.
        """
        with system_errors(self.root / path):
            return read_content(self.root, path, time.time_ns())

    def hash_of(self, data: bytes) -> str:
        """Return the keyed hash of a file; without the key, a hash cannot confirm a guess of its text."""
        return hmac.digest(self._key, data, "sha256").hex()

    def is_kept(self, path: str, data: bytes) -> bool:
        """Return True if a file is unchanged since crystal wrote or read it."""
        return path in self.kept and self.hash_of(data) in self.kept[path].hashes

    def note_same(self, path: str, data: bytes, memory: str, version: int) -> None:
        """Record that a file has the text of a version of a memory."""
        self.kept[path] = KeptFile(memory, version, [self.hash_of(data)])

    def save(self) -> None:
        """Write the list of files."""
        files = {path: asdict(one) for path, one in sorted(self.kept.items())}
        found = {"schema": 1, "folder": str(self.root), "files": files}
        write_private(self._ldm_home / VAULT_FILE, json.dumps(found, ensure_ascii=False, indent=1).encode() + b"\n")

    def put(self, path: str, data: bytes, before: bytes | None) -> bool:
        """Replace a file if its content is still ``before``; return True if it was replaced."""
        whole = self.root / path
        make_private_dir(whole.parent)
        with system_errors(whole):
            now = self.read(path)
            if (None if now is None else now.data) != before or (before is None and self.is_there(path)):
                return False
            replace_file(whole, data, lambda _, handle: os.fsync(handle))
        return True

    def write(self, wanted: Mapping[str, WantedFile]) -> tuple[int, int, list[SkippedFile]]:
        """Write the wanted files, and delete crystal's others; return the numbers of both, and the files left alone.

        A file that a person changed or deleted stays so. The new hashes are saved before the first file is written, so
        that a file written by a killed process is recognised.
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
        """Yield the present content of a file that may be written; nothing if it must stay."""
        found = self.read(path)
        if found is None:
            if not self.is_there(path) and (one.memory is None or path not in self.kept):
                yield None
        elif found.why is None and (found.data == one.data or self.is_kept(path, found.data)):
            yield found.data
        elif one.memory is None:
            left.append(SkippedFile(path, LEFT))

    def _drop(self, path: str, left: list[SkippedFile]) -> bool:
        """Delete a file that is no longer needed, unless a person changed it; return True if it was deleted."""
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
        """Delete temporary files of killed processes."""
        for folder in {self.root, *((self.root / path).parent for path in self.kept)}:
            for path in folder.glob(TEMPORARY_FILES):
                with contextlib.suppress(FileNotFoundError):  # it was renamed
                    if _TEMPORARY.fullmatch(path.name):
                        delete_left_behind(path)
