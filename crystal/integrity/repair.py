"""Repair what ``verify`` found: from the transcripts if they still exist, else from the archive.

Nothing is deleted that is not written again in the same transaction. What cannot be repaired stays reported.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from pathlib import Path

from crystal.capture import files, tail
from crystal.ingest import archive
from crystal.ingest.forgotten_filter import BY_FORGETTING, forgotten_among
from crystal.integrity.rebuild import FindProject, write_turns
from crystal.integrity.verify import Fault
from crystal.store import Store
from crystal.store.capture import ledger
from crystal.store.forget import forgotten_rows
from crystal.store.forget.forgetting import read_blocks
from crystal.store.health import checks


def repair(
    store: Store,
    faults: Sequence[Fault],
    *,
    ldm_home: Path,
    cleaner: tail.Cleaner,
    find_project: FindProject,
) -> list[str]:
    """Repair what needs no capture; the sweep handles ``behind``. Return what was done, in words.

    Order matters: archive frames first, because turns are written again from them.
    """
    states = {state.id: state for state in ledger.all_states(store)}
    done = _repair_archive(store, faults, states, ldm_home, cleaner)
    done += _repair_turns(store, faults, states, ldm_home, find_project)
    done += _restart_transcripts(store, faults, states)
    done += _repair_index(store)
    return done


def _repair_archive(
    store: Store,
    faults: Sequence[Fault],
    states: dict[int, ledger.TranscriptState],
    ldm_home: Path,
    cleaner: tail.Cleaner,
) -> list[str]:
    """Archive damaged frames again."""
    done: list[str] = []
    for fault in faults:
        if fault.kind == "archive" and fault.transcript in states:
            row = _row(store, fault)
            if row and _mend_frame(store, states[fault.transcript], row, ldm_home, cleaner):
                done.append(f"{fault.what}: archived bytes {row.start} to {row.stop} again")
    return done


def _repair_turns(
    store: Store,
    faults: Sequence[Fault],
    states: dict[int, ledger.TranscriptState],
    ldm_home: Path,
    find_project: FindProject,
) -> list[str]:
    """Remove rows that point at missing rows, and write turns again from the archive."""
    done: list[str] = []
    rows_to_write = {fault.row for fault in faults if fault.kind == "turns"}
    if checks.mend_orphans(store):
        rows_to_write = {row.id for state in states.values() for row in checks.ledger_rows(store, state.id)}
        done.append("rows that pointed at rows that are gone were let go")
    broken = _broken_turns(store) if any(fault.kind == "chunks" for fault in faults) else {}
    written = 0
    for state in states.values():
        for row in checks.ledger_rows(store, state.id):
            if row.state == "captured" and row.length and (row.id in rows_to_write or row.id in broken):
                written += _mend_turns(store, state, row, broken.get(row.id, []), ldm_home, find_project)
    if written:
        done.append(f"{written} turns written again from the archive")
    return done


def _restart_transcripts(store: Store, faults: Sequence[Fault], states: dict[int, ledger.TranscriptState]) -> list[str]:
    """Reset the watermark of each existing transcript that was edited or has a wrong ledger."""
    done: list[str] = []
    for fault in faults:
        if fault.kind in ("edited", "ledger") and fault.transcript in states and Path(fault.what).exists():
            with store.transaction():
                checks.restart(store, fault.transcript)
            done.append(f"{fault.what}: will be read again from its first byte")
    return done


def _repair_index(store: Store) -> list[str]:
    """Repair what search derives from the text: the entries of memories, the keyword index and the vectors."""
    done: list[str] = []
    if remade := checks.mend_memories(store):
        done.append(f"{remade} memories: what search finds of them was made again")
    if not checks.keyword_index_agrees(store):
        checks.rebuild_keyword_index(store)
        done.append("the keyword index was made again")
    for vector_fault in checks.vector_faults(store):
        checks.mend_vectors(store, vector_fault)
        done.append(f"vectors of generation {vector_fault.generation}: {len(vector_fault.missing)} will be made again")
    return done


def _row(store: Store, fault: Fault) -> checks.LedgerRow | None:
    return next((row for row in checks.ledger_rows(store, fault.transcript or 0) if row.id == fault.row), None)


def _mend_frame(
    store: Store, state: ledger.TranscriptState, row: checks.LedgerRow, ldm_home: Path, cleaner: tail.Cleaner
) -> bool:
    """Archive a row's lines again from the transcript, if it still has exactly the captured bytes."""
    path = Path(state.path)
    if state.archive is None or files.look_at(path) is None or row.generation != state.mark.generation:
        return False
    with path.open("rb") as file:
        file.seek(row.start)
        raw = file.read(row.stop - row.start)
    if cleaner.hash(raw) != row.raw_hash:
        return False
    clean = b"".join(cleaner.clean_line(line)[0] + b"\n" for line in raw.split(b"\n")[:-1])
    if hashlib.sha256(clean).digest() != row.clean_hash:
        return False
    with store.transaction():
        kept = _without_forgotten(store, state, row, raw, clean)
        if not kept.strip():
            forgotten_rows.close_row(store, row.id, BY_FORGETTING)
            return True
        target = ldm_home / state.archive
        size = target.stat().st_size if target.exists() else 0
        frame = archive.append(target, size, [kept])[0]
        if kept == clean:
            checks.place_frame(store, row.id, frame.offset, frame.length)
        else:
            sha = hashlib.sha256(kept).digest()
            forgotten_rows.place_lines(store, row.id, frame.offset, frame.length, sha, len(kept))
    return True


def _without_forgotten(
    store: Store, state: ledger.TranscriptState, row: checks.LedgerRow, raw: bytes, clean: bytes
) -> bytes:
    """Return a row's lines with forgotten ones blanked: the transcript still has what the archive had lost."""
    blocks = read_blocks(store)
    if blocks is None:
        return clean
    lines = clean.split(b"\n")[:-1]
    starts = itertools.accumulate((len(line) + 1 for line in raw.split(b"\n")[:-1]), initial=row.start)
    placed = list(zip(starts, lines))  # noqa: B905 - the last start is the end
    gone = forgotten_among(blocks, placed, state.origin, state.mark.transcript)
    return b"".join((b" " * len(line) if at in gone else line) + b"\n" for at, line in placed)


def _broken_turns(store: Store) -> dict[int, list[int]]:
    """Return the turns with damaged or missing text, by the ledger row that captured them."""
    broken = {*checks.turns_of_chunks(store, checks.chunks_with_wrong_hash(store)), *checks.turns_without_chunks(store)}
    return checks.rows_of_turns(store, sorted(broken))


def _mend_turns(
    store: Store,
    state: ledger.TranscriptState,
    row: checks.LedgerRow,
    broken: list[int],
    ldm_home: Path,
    find_project: FindProject,
) -> int:
    """Write the turns of an archived row again that are missing, different or known to be broken. Return their number.

    A row that cannot be read from the archive is left unchanged.
    """
    clean = archive.text_of(ldm_home / str(state.archive), archive.Frame(row.offset, row.length))
    if clean is None:
        return 0
    with store.transaction():
        checks.drop_turns(store, broken)
        return write_turns(store, state, row, clean, find_project)
