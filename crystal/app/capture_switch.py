"""Switch capture off and on, for one session or for all."""

from __future__ import annotations

import time
from collections.abc import Callable

from crystal.app.capture import run_capture
from crystal.app.context import Machine, open_reader
from crystal.app.notices import refresh_notice
from crystal.app.session_context import refresh
from crystal.capture.engine import Capture, Tally
from crystal.capture.finder import all_transcripts
from crystal.capture.off_files import leave_off_file
from crystal.config.harnesses import HARNESSES
from crystal.errors import NotFoundError, UnavailableError
from crystal.sessions.reading import find_session
from crystal.store import Store
from crystal.store.capture import privacy
from crystal.transcript.reader import reader_of

SETTLE_SECONDS = 2.0


def turn_off(machine: Machine, session: str | None) -> None:
    """Stop capturing (one session, or all). What was said until now is captured first.

    Args:
        machine: This machine.
        session: A session's whole id, also of one that is still to come; or the beginning of a known one's.

    Raises:
        UsageError: It is neither: closing it would protect nothing.
    """
    _switch(machine, session, Capture.turn_off)


def hold_off(session: str | None, problem: UnavailableError) -> None:
    """Stop capturing although the store cannot be written, as on a full disk; a later run writes it down.

    Raises:
        UsageError: As for ``turn_off``.
        UnavailableError: That fails, too: the problem, with what to do about it.
    """
    with open_reader() as machine:
        whole = None if session is None else _whole_id(machine.store, session)
        try:
            leave_off_file(machine.places.data_dir, whole, machine.now())
        except OSError as error:
            hint = "free some disk space, then run it again: until then, capture is on as soon as the disk has room"
            raise UnavailableError(f"capture is not off: {problem.message}", hint=hint) from error


def turn_on(machine: Machine, session: str | None) -> None:
    """Capture again. What was said until now is marked private first. ``session`` is as for ``turn_off``."""
    _switch(machine, session, Capture.turn_on)


def _switch(machine: Machine, session: str | None, turn: Callable[[Capture, str | None], bool]) -> None:
    """Sweep, switch, then update the notice that new sessions get about capture."""

    def sweep_and_turn(capture: Capture) -> Tally:
        tally = capture.sweep()
        turn(capture, None if session is None else _whole_id(capture.store, session))
        return tally

    _settle(machine)
    run_capture(machine, sweep_and_turn)
    refresh_notice(machine)
    refresh(machine)


def _whole_id(store: Store, session: str) -> str:
    if any(mark.session_id == session for mark in privacy.marks(store)):
        return session
    try:
        return find_session(store, session)
    except NotFoundError:
        if any(reader_of(name).is_session_id(session) for name in HARNESSES):
            return session
        raise


def _settle(machine: Machine) -> None:
    """Wait until no transcript has grown for a moment: the client writes an answer a little after it is shown."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < deadline:
        newest = max((found.modified for found in all_transcripts(machine.places.transcript_roots)), default=0)
        if not 0 <= machine.now() - newest < 700:
            return
        time.sleep(0.05)
