"""List the folders of files that are searched, and what is stored of them. Only reads, and loads little: for status."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from crystal.app.context import Machine
from crystal.sources.listed_sources import ListedSource, read_list
from crystal.store.search.vectors import serving_generation
from crystal.store.sources import source_files, source_queries
from crystal.store.sources.source_files import FileSource

VAULT_MARK = " vault"
"""Ends ``read_as`` of a source that is a vault."""


@dataclass(frozen=True, slots=True)
class SourceState:
    """A source, and what is stored of it; ``is_here`` is False if its folder is away. Times are ms since the epoch."""

    name: str
    folder: str
    added_at: int
    synced_at: int | None
    is_here: bool
    files: int
    skipped: int
    chunks: int
    waiting: int


def list_sources(machine: Machine) -> list[SourceState]:
    """Return every source, by name, with what is stored of it. Only reads."""
    store = machine.store
    serving = serving_generation(store)
    rows = {(one.name, one.path): one for one in source_files.all_sources(store)}
    is_partial = store.hidden is not None and store.hidden.only is not None
    listed = None if is_partial else read_list(machine.places.ldm_home)
    if listed is None:
        listed = [listed_row(one) for one in rows.values()]
    found = []
    for name, path, added_at, _ in listed:
        row = rows.get((name, path))
        counts = source_queries.counts_of(store, 0 if row is None else row.id, 0 if serving is None else serving.id)
        synced_at = None if row is None else row.synced_at
        found.append(SourceState(name, path, added_at, synced_at, Path(path).is_dir(), *counts))
    return found


def listed_row(row: FileSource) -> ListedSource:
    """Return what the list says of a source, by its row."""
    return ListedSource(row.name, row.path, row.added_at, row.read_as.endswith(VAULT_MARK))
