"""Read again what an older crystal read of an agent, once this one's reader finds more in the same files.

The archive gives the turns that were not found then, as ``verify --repair`` does; files that are rewritten are compared
anew by the next sweep. What was read again is noted behind it, so a process may die anywhere here.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from crystal.app.context import Machine
from crystal.app.project_finder import project_finder
from crystal.app.transcript_formats import count_as_known
from crystal.config.harnesses import reader_versions
from crystal.ingest import archive
from crystal.integrity.rebuild import write_turns
from crystal.integrity.revisions import revised_in
from crystal.store.capture import ledger, snapshots
from crystal.store.health import checks
from crystal.store.notes import READERS, drop_note, read_note, write_note

CURSOR = f"{READERS}_cursor"
"""Key of ``NAME:VERSION:TRANSCRIPT:ROW``: the transcript by its first row, and its last row that was read again."""
STEP_SECONDS = 0.2
"""How long the database is kept from other writers at most, apart from one row's time."""


def read_again(machine: Machine, should_stop: Callable[[], bool]) -> None:
    """Read again what an older reader of each agent read, until it is done or ``should_stop``.

    Without a note of the versions nothing was: the first crystal that has them has the first of each.
    """
    store, readers = machine.store, reader_versions()
    known = {**readers, **json.loads(read_note(store, READERS) or "{}")}
    for name in (name for name, now in readers.items() if known[name] < now):
        if not _read_agent(machine, name, f"{name}:{readers[name]}:", should_stop):
            return
        known[name] = readers[name]
        with store.transaction():
            snapshots.compare_anew(store, name)
            drop_note(store, CURSOR)
            write_note(store, READERS, json.dumps(known))
        count_as_known(store)
    write_note(store, READERS, json.dumps(readers))


def _read_agent(machine: Machine, name: str, place: str, should_stop: Callable[[], bool]) -> bool:
    """Go on with one agent's transcripts behind the cursor, if that begins with ``place``; return whether all are."""
    store, noted = machine.store, read_note(machine.store, CURSOR) or ""
    first, row = map(int, noted.removeprefix(place).split(":")) if noted.startswith(place) else (0, 0)
    begun = ledger.first_rows(store)
    states = {begun[one.id]: one for one in ledger.all_states(store) if one.origin.harness == name and one.id in begun}
    for at in sorted(at for at in states if at >= first):
        after = row if at == first else 0
        while after >= 0:
            if should_stop():
                return False
            after = _read_some(machine, states[at], after)
            with store.transaction():
                write_note(store, CURSOR, f"{place}{at}:{after}" if after >= 0 else f"{place}{at + 1}:0")
    return True


def _read_some(machine: Machine, listed: ledger.TranscriptState, after: int) -> int:
    """Read rows of a transcript after one of them, in one transaction; return the last, or -1 if none is left."""
    store, until, find = machine.store, time.monotonic() + STEP_SECONDS, project_finder(machine.store)
    with store.transaction():
        state = ledger.state_of(store, listed.origin.device, listed.mark.transcript) or listed
        path = machine.places.ldm_home / str(state.archive)
        rows = sorted(
            row
            for row in checks.ledger_rows(store, state.id)
            if row.id > after and row.state == "captured" and row.length
        )
        replaced = list(_replaced_later(path, rows))
        for row in rows:
            text, later = archive.text_of(path, archive.Frame(row.offset, row.length)), replaced.pop()
            if text is not None:  # else ``verify`` names it
                write_turns(store, state, row.id, row.start, text, find, later)
            if time.monotonic() > until and replaced:
                return row.id
    return -1


def _replaced_later(path: Path, rows: Sequence[checks.LedgerRow]) -> Iterator[set[str]]:
    """Yield for each row, from the last to the first, the ids of records that rows behind it replace."""
    found = set[str]()
    for row in reversed(rows):
        yield found
        found = found | revised_in(archive.text_of(path, archive.Frame(row.offset, row.length)) or b"")
