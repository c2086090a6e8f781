"""Make this machine's database again, beside the one that is lost or damaged, which is renamed and kept."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from crystal.app.capture import LOCK_SECONDS
from crystal.app.capture_engine import make_capture
from crystal.app.context import Machine, default_paths, open_kept_machine
from crystal.app.open_store import archives_of, refuse_lost
from crystal.app.project_finder import project_finder
from crystal.capture.lock import BACKFILL_LOCK, CAPTURE_LOCK, ENRICH_LOCK, wait_lock
from crystal.capture.spool import named_in, read_notes
from crystal.config.paths import Places, make_private_dir, refused, sync_folder
from crystal.config.register import registered_agents
from crystal.config.table import Config
from crystal.errors import CrystalError, StoreDamagedError, StoreLostError
from crystal.forgetting.tombstone_file import reconcile_tombstones
from crystal.integrity.rebuild import Rebuild, RebuildResult, leave_out_rest
from crystal.memories.reconcile import all_records
from crystal.memories.record import read_record as read_memories
from crystal.store import Store
from crystal.store.health.checks import damage
from crystal.store.health.salvage import Salvage, finish_sessions, salvage
from crystal.store.json_columns import read_json_note
from crystal.store.notes import drop_note, write_note
from crystal.store.private_record import RECORD_FILE, read_record
from crystal.store.sync import past

MADE = "crystal.db.rebuilt"
"""A whole new database that only waits to take its place."""
_LOST_NOTES = {
    "relay_past": "how much of what is archived here was sent to home: all of it is sent again, and kept once there",
    "forgotten_relay": "which deletions home has confirmed: all of them are sent again",
    "relay_promoting": "that this machine was becoming home; go on with: crystal promote",
    "relay_demoting": "that another machine was becoming home; go on with: crystal demote",
}
"""Messages about the content of deleted damaged notes, by the notes' keys."""
NOT_RECOVERED = "not_recovered"
"""Key of the note of what a rebuild could not bring back, until the user is told."""
_FILES = ("-wal", "-shm", "-journal", "")
"""Suffixes of the files of a database, its own last."""


def why_rebuild(places: Places) -> str | None:
    """Return why the database must be rebuilt, None if it can be repaired in place.

    Raises:
        ForeignStoreError: It is another program's or of a newer crystal, and no archive is here.
    """
    if _is_made(places):
        return "the last repair was interrupted"
    try:
        refuse_lost(places)
    except (StoreLostError, StoreDamagedError) as error:
        return error.message
    return damage(places.db) if places.db.exists() else None


def archive_bytes() -> int:
    """Return the size of the archive on this machine, in bytes."""
    return sum(path.stat().st_size for path in archives_of(default_paths()))


def rebuild_database(config: Config, progress: Callable[[int], None]) -> Path | None:
    """Make a new database from what can be read of the old one, the records beside the archive, and the archive.

    Nothing is changed until the new file is complete; then the old one is renamed and replaced. After a kill the next
    call starts over, or only does the last step. What is missing is noted in the new database, see ``read_missing``.

    Returns:
        The path of the old file.
    """
    places = config.places
    make_private_dir(places.data_dir)
    with contextlib.ExitStack() as locks:  # every lock under which the database is written
        for name in (CAPTURE_LOCK, BACKFILL_LOCK, ENRICH_LOCK):
            locks.enter_context(wait_lock(places.data_dir / name, seconds=LOCK_SECONDS))
        if not _is_made(places):
            _make(config, progress)
        return _take_place(places)


def read_missing(store: Store) -> tuple[str, ...]:
    """Return what the last rebuild could not bring back, in words, until ``drop_missing``: also after a kill."""
    return tuple(read_json_note(store, NOT_RECOVERED) or ())


def drop_missing() -> None:
    """Note that the user was told what is missing; if that cannot be written, the next repair tells it again."""
    with contextlib.suppress(CrystalError), open_kept_machine() as machine, machine.store.transaction():
        drop_note(machine.store, NOT_RECOVERED)


def _is_made(places: Places) -> bool:
    """Return True if a finished new database waits and nothing was written into the old one since."""
    made = places.data_dir / MADE
    if not made.exists():
        return False
    old = (places.db.with_name(places.db.name + suffix) for suffix in ("", "-wal"))
    return all(made.stat().st_mtime_ns >= path.stat().st_mtime_ns for path in old if path.exists())


def _make(config: Config, progress: Callable[[int], None]) -> None:
    places = config.places
    scratch = places.data_dir / "recovered"
    if scratch.exists():
        shutil.rmtree(scratch)
    make_private_dir(scratch)
    record = read_record(places.ldm_home / RECORD_FILE)
    lines = sum(len(read_memories(path).damaged) for path in all_records(places.ldm_home / "agents"))
    told = "1 damaged line" if lines == 1 else f"{lines} damaged lines"
    damaged = [f"{told} of the record of memories; a memory that only stood there is lost"] if lines else []
    with Store.open(scratch / "crystal.db") as store:
        found = salvage(places.db, scratch, store)
    knows = (record is not None and record.complete) or found.is_whole("private_marks", "private_lines")
    with Store.open(scratch / "crystal.db", places.ldm_home / RECORD_FILE, complete=knows) as store:
        left_out, unreadable = _take_archives(Machine(config, store), progress, knows=knows)
        with store.transaction():
            finish_sessions(store)
            if "relay_past" in found.lost_notes or past.read_place(store) is not None:
                past.begin(store)  # its place is lost, or counted rows that have other numbers now
            notes = [words for key, words in _LOST_NOTES.items() if key in found.lost_notes]
            missing = [*_what_is_missing(config, found, record is not None, left_out), *damaged, *unreadable, *notes]
            untold = dict.fromkeys([*read_missing(store), *missing])
            if untold:
                write_note(store, NOT_RECOVERED, json.dumps([*untold]))
    for suffix in _FILES[:-1]:
        (scratch / f"crystal.db{suffix}").unlink(missing_ok=True)
    (scratch / "crystal.db").replace(places.data_dir / MADE)
    sync_folder(places.data_dir)
    shutil.rmtree(scratch, ignore_errors=True)


def own_agents(places: Places) -> tuple[str, ...]:
    """Return the agents that were set up on this machine; none if their list cannot be read."""
    with contextlib.suppress(CrystalError):
        return registered_agents(places)
    return ()


def _take_archives(machine: Machine, progress: Callable[[int], None], *, knows: bool) -> tuple[int, list[str]]:
    """Import every archive; return the bytes left out until the user asks, and what is missing otherwise, in words."""
    reconcile_tombstones(machine.store, machine.places.ldm_home, machine.now())
    capture, taken, find_project = make_capture(machine).with_projects(), RebuildResult(), project_finder(machine.store)
    rebuild = Rebuild(capture, machine.places.ldm_home, find_project, own_agents(machine.places))
    for path in archives_of(machine.places):
        rebuild.take_archive(path, taken)
        progress(path.stat().st_size)
    left_out = 0 if knows else leave_out_rest(capture)
    capture.meet(named_in(read_notes(machine.places.spool)))  # what is said from here on is not from before crystal
    missing = [f"{size:,} bytes of {path} cannot be read" for path, size in taken.unreadable.items()]
    more = "what it says and its archive lacks comes with the first crystal sync that can read it"
    missing += [f"{name} cannot be read ({why}): {more}" for name, why in (taken.unread.problems or {}).items()]
    if taken.not_archived and knows:
        words = "bytes of transcripts are not in the archive: older than crystal, or lost with it"
        missing.append(f"{taken.not_archived:,} {words}; to import them: crystal backfill")
    return left_out, missing


def _what_is_missing(config: Config, found: Salvage, has_record: bool, left_out: int) -> Iterator[str]:
    is_recorded = any(path.stat().st_size for path in all_records(config.places.ldm_home / "agents"))
    if not is_recorded and not found.is_whole("memories", "memory_history"):
        yield "memories that were only in the old database, if any"
    if not has_record and not found.is_whole("private_marks", "private_lines"):
        yield "the record of when capture was off, and which lines were private"
    if left_out:
        words = f"{left_out:,} bytes of transcripts were left out, because they may have been private"
        yield f"{words}; to import them: crystal backfill --privacy-lost"
    if config.role != "standalone" and not found.is_whole("relay_peers"):
        step = "crystal relay join" if config.role == "device" else "crystal relay pair"
        yield f"the connections to other machines; pair again: {step}"


def _take_place(places: Places) -> Path | None:
    """Rename the old files and put the new one in their place; return the path of the old one."""
    made = places.data_dir / MADE
    try:
        moment = made.stat().st_mtime_ns // 1_000_000
        stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(moment / 1000)) + f"-{moment % 1000:03d}"
        kept = places.db.with_name(f"{places.db.name}.damaged-{stamp}")
        for suffix in _FILES:
            old = places.db.with_name(places.db.name + suffix)
            if os.path.lexists(old):
                old.rename(kept.with_name(kept.name + suffix))
        made.replace(places.db)
        sync_folder(places.data_dir)
    except OSError as error:
        raise refused(error, places.data_dir) from error
    return kept if os.path.lexists(kept) else None
