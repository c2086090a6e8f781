"""Read again from the transcripts what was damaged in the outbox of a device that keeps no memory of its own."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from crystal.app.capture_engine import make_capture
from crystal.app.context import Machine
from crystal.capture import finder
from crystal.capture.backfill import PastFile, import_skipped
from crystal.capture.engine import Tally
from crystal.errors import CrystalError
from crystal.model.capture import UNSENT
from crystal.store.capture import ledger
from crystal.store.problems import clear_problem, find_problem, record_problem
from crystal.store.sync.past import unsent_bytes


def read_unsent(machine: Machine) -> list[str]:
    """Capture these bytes again, to be sent with the past. Return what to say if some are lost with their transcript.

    That stays a problem, and the next delivery tries again.
    """
    store = machine.store
    if find_problem(store, UNSENT) is None:
        return []
    capture, sizes = make_capture(machine, "past"), ledger.transcripts_with_skipped(store, UNSENT)
    states = [state for state in ledger.all_states(store, machine.config.device) if state.id in sizes]
    for state in states:
        found = finder.look_at(Path(state.path))
        if found is not None and not state.mark.counts_records:
            past = PastFile(found, state.mark.transcript, state.origin, sizes[state.id])
            with suppress(CrystalError, OSError):
                import_skipped(capture, past, Tally(), lambda _: None, UNSENT)
    left = unsent_bytes(store)
    if not left:
        clear_problem(store, UNSENT)
        return []
    words = (
        f"{sum(left.values()):,} bytes for home were damaged here, and {next(iter(left))} does not have them any more"
    )
    words += "; if a backup has it, put it back: crystal relay sync"
    record_problem(store, UNSENT, words, machine.now())
    return [words]
