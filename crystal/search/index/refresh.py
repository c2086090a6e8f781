"""Update the index: add new chunks, remove deleted ones, rebuild damaged files.

Every step reads one snapshot of the store, writes files with new names, and then changes the list of files in one short
transaction, unless another process has changed it meanwhile. A killed process leaves files that are not in the list;
they are deleted later. A search always sees one consistent state of list, log and chunks.
"""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from crystal.search.index.index_files import (
    IndexDamagedError,
    check_file,
    files_in,
    is_same,
    path_of,
    prove_room,
    remove_file,
)
from crystal.search.index.index_parts import MAX_DOCUMENTS
from crystal.search.index.step import IndexStep
from crystal.store import Store
from crystal.store.search import index_log
from crystal.store.search.index_log import Change, PartFile, State

UNKNOWN_MS = 600_000
"""Age from which a file that is not in the list counts as left by a killed process."""

ATTEMPTS = 3

BYTES_EACH = 2_048
"""Approximate bytes of a document with its vector."""


def refresh(
    store: Store,
    folder: Path,
    *,
    now: int,
    budget_seconds: float = 20.0,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> bool:
    """Update the index as far as the time allows; call it outside of transactions.

    Two processes at once do no harm, but the work of one is lost. ``progress`` is called before the first step and
    after each one, with the number of documents done and the total.

    Returns:
        True if work is left for the next call.

    Raises:
        StoreBusyError, StoreFullError, OSError: The index is unchanged, or partly updated; try again later.
    """
    deadline = time.monotonic() + budget_seconds
    damaged = 0
    _look(store, folder, now)
    _sweep(store, folder, now)
    total = index_log.most_to_write(store)
    progress(0, total)
    prove_room(folder, BYTES_EACH * min(MAX_DOCUMENTS, total))
    while True:
        step = IndexStep(store, folder, now, lambda: time.monotonic() > deadline)
        try:
            is_more = step.take()
        except IndexDamagedError as error:
            damaged += 1
            if damaged > ATTEMPTS:
                raise OSError(errno.EIO, str(error), str(folder)) from error
            if damaged == ATTEMPTS:  # every file has its checksum, and still cannot be used
                _begin(store, folder, now)
            else:
                _look(store, folder, now, thoroughly=True)
            continue
        left = index_log.most_to_write(store)
        progress(max(0, total - left), max(total, left))
        if not is_more or time.monotonic() > deadline:
            _sweep(store, folder, now)
            return index_log.has_news(store)


def drop(store: Store, folder: Path) -> None:
    """Delete the index. Until the next refresh, changes are not logged for it."""
    index_log.end(store)
    for path in files_in(folder):
        remove_file(path)


def check(store: Store, folder: Path) -> list[str]:
    """Read every file of the index; return descriptions of the damage."""
    problems = []
    for file in index_log.parts(store):
        try:
            check_file(path_of(folder, file.name), file)
        except IndexDamagedError as error:
            if file.name in index_log.listed(store):  # not closed by another process while it was read
                problems.append(str(error))
    return problems


def _drop_vectors(store: Store, state: State, lost: Sequence[PartFile]) -> None:
    damaged = {file.generation for file in lost}
    kept = {one: model for one, model in state.generations.items() if one not in damaged}
    what = Change(removed=[file.name for file in lost], to_read=state.to_read, generations=kept)
    index_log.change(store, state, what)


def _look(store: Store, folder: Path, now: int, *, thoroughly: bool = False) -> None:
    """Create a missing index; start over if words are damaged; drop damaged vectors."""
    state = index_log.read_state(store)
    if state is None or state.format != index_log.FORMAT:
        _begin(store, folder, now)
        return
    suspects = [file for file in index_log.parts(store) if not _is_good(store, folder, file, thoroughly=thoroughly)]
    in_use = {file.name for file in index_log.parts(store)}  # others may have deleted one meanwhile
    lost = [file for file in suspects if file.name in in_use]
    if any(file.kind == "words" for file in lost):
        _begin(store, folder, now)
    elif lost:
        _drop_vectors(store, state, lost)
    for file in lost:
        remove_file(path_of(folder, file.name))


def _begin(store: Store, folder: Path, now: int) -> None:
    """Start over. Old files are deleted, not reused, because they may contain text that was deleted since."""
    index_log.begin(store, now)
    for path in files_in(folder):
        remove_file(path)


def _is_good(store: Store, folder: Path, file: PartFile, *, thoroughly: bool) -> bool:
    """Return True if a file is unchanged; if only its time differs, the new time is recorded."""
    path = path_of(folder, file.name)
    with contextlib.suppress(IndexDamagedError):
        is_same(path, file)
        if not thoroughly:
            return True
    try:
        check_file(path, file)
        index_log.touched(store, file.name, path.stat().st_mtime_ns)
    except (IndexDamagedError, OSError):
        return False
    return True


def _sweep(store: Store, folder: Path, now: int) -> None:
    """Delete files that are not in the list: left by killed processes, or open when they should have been deleted."""
    known = {path_of(folder, name) for name in index_log.listed(store)}
    for path in files_in(folder):
        with contextlib.suppress(OSError):
            if path not in known and now - path.stat().st_mtime_ns // 1_000_000 > UNKNOWN_MS:
                remove_file(path)
