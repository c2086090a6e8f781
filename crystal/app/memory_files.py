"""Keep a block of memories in files that agents read; edits of the block change the memories.

Everything is compared before anything is changed. Each change is made in the memory first, then in the file: a process
killed between both finds at the next run that they say the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from crystal.app.context import Machine
from crystal.app.memories import remember
from crystal.app.memory_changes import deprecate, edit
from crystal.app.memory_queries import list_memories
from crystal.app.project_finder import project_finder
from crystal.app.projects import find_home
from crystal.app.session_context_content import seen_by
from crystal.app.vault import Side
from crystal.app.vault_files import EVERY, LOCK_SECONDS
from crystal.capture.lock import wait_lock
from crystal.capture.privacy import Policy, policy_of
from crystal.config.paths import absolute
from crystal.errors import CrystalError, NotFoundError, UsageError
from crystal.install.file_change import FileChange, decoded, read_whole
from crystal.memories.rules import cleaned_text
from crystal.model.capture import Project
from crystal.model.named_tuple import NamedTuple
from crystal.model.recall import Remembered
from crystal.store.memories.memories import forgotten_memories
from crystal.text.folders import is_within
from crystal.vault.block import STATES, TITLE, BlockRow, MemoryBlock, compare, parse_block, render_item
from crystal.vault.listed_files import read_files, save_files

LOCK = "files.lock"
SOURCE = "user"
FORGOTTEN = "its memory was forgotten; delete the line, or its mark <!-- ... --> to remember it anew"


class BlockDecisions(NamedTuple):
    """Answers of the user: remember added lines, hide the memories of deleted lines, which side wins a conflict."""

    adds: bool = False
    hides: bool = False
    prefer: Side | None = None


@dataclass(slots=True)
class MemoryFile:
    """A file with its block, compared with the memories of its project and those that hold everywhere.

    Attributes:
        path: The file, links followed.
        project: The project of its folder.
        rows: What each item means.
        refused: Items that cannot be remembered, and why. They stay as they are.
    """

    machine: Machine
    path: Path
    project: Project
    before: bytes | None
    mark: bytes
    block: MemoryBlock
    rows: list[BlockRow]
    refused: dict[BlockRow, str] = field(default_factory=dict)

    def rows_in(self, *states: str) -> list[BlockRow]:
        """Return the rows of some states, without those that are refused."""
        return [row for row in self.rows if row.state in states and row not in self.refused]

    @property
    def counts(self) -> dict[str, int]:
        """Return how many rows there are of each state."""
        found = Counter("refused" if row in self.refused else row.state for row in self.rows)
        return {state: found[state] for state in (*STATES, "refused")}

    def change(self, answers: BlockDecisions) -> FileChange:
        """Return what would become of the file; an added line is still without the mark that it gets."""
        return self._written([line for row in self.rows for line in self._lines(row, answers)])

    def run(self, answers: BlockDecisions) -> FileChange:
        """Change the memories, then the file; return what became of the file.

        Raises:
            UnavailableError: The file was changed meanwhile; what the memories have already is not asked again.
        """
        self.change(answers).check_unchanged()
        done = self._written([line for row in self.rows for line in self._lines(self._kept(row, answers), answers)])
        done.apply()
        return done

    def without(self) -> FileChange:
        """Return the file as it was before the block was written; one that was made for it is removed."""
        rest = self.block.without()
        return FileChange(self.path, self.path, self.before, None if rest is None else self.mark + rest.encode())

    def _written(self, lines: list[str]) -> FileChange:
        whole = lines if self.block.is_there else [TITLE, *lines]
        text = self.block.with_lines(whole) if self.block.is_there or lines else self.block.head
        data = None if self.before is None and not text else self.mark + text.encode()
        return FileChange(self.path, self.path, self.before, data)

    def _lines(self, row: BlockRow, answers: BlockDecisions) -> list[str]:
        """Return an item as it would be written; nothing where it vanishes."""
        stays = row in self.refused or row.state in ("kept", "added")
        if stays or (row.state == "conflict" and answers.prefer is None):
            return [] if row.entry is None else [row.entry.raw]
        if row.memory is None or (row.state == "deleted" and answers.hides):
            return []
        takes = row.state == "edited" or (row.state == "conflict" and answers.prefer == "file")
        said = row.entry.text if takes and row.entry is not None else row.memory.text
        return [render_item(replace(row.memory, text=said))]

    def _kept(self, row: BlockRow, answers: BlockDecisions) -> BlockRow:
        """Change the memory of an item as the person wants it; return the item as it is then."""
        entry, memory = row.entry, row.memory
        if row in self.refused:
            return row
        if memory is not None and row.state == "deleted" and answers.hides:
            deprecate(self.machine, memory.id)
        if entry is None:
            return row
        if row.state == "added" and answers.adds:
            root = self.project.git_root or self.project.cwd
            new = remember(self.machine, entry.text, project=root if self._is_project() else None, source=SOURCE)
            return BlockRow("same", entry, new)
        prefers = {"edited": "file", "conflict": answers.prefer}.get(row.state)
        if memory is None or prefers is None:
            return row
        new = edit(self.machine, memory.id, text=entry.text)
        if prefers == "crystal":
            new = edit(self.machine, memory.id, text=memory.text)  # the file's is a former one now
        return BlockRow("same", entry, new)

    def _is_project(self) -> bool:
        """Return True if the file is in a project's folder, and not in an agent's own."""
        return self.project.git_root is not None or find_home(self.machine.stores, str(self.path.parent)) is not None


def _compared(machine: Machine, path: Path) -> MemoryFile:
    """Read a file and compare it.

    Raises:
        UsageError: It is in crystal's own folders, private, no text in UTF-8, or its block is damaged.
    """
    target, before = read_whole(path)
    policy = policy_of(machine.store, machine.config)
    project = _project_of(machine, path, target, policy)
    mark, text = decoded(path, before or b"", "crystal writes into UTF-8 files only")
    if "\0" in text:
        raise UsageError(f"{path} is not a text file", hint="name another file")
    block = parse_block(None if before is None else text, str(path))
    wanted = sorted(_belonging(machine, project, policy), key=lambda one: (one.created_at, one.id))
    gone, clean = forgotten_memories(machine.store), machine.redactor().clean_text
    known = {one.id for one in list_memories(machine, status=None, limit=EVERY)} | gone
    rows, refused = compare(block, wanted, frozenset(known)), dict[BlockRow, str]()
    for row in rows:
        if row.entry is not None and row.state in ("edited", "added", "conflict"):
            why = FORGOTTEN if row.entry.ident in gone else _why_refused(row.entry.text, clean)
            refused |= {row: why} if why else {}
    return MemoryFile(machine, target, project, before, mark, block, rows, refused)


def _project_of(machine: Machine, path: Path, target: Path, policy: Policy) -> Project:
    """Return the project of a file; refuse one that is private, crystal's own, or linked from another project."""
    folder, find = str(target.parent), project_finder(machine.store)
    there = next((one for one in target.parents if one.is_dir()), target.parent)  # git is not asked in a folder to come
    project = find(str(there))
    if target != path and find(str(path.parent)).git_root != project.git_root:
        raise UsageError(f"{path} is a link to {target}, in another project", hint="name the file itself")
    if any(is_within(str(target), str(own)) for own in (machine.places.ldm_home, machine.places.data_dir)):
        raise UsageError(f"{path} is in crystal's own folder", hint="name a file of your project")
    if policy.is_private_folder(folder) or policy.is_private_folder(project.git_root or folder):
        raise UsageError(f"{path} is in a private folder", hint="crystal config get private.projects")
    return project


def _belonging(machine: Machine, project: Project, policy: Policy) -> Iterator[Remembered]:
    """Yield the confirmed memories of a project, and those that hold everywhere; none of a private or isolated one."""
    with seen_by(machine, None, project.cwd) as sources:
        for one, place in sources.memories:
            is_here = place is None or sources.is_same(project, place, one.device)
            is_private = place is not None and policy.is_private_folder(place.cwd)
            if is_here and not is_private and not one.source.startswith("learned"):  # that nobody has reviewed
                yield one


def _why_refused(text: str, clean: Callable[[str], tuple[str, object]]) -> str | None:
    try:
        kept = cleaned_text(text, clean)  # type: ignore[arg-type] # the redactor's own
    except UsageError as error:
        return error.message
    return None if kept == text.strip() else "it has a secret or a private part"


class FileList:
    """The files with a block. Under the lock."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.paths = read_files(machine.places.ldm_home)

    def compared(self, path: Path) -> MemoryFile:
        """Return a file, compared; see ``_compared``."""
        return _compared(self._machine, path)

    def named(self, names: list[str], home: Path) -> list[Path]:
        """Return the files that the person names; all of the list where none is named.

        Raises:
            NotFoundError: None is named, and the list is empty.
        """
        if not names and not self.paths:
            raise NotFoundError("no file has memories yet", hint="name one: crystal files sync AGENTS.md")
        return [absolute(name, home, name="the file") for name in names] or self.paths

    def note(self, path: Path) -> None:
        """Add a file to the list, before its block is written: forgetting looks into every file of the list."""
        self._save({*self.paths, path})

    def drop(self, path: Path) -> None:
        """Take a file off the list."""
        self._save({*self.paths} - {path})

    def _save(self, paths: set[Path]) -> None:
        if paths != {*self.paths}:
            self.paths = sorted(paths)
            save_files(self._machine.places.ldm_home, self.paths)


@contextmanager
def file_list(machine: Machine) -> Iterator[FileList]:
    """Open the list of files, and keep other processes from it until the block ends."""
    with wait_lock(machine.places.data_dir / LOCK, seconds=LOCK_SECONDS):
        yield FileList(machine)


def state_of_files(machine: Machine) -> list[tuple[Path, MemoryFile | CrystalError]]:
    """Return each file of the list, compared, or why it cannot be."""
    found: list[tuple[Path, MemoryFile | CrystalError]] = []
    for path in read_files(machine.places.ldm_home):
        try:
            found.append((path, _compared(machine, path)))
        except CrystalError as error:
            found.append((path, error))
    return found
