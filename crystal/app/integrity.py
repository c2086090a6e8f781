"""Proof, repair and restore on this machine."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from crystal.app.background import enrich
from crystal.app.capture import run_capture
from crystal.app.capture_engine import make_capture
from crystal.app.context import Machine, open_kept_machine, open_machine, open_reader, this_config
from crystal.app.forget_rest import finish_forgetting
from crystal.app.mirror import open_mirror
from crystal.app.project_finder import project_finder
from crystal.app.rebuild import own_agents, read_missing, rebuild_database, why_rebuild
from crystal.app.sources import mend_sources, source_faults
from crystal.app.transcript_formats import count_as_known
from crystal.capture.engine import Capture, Tally
from crystal.capture.lock import BUSY_SECONDS, CAPTURE_LOCK, await_lock
from crystal.capture.unread import unread
from crystal.errors import (
    CrystalError,
    NotConfiguredError,
    NotFoundError,
    StoreBusyError,
    StoreDamagedError,
    UnavailableError,
    UsageError,
)
from crystal.integrity.proof import Fault, Proof
from crystal.integrity.rebuild import Rebuild, RebuildResult
from crystal.integrity.repair import repair
from crystal.integrity.restore import Restored, restore
from crystal.integrity.verify import Verification, at_rest, tail_faults
from crystal.memories.reconcile import RecordFault, find_faults, reconcile, restore_memories
from crystal.search.index import folder_of
from crystal.search.index.open_index import Absent, open_index
from crystal.search.index.refresh import check, drop
from crystal.sessions.reading import find_session_of
from crystal.store.capture.ledger import all_states
from crystal.store.health.salvage import what_is_there
from crystal.store.health.stats import bytes_by_state
from crystal.store.memories import learned
from crystal.store.sync.relay_peers import home_peer

MAX_REPAIRS = 3
IN_DATABASE = ("database", "ledger", "turns", "keywords", "chunks", "vectors")
"""Faults of the database itself: what is left of them after mending goes when it is made again."""


def bytes_to_prove(machine: Machine) -> int:
    """Return how many bytes ``prove`` will read, about."""
    return 2 * bytes_by_state(machine.store).get("captured", 0)


@contextlib.contextmanager
def open_to_prove() -> Iterator[Machine]:
    """Open this machine's memory for writing, so that other writers can be locked out; if that fails, for reading."""
    with contextlib.ExitStack() as stack:
        try:
            machine = stack.enter_context(open_kept_machine())
        except StoreBusyError:
            raise
        except UnavailableError:  # the disk is full, or cannot be written
            machine = stack.enter_context(open_reader())
        yield machine


def prove(machine: Machine, progress: Callable[[int], None]) -> Proof:
    """Verify this machine's memory, see crystal/integrity/verify.py."""
    finish_forgetting(machine)
    capture = make_capture(machine).with_projects()
    store, device, folders = machine.store, machine.config.device, machine.transcript_folders
    work = Verification(store, machine.places.ldm_home, device, folders, capture.cleaner, progress)
    proof = work.run(unread(capture))
    for one in memory_faults(machine):
        proof.faults.append(Fault("behind" if one.is_behind else "memories", str(one.path), one.message))
    proof.faults += source_faults(machine)
    folder = folder_of(machine.store.path)
    with machine.store.reading():
        is_used = not isinstance(open_index(machine.store, folder), Absent)
    if is_used:  # a damaged search index is rebuilt automatically
        proof.faults += [Fault("index", str(folder), problem) for problem in check(machine.store, folder)]
    return proof


def memory_faults(machine: Machine) -> list[RecordFault]:
    """Return where the records of memories and the database differ, other than by what is forgotten right now."""

    def compare() -> list[RecordFault]:
        return list(find_faults(machine.store, machine.places.ldm_home / "agents", machine.memory_record()))

    found = at_rest(machine.store, compare)
    if found:  # forgetting blocks a memory first, then rewrites its record, under this lock
        lock = await_lock(machine.places.data_dir / CAPTURE_LOCK, seconds=BUSY_SECONDS)
        with contextlib.suppress(UnavailableError, UsageError), lock:
            found = at_rest(machine.store, compare)
    return found


def repair_all(machine: Machine, proof: Proof) -> list[str]:
    """Repair what a proof found, capture what is missing, rebuild derived data. Return what was done, in words."""
    finish_forgetting(machine)
    done: list[str] = []

    def mend(capture: Capture) -> Tally:
        unknown = [fault for fault in proof.faults if fault.kind == "archive-unknown"]
        # Before rows are repaired: one may name another file, and be that of such a file.
        done.extend(take_files(capture, unknown, machine.places.ldm_home, own_agents(machine.places)))
        done.extend(
            repair(
                machine.store,
                proof.faults,
                ldm_home=machine.places.ldm_home,
                cleaner=capture.cleaner,
                find_project=project_finder(machine.store),
            )
        )
        done.extend(leave_to_transcripts(capture, proof.faults, machine.places.ldm_home))
        own = machine.memory_record()
        memories = reconcile(machine.store, own)  # record and database complete each other
        returned = restore_memories(machine.store, machine.places.ldm_home / "agents", own)
        done.extend(replace(memories, returned=memories.returned + returned).in_words())
        tally = capture.sweep()  # before the ends of files: what a transcript still has is captured where it is
        done.extend(take_tails(capture, unknown, machine.places.ldm_home))
        return tally

    tally = run_capture(machine, mend)
    done += mend_sources(machine)
    taught, read = learned.falsely_taught(machine.store), learned.sessions_read_too_far(machine.store)
    if taught or read:  # last: what came back is kept
        with machine.store.transaction():
            learned.mend_evidence(machine.store)
        done.append(f"what taught memories: {len(taught)} memories and {len(read)} sessions mended")
    if tally.bytes_captured:
        done.append(f"{tally.bytes_captured:,} bytes captured")
    if any(fault.kind == "index" for fault in proof.faults):
        drop(machine.store, folder_of(machine.store.path))
        done.append("search index made again")
    enrich(machine, budget_seconds=600)
    return done


def take_files(capture: Capture, faults: Sequence[Fault], ldm_home: Path, agents: Sequence[str] = ()) -> Iterator[str]:
    """Import archive files that the ledger does not know; yield what was done, in words."""
    rebuild = Rebuild(capture, ldm_home, project_finder(capture.store), agents)
    for path in (Path(fault.what) for fault in faults if fault.transcript is None):
        taken = RebuildResult()
        rebuild.take_archive(path, taken)
        yield f"{path.name}: {taken.turns} turns read from the archive"


def leave_to_transcripts(capture: Capture, faults: Sequence[Fault], ldm_home: Path) -> Iterator[str]:
    """Read transcripts again whose archives cannot be repaired; yield what was done, in words."""
    rebuild = Rebuild(capture, ldm_home, project_finder(capture.store))
    wanted = {fault.transcript for fault in faults if fault.kind == "archive"}
    for state in (one for one in all_states(capture.store) if one.id in wanted):
        left = rebuild.leave_to_transcript(state)
        if left is not None:
            rest = f"; to import the rest ({left:,} bytes): crystal backfill" if left else ""
            yield f"{state.archive}: what is damaged comes from {state.path} again{rest}"


def take_tails(capture: Capture, faults: Sequence[Fault], ldm_home: Path) -> Iterator[str]:
    """Import archive bytes after the ledger's last known position that no sweep brought; yield what was done."""
    rebuild = Rebuild(capture, ldm_home, project_finder(capture.store))
    wanted = {fault.transcript for fault in faults}
    for state in all_states(capture.store):
        if state.id in wanted and any(tail_faults(capture.store, state, ldm_home)):
            taken = RebuildResult()
            rebuild.take_tail(state, taken)
            yield f"{state.archive}: {taken.turns} turns read from the archive"


@dataclass(frozen=True, slots=True)
class RepairResult:
    """A proof after a repair. ``done`` and ``missing`` say what was repaired and what was not recovered, in words.

    ``back`` is what a rebuilt database has, ``kept`` the path of the old one; both are empty without a rebuild.
    """

    proof: Proof
    done: tuple[str, ...] = ()
    back: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    kept: Path | None = None


def mend_memory(progress: Callable[[int], None]) -> RepairResult:
    """Prove this machine's memory and repair it: in place, or by rebuilding the database.

    ``progress`` is called with the archive bytes read, if the database is rebuilt.

    Raises:
        NotConfiguredError: There is no memory yet, and nothing to make one from.
        ForeignStoreError: The database is of a newer crystal, or another program's and nothing of ours is here.
    """
    config = this_config()
    if why_rebuild(config.places) is None:
        with contextlib.suppress(StoreDamagedError):
            mended = _mend_in_place()
            if not any(fault.kind in IN_DATABASE for fault in mended.proof.faults):
                with open_kept_machine() as machine:
                    return replace(mended, missing=read_missing(machine.store))
    kept = rebuild_database(config, progress)
    mended = _mend_in_place()
    with open_machine() as machine:
        back = tuple(what_is_there(machine.store))
        return replace(mended, back=back, missing=read_missing(machine.store), kept=kept)


def _mend_in_place() -> RepairResult:
    """Prove and repair until nothing changes, three times at most: a file that came back may differ from its rows.

    Raises:
        StoreDamagedError: The database cannot be read.
    """
    with open_kept_machine() as machine:
        proof, done, before = prove(machine, lambda _: None), list[str](), list[Fault]()
        for _ in range(MAX_REPAIRS):
            if not proof.faults or proof.faults == before:
                break
            before = proof.faults
            done += repair_all(machine, proof)
            proof = prove(machine, lambda _: None)
        count_as_known(machine.store)
        return RepairResult(proof, tuple(done))


def _refuse_mirrored(machine: Machine, session: str, cause: Exception) -> None:
    """Raise an error that says where the archive of a session is, if only the mirror has the session."""
    with open_mirror(machine.places, machine.config.role) as mirrored:
        if mirrored is None or mirrored.store is None:
            return
        try:
            found = find_session_of(mirrored.store, session)
        except CrystalError:
            return
    home = home_peer(machine.store)
    name = "the home machine" if home is None else home.own_name
    raise NotConfiguredError(
        f"the archive of session {found[:8]} is on {name}", hint=f"run there: crystal restore {found}"
    ) from cause


def restore_session(machine: Machine, session: str, project: Path | None, *, dry_run: bool) -> list[Restored]:
    """Write a session back for ``claude --resume``, see crystal/integrity/restore.py.

    Raises:
        UsageError: There is no such session.
        NotConfiguredError: Its archive is at home; the mirror has only its text.
    """
    try:
        found = find_session_of(machine.store, session)
    except NotFoundError as error:
        _refuse_mirrored(machine, session, error)
        raise
    return restore(
        machine.store,
        found,
        ldm_home=machine.places.ldm_home,
        roots=machine.places.transcript_roots,
        project=project,
        cleaner=make_capture(machine).cleaner,
        now=machine.now(),
        dry_run=dry_run,
    )
