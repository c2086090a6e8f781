"""Keep the record of memories and the database in step: record each change, compare both, restore either.

A change is appended to the record inside the database's transaction and flushed before its commit, as an archive's
frames are. The database stores the size of the record. If it differs from the actual size, both are compared as a
whole: entries that are only in the record are added, and none is added twice. So a crash between the two writes loses
nothing.

Source: docs/adr/0024-memory-record.md.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from crystal.config.paths import MEMORY_RECORD
from crystal.memories import record
from crystal.store import Store
from crystal.store.memories import memories
from crystal.store.memories.history import all_history, former_in_rows
from crystal.store.notes import MEMORY_RECORD_SIZE, read_note, write_note
from crystal.store.sync import past
from crystal.store.sync.relay_peers import home_peer


@dataclass(frozen=True, slots=True)
class ReconcileReport:
    """Result of a reconciliation: restored and corrected memories, whether the record was rewritten, damaged lines."""

    returned: int = 0
    corrected: int = 0
    is_rewritten: bool = False
    damaged: int = 0

    def in_words(self) -> Iterator[str]:
        """Yield what was done, one line per item."""
        if self.returned:
            yield f"{_count(self.returned)} came back from the record"
        if self.corrected:
            yield f"{_count(self.corrected)} corrected from the record"
        if self.is_rewritten:
            yield "the record of memories was written again from the database"
        if self.damaged:
            lines = "1 damaged line" if self.damaged == 1 else f"{self.damaged} damaged lines"
            yield f"{lines} of the record kept in {MEMORY_RECORD}.damaged"


@dataclass(frozen=True, slots=True)
class RecordFault:
    """A difference between record and database. ``is_behind``: the next sync fixes it, nothing is damaged."""

    path: Path
    message: str
    is_behind: bool = False


def all_records(agents: Path) -> list[Path]:
    """Return the records of all agents on this machine."""
    return sorted(agents.glob(f"*/memory/{MEMORY_RECORD}"))


def record_changes(store: Store, path: Path) -> None:
    """Append a transaction's changes to the record. Called inside it, just before its commit.

    Raises:
        StoreFullError, UnavailableError: The record cannot be written; it is unchanged.
    """
    noted = read_note(store, MEMORY_RECORD_SIZE)
    if store.deleted_memories or noted is None or not _continues(path, int(noted)):
        _reconcile(store, path)
        return
    entries = [
        record.MemoryEntry(version, tuple(former_in_rows(store, rows)))
        for uid, rows in store.changed_memories.items()
        if (version := memories.version_of(store, uid)) is not None
    ]
    write_note(store, MEMORY_RECORD_SIZE, str(record.append_entries(path, int(noted), entries)))


def reconcile(store: Store, path: Path) -> ReconcileReport:
    """Compare record and database as a whole and complete each from the other. Runs outside of transactions.

    Idempotent.

    The later of two versions of a memory wins; with equal times the record's, which has a checksum. Damaged lines
    are kept in a file next to the record.

    Raises:
        CrystalError: The record or the database cannot be read or written. Nothing is changed.
    """
    with store.transaction():
        return _reconcile(store, path)


def restore_memories(store: Store, agents: Path, own: Path | None = None) -> int:
    """Add to the database the memories that only the records of agents have. Return the number of restored memories.

    For a rebuilt database. ``own`` is this machine's record, which is reconciled afterwards. Runs outside of
    transactions. Idempotent.
    """
    with store.transaction():
        total = 0
        for path in all_records(agents):
            if path != own:
                total += _take_in(store, record.read_record(path), is_in_step=False).returned
        return total if own is None else total + _reconcile(store, own).returned


def find_faults(store: Store, agents: Path, own: Path) -> Iterator[RecordFault]:
    """Compare every record with the database. Call it while nobody writes either.

    Raises:
        CrystalError: A record cannot be read.
    """
    known = _entries(store)
    forgotten = memories.forgotten_memories(store)
    size = read_note(store, MEMORY_RECORD_SIZE)
    if known and not own.exists():
        yield RecordFault(own, f"the record is missing; {_count(len(known))} only in the database")
    for path in all_records(agents):
        contents = record.read_record(path)
        for line in contents.damaged:
            what = "is cut off" if line.is_torn else "is damaged"
            message = f"line {line.number}, from byte {line.offset} on, {what}"
            yield RecordFault(path, message, _is_unfinished(line, size))
        is_grown = size is not None and contents.size is not None and contents.size > int(size)
        yield from _differences(path, contents, known, forgotten, is_own=path == own, is_grown=is_grown)


def _differences(
    path: Path,
    contents: record.RecordContents,
    known: dict[str, record.MemoryEntry],
    forgotten: set[str],
    *,
    is_own: bool,
    is_grown: bool,
) -> Iterator[RecordFault]:
    recorded = contents.entries
    left = recorded.keys() & forgotten
    missing = recorded.keys() - known.keys() - forgotten
    if left:
        yield RecordFault(path, f"{_count(len(left))} still in the record, though forgotten")
    if missing:
        yield RecordFault(path, f"{_count(len(missing))} of the record not in the database", is_grown and is_own)
    if not is_own:
        return
    unrecorded = known.keys() - recorded.keys()
    if unrecorded:
        yield RecordFault(path, f"{_count(len(unrecorded))} of the database not in the record")
    other = [uid for uid in recorded.keys() & known.keys() if not _agree(recorded[uid], known[uid])]
    if other:
        yield RecordFault(path, f"{_count(len(other))} otherwise in the record than in the database", is_grown)


def _continues(path: Path, noted: int) -> bool:
    """Return True if only a torn line follows the bytes recorded in the database; a link may lead to any file."""
    try:
        if path.is_symlink():
            return False
        with path.open("rb") as file:
            is_whole = file.seek(0, os.SEEK_END) >= noted
            file.seek(noted)
            return is_whole and b"\n" not in file.read()
    except OSError:
        return False


def _reconcile(store: Store, path: Path) -> ReconcileReport:
    changed, deleted = set(store.changed_memories), set(store.deleted_memories)
    if deleted:
        for each in {path, *all_records(path.parents[2])}:
            record.forget_in_record(each, deleted)
    contents, noted = record.read_record(path), read_note(store, MEMORY_RECORD_SIZE)
    damaged = [line for line in contents.damaged if not _is_unfinished(line, noted)]
    taken = _take_in(store, contents, is_in_step=noted == str(contents.size), changed=changed)
    entries = _entries(store)
    is_rewritten = bool(contents.damaged) or contents.entries != entries
    record.keep_damaged(path, damaged)
    size = record.write_record(path, entries.values()) if is_rewritten else contents.size
    if size is not None:
        write_note(store, MEMORY_RECORD_SIZE, str(size))
    store.changed_memories.clear()
    store.deleted_memories.clear()
    return replace(taken, is_rewritten=is_rewritten, damaged=len(damaged))


def _is_unfinished(line: record.DamagedLine, noted: str | None) -> bool:
    """Return True for the leftover of a killed process: a change that was never committed."""
    return line.is_torn and noted == str(line.offset)


def _take_in(
    store: Store, contents: record.RecordContents, *, is_in_step: bool, changed: Collection[str] = ()
) -> ReconcileReport:
    """Update the database from newer versions in the record.

    Runs inside a transaction that has changed the memories in ``changed``.
    """
    known = _entries(store)
    returned = corrected = 0
    for uid, entry in contents.entries.items():
        here = known.get(uid)
        if here is not None and _agree(entry, here):
            continue
        better = entry if here is None else _better(entry, here, is_proved=is_in_step and uid not in changed)
        if better == here or not memories.restore_version(store, better.version, better.former):
            continue
        returned += here is None
        corrected += here is not None
        if home_peer(store) is not None:  # nothing shows whether it was sealed for home
            past.include_memory(store, memories.row_of(store, uid) or 0)
    return ReconcileReport(returned, corrected)


def _better(recorded: record.MemoryEntry, here: record.MemoryEntry, *, is_proved: bool) -> record.MemoryEntry:
    """Return the winning version with the history of both; with equal times the record's."""
    theirs, ours = recorded.version.memory, here.version.memory
    is_chosen = theirs.updated_at > ours.updated_at or (theirs.updated_at == ours.updated_at and is_proved)
    chosen = recorded if is_chosen else here
    return replace(chosen, former=record.join_former(here.former, recorded.former))


def _agree(one: record.MemoryEntry, other: record.MemoryEntry) -> bool:
    """Return True if two entries are equal. A project's name and repository may change without the memory."""
    there = other.version.memory
    here = replace(one.version.memory, project=there.project, cwd=there.cwd)
    return here == there and one.former == other.former


def _entries(store: Store) -> dict[str, record.MemoryEntry]:
    history = all_history(store)
    found = [version for _, version in memories.versions_after(store, 0, -1)]
    return {one.memory.id: record.MemoryEntry(one, tuple(history.get(one.memory.id, ()))) for one in found}


def _count(number: int) -> str:
    return "1 memory" if number == 1 else f"{number:,} memories"
