"""Capture on this machine: under its lock, from the past, off and on."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from crystal.app.context import Machine
from crystal.app.session_context import refresh
from crystal.capture.lock import CAPTURE_LOCK

if TYPE_CHECKING:
    from crystal.capture.ahead import Hand
    from crystal.capture.backfill import Past
    from crystal.capture.engine import Capture, Tally
    from crystal.capture.spool import Note
    from crystal.store import Store

BACKFILL_LOCK = "backfill.lock"
LOCK_SECONDS = 120.0
MOST_HANDS = 2
WORTH_HANDS = 16 << 20
SETTLE_SECONDS = 2.0


def run_capture(machine: Machine, step: Callable[[Capture], Tally]) -> Tally:
    """Hold the capture lock, act on waiting notes, then take a step of capture (a sweep, off, on).

    A worker that finds the lock taken leaves its note to whoever holds it, so the spool is looked at once more after
    letting go.
    """
    from crystal.capture.drain import merge
    from crystal.capture.lock import try_lock, wait_lock
    from crystal.capture.spool import read_notes
    from crystal.capture.unanswered import without_lock

    data_dir, spool = machine.places.data_dir, machine.places.spool
    lock = data_dir / CAPTURE_LOCK
    with wait_lock(lock, seconds=LOCK_SECONDS) as taken, without_lock(taken, data_dir, afresh=True):
        capture = machine.capture()
        tally = drain_spool(machine, capture)
        failed = len(read_notes(spool))
        merge(tally, step(capture))
    while len(read_notes(spool)) > failed:
        with try_lock(lock) as held:
            if held is None:
                break
            with without_lock(held, data_dir):
                merge(tally, drain_spool(machine, capture))
            failed = len(read_notes(spool))
    machine.places.stalled.unlink(missing_ok=True)
    return tally


def drain_spool(machine: Machine, capture: Capture) -> Tally:
    """Act on the hook's notes. Under the capture lock."""
    from crystal.capture.drain import drain

    flush_ms = 1000 * machine.config.hook_flush_seconds
    return drain(capture, machine.places.spool, flush_ms=flush_ms, remember=partial(_remember_asked, machine))


def _remember_asked(machine: Machine, note: Note) -> None:
    """Store what a prompt asked to remember: for the project that it was said in, unless it holds everywhere."""
    from crystal.app.memories import remember

    if note.asked is None or note.asked.words is None:
        return
    here = "." if note.cwd and not note.asked.everywhere else None
    remember(
        machine, note.asked.words, project=here, cwd=note.cwd, source="prompt", session=note.session_id,
        ident=note.asked.memory_id,
    )  # fmt: skip


def plan_import(machine: Machine, paths: Sequence[Path], since: int | None) -> list[Past]:
    """What backfill would import, newest first. Meets the machine first, so that the ledger knows what is old."""
    from crystal.capture.backfill import plan_past

    capture = machine.capture()
    capture.meet()
    return plan_past(capture, paths, since)


def import_sessions(machine: Machine, plan: Sequence[Past], progress: Callable[[int], None]) -> Tally:
    """Import past transcripts. Holds no lock that capture needs, so that nobody waits for the past."""
    from crystal.capture.ahead import Ahead, stretches
    from crystal.capture.engine import Tally
    from crystal.capture.lock import wait_lock
    from crystal.store.search.space import note_import, size_of

    tally, before = Tally(), size_of(machine.store)
    capture = machine.capture("past")
    with (
        wait_lock(machine.places.data_dir / BACKFILL_LOCK, seconds=24 * 3600),
        machine.store.importing(),
        Ahead(_hands(machine, plan), stretches(capture, plan)) as ahead,
    ):
        capture = replace(capture, cleaner=replace(capture.cleaner, cleaned_before=ahead.result_for))
        for place, past in enumerate(plan):
            ahead.reach(place)
            tally.files += 1
            capture.attempt(past.found.path, tally, partial(_import, capture, past, progress))
    note_import(machine.store, before)
    return tally


def _hands(machine: Machine, plan: Sequence[Past]) -> list[Hand]:
    """Processes that clean ahead, where there are processors for them and enough to do."""
    from crystal.capture.ahead import start_hands

    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    count = min(MOST_HANDS, processors - 1) if sum(past.todo for past in plan) > WORTH_HANDS else 0
    return start_hands(count, machine.redaction_key(), secrets=machine.config.redact_enabled)


def _import(capture: Capture, past: Past, progress: Callable[[int], None], _: Path, tally: Tally) -> None:
    from crystal.capture.backfill import import_past

    import_past(capture, past, tally, progress)


def turn_off(machine: Machine, session: str | None) -> None:
    """Stop capturing (one session, or all). What was said until now is captured first.

    Args:
        machine: This machine.
        session: A session's whole id, also of one that is still to come; or the beginning of a known one's.

    Raises:
        UsageProblem: It is neither: closing it would protect nothing.
    """
    _settle(machine)
    run_capture(machine, lambda capture: _swept(capture, capture.turn_off, session))
    _tell(machine)


def turn_on(machine: Machine, session: str | None) -> None:
    """Capture again. What was said until now is marked private first. ``session`` is as for ``turn_off``."""
    _settle(machine)
    run_capture(machine, lambda capture: _swept(capture, capture.turn_on, session))
    _tell(machine)


def _tell(machine: Machine) -> None:
    """Let the next session's start say how capture is switched now."""
    from crystal.app.notices import refresh_notice

    refresh_notice(machine)
    refresh(machine)


def _swept(capture: Capture, turn: Callable[[str | None], bool], session: str | None) -> Tally:
    tally = capture.sweep()
    turn(None if session is None else _whole_id(capture.store, session))
    return tally


def _whole_id(store: Store, session: str) -> str:
    from crystal.capture.files import is_session_id
    from crystal.sessions.reading import find_session
    from crystal.store.capture import privacy

    if is_session_id(session) or any(mark.session_id == session for mark in privacy.marks(store)):
        return session
    return find_session(store, session)


def _settle(machine: Machine) -> None:
    """Wait until no transcript has grown for a moment: the client writes an answer a little after it is shown."""
    from crystal.capture.files import all_transcripts

    deadline = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < deadline:
        newest = max((found.modified for found in all_transcripts(machine.places.transcript_roots)), default=0)
        if not 0 <= machine.now() - newest < 700:
            return
        time.sleep(0.05)
