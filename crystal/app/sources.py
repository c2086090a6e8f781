"""Add folders of files to the memory, keep it equal to them, remove them for good."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from crystal.app.background import enrich
from crystal.app.context import Machine
from crystal.app.forget import forget_context
from crystal.app.project_finder import project_finder
from crystal.app.source_list import VAULT_MARK, list_sources, listed_row
from crystal.capture.lock import wait_lock
from crystal.errors import CrystalError, NotFoundError, UsageError
from crystal.forgetting.execute.execute import clear_database
from crystal.forgetting.execute.file_cleanup import delete_leftovers, purge_index
from crystal.forgetting.match.forgotten_text import ForgottenText
from crystal.forgetting.match.patterns import body_stretches
from crystal.forgetting.prove.prove import ForgetProof, prove
from crystal.integrity.proof import Fault
from crystal.sources.listed_sources import ListedSource, read_list, write_list
from crystal.sources.split import read_as
from crystal.sources.sync import Progress, SourceReader, SourceSync, SyncReport, hash_key, remove_rows
from crystal.store import Store
from crystal.store.capture.privacy import store_key
from crystal.store.capture.projects import project_row
from crystal.store.health.checks import chunks_with_wrong_hash
from crystal.store.notes import drop_note, read_note, write_note
from crystal.store.search.scope import SOURCES
from crystal.store.search.space import delete_chunks
from crystal.store.sources import source_files, source_queries
from crystal.store.sources.source_files import FileSource, Maker
from crystal.text.folders import is_within
from crystal.vault.folder import read_kept

SOURCES_LOCK = "sources.lock"
LOCK_SECONDS = 600.0
EMBED_SECONDS = 600.0
MAX_NAME = 60
_NAME = re.compile(r"\w[\w .+-]*")
_PURGE = "sources_removed"
"""Key in ``meta``: rows of a source were deleted, and files of the memory may still hold their words."""


@dataclass(frozen=True, slots=True)
class RemovedSource:
    """A source that was removed. ``pending`` says what is left to do by the next sync, None: nothing."""

    name: str
    folder: str
    chunks: int
    pending: str | None
    proof: ForgetProof | None


# ---------------------------------------------------------------------------------------------------------- the list


def add_source(machine: Machine, folder: Path, name: str | None = None, *, is_vault: bool = False) -> ListedSource:
    """Add a folder to the sources. Its files are indexed by ``sync_sources``; adding it again changes nothing.

    Raises:
        UsageError: It is no folder, it overlaps with another source or crystal's own files, the name is taken, or the
            name or the path has a secret, which would be stored with every hit.
    """
    path = _checked_folder(folder)
    own_name = re.sub(r"[^\w.+-]+", "-", Path(path).name).strip("-.") or "files"
    chosen = _checked_name(own_name if name is None else name)
    if machine.redactor().clean_text(f"{chosen}\n{path}")[1]:
        hint = "rename the folder, or give another name: --name NAME"
        raise UsageError("the name or the path of the source has a secret, which crystal does not store", hint=hint)
    with _locked(machine):
        listed = _settle(machine)
        known = next((one for one in listed if one.path == path and name in (None, one.name)), None)
        if known is not None and (known.is_vault or not is_vault):
            return known
        if known is None:
            _refuse_overlap(machine, listed, chosen, path)
        new = known or ListedSource(chosen, path, machine.now())
        new = new._replace(is_vault=is_vault)
        write_list(machine.places.ldm_home, [*(one for one in listed if one != known), new])
        _settle(machine)
    return new


def _checked_folder(folder: Path) -> str:
    """Return a folder with links followed."""
    path = Path(os.path.realpath(folder.expanduser()))
    if path.is_dir():
        return str(path)
    is_file, hint = path.exists(), "name a folder with text files"
    if is_file:
        raise UsageError(f"{folder} is a file, not a folder", hint=hint)
    raise NotFoundError(f"{folder} does not exist", hint=hint)


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name) or len(name) > MAX_NAME:
        raise UsageError(f"the name {name[:MAX_NAME]!r} cannot be used", hint="use letters, digits, spaces and . + - _")
    if name.casefold() in SOURCES:
        raise UsageError(f"the name {name!r} stands for a kind of source", hint="use another: --name NAME")
    return name


def _refuse_overlap(machine: Machine, listed: list[ListedSource], name: str, path: str) -> None:
    for one in listed:
        if one.name.casefold() == name.casefold():
            raise UsageError(f"there is a source {one.name} already: {one.path}", hint="use another name: --name NAME")
        if is_within(path, one.path) or is_within(one.path, path):
            hint = f"to replace it: crystal sources remove {one.name}"
            raise UsageError(f"{path} and the source {one.name} ({one.path}) overlap", hint=hint)
    for barred in _barred(machine):
        if is_within(path, str(barred)):
            raise UsageError(f"{path} is in {barred}, which crystal never indexes", hint="add another folder")


def _barred(machine: Machine) -> list[Path]:
    """Return folders that are never indexed: crystal's own, and conversations, which are captured."""
    roots = [root.folder for root in machine.places.transcript_roots if not root.place.in_projects]
    return [Path(os.path.realpath(path)) for path in (machine.places.ldm_home, machine.places.data_dir, *roots)]


def _kept_in_vault(machine: Machine) -> list[Path]:
    """Return the files that `crystal vault sync` writes: their content is searched already."""
    folder, kept = read_kept(machine.places.ldm_home)
    return [] if folder is None else [Path(folder, path) for path in kept]


@contextmanager
def _locked(machine: Machine) -> Iterator[None]:
    with wait_lock(machine.places.data_dir / SOURCES_LOCK, seconds=LOCK_SECONDS):
        yield


def _settle(machine: Machine) -> list[ListedSource]:
    """Give every listed source a row, and finish removing what is not listed. Under the lock; return the list."""
    store, home = machine.store, machine.places.ldm_home
    rows = source_files.all_sources(store)
    listed = read_list(home)
    if listed is None:
        listed = [listed_row(one) for one in rows]
        if listed:
            write_list(home, listed)
    wanted = {(one.name, one.path) for one in listed}
    for row in rows:
        if (row.name, row.path) not in wanted:
            write_note(store, _PURGE, "1")
            remove_rows(store, row)
    known = {(row.name, row.path) for row in rows}
    with store.transaction():
        for one in listed:
            if (one.name, one.path) not in known:
                source_files.put_source(store, one.name, one.path, one.added_at)
    return listed


def _named(machine: Machine, name: str) -> ListedSource:
    listed = read_list(machine.places.ldm_home) or []
    found = next((one for one in listed if one.name == name), None)
    if found is None:
        known = ", ".join(one.name for one in listed)
        raise NotFoundError(
            f"there is no source {name!r}", hint=f"known: {known}" if known else "crystal sources add PATH"
        )
    return found


# ----------------------------------------------------------------------------------------------------------- syncing


def sync_sources(
    machine: Machine,
    name: str | None = None,
    *,
    progress: Callable[[str], Progress] = lambda _: lambda *_: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> tuple[list[SyncReport], list[str]]:
    """Index the changes in the folders of all sources, or of one.

    Args:
        machine: This machine.
        name: Only this source.
        progress: Returns, for a source's name, what is called with its progress.
        should_stop: Returns True to stop; the next call goes on.

    Returns:
        What was done, and what went wrong, in words: a folder that is not there keeps its rows.

    Raises:
        NotFoundError: There is no source of this name.
    """
    reports, problems = [], []
    with _locked(machine), machine.store.importing():
        vaults = {one.name for one in _settle(machine) if one.is_vault}
        if name is not None:
            _named(machine, name)
        rows = [one for one in source_files.all_sources(machine.store) if name in (None, one.name)]
        readers = {is_vault: _reader(machine, is_vault=is_vault) for is_vault in {one.name in vaults for one in rows}}
        for row in rows:
            try:
                one = SourceSync(machine.store, row, readers[row.name in vaults], _project(machine, row))
                reports.append(one.run(progress(row.name), should_stop))
            except CrystalError as error:
                if name is not None:
                    raise
                problems.append(f"source {row.name}: {error.message}")
        problems += _purge(machine)
    return reports, problems


def sync_and_embed(machine: Machine, name: str | None) -> list[SyncReport]:
    """Make the memory equal to the folders, and what is new in it found by meaning."""
    reports, _ = sync_sources(machine, name)
    enrich(machine, budget_seconds=EMBED_SECONDS)
    return reports


def _reader(machine: Machine, *, is_vault: bool) -> SourceReader:
    config = machine.config
    return SourceReader(
        clean=machine.redactor(keeps_lines=True).clean_text,
        key=hash_key(store_key(machine.store)),
        maker=Maker(config.agent_id, config.device),
        barred=[*_barred(machine), *_kept_in_vault(machine)],
        read_as=f"{read_as()} {'redacted' if config.redact_enabled else 'whole'}{VAULT_MARK * is_vault}",
        now_ns=time.time_ns,
        is_vault=is_vault,
    )


def _project(machine: Machine, source: FileSource) -> int | None:
    """Return the row of the git project that a source is in, so that a search in the project finds its files."""
    found = project_finder(machine.store)(source.path)
    if found.git_root is None:
        return None
    with machine.store.transaction():
        return project_row(machine.store, found)


# ---------------------------------------------------------------------------------------------------------- removing


def remove_source(machine: Machine, name: str, *, is_proved: bool = False) -> RemovedSource:
    """Remove a source with everything that is stored of it: rows, vectors, words in the search index, copies.

    Args:
        machine: This machine.
        name: The source.
        is_proved: Search every byte of crystal's files for its texts afterwards.

    Raises:
        NotFoundError: There is no such source.
    """
    store = machine.store
    with _locked(machine):
        listed = _settle(machine)
        source = _named(machine, name)
        row = next(one for one in source_files.all_sources(store) if one.name == name)
        chunks = source_queries.counts_of(store, row.id, 0).chunks
        forgotten = _texts(store, row.id) if is_proved else None
        write_list(machine.places.ldm_home, [one for one in listed if one != source])
        _settle(machine)
        pending = _purge(machine)
    proof = None if forgotten is None else prove(forget_context(machine), forgotten)
    return RemovedSource(source.name, source.path, chunks, next(iter(pending), None), proof)


def _texts(store: Store, source: int) -> ForgottenText:
    texts, bodies = source_queries.texts_of_source(store, source)
    return ForgottenText(texts=tuple(dict.fromkeys(texts)), bodies=body_stretches(dict.fromkeys(bodies)))


def _purge(machine: Machine) -> list[str]:
    """Take what was deleted out of the search index and out of the free space of the database, as forgetting does."""
    store, now = machine.store, machine.now()
    if read_note(store, _PURGE) is None:
        return []
    try:
        delete_leftovers(machine.places.ldm_home, machine.places.data_dir, now, now)
        purge_index(store, now)
        clear_database(store)
    except CrystalError as error:
        return [f"{error.message}; to finish the removal: crystal sources sync"]
    drop_note(store, _PURGE)
    return []


def source_faults(machine: Machine) -> Iterator[Fault]:
    """Find sources that were never read, and files whose indexed content is damaged."""
    store = machine.store
    for one in list_sources(machine):
        if one.synced_at is None:
            yield Fault("behind", one.folder, f"the source {one.name} is not read yet")
    damaged, alone = _damaged(store)
    if damaged:
        yield Fault("chunks", "source_files", f"search does not find {len(damaged)} files of sources as they are")
    if alone:
        yield Fault("chunks", "sources", f"chunks of files that belong to no file: {len(alone)}")


def _damaged(store: Store) -> tuple[list[int], list[int]]:
    """Return the files with missing or damaged chunks, and chunks of files without a file."""
    wrong = set(chunks_with_wrong_hash(store)) if source_files.all_sources(store) else set()
    return source_queries.damaged_files(store, wrong), source_queries.chunks_without_file(store)


def mend_sources(machine: Machine) -> list[str]:
    """Read files again whose rows are damaged or lost. Return what was done, in words."""
    damaged, alone = _damaged(machine.store)
    with machine.store.transaction():
        source_files.delete_files(machine.store, damaged)
        delete_chunks(machine.store, alone)
    if not list_sources(machine):
        return []
    reports, problems = sync_sources(machine)
    read = sum(one.added + one.changed for one in reports)
    return [*([f"files of sources read again: {read}"] if read else []), *problems]
