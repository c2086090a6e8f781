"""Keep memories in step with a folder of Markdown files: read what a person changed, then write what crystal knows.

Nothing is changed before everything was looked at, so that a deleted file can be asked about first. Each change is
made twice, in the database and in the file, and both are compared first at the next run: one killed between them finds
that they agree.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

from crystal.app.context import Machine
from crystal.app.forget import execute_without_vault, plan_forget
from crystal.app.memories import project_of_words, remember
from crystal.app.memory_changes import edit
from crystal.app.memory_queries import find_by_key, find_by_words, list_memories, mirror_of
from crystal.app.vault_files import EVERY, LOCK_SECONDS, VAULT_LOCK, open_vault, write_vault
from crystal.capture.lock import wait_lock
from crystal.config.edit import set_value
from crystal.config.paths import absolute, make_private_dir
from crystal.errors import UsageError
from crystal.forgetting.request import ForgetRequest
from crystal.memories.rules import MEMORY_ID, checked_category, cleaned_key, cleaned_text
from crystal.model.recall import Remembered
from crystal.sources.file_content import encoded, text_of
from crystal.sources.listed_sources import read_list
from crystal.sources.scan import SkippedFile
from crystal.store.memories import memories
from crystal.text.folders import is_within
from crystal.vault.folder import KeptFile
from crystal.vault.note import MemoryNote, changed_fields, parse_note, text_of_memory, unfinished, with_id

SETTING = "vault.folder"
SOURCE = "vault"
Side = Literal["file", "crystal"]


def side_named(word: str | None) -> Side | None:
    """Return the side of this name, whose text wins where both changed; None if none is given.

    Raises:
        UsageError: The word is no side.
    """
    side: Side | None = next((one for one in get_args(Side) if one == word), None)
    if word is not None and side is None:
        raise UsageError(f"--prefer is {word!r}", hint=f"use one of: {', '.join(get_args(Side))}")
    return side


@dataclass(frozen=True, slots=True)
class FoundNote:
    """A file of a memory, as it was read; ``memory`` is the memory that it holds, None: it is new."""

    path: str
    data: bytes
    text: str
    ident: str | None = None
    memory: Remembered | None = None

    @property
    def note(self) -> MemoryNote:
        """Return what the file says."""
        return parse_note(self.text)


@dataclass(slots=True)
class VaultChanges:
    """Changes in the files that are not in the memory yet.

    Attributes:
        new: Files without a memory.
        edited: Files that a person changed.
        conflicts: Files that were changed, and so were their memories.
        deleted: Memories whose files were deleted, by path.
    """

    new: list[FoundNote] = field(default_factory=list)
    edited: list[FoundNote] = field(default_factory=list)
    conflicts: list[FoundNote] = field(default_factory=list)
    deleted: dict[str, Remembered] = field(default_factory=dict)


@dataclass(slots=True)
class VaultReport:
    """Report of a sync: numbers of memories and of files, open conflicts, and files left as they are.

    ``copies`` of these files are conflict copies. ``left_behind`` are files in the former folder, which crystal neither
    writes nor cleans any more.
    """

    folder: str
    remembered: int = 0
    edited: int = 0
    forgotten: int = 0
    written: int = 0
    removed: int = 0
    copies: int = 0
    conflicts: list[FoundNote] = field(default_factory=list)
    left: list[SkippedFile] = field(default_factory=list)
    failed: list[SkippedFile] = field(default_factory=list)
    left_behind: list[str] = field(default_factory=list)


def choose_folder(machine: Machine, to: str | None, home: Path) -> Path:
    """Return the vault's folder: the given one, the one of the setting, or else the one source that is a vault.

    The setting remembers it.

    Raises:
        UsageError: No folder is known, or it is in crystal's own folders or around them.
    """
    said = to or machine.config.vault_folder or _only_vault(machine)
    folder = absolute(said, home, name="the vault")
    for own in (machine.places.ldm_home, machine.places.data_dir):
        if is_within(str(folder), str(own)) or is_within(str(own), str(folder)):
            raise UsageError(f"{folder} and crystal's own files in {own} overlap", hint="choose another folder")
    if to is not None:
        make_private_dir(folder)
    if str(folder) != machine.config.vault_folder and said != machine.config.vault_folder:
        set_value(machine.places.config_file, SETTING, str(folder))
    return folder


def _only_vault(machine: Machine) -> str:
    """Return the folder of the only source that is a vault.

    Raises:
        UsageError: No source is a vault, or several are.
    """
    vaults = [one.path for one in read_list(machine.places.ldm_home) or () if one.is_vault]
    if len(vaults) == 1:
        return vaults[0]
    problem = f"there are {len(vaults)} vaults: {', '.join(vaults)}" if vaults else "there is no vault yet"
    raise UsageError(problem, hint="choose a folder: crystal vault sync --to FOLDER")


class VaultSync:
    """One sync of the vault. ``changes`` are known before anything is changed; ``run`` makes them. Under the lock."""

    def __init__(self, machine: Machine, folder: Path, *, restores: bool = False) -> None:
        self._machine, self._cleaner = machine, machine.redactor()
        self.vault = open_vault(machine, folder)
        self.report = VaultReport(str(self.vault.root), left_behind=self.vault.left_behind)
        self.changes = VaultChanges()
        self.vault.check()
        self._known = {one.id: one for one in list_memories(machine, status=None, limit=EVERY)}
        self._gone = memories.forgotten_memories(machine.store)
        self._look(restores=restores)
        if not restores:
            self.vault.refuse_all_gone()

    # ------------------------------------------------------------------------------------------------------- looking

    def _look(self, *, restores: bool) -> None:
        copies = list(self.vault.copies())
        self.report.left += copies
        self.report.copies += len(copies)
        skipped = {one.path for one in copies}
        originals = {str(Path(path).with_name(self.vault.copied_from(path) or "-")) for path in skipped}
        found = [self._read(path) for path in self.vault.note_paths() if path not in skipped]
        for one in self._by_memory(_without_old_names([one for one in found if one is not None])):
            self._judge(one)
        for path in sorted(self.vault.kept.keys() - originals):
            self._look_for(path, restores=restores)

    def _look_for(self, path: str, *, restores: bool) -> None:
        """Record a deleted file, or queue it to be written again."""
        kept = self.vault.kept[path]
        memory = self._known.get(kept.memory or "")
        if memory is None or memory.status != "active" or self.vault.is_there(path):
            return
        if restores or kept.version != memory.updated_at:
            del self.vault.kept[path]
        else:
            self.changes.deleted[path] = memory

    def _read(self, path: str) -> FoundNote | None:
        content = self.vault.read(path)
        text, why = ("", "a link") if content is None else text_of(content)
        why = why or unfinished(text)
        if content is None or why is not None:
            self.report.left.append(SkippedFile(path, f"not read: {why}"))
            return None
        note = parse_note(text)
        kept = self.vault.kept.get(path)
        ident = note.fields.get("id") or (None if kept is None else kept.memory)
        return FoundNote(path, content.data, text, ident, self._known.get(ident or ""))

    def _by_memory(self, found: Sequence[FoundNote]) -> list[FoundNote]:
        """Return one file for each memory: the one that crystal knows. A file that was renamed stays known."""
        homes = {kept.memory: path for path, kept in self.vault.kept.items()}
        chosen: dict[str, FoundNote] = {}
        for one in sorted(found, key=lambda one: homes.get(one.ident) != one.path):
            first = chosen.setdefault(one.ident or f"new {one.path}", one)
            if first is not one:
                self.report.copies += 1
                why = f"has the id of {first.path}; to remember it too, delete its line `id:`"
                self.report.left.append(SkippedFile(one.path, why))
        for one in chosen.values():
            home = homes.get(one.ident)
            if one.ident is not None and home is not None and home != one.path:
                self.vault.kept[one.path] = self.vault.kept.pop(home)
        return list(chosen.values())

    def _judge(self, one: FoundNote) -> None:
        """Decide what a file means."""
        memory, kept = one.memory, self.vault.kept.get(one.path)
        if one.ident is not None and (one.ident in self._gone or not MEMORY_ID.fullmatch(one.ident)):
            if kept is None:
                what = "its memory was forgotten" if one.ident in self._gone else "no memory has its id"
                why = f"{what}: delete the file; to remember it again, delete its line `id:`"
                self.report.left.append(SkippedFile(one.path, why))
        elif memory is None:
            self.changes.new.append(one)
        elif memory.status != "active":
            if kept is None:
                why = f"its memory is hidden: crystal memories restore {memory.id}, or delete the file"
                self.report.left.append(SkippedFile(one.path, why))
        elif not self._differences(one):
            self.vault.note_same(one.path, one.data, memory.id, memory.updated_at)
        elif self.vault.is_kept(one.path, one.data):
            return  # only the memory was changed: the file is written
        elif kept is not None and kept.version == memory.updated_at:
            self.changes.edited.append(one)
        else:
            self.vault.kept.setdefault(one.path, KeptFile(memory.id))
            self.changes.conflicts.append(one)

    def _differences(self, one: FoundNote) -> dict[str, str]:
        """Return what a file says otherwise than its memory, secrets and private parts left out."""
        assert one.memory is not None
        changes = changed_fields(one.note, one.memory)
        if "text" in changes and self._cleaner.clean_text(changes["text"])[0].strip() == text_of_memory(one.memory):
            del changes["text"]
        return changes

    # -------------------------------------------------------------------------------------------------------- acting

    def run(self, prefer: Side | None = None) -> VaultReport:
        """Make the changes, then write the files. Deleted files forget their memories: ask first.

        Args:
            prefer: Whose text to keep where both sides changed; None changes neither. The other one is kept as a
                former version of the memory.
        """
        report, changes = self.report, self.changes
        self._versions = {one.id: one.updated_at for one in list_memories(self._machine, status=None, limit=EVERY)}
        for one in changes.new:
            self._try(one, self._remember)
        for one in changes.edited:
            self._try(one, self._edit)
        for one in changes.conflicts:
            if prefer is None:
                report.conflicts.append(one)
            else:
                self._try(one, self._edit if prefer == "file" else self._edit_and_back)
        self._forget()
        self.vault.save()
        active = list_memories(self._machine, limit=EVERY)
        report.written, report.removed, left = write_vault(self._machine, self.vault, active)
        report.left += left
        return report

    def _try(self, one: FoundNote, act: Callable[[FoundNote], None]) -> None:
        try:
            act(one)
        except UsageError as error:
            hint = f" ({error.hint})" if error.hint else ""
            self.report.failed.append(SkippedFile(one.path, error.message + hint))

    def _edit(self, one: FoundNote) -> None:
        assert one.memory is not None
        if self._is_changed(one.memory):
            raise UsageError("its memory was changed meanwhile", hint="run it again: crystal vault sync")
        new = edit(self._machine, one.memory.id, **self._differences(one))
        self.vault.note_same(one.path, one.data, new.id, new.updated_at)
        self._note_left_out(one)
        self.report.edited += 1

    def _edit_and_back(self, one: FoundNote) -> None:
        """Keep crystal's version: the file's becomes a former one first."""
        assert one.memory is not None
        before, changes = one.memory, self._differences(one)
        self._edit(one)
        said: Mapping[str, str] = {
            "text": before.text, "category": before.category, "key": before.key or "", "project": before.cwd or "",
        }  # fmt: skip
        edit(self._machine, before.id, **{name: said[name] for name in changes})

    def _remember(self, one: FoundNote) -> None:
        """Write an id into a new file, then remember it: killed between both, the next run goes on with the same id."""
        fields = one.note.fields
        kept = cleaned_text(one.note.text, self._cleaner.clean_text)
        category = checked_category(fields["kind"]) if fields.get("kind") else None
        key = cleaned_key(fields["key"], self._cleaner.clean_text) if fields.get("key") else None
        project = fields.get("project") or None
        twin = self._twin(kept, key, project)
        if twin is not None and any(known.memory == twin.id for known in self.vault.kept.values()):
            why = f"it has the {'key' if key else 'text'} of {twin.id}, which has a file already"
            raise UsageError(why, hint="change it there, or delete this one")
        ident = twin.id if twin is not None else one.ident or f"mem-{os.urandom(6).hex()}"
        if one.note.fields.get("id") != ident:
            one = self._with_id(one, ident)
        new = remember(
            self._machine, kept, category=category, project=project, key=key, source=SOURCE,
            ident=ident if twin is None else None,
        )  # fmt: skip
        self.vault.note_same(one.path, one.data, new.id, new.updated_at)
        self._note_left_out(one)
        self.report.remembered += 1

    def _note_left_out(self, one: FoundNote) -> None:
        if self._cleaner.clean_text(one.note.text)[1]:
            self.report.left.append(SkippedFile(one.path, "secrets and private parts stay in the file alone"))

    def _with_id(self, one: FoundNote, ident: str) -> FoundNote:
        text = with_id(one.text, ident)
        data = encoded(text, one.data)
        if not self.vault.put(one.path, data, one.data):
            raise UsageError("it was changed while it was read", hint="run it again: crystal vault sync")
        return replace(one, data=data, text=text)

    def _twin(self, text: str, key: str | None, project: str | None) -> Remembered | None:
        """Return the memory that has the key, or the words in the project."""
        place = None if project is None else project_of_words(self._machine, project, None, self._cleaner)
        with mirror_of(self._machine) as mirror:
            if key is not None:
                return find_by_key(self._machine.store, mirror, key)
            return find_by_words(self._machine.store, mirror, text, place)

    def _is_changed(self, one: Remembered) -> bool:
        """Return True if a memory was changed or forgotten since the files were looked at, while a person was asked."""
        return self._versions.get(one.id) != one.updated_at

    def _forget(self) -> None:
        """Forget the memories whose files were deleted, unless the file came back or the memory changed meanwhile."""
        ids = []
        for path, one in self.changes.deleted.items():
            if self._is_changed(one):
                del self.vault.kept[path]  # it is written again
            elif not self.vault.is_there(path):
                ids.append(one.id)
        if ids:
            done = execute_without_vault(self._machine, plan_forget(self._machine, ForgetRequest(tuple(ids))))
            self.report.forgotten = len(ids)
            self.report.failed += [SkippedFile(self.report.folder, why) for why in done.pending]


def _without_old_names(found: Sequence[FoundNote]) -> list[FoundNote]:
    """Return the files; one that took the name of a renamed file is new, because the other one has the id."""
    named = {one.note.fields.get("id") for one in found}
    return [
        replace(one, ident=None, memory=None) if one.ident in named and not one.note.fields.get("id") else one
        for one in found
    ]


@contextmanager
def vault_sync(machine: Machine, folder: Path, *, restores: bool = False) -> Iterator[VaultSync]:
    """Read the vault in a folder, and keep other processes from it until the block ends.

    Args:
        machine: This machine.
        folder: The vault.
        restores: Write deleted files again, instead of forgetting their memories.

    Raises:
        UnavailableError: The folder is not there, or all of its files are gone. Nothing is changed.
    """
    with wait_lock(machine.places.data_dir / VAULT_LOCK, seconds=LOCK_SECONDS):
        yield VaultSync(machine, folder, restores=restores)
