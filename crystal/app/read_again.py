"""Read the archive again after an update whose readers find more in it than those of the older crystal.

Turns that are missing or differ are written, as ``verify --repair`` does, and those are deleted that the lines do not
say; the next sweep compares files that agents rewrite. The cursor is stored after each step: a process that dies
repeats one step, which changes nothing twice.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping

from crystal.app.context import Machine
from crystal.app.project_finder import project_finder
from crystal.app.transcript_formats import count_as_known
from crystal.config.harnesses import reader_versions
from crystal.ingest import archive
from crystal.integrity.rebuild import write_turns
from crystal.integrity.revisions import revised_in
from crystal.integrity.verify import lines_of, misread_turns
from crystal.store import Store
from crystal.store.capture import ledger, snapshots
from crystal.store.health import checks
from crystal.store.json_columns import read_json_note
from crystal.store.memories.learned import mend_evidence
from crystal.store.notes import READERS, drop_note, read_note, write_note

CURSOR = f"{READERS}_cursor"
"""Key of ``NAME:VERSION:TRANSCRIPT:ROW``: the transcript by its first row, and its last row that was read again."""
STEP_SECONDS = 0.2
"""Time limit for one transaction, apart from the time that its last row takes."""


def read_again(machine: Machine, should_stop: Callable[[], bool]) -> None:
    """Read what older readers read again, until all is read or ``should_stop``.

    A store without a note of the readers' versions was read by the first ones, as far as anybody knows.
    """
    store, readers = machine.store, reader_versions()
    known = {**dict.fromkeys(readers, 1), **(read_json_note(store, READERS) or {})}
    for name in (name for name, now in readers.items() if known[name] < now):
        if not _read_agent(machine, name, f"{name}:{readers[name]}:", should_stop):
            return
        known[name] = readers[name]
        with store.transaction():
            snapshots.compare_anew(store, name)
            mend_evidence(store)
            drop_note(store, CURSOR)
            write_note(store, READERS, json.dumps(known))
        count_as_known(store)
    write_note(store, READERS, json.dumps(readers))


def _read_agent(machine: Machine, name: str, place: str, should_stop: Callable[[], bool]) -> bool:
    """Continue one agent's transcripts after the cursor, if that begins with ``place``; return whether all are done."""
    store, noted = machine.store, read_note(machine.store, CURSOR) or ""
    first, row = map(int, noted.removeprefix(place).split(":")) if noted.startswith(place) else (0, 0)
    begun = ledger.first_rows(store)
    states = {begun[one.id]: one for one in ledger.all_states(store) if one.origin.harness == name and one.id in begun}
    for at in sorted(at for at in states if at >= first):
        after = row if at == first else 0
        replaced = _replacing_rows(machine, states[at], after)
        while after >= 0:
            if should_stop():
                return False
            after = _read_some(machine, states[at], after, replaced)
            with store.transaction():
                write_note(store, CURSOR, f"{place}{at}:{after}" if after >= 0 else f"{place}{at + 1}:0")
    return True


def _read_some(machine: Machine, listed: ledger.TranscriptState, after: int, replaced: Mapping[str, int]) -> int:
    """Read rows of a transcript after one of them, in one transaction; return the last, or -1 if none is left."""
    store, until, find = machine.store, time.monotonic() + STEP_SECONDS, project_finder(machine.store)
    with store.transaction():
        state = ledger.state_of(store, listed.origin.device, listed.mark.transcript) or listed
        rows = _rows_after(store, state, after)
        for row in rows:
            text = _text_of(machine, state, row)
            if text is not None:  # else ``verify`` names it
                later = {one for one, by in replaced.items() if by > row.id}
                checks.drop_turns(store, misread_turns(store, row.id, lines_of(text), state))
                write_turns(store, state, row.id, row.start, text, find, machine.places.ldm_home, later)
            if time.monotonic() > until and row != rows[-1]:
                return row.id
    return -1


def _replacing_rows(machine: Machine, state: ledger.TranscriptState, after: int) -> dict[str, int]:
    """Return, for each record that a later row replaces or deletes, the last such row."""
    texts = ((row.id, _text_of(machine, state, row)) for row in _rows_after(machine.store, state, after))
    return {one: row for row, text in texts for one in revised_in(text or b"")}


def _rows_after(store: Store, state: ledger.TranscriptState, after: int) -> list[checks.LedgerRow]:
    rows = checks.ledger_rows(store, state.id)
    return sorted(row for row in rows if row.id > after and row.state == "captured" and row.length)


def _text_of(machine: Machine, state: ledger.TranscriptState, row: checks.LedgerRow) -> bytes | None:
    path = machine.places.ldm_home / str(state.archive)
    return archive.text_of(path, archive.Frame(row.offset, row.length))
