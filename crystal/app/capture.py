"""Capture on this machine, under its lock; processes the hook's waiting notes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from crystal.app.capture_engine import make_capture
from crystal.app.context import Machine
from crystal.capture.drain import drain
from crystal.capture.engine import Capture, Tally
from crystal.capture.lock import CAPTURE_LOCK, try_lock, wait_lock, without_lock
from crystal.capture.off_files import settle_off_files
from crystal.capture.spool import Note, read_notes

LOCK_SECONDS = 120.0


def run_capture(
    machine: Machine, step: Callable[[Capture], Tally], on_wait: Callable[[], None] = lambda: None
) -> Tally:
    """Hold the capture lock, process waiting notes, then run one step of capture (a sweep, off, on).

    A worker that finds the lock taken leaves its note for the holder, so the spool is read once more after the lock
    is released.
    """
    data_dir = machine.places.data_dir
    waited = wait_lock(data_dir / CAPTURE_LOCK, seconds=LOCK_SECONDS, on_wait=on_wait)
    with waited as taken, without_lock(taken, data_dir, afresh=True):
        capture = make_capture(machine)
        tally = drain_spool(machine, capture)
        failed = len(read_notes(machine.places.spool))
        tally.join(step(capture))
    tally.join(drain_late(machine, capture, failed))
    machine.places.stalled.unlink(missing_ok=True)
    return tally


def drain_late(machine: Machine, capture: Capture, failed: int) -> Tally:
    """Process the notes of hooks that found the lock taken, which was just released; ``failed`` were left before."""
    tally, data_dir = Tally(), machine.places.data_dir
    while len(read_notes(machine.places.spool)) > failed:
        with try_lock(data_dir / CAPTURE_LOCK) as held:
            if held is None:
                break
            with without_lock(held, data_dir):
                tally.join(drain_spool(machine, capture))
            failed = len(read_notes(machine.places.spool))
    return tally


def drain_spool(machine: Machine, capture: Capture) -> Tally:
    """Process the hook's notes. The caller holds the capture lock."""
    if settle_off_files(capture, machine.places.data_dir):
        from crystal.app.notices import refresh_notice  # noqa: PLC0415 - the disk was full

        refresh_notice(machine)
    flush_ms = 1000 * machine.config.hook_flush_seconds
    return drain(capture, machine.places.spool, flush_ms=flush_ms, remember=partial(_remember_asked, machine))


def _remember_asked(machine: Machine, note: Note) -> None:
    """Store what a prompt asked to remember: for the prompt's project, unless it applies everywhere."""
    if note.asked is None or note.asked.words is None:
        return
    from crystal.app.memories import remember  # noqa: PLC0415 - 40 ms; few prompts ask for it

    here = "." if note.cwd and not note.asked.everywhere else None
    remember(
        machine, note.asked.words, project=here, cwd=note.cwd, source="prompt", session=note.session_id,
        ident=note.asked.memory_id,
    )  # fmt: skip
